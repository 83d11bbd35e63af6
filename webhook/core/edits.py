"""Changes to a pod as values: each knows the rule it comes from, can be applied, and writes its own JSON Patch.

Four kinds are enough for everything the webhook does. `apply` and `to_patch` are written apart on purpose: that
they agree is a law, tested with the `jsonpatch` library on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.core.fields import Path, pointer


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
    """Take away what stands at a path."""

    path: Path
    rule: str = ""


Edit = Put | Append | Remove


def apply(edits: Iterable[Edit], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the edits made; `pod` itself is left as it is."""
    result = dict(pod)
    for edit in edits:
        match edit:
            case Put(path, value):
                _parent(result, path)[path[-1]] = value
            case Append(path, value):
                parent = _parent(result, path)
                parent[path[-1]] = [*(parent.get(path[-1]) or ()), value]
            case Remove(path):
                del _parent(result, path)[path[-1]]
    return result


def _parent(root: Any, path: Path) -> Any:
    """The holder of the last step, with every holder on the way copied, and made where it is missing."""
    at = root
    for step in path[:-1]:
        child = at[step] if isinstance(step, int) else at.get(step)
        at[step] = list(child) if isinstance(child, list) else dict(child or {})
        at = at[step]
    return at


def to_patch(edits: Iterable[Edit], pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The edits as JSON Patch operations (RFC 6902) on `pod`, in order.

    A holder that the pod lacks is created by the first operation below it; later edits fill it in there.
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
    """Whether the edit went into something that an earlier operation creates."""
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
    """Put the value below the holder that is made at the first `depth` steps of the path."""
    path = edit.path
    at = made[path[:depth]]
    while depth < len(path) - 1 and (child := _child(at, path[depth])) is not None:
        at, depth = child, depth + 1
    if isinstance(edit, Append) and depth == len(path) - 1 and (present := _child(at, path[depth])) is not None:
        present.append(edit.value)
    else:
        at[path[depth]] = _nested(edit, depth + 1, made)


def _child(at: Any, step: str | int) -> Any:
    return at[step] if isinstance(step, int) else at.get(step)


def _operation(edit: Put | Append, pod: Mapping[str, Any], made: dict[Path, Any], there: set[Path]) -> dict[str, Any]:
    path, depth = edit.path, _depth(pod, edit.path)
    if depth < len(path):
        return _put(path[:depth], _nested(edit, depth, made))
    there.add(path[:-1])
    if isinstance(edit, Append) and _present(pod, path):
        return {"op": "add", "path": f"{pointer(path)}/-", "value": edit.value}
    return _put(path, _nested(edit, depth, made))


def _nested(edit: Put | Append, depth: int, made: dict[Path, Any]) -> Any:
    """The value to put at the first `depth` steps of the path, with the holders below, which are noted in `made`."""
    value = edit.value
    if isinstance(edit, Append):
        value = made[edit.path] = [value]
    elif isinstance(value, (list, dict)):
        value = made[edit.path] = _copied(value)  # later edits may go into it, and the value is the rule's
    for end in range(len(edit.path) - 1, depth - 1, -1):
        value = made[edit.path[:end]] = {edit.path[end]: value}
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    return [_copied(child) for child in value] if isinstance(value, list) else value


def _depth(pod: Mapping[str, Any], path: Path) -> int:
    """How many steps of the path one operation can name: up to the first holder that is missing."""
    at: Any = pod
    for index, step in enumerate(path[:-1], 1):
        try:
            at = at[step]
        except KeyError:
            return index
        if at is None:
            return index
    return len(path)


def _present(pod: Mapping[str, Any], path: Path) -> bool:
    at: Any = pod
    for step in path:
        at = at[step] if isinstance(step, int) else at.get(step)
        if at is None:
            return False
    return True
