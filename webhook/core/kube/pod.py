"""A read-only view of a pod: its containers of every kind, each with its field path.

One iterator yields containers of every kind, so no reader can forget a kind. The pod itself stays the mapping that
was received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from webhook.core.kube.fields import Path, at
from webhook.core.kube.fields import field_path as path_of
from webhook.core.violations import Refusal, Violation

T = TypeVar("T")

INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"

_LISTS: Final = (
    ("initContainers", INIT),
    ("containers", "container"),
    ("ephemeralContainers", EPHEMERAL),
)
SECTIONS: Final = tuple(section for section, _ in _LISTS)
"""The lists of containers in a pod's spec."""

CORE: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of Kubernetes itself, beside those that begin with `hugepages-`."""

_OVER: Final = frozenset({"Succeeded", "Failed"})
_SPEC: Final[Mapping[str, type]] = {"schedulerName": str, "runtimeClassName": str}
_REQUIREMENT: Final[Mapping[str, type]] = {"key": str, "operator": str}
_TOLERATION: Final[Mapping[str, type]] = {**_REQUIREMENT, "value": str, "effect": str, "tolerationSeconds": int}
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Container:
    """One container. `kind`: `container`, `init container`, `sidecar` or `ephemeral container`; `raw`: the object."""

    path: Path
    kind: str
    name: str
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    env: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """What the webhook reads of a pod. `raw` is the object, `namespace` where it is or will be created."""

    raw: Mapping[str, Any]
    spec: Mapping[str, Any]
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    containers: Sequence[Container]
    namespace: str = ""
    cache: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was derived from it, so that it is derived once; another pod made by `replace` begins anew."""


def read(raw: Mapping[str, Any], namespace: str = "") -> Pod:
    """View `raw` as a pod; raises Refusal (GPU001) naming the first field that has another shape.

    A pod that is not stored yet may lack its namespace; `namespace` is that of the review.
    """
    metadata = _mapping(raw, ("metadata",))
    spec = _mapping(raw, ("spec",))
    _check_placing(spec)
    return Pod(
        raw=raw,
        spec=spec,
        labels=_mapping(metadata, ("metadata", "labels")),
        annotations=_mapping(metadata, ("metadata", "annotations")),
        containers=list(_containers(spec)),
        namespace=namespace or str(metadata.get("namespace") or "default"),
    )


def _check_placing(spec: Mapping[str, Any]) -> None:
    """Check the shape of the fields that place a pod; they are read later, and only if it gets a GPU."""
    if "nodeSelector" in spec:
        _mapping(spec, ("spec", "nodeSelector"))
    if "tolerations" in spec:
        for index, toleration in enumerate(_objects(spec, ("spec", "tolerations"))):
            _check_scalars(toleration, _TOLERATION, ("spec", "tolerations", index))
    if "resourceClaims" in spec:
        _objects(spec, ("spec", "resourceClaims"))
    _check_scalars(spec, _SPEC, ("spec",))
    if spec.get("affinity") is not None:
        _check_affinity(spec)


def _check_affinity(spec: Mapping[str, Any]) -> None:
    path: Path = ("spec",)
    at = spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        path = (*path, step)
        at = _mapping(at, path)
    for index, term in enumerate(_objects(at, (*path, "nodeSelectorTerms"))):
        for key in ("matchExpressions", "matchFields"):
            listed: Path = (*path, "nodeSelectorTerms", index, key)
            for place, expression in enumerate(_objects(term, listed)):
                _check_scalars(expression, _REQUIREMENT, (*listed, place))
                for number, value in enumerate(_sequence(expression, (*listed, place, "values"))):
                    if not isinstance(value, str):
                        _refuse((*listed, place, "values", number), "a string")


def _check_scalars(holder: Mapping[str, Any], kinds: Mapping[str, type], path: Path) -> None:
    for key, kind in kinds.items():
        value = holder.get(key)
        if value is not None and not isinstance(value, kind):
            _refuse((*path, key), "a string" if kind is str else "a whole number")


def _containers(spec: Mapping[str, Any]) -> Iterator[Container]:
    for key, kind in _LISTS:
        if spec.get(key):
            for index, raw in enumerate(_sequence(spec, ("spec", key))):
                yield _container(("spec", key, index), kind, raw)


def _container(path: Path, kind: str, raw: Any) -> Container:
    if not isinstance(raw, dict):
        _refuse(path, "an object")
    resources = _mapping(raw, (*path, "resources"))
    sidecar = kind == INIT and raw.get("restartPolicy") == "Always"
    return Container(
        path=path,
        kind=SIDECAR if sidecar else kind,
        name=str(raw.get("name", "")),
        limits=_mapping(resources, (*path, "resources", "limits")),
        requests=_mapping(resources, (*path, "resources", "requests")),
        env=_objects(raw, (*path, "env")),
        raw=raw,
    )


def _mapping(parent: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    value = parent.get(str(path[-1]))
    if value is None:
        return _NOTHING
    if not isinstance(value, dict):
        _refuse(path, "an object")
    return value


def _sequence(parent: Mapping[str, Any], path: Path) -> Sequence[Any]:
    value = parent.get(str(path[-1]))
    if value is None:
        return ()
    if not isinstance(value, list):
        _refuse(path, "a list")
    return value


def _objects(parent: Mapping[str, Any], path: Path) -> Sequence[Mapping[str, Any]]:
    found = _sequence(parent, path)
    for index, value in enumerate(found):
        if not isinstance(value, dict):
            _refuse((*path, index), "an object")
    return found


def live(raw: Mapping[str, Any]) -> bool:
    """Whether a stored pod has not ended (Succeeded, Failed); one that is being deleted is live until it is gone."""
    return at(raw, "status", "phase") not in _OVER


def _refuse(path: Path, shape: str) -> NoReturn:
    where = path_of(path)
    raise Refusal(
        Violation(code="GPU001", path=where, message=f"{where} is not {shape}", fix=f"write {where} as {shape}")
    )


def effective(
    amounts: Iterable[tuple[Container, T]], plus: Callable[[T, T], T], larger: Callable[[T, T], T], nothing: T
) -> T:
    """What the containers of a pod take together, as Kubernetes counts.

    Containers and sidecars add up. Each plain init container runs before the containers, beside the sidecars that
    were started before it (Kubernetes, component-helpers/resource, PodRequests).
    """
    most = staying = nothing
    for container, amount in amounts:
        if container.kind == INIT:
            most = larger(most, plus(staying, amount))
        else:
            staying = plus(staying, amount)
    return larger(most, staying)
