"""The budget of a review: how many of everything a pod may have if it asks for a GPU.

All other reviews wait while one is judged. Each limit is about ten times what the largest real manifests have, so
only a mistake or an attack is refused. A pod that asks for no GPU may be of any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.kube.node_affinity import TERMS
from webhook.core.kube.paths import Path, at, field, mapping
from webhook.core.kube.pod import SECTIONS
from webhook.core.violations import Violation


class Limit(NamedTuple):
    """The most of one thing, its name for people, and how to have fewer."""

    most: int
    what: str
    fix: str


_UNREAD: Final = "leave out those that nothing reads"
_FEWER: Final = "make several pods of it"
_SELECT: Final = "give those nodes one label, and select by that"

CONTAINERS: Final = Limit(128, "containers", _FEWER)
AMOUNTS: Final = Limit(1500, "limits and requests in its containers", _UNREAD)
SELECTORS: Final = Limit(100, "nodeSelectorTerms", _SELECT)
REQUIREMENTS: Final = Limit(1000, "requirements in its nodeSelectorTerms", _SELECT)
VALUES: Final = Limit(5000, "values in its nodeSelectorTerms", _SELECT)
BYTES: Final = Limit(256 << 10, "bytes of names and values that rules read", "write shorter ones")

OF_METADATA: Final[Mapping[str, Limit]] = {
    "labels": Limit(500, "labels", _UNREAD),
    "annotations": Limit(1000, "annotations", _UNREAD),
}
OF_SPEC: Final[Mapping[str, Limit]] = {
    "nodeSelector": Limit(300, "node labels in its nodeSelector", _SELECT),
    "tolerations": Limit(300, "tolerations", "write one with the operator Exists instead of one for each value"),
    "resourceClaims": Limit(100, "resource claims", _FEWER),
    "volumes": Limit(1000, "volumes", _FEWER),
}
OF_CONTAINER: Final[Mapping[str, Limit]] = {
    "env": Limit(1000, "variables in a container", "put them into a ConfigMap, and name that in envFrom"),
    "volumeMounts": Limit(1000, "mounts in a container", "mount the folder above"),
}
OF_RESOURCES: Final[Mapping[str, Limit]] = {"claims": Limit(100, "claims in a container", _FEWER)}


class ExcessError(Exception):
    """A pod has more of something than its budget; `violation` says so (GPU003)."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


def check(pod: Mapping[str, Any]) -> None:
    """Raise ExcessError for the first thing of which a pod has too much. Only lengths are looked at.

    A pod with a UID has passed /mutate, which may have added to it, so it may have twice as much.
    """
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    room = 2 if metadata.get("uid") else 1
    _lengths(metadata, OF_METADATA, ("metadata",), room)
    _lengths(spec, OF_SPEC, ("spec",), room)
    lists = [(section, found) for section in SECTIONS if isinstance(found := spec.get(section), list)]
    within(CONTAINERS, sum(len(found) for _, found in lists), ("spec", "containers"), room)
    amounts = sum(
        _container(container, ("spec", section, index), room)
        for section, found in lists
        for index, container in enumerate(found)
        if isinstance(container, dict)
    )
    within(AMOUNTS, amounts, ("spec", "containers"), room)
    if spec.get("affinity"):
        _check_terms(pod, room)


def _container(container: Mapping[str, Any], path: Path, room: int) -> int:
    """How many limits and requests a container has, if it has not too much of anything else."""
    _lengths(container, OF_CONTAINER, path, room)
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return 0
    if "claims" in resources:
        _lengths(resources, OF_RESOURCES, (*path, "resources"), room)
    return sum([len(part) for key in ("limits", "requests") if isinstance(part := resources.get(key), dict)])


def _lengths(holder: Mapping[str, Any], limits: Mapping[str, Limit], path: Path, room: int) -> None:
    for key, limit in limits.items():
        if key in holder and isinstance(value := holder[key], (dict, list)) and len(value) > limit.most:
            within(limit, len(value), (*path, key), room)


def _check_terms(pod: Mapping[str, Any], room: int) -> None:
    terms = _list(at(pod, *TERMS))
    within(SELECTORS, len(terms), TERMS, room)
    requirements = [one for term in terms for one in _requirements(term)]
    within(REQUIREMENTS, len(requirements), TERMS, room)
    within(VALUES, sum(len(_list(at(one, "values"))) for one in requirements), TERMS, room)


def _requirements(term: Any) -> Iterator[Any]:
    for key in ("matchExpressions", "matchFields"):
        yield from _list(at(term, key))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def within(limit: Limit, found: int, path: Path, room: int = 1) -> None:
    """Raise ExcessError if there is more than the limit, or more than `room` times that."""
    if found > limit.most * room:
        message = (
            f"the pod has {found} {limit.what}, and one that asks for a GPU may have {limit.most * room}: "
            "all other reviews wait while they are read"
        )
        raise ExcessError(Violation(code="GPU003", path=field(path), message=message, fix=limit.fix))
