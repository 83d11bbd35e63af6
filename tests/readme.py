"""The README's tables, made from what they are about. `python -m tests.readme` writes them."""

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from tests import ruletable
from webhook import rulefiles
from webhook.core.violations import CODES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RULES_README = ROOT / "rules" / "README.md"


def codes() -> str:
    """Every code a message can begin with."""
    rows = (f"| {code} | {meaning} |" for code, meaning in CODES.items())
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows])


def back_ends() -> str:
    """Every shipped back end."""
    rulebook = rulefiles.load(ROOT / "rules", tried=True)
    links = [f"[{name}](rules/{backend.at.file})" for name, backend in sorted(rulebook.backends.items())]
    return textwrap.fill(f"{len(links)} back ends: {', '.join(links)}.", 118, break_on_hyphens=False)


def every_back_end() -> str:
    """What every shipped back end makes of a request, for the README of the rules."""
    return ruletable.table(rulefiles.load(RULES_README.parent, tried=True))


TABLES: Mapping[str, tuple[Path, Callable[[], str]]] = {
    "codes": (README, codes),
    "back ends": (README, back_ends),
    "every back end": (RULES_README, every_back_end),
}
"""Every table by its marker: the file it stands in, and what makes it."""


def marked(name: str, text: str) -> str:
    """What stands between a marker and the next blank line after a block or table."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n\n", text, re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no <!-- {name} -->")
    return match[1]


def block(name: str, text: str) -> str:
    """The content of the code block after a marker."""
    match = re.search(rf"<!-- {name} -->\n```[a-z]+\n(.*?)```\n", text, re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no code block <!-- {name} -->")
    return match[1]


def main() -> None:
    """Write the tables."""
    for name, (file, render) in TABLES.items():
        text = file.read_text()
        file.write_text(text.replace(marked(name, text), render()))


if __name__ == "__main__":
    main()
