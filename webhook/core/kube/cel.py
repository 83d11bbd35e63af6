"""Text of CEL: strings, lists, and alternatives."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Final

WIDTH: Final = 100


def text(value: str) -> str:
    """A string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def listed(values: Iterable[str]) -> str:
    """A list of strings, over as many lines as it needs."""
    words = ", ".join(map(text, values))
    if len(words) <= WIDTH:
        return f"[{words}]"
    return f"[\n{indented(textwrap.fill(words, WIDTH, break_on_hyphens=False, break_long_words=False))}]"


def any_of(conditions: Iterable[str]) -> str:
    """Whether one of the conditions holds."""
    return " ||\n".join(conditions) or "false"


def indented(expression: str, width: int = 2) -> str:
    """The expression, so many columns further in."""
    return textwrap.indent(expression, " " * width)


def like(globs: Iterable[str], value: str) -> str:
    """Whether a value is what one of the globs says, with `*` and `?`; whatever stands from a bracket on fits."""
    every = sorted(globs)
    exact = [glob for glob in every if not set(glob) & set("*?[")]
    matching = (f"{value}.matches({text(_regex(glob))})" for glob in every if glob not in exact)
    return any_of([*([f"{value} in {listed(exact)}"] if exact else []), *matching])


def _regex(glob: str) -> str:
    before, bracket, _ = glob.partition("[")
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in before)
    return f"^{''.join(parts)}{'.*' if bracket else ''}$"
