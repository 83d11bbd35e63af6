"""A pod before and after as YAML lines, each kept, added or removed, the changed ones with the rule they come from.

Compared as trees and not as lines of text: the time it takes does not depend on the text, a changed value
stands beside its old one, and a line is never said to have moved because another one looks like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, Final, Literal

import yaml

from webhook.core.kube.patch import Append, Edit
from webhook.core.kube.paths import Path

Mark = Literal[" ", "+", "-"]
Rules = Mapping[Path, str]

CONTEXT: Final = 3
"""Lines that stay visible on each side of a change."""

WORTH_FOLDING: Final = 6
"""A fold of fewer lines would be harder to read than the lines."""

_MISSING: Final = object()
"""Stands for the side on which a key or an element does not exist."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of YAML; `rule` is what made the change that begins with it."""

    mark: Mark
    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines that follow each other; those of a `folded` one are the same before and after, and far from a change."""

    lines: Sequence[Line]
    folded: bool = False


def passages(before: Mapping[str, Any], after: Mapping[str, Any], edits: Iterable[Edit]) -> list[Passage]:
    """Everything, with what is far from any change folded away; `edits` lead from `before` to `after`."""
    found = list(_lines(before, after, (), _rules(edits, before)))
    near = _near([line.mark != " " for line in found])
    runs = [
        (shown, [line for _, line in run]) for shown, run in groupby(zip(near, found, strict=True), itemgetter(0))
    ]
    return [Passage(run, folded=not shown and len(run) >= WORTH_FOLDING) for shown, run in runs]


def _near(changed: Sequence[bool]) -> list[bool]:
    """Which lines stand within reach of a changed one."""
    near = [False] * len(changed)
    for index in (index for index, is_changed in enumerate(changed) if is_changed):
        for reached in range(max(0, index - CONTEXT), min(len(changed), index + CONTEXT + 1)):
            near[reached] = True
    return near


def _rules(edits: Iterable[Edit], before: Any) -> dict[Path, str]:
    """What each edit goes back to, by the path of what it makes; an element learns its place in the list."""
    found: dict[Path, str] = {}
    appended: Counter[Path] = Counter()
    for edit in edits:
        path = edit.path
        if isinstance(edit, Append):
            path = (*path, _length(before, path) + appended[path])
            appended[edit.path] += 1
        found[path] = edit.rule
    return found


def _length(at: Any, path: Path) -> int:
    for step in path:
        at = at[step] if isinstance(step, int) else at.get(step)
        if at is None:
            return 0
    return len(at)


def _lines(before: Any, after: Any, at: Path, rules: Rules) -> Iterator[Line]:
    """The lines of two mappings or two lists, those they share once."""
    if before == after:
        yield from (Line(" ", text) for text in _dump(before))
    elif _both(Mapping, before, after):
        one, other = _present(before, {}), _present(after, {})
        for key in dict.fromkeys([*one, *other]):
            yield from _entry(key, one.get(key, _MISSING), other.get(key, _MISSING), (*at, key), rules)
    else:
        pairs = zip_longest(_present(before, []), _present(after, []), fillvalue=_MISSING)
        for index, (one, other) in enumerate(pairs):
            yield from _element(one, other, (*at, index), rules)


def _entry(key: str, before: Any, after: Any, at: Path, rules: Rules) -> Iterator[Line]:
    if not _comparable(before, after):
        yield from _scalars({key: before}, {key: after}, _mark(before, after), rules.get(at, ""))
        return
    yield Line(_mark(before, after), _dump({key: {}})[0].removesuffix(" {}"), rules.get(at, ""))
    indent = "  " if _both(Mapping, before, after) else ""
    yield from (replace(line, text=indent + line.text) for line in _lines(before, after, at, rules))


def _element(before: Any, after: Any, at: Path, rules: Rules) -> Iterator[Line]:
    """An element of a list: the first line of each side begins with a dash."""
    if not _comparable(before, after):
        yield from _scalars([before], [after], _mark(before, after), rules.get(at, ""))
        return
    dashes = {"-": "- ", "+": "- "}
    rule = rules.get(at, "")
    for line in _lines(before, after, at, rules):
        same = dashes["-"] == dashes["+"]
        for mark in (line.mark,) if line.mark != " " or same else ("-", "+"):
            yield Line(mark, dashes[mark.replace(" ", "+")] + line.text, line.rule or rule)
            rule = ""
        dashes.update(dict.fromkeys("-+" if line.mark == " " else line.mark, "  "))


def _scalars(before: Any, after: Any, mark: Mark, rule: str) -> Iterator[Line]:
    """Two values in one, each in what holds it; one of them if they are the same, or if `mark` says so."""
    if before == after:
        yield from (Line(" ", text) for text in _dump(before))
        return
    removed = [Line("-", text) for text in (_dump(before) if mark != "+" else ())]
    added = [Line("+", text) for text in (_dump(after) if mark != "-" else ())]
    for index, line in enumerate([*removed, *added]):
        yield replace(line, rule=rule) if index == (len(removed) if added else 0) else line


def _mark(before: Any, after: Any) -> Mark:
    if before is _MISSING:
        return "+"
    return "-" if after is _MISSING else " "


def _comparable(before: Any, after: Any) -> bool:
    """Whether the sides differ, and are mappings, or lists, as far as they exist."""
    return before != after and (_both(Mapping, before, after) or _both(list, before, after))


def _both(kind: Any, *sides: Any) -> bool:
    return all(side is _MISSING or (isinstance(side, kind) and bool(side)) for side in sides)


def _present(value: Any, empty: Any) -> Any:
    return empty if value is _MISSING else value


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # in C where there is C
    """YAML as people write it: a script of several lines stays one."""


_Dumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    ),
)
_Dumper.ignore_aliases = lambda _self, _value: True


def _dump(value: Any) -> list[str]:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").splitlines()
