"""Field paths: where a field is in a Kubernetes object, for people and for JSON Patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

Path = tuple[str | int, ...]
"""Steps from the root of the object: `("spec", "containers", 0, "resources")`."""


def field(path: Path) -> str:
    """The path as Kubernetes prints it: `spec.containers[0].resources.limits["a.b/c"]`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f'["{step}"]' if "/" in step or "." in step else f".{step}"


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
    found = at(document, *path)
    return found if isinstance(found, dict) else {}


def objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """The objects of a list; none where there is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else ()


def controllers(document: Any) -> Iterator[Mapping[str, Any]]:
    """The owners that control an object, as a ReplicaSet does its pods. An API server lets it have one."""
    for owner in objects(at(document, "metadata", "ownerReferences")):
        if owner.get("controller") is True:
            yield owner


@lru_cache(maxsize=4096)
def pointer(path: Path) -> str:
    """The path as a JSON Pointer (RFC 6901): `/spec/containers/0/resources`."""
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])
