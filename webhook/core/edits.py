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
    """The edits as JSON Patch operations (RFC 6902) on `pod`, in order, creating the holders that are missing."""
    made: set[Path] = set()
    patch: list[dict[str, Any]] = []
    for edit in edits:
        if isinstance(edit, Remove):
            patch.append({"op": "remove", "path": pointer(edit.path)})
            continue
        path, value = edit.path, edit.value
        depth, holder = len(path), path[:-1]
        if holder not in made:
            depth = _depth(pod, path, made)
            made.add(holder)
            made.update(path[:end] for end in range(depth, len(holder)))
        if isinstance(edit, Append):
            if path in made or _present(pod, path):
                patch.append({"op": "add", "path": f"{pointer(path)}/-", "value": value})
                continue
            made.add(path)
            value = [value]
        for step in reversed(path[depth:]):
            value = {step: value}
        operation = "replace" if isinstance(path[-1], int) else "add"
        patch.append({"op": operation, "path": pointer(path[:depth]), "value": value})
    return patch


def _depth(pod: Mapping[str, Any], path: Path, made: set[Path]) -> int:
    """How many steps of the path one operation can name: up to the first holder that is missing."""
    at: Any = pod
    for index, step in enumerate(path[:-1], 1):
        at = at[step] if isinstance(step, int) else at.get(step)
        if at is None:
            # Below a holder that the pod lacks, earlier edits may have made some.
            return next((depth for depth in range(index, len(path)) if path[:depth] not in made), len(path))
    return len(path)


def _present(pod: Mapping[str, Any], path: Path) -> bool:
    at: Any = pod
    for step in path:
        at = at[step] if isinstance(step, int) else at.get(step)
        if at is None:
            return False
    return True
