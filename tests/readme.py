"""The README's tables, made from what they are about. `python -m tests.readme` writes them."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from webhook import rulefiles
from webhook.core.violations import CODES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def codes() -> str:
    """Every code a message can begin with."""
    rows = (f"| {code} | {meaning} |" for code, meaning in CODES.items())
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows])


def back_ends() -> str:
    """Every shipped back end, in the cluster's order."""
    rulebook = rulefiles.load(ROOT / "rules")
    rows = (f"| [{b.name}](rules/{b.name}.yaml) | {b.description} |" for b in rulebook.enabled)
    return "\n".join(["| back end | what it is |", "| --- | --- |", *rows])


TABLES: Mapping[str, Callable[[], str]] = {"codes": codes, "back ends": back_ends}


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
    text = README.read_text()
    for name, render in TABLES.items():
        text = text.replace(marked(name, text), render())
    README.write_text(text)


if __name__ == "__main__":
    main()
