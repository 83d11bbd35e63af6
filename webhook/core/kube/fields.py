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
    made: dict[Path, Any] = {}  # the mappings and lists of operations, by their path
    patch: list[dict[str, Any]] = []
    for edit in edits:
        path = edit.path
        if isinstance(edit, Remove):
            patch.append({"op": "remove", "path": pointer(path)})
            continue
        # The last mapping or list on the way that is there already, in the pod or in an operation.
        holder: Any = pod
        is_made, end = False, len(path)
        for depth, step in enumerate(path if isinstance(edit, Append) else path[:-1], 1):
            inner = holder.get(step) if isinstance(holder, dict) else holder[step]
            if made and not is_made and path[:depth] in made:
                inner, is_made = made[path[:depth]], True
            # What stands where a list belongs is replaced.
            if inner is None or (depth == len(path) and not isinstance(inner, list)):
                end = depth
                break
            holder = inner
        else:
            if isinstance(edit, Append):
                if is_made:
                    holder.append(edit.value)
                else:
                    patch.append({"op": "add", "path": f"{pointer(path)}/-", "value": edit.value})
                continue
        # Later edits may change what is put there, and the original belongs to the rule.
        value = [edit.value] if isinstance(edit, Append) else _copied(edit.value)
        for step in reversed(path[end:]):
            value = {step: value}
        if is_made:
            holder[path[end - 1]] = value
            continue
        operation = "replace" if isinstance(path[end - 1], int) else "add"
        patch.append({"op": operation, "path": pointer(path[:end]), "value": value})
        if isinstance(value, (dict, list)):
            made[path[:end]] = value
    return patch


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    return [_copied(child) for child in value] if isinstance(value, list) else value
