"""`python -m tests.mistakes`: write what is answered to each mistake, to be read as a difference."""

import yaml

from tests.mistakes import book


class _Blocks(yaml.SafeDumper):
    pass


_Blocks.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)
answers = {mistake.name: book.answer(mistake) for mistake in book.find()}
book.ANSWERS.write_text(yaml.dump(answers, Dumper=_Blocks, sort_keys=False, width=100_000, allow_unicode=True))
