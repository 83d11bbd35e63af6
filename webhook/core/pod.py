"""A read-only view of a pod: its containers of every kind, each with its field path.

One iterator serves every container kind, so nothing can be hidden in a kind that somebody forgot. The pod itself
stays the mapping it was received as.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from webhook.core.fields import Path, field
from webhook.core.violations import Refusal, Violation

_LISTS: Final = (
    ("initContainers", "init container"),
    ("containers", "container"),
    ("ephemeralContainers", "ephemeral container"),
)
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Container:
    """One container: `kind` is `container`, `init container`, `sidecar` or `ephemeral container`; `raw` is itself."""

    path: Path
    kind: str
    name: str
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    env: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """What the webhook reads of a pod; `raw` is the object itself, `namespace` where it is or will be."""

    raw: Mapping[str, Any]
    spec: Mapping[str, Any]
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    containers: Sequence[Container]
    namespace: str = ""


def read(raw: Mapping[str, Any], namespace: str = "") -> Pod:
    """View `raw` as a pod; raises Refusal (GPU001) naming the first field that has another shape.

    Before it is stored a pod need not say its `namespace`; the review does.
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
    """The shapes of what says where a pod may run, which is read only if it gets a GPU."""
    if "nodeSelector" in spec:
        _mapping(spec, ("spec", "nodeSelector"))
    if "tolerations" in spec:
        _objects(spec, ("spec", "tolerations"))
    for key in ("schedulerName", "runtimeClassName"):
        if not isinstance(spec.get(key) or "", str):
            _refuse(("spec", key), "a string")
    if spec.get("affinity") is None:
        return
    path: Path = ("spec",)
    at = spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        path = (*path, step)
        at = _mapping(at, path)
    for index, term in enumerate(_objects(at, (*path, "nodeSelectorTerms"))):
        for key in ("matchExpressions", "matchFields"):
            for place, expression in enumerate(_objects(term, (*path, "nodeSelectorTerms", index, key))):
                _sequence(expression, (*path, "nodeSelectorTerms", index, key, place, "values"))


def _containers(spec: Mapping[str, Any]) -> Iterator[Container]:
    for key, kind in _LISTS:
        if spec.get(key):
            for index, raw in enumerate(_sequence(spec, ("spec", key))):
                yield _container(("spec", key, index), kind, raw)


def _container(path: Path, kind: str, raw: Any) -> Container:
    if not isinstance(raw, dict):
        _refuse(path, "an object")
    resources = _mapping(raw, (*path, "resources"))
    sidecar = kind == "init container" and raw.get("restartPolicy") == "Always"
    return Container(
        path=path,
        kind="sidecar" if sidecar else kind,
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


def _refuse(path: Path, shape: str) -> NoReturn:
    where = field(path)
    raise Refusal(
        Violation(code="GPU001", path=where, message=f"{where} is not {shape}", fix=f"write {where} as {shape}")
    )
