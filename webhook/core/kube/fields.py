"""Fields of Kubernetes objects: what their paths are called, what stands there, and edits as a JSON Patch.

An edit is a value that knows the rule it comes from. Only its JSON Patch is ever applied, by the `jsonpatch` library,
so that people are shown what the API server does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

Path = tuple[str | int, ...]
"""Steps from the root of the object: `("spec", "containers", 0, "resources")`."""


def field_path(path: Path) -> str:
    """The path as Kubernetes prints it: `spec.containers[0].resources.limits["a.b/c"]`."""
    steps = [
        f"[{step}]" if isinstance(step, int) else f'["{step}"]' if "/" in step or "." in step else f".{step}"
        for step in path
    ]
    return "".join(steps).removeprefix(".")


@lru_cache(maxsize=4096)
def pointer(path: Path) -> str:
    """The path as a JSON Pointer (RFC 6901): `/spec/containers/0/resources`."""
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])


def at(document: Any, *path: str | int) -> Any:
    """What stands in an object at the steps of a path; None where there is nothing."""
    for step in path:
        if isinstance(document, list) and isinstance(step, int):
            document = document[step] if step < len(document) else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def mapping(document: Any, *path: str | int) -> Mapping[str, Any]:
    """The mapping that stands in an object at the keys of a path; an empty one where there is none."""
    inner = at(document, *path)
    return inner if isinstance(inner, dict) else {}


def objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """The objects of a list; none where there is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else ()


def controllers(document: Any) -> Iterator[Mapping[str, Any]]:
    """The owners that control an object, as a ReplicaSet does its pods. An API server lets it have one."""
    for owner in objects(at(document, "metadata", "ownerReferences")):
        if owner.get("controller") is True:
            yield owner


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
    made: dict[Path, Any] = {}  # what the operations create, by its path
    there: set[Path] = set()  # mappings and lists that the pod has
    patch: list[dict[str, Any]] = []
    for edit in edits:
        path = edit.path
        if isinstance(edit, Remove):
            patch.append({"op": "remove", "path": pointer(path)})
            continue
        end = len(path)
        if not (path[:-1] in there and isinstance(edit, Put)):
            if made and _filled_in(edit, made):
                continue
            end = _end(pod, path)
            if end == len(path):
                there.add(path[:-1])
                if isinstance(edit, Append) and isinstance(at(pod, *path), list):
                    patch.append({"op": "add", "path": f"{pointer(path)}/-", "value": edit.value})
                    continue
        operation = "replace" if isinstance(path[end - 1], int) else "add"
        patch.append({"op": operation, "path": pointer(path[:end]), "value": _nested(edit, end, made)})
    return patch


def _end(pod: Mapping[str, Any], path: Path) -> int:
    """How many steps of the path one operation can name: up to the first mapping or list that is missing."""
    holder: Any = pod
    for end, step in enumerate(path[:-1], 1):
        holder = holder.get(step) if isinstance(holder, dict) else holder[step]
        if holder is None:
            return end
    return len(path)


def _filled_in(edit: Put | Append, made: dict[Path, Any]) -> bool:
    """Add the edit to the value of an earlier operation, if that creates what is edited; returns whether it does."""
    path, last = edit.path, len(edit.path) - 1
    if isinstance(edit, Append) and path in made:
        made[path].append(edit.value)
        return True
    for depth in range(last, 0, -1):
        if path[:depth] in made:
            break
    else:
        return False
    holder = made[path[:depth]]
    while True:
        step = path[depth]
        inner = holder[step] if isinstance(step, int) else holder.get(step)
        if inner is None or depth == last:
            break
        holder, depth = inner, depth + 1
    if isinstance(edit, Append) and inner is not None:
        inner.append(edit.value)
    else:
        holder[step] = _nested(edit, depth + 1, made)
    return True


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
