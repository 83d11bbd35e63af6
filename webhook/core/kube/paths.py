"""Field paths: where a field is in a Kubernetes object, for people and for JSON Patch."""

from __future__ import annotations

from collections.abc import Mapping
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
    """What stands in an object at the keys of a path; None where there is nothing."""
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def mapping(document: Any, *path: str | int) -> Mapping[str, Any]:
    """The mapping that stands in an object at the keys of a path; an empty one where there is none."""
    found = at(document, *path)
    return found if isinstance(found, Mapping) else {}


@lru_cache(maxsize=4096)
def pointer(path: Path) -> str:
    """The path as a JSON Pointer (RFC 6901): `/spec/containers/0/resources`."""
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])
