"""An explanation on a terminal: a line for each thing that is said, in colours where there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from webhook.views.explanation import Asking, View

COLOURS: Final[Mapping[str, str]] = {"strong": "\x1b[1m", "+": "\x1b[32m", "-": "\x1b[31m"}
"""What a terminal is sent before a line of each kind."""


class Line(NamedTuple):
    """One line; its kind is a key of COLOURS, or of a plain line anything else."""

    text: str
    kind: str = ""


def paint(view: View, colours: Mapping[str, str]) -> Iterator[str]:
    """The lines as text; control characters out of a pod are shown, not sent."""
    for line in _lines(view):
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line.text)
        colour = colours.get(line.kind)
        yield f"{colour}{shown}\x1b[0m" if colour else shown


def _lines(view: View) -> Iterator[Line]:
    yield Line(view.title, "strong")
    yield from (_row("was", text) for text in view.was)
    for asking in view.asking:
        yield from _asking(asking, converted=bool(view.was))
    for label, rows in groupby(view.tenant, attrgetter("label")):
        yield from (_row("" if number else label, row.text) for number, row in enumerate(rows))
    yield from (_row("warning", text) for text in view.warnings)
    yield from (_row("dryrun", text) for text in view.tried)
    yield from (_row("missing", text) for text in view.missing)
    if not view.allowed:
        yield Line("  denied", "-")
        yield from (Line(f"    {line}") for violation in view.violations for line in str(violation).splitlines())
    elif not view.pod:
        yield Line(f"  admitted {view.lead}")
    else:
        for verb, path, value, rule in view.changes:
            yield Line(f"  {verb:<6} {path}{': ' if value else ''}{value}    [{rule}]")
        yield Line("")
        yield from (Line(f"{line.mark} {line.text}", line.mark) for passage in view.pod for line in passage.lines)


def _row(label: str, text: str) -> Line:
    return Line(f"  {label:<10}{text}")


def _asking(asking: Asking, *, converted: bool) -> Iterator[Line]:
    where = ", ".join(f"{path}: {text}" for path, text in asking.stated) or "its own resources"
    yield _row("asked", f"{asking.name}: {asking.asked}" + ("" if converted else f"  ({where})"))
    for name, at, outcome, reason in asking.considered:
        match outcome:
            case "serves":
                yield _row("served", f"{asking.name}: by {name} ({at}): {reason}")
            case "could":
                yield _row("", f"{name} could, but {reason}")
            case "cannot":
                yield _row("", f"{name} cannot: {reason}")
    if asking.others:
        yield _row("", asking.others)
