"""Edits: changes to a pod as values. Each knows the rule it comes from, and becomes operations of a JSON Patch.

Three kinds of edit suffice. Only their JSON Patch is ever applied, by the `jsonpatch` library, so that people are
shown what the API server does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.core.kube.fields import Path, at, pointer


class Put(NamedTuple):
    """Set the value at a path whose last step is a key of a mapping, or a present index of a list."""

    path: Path
    value: Any
    rule: str = ""


class Append(NamedTuple):
    """Add one element to the end of the list at a path."""

    path: Path
    value: Any
    rule: str = ""


class Remove(NamedTuple):
    """Remove the value at a path."""

    path: Path
    rule: str = ""


Edit = Put | Append | Remove


def applied(operations: Iterable[Mapping[str, Any]], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod after JSON Patch operations, as the API server applies them; `pod` itself is left as it is.

    The first call imports jsonpatch, 2.4 MiB and 18 ms, which most reviews do not need.
    """
    import jsonpatch  # noqa: PLC0415 - see above

    # An own copy: in the library's, what an alias in YAML shares is still shared.
    result: dict[str, Any] = jsonpatch.apply_patch(_copied(pod), operations, in_place=True)
    return result


def to_patch(edits: Iterable[Edit], pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The edits as JSON Patch operations (RFC 6902) on `pod`, in order.

    The first edit below a mapping or list that the pod lacks creates it; later edits are added to that operation.
    """
    made: dict[Path, Any] = {}
    there: set[Path] = set()
    patch: list[dict[str, Any]] = []
    for edit in edits:
        if isinstance(edit, Remove):
            patch.append({"op": "remove", "path": pointer(edit.path)})
        elif edit.path[:-1] in there and isinstance(edit, Put):
            patch.append(_put(edit.path, _nested(edit, len(edit.path), made)))
        elif not made or not _filled_in(edit, made):
            patch.append(_operation(edit, pod, made, there))
    return patch


def _put(path: Path, value: Any) -> dict[str, Any]:
    return {"op": "replace" if isinstance(path[-1], int) else "add", "path": pointer(path), "value": value}


def _filled_in(edit: Put | Append, made: dict[Path, Any]) -> bool:
    """Add the edit to the value of an earlier operation, if that creates what is edited; returns whether it does."""
    path = edit.path
    if isinstance(edit, Append) and path in made:
        made[path].append(edit.value)
        return True
    for depth in range(len(path) - 1, 0, -1):
        if path[:depth] in made:
            _fill_in(edit, depth, made)
            return True
    return False


def _fill_in(edit: Put | Append, depth: int, made: dict[Path, Any]) -> None:
    """Put the value below what an earlier operation creates at the first `depth` steps of the path."""
    path = edit.path
    there = made[path[:depth]]
    while depth < len(path) - 1 and (child := _child(there, path[depth])) is not None:
        there, depth = child, depth + 1
    if isinstance(edit, Append) and depth == len(path) - 1 and (present := _child(there, path[depth])) is not None:
        present.append(edit.value)
    else:
        there[path[depth]] = _nested(edit, depth + 1, made)


def _child(holder: Any, step: str | int) -> Any:
    return holder[step] if isinstance(step, int) else holder.get(step)


def _operation(edit: Put | Append, pod: Mapping[str, Any], made: dict[Path, Any], there: set[Path]) -> dict[str, Any]:
    path, depth = edit.path, _depth(pod, edit.path)
    if depth < len(path):
        return _put(path[:depth], _nested(edit, depth, made))
    there.add(path[:-1])
    if isinstance(edit, Append) and isinstance(at(pod, *path), list):
        return {"op": "add", "path": f"{pointer(path)}/-", "value": edit.value}
    return _put(path, _nested(edit, depth, made))


def _nested(edit: Put | Append, depth: int, made: dict[Path, Any]) -> Any:
    """The value to put at the first `depth` steps of the path, with the mappings below, which `made` collects."""
    value = edit.value
    if isinstance(edit, Append):
        value = made[edit.path] = [value]
    elif isinstance(value, (list, dict)):
        value = made[edit.path] = _copied(value)  # later edits may change it, and the original belongs to the rule
    for end in range(len(edit.path) - 1, depth - 1, -1):
        value = made[edit.path[:end]] = {edit.path[end]: value}
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    return [_copied(child) for child in value] if isinstance(value, list) else value


def _depth(pod: Mapping[str, Any], path: Path) -> int:
    """How many steps of the path one operation can name: up to the first mapping or list that is missing."""
    there: Any = pod
    for index, step in enumerate(path[:-1], 1):
        try:
            there = there[step]
        except KeyError:
            return index
        if there is None:
            return index
    return len(path)
