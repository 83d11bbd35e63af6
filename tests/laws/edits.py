"""Edits of a document: every kind of them, everywhere they make sense."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from webhook.core.kube.fields import Append, Edit, Path, Put, Remove


def some(document: Any, dice: Random) -> list[Edit]:
    """A few edits of different places."""
    there = list(possible(document))
    return apart(dice.choice(there) for _ in range(dice.randrange(7)))


def apart(edits: Iterable[Edit]) -> list[Edit]:
    """The edits that are of different places than those before; only a list may be appended to more than once."""
    made: list[Edit] = []
    for edit in edits:
        if not any(_same_place(edit, before) for before in made):
            made.append(edit)
    return made


def _same_place(edit: Edit, before: Edit) -> bool:
    if isinstance(edit, Append) and isinstance(before, Append) and edit.path == before.path:
        return False
    short, long = sorted((_holder(before), _holder(edit)), key=len)
    return long[: len(short)] == short


def _holder(edit: Edit) -> Path:
    """The place that an edit is about: of a removed element the whole list, as the others move up."""
    return edit.path[:-1] if isinstance(edit, Remove) and isinstance(edit.path[-1], int) else edit.path


def possible(document: Any, path: Path = ()) -> Iterator[Edit]:
    """Edits of every kind, everywhere they make sense."""
    if isinstance(document, dict):
        for key in ("a", "b~c", "new/one"):
            yield Put((*path, key), {"put": 1})
            if document.get(key) is None or isinstance(document[key], list):
                yield Append((*path, key), {"appended": 1})
        if path and "a" not in document:
            yield Put((*path, "a", "deep", "er"), 1)
            yield Append((*path, "a", "list"), 1)
    if isinstance(document, list):
        for index in range(len(document)):
            yield Put((*path, index), {"put": 2})
    for step, value in _items(document):
        yield Remove((*path, step))
        yield from possible(value, (*path, step))


def _items(document: Any) -> list[tuple[str | int, Any]]:
    if isinstance(document, dict):
        return list(document.items())
    return list(enumerate(document)) if isinstance(document, list) else []
