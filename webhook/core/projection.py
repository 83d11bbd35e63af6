"""The projection of a pod: the part that rules and policies read, and how large it may be. All else is removed first.

The allow-list of what may be read is made from a rulebook when it is first used. A rule or policy that reads another
label, annotation, env name or host path extends the list by being loaded. So no decision can depend on what is not
listed, and pods with equal projections get equal decisions, which the server remembers (`server/handler.py`).

A pruned pod keeps its shape: mappings and lists stay where they are, and elements keep their index. So an edit of the
pruned pod is the same edit of the whole pod. A field of a wrong shape is kept whole, so that `kube.pod` refuses it by
its path. Nothing depends on a pod that is over the budget and asks for no GPU: its projection is empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Final, NamedTuple

import orjson

from webhook.core.interpret import extended_resources, interpret, locations
from webhook.core.interpret.locations import BEGINNINGS, DEFAULT_CONTAINER, RESOURCES
from webhook.core.kube.fields import Path, at, field_path, mapping, objects
from webhook.core.kube.pod import REQUIRED, SECTIONS, TERMS
from webhook.core.plan import allocation
from webhook.core.policy import device_access, unknown_devices
from webhook.core.policy.membership import member
from webhook.core.request import PREFIX
from webhook.core.review import AdmissionRequest
from webhook.core.rules.cluster import ProtectedNames
from webhook.core.rules.rulebook import Rulebook, kept
from webhook.core.violations import Refusal, Violation

# The budget: how many of everything a pod may have if it asks for a GPU.


class Limit(NamedTuple):
    """The most of one thing, its name for people, and how to have fewer."""

    most: int
    what: str
    fix: str


_NOT_READ: Final = "leave out those that nothing reads"
_FEWER: Final = "make several pods of it"
_SELECT: Final = "give those nodes one label, and select by that"

LABELS: Final = Limit(500, "labels", _NOT_READ)
ANNOTATIONS: Final = Limit(1000, "annotations", _NOT_READ)
_CONTAINERS: Final = Limit(128, "containers", _FEWER)
_AMOUNTS: Final = Limit(1500, "limits and requests in its containers", _NOT_READ)
_TERMS: Final = Limit(100, "nodeSelectorTerms", _SELECT)
_REQUIREMENTS: Final = Limit(1000, "requirements in its nodeSelectorTerms", _SELECT)
_VALUES: Final = Limit(5000, "values in its nodeSelectorTerms", _SELECT)
_BYTES: Final = Limit(256 << 10, "bytes of names and values that rules read", "write shorter ones")


class ExcessError(Exception):
    """A pod has more of something than its budget; `violation` says so (GPU003)."""

    def __init__(self, limit: Limit, number: int, path: Path, room: float = 1) -> None:
        message = (
            f"the pod has {number} {limit.what}, and one that asks for a GPU may have {limit.most * room}: "
            "all other reviews wait while they are read"
        )
        super().__init__(message)
        self.violation = Violation(code="GPU003", path=field_path(path), message=message, fix=limit.fix)


# The allow-list: what rules and policies may read of a pod.


class Keys(NamedTuple):
    """Keys of a mapping: these, those that begin with one of the `prefixes`, and those that contain `part`."""

    exact: frozenset[str]
    prefixes: tuple[str, ...]
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """What rules and policies may read of a pod, beside the fields of every pod (`_METADATA` to `_CONTAINER`).

    `env` are names of environment variables, and `host_paths` paths of host volumes. `protected` names are read
    wherever they stand.
    """

    labels: Keys
    annotations: Keys
    resources: Keys
    env: Keys
    host_paths: frozenset[str]
    protected: Mapping[str, ProtectedNames]


@kept
def allow_list(rulebook: Rulebook) -> AllowList:
    """What a rulebook and its policies read of a pod."""
    modes = [mode for backend in rulebook.backends.values() for mode in backend.modes]
    outputs = [mode.outputs for mode in modes] + [backend.inject.outputs for backend in rulebook.backends.values()]
    companions = [mode.companions for mode in modes if mode.companions is not None]
    policies = rulebook.tenancy.policies
    reserved = sorted({key for companion in companions for key in companion.reserved})
    protected = device_access.protected_by_section(rulebook)
    labels = frozenset[str]().union(
        protected["labels"].exact,
        locations.lookalikes(rulebook),
        rulebook.all_slots["label"],
        *(output.labels for output in outputs),
        *(policy.labels for policy in policies),
    )
    annotations = frozenset[str]().union(
        ("gpu", DEFAULT_CONTAINER, device_access.MIRROR),
        protected["annotations"].exact,
        locations.lookalikes(rulebook),
        rulebook.all_slots["annotation"],
        rulebook.all_annotations,
        allocation.addresses(rulebook),
        *(output.annotations for output in outputs),
        *(policy.annotations for policy in policies),
        (key for key in reserved if "*" not in key),
    )
    prefixes = (
        *BEGINNINGS,
        *protected["annotations"].beginnings,
        *sorted({key.partition("*")[0] for key in reserved if "*" in key}),
        *(prefix for source in rulebook.sources for prefix in source.prefixes),
        *sorted({slot.head for slot in rulebook.per_container}),
    )
    env = frozenset(protected["env"].exact).union(*(mode.outputs.env for mode in modes))
    return AllowList(
        labels=Keys(labels, (*BEGINNINGS, *protected["labels"].beginnings), PREFIX),
        annotations=Keys(annotations, prefixes, PREFIX),
        resources=Keys(RESOURCES.union(rulebook.resources), BEGINNINGS, "/"),
        env=Keys(env, protected["env"].beginnings),
        host_paths=frozenset(
            companion.requires["hostPath"] for companion in companions if "hostPath" in companion.requires
        ),
        protected=protected,
    )


# The projection of a request: both of its pods, pruned.

_EMPTY: Final[Mapping[str, Any]] = {"metadata": {}, "spec": {}}


def project(request: AdmissionRequest, rulebook: Rulebook, *, bounds_old_pod: bool = False) -> AdmissionRequest:
    """The request with its pods pruned to what the rulebook reads; a pruned request stays as it is.

    Raises Refusal (GPU003) for a pod that is over the budget of a review and asks for a GPU. The pod before an update
    is never too large, unless the caller `bounds_old_pod`.
    """
    allowed = allow_list(rulebook)
    if request.projection is allowed:
        return request
    pod, old_pod, text = request.pod, request.old_pod, b""
    try:
        if pod is not None:
            pod = prune(pod, allowed, _room(pod))
            text = _text(pod)
        if old_pod is not None:
            try:
                old_pod = prune(old_pod, allowed, _room(old_pod))
            except ExcessError:
                if bounds_old_pod:
                    raise
                old_pod = prune(old_pod, allowed) if _concerns_gpus(old_pod, rulebook) else _EMPTY
    except ExcessError as excess:
        if _depends(request, rulebook):
            raise Refusal(excess.violation) from None
        pod, old_pod, text = _EMPTY, None if request.old_pod is None else _EMPTY, b""
    return request._replace(pod=pod, old_pod=old_pod, projection=allowed, text=text)


def _room(pod: Mapping[str, Any]) -> int:
    """How many times the most a pod may have: one with a UID has passed /mutate, which may have added to it."""
    metadata = pod.get("metadata")
    return 2 if isinstance(metadata, dict) and metadata.get("uid") else 1


def _text(pruned: Mapping[str, Any]) -> bytes:
    """The pruned pod as JSON, empty if it is nested too deep for that."""
    try:
        text = orjson.dumps(pruned)
    except TypeError:
        return b""
    if len(text) > _BYTES.most:
        raise ExcessError(_BYTES, len(text), ("spec",))
    return text


def _depends(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether the answer depends on a pod that is over the budget.

    It does not if the pod asks for no GPU, nor if an update changes nothing that is read: an old pod can always lose
    its finalizers.
    """
    there = [pod for pod in (request.pod, request.old_pod) if pod is not None]
    if not any(_concerns_gpus(pod, rulebook) for pod in there) and not _may_reach_devices(request, rulebook):
        return False
    if request.old_pod is None:
        return True
    added, kept = (at(pod, "spec", "ephemeralContainers") for pod in there)
    if added != kept and _may_reach_devices(request, rulebook):
        return True
    allowed, selection = allow_list(rulebook), ("nodeSelector", "affinity")
    after, before = (
        (_fields(mapping(pod, "metadata"), allowed, inf, (), _METADATA), *map(mapping(pod, "spec").get, selection))
        for pod in there
    )
    return after != before


def _concerns_gpus(pod: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether anything in a pod of any size may concern a rule or a policy."""
    metadata = mapping(pod, "metadata", "labels"), mapping(pod, "metadata", "annotations")
    if interpret.metadata_concerns_gpus(*metadata, rulebook) or unknown_devices.asks_disabled(*metadata, rulebook):
        return True
    sections = interpret.amounts(pod)
    if interpret.amounts_concern_gpus(sections, rulebook):
        return True
    names = "\n".join(chain.from_iterable(sections)).lower()
    if unknown_devices.may_be_in(names, rulebook):
        return True
    claims = bool(mapping(pod, "spec").get("resourceClaims")) or extended_resources.DEVICE_CLASS in names
    return claims and not rulebook.tenancy.silent


def _may_reach_devices(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether a policy would mind that the pod reaches devices beside those that it asks for."""
    policy = member(request.namespace, rulebook.tenancy).policy
    minds = device_access.action(policy, rulebook.cluster) is not None or rulebook.tenancy.closed
    return minds and device_access.may_be_in(request.pod or {}, rulebook)


# The pod: a tree of fields, each of which is looked at once. What stands nowhere in the tree is not read.

_UNREAD: Final[Mapping[str, Any]] = {}
"""Replaces an element of a list that nothing reads, so that those after it keep their index."""


class _Field(NamedTuple):
    """A field, how many elements it may have, and what stays of it, all unless it says more.

    `read` keeps a part. Of a mapping only the keys stay that the allow-list has under the name `keys`.
    """

    limit: Limit | None = None
    read: Callable[[Any, AllowList, float, Path], Any] | None = None
    keys: str = ""


def prune(pod: Mapping[str, Any], allowed: AllowList, room: float = inf) -> Mapping[str, Any]:
    """The pod with only what may be read; raises ExcessError for more than `room` times the most of anything."""
    pruned: Mapping[str, Any] = _fields(pod, allowed, room, (), _POD)
    return pruned


def _fields(holder: Any, allowed: AllowList, room: float, path: Path, fields: Mapping[str, _Field]) -> Any:
    """The mapping with only these fields; what is no mapping stays as it is."""
    if not isinstance(holder, dict):
        return holder
    kept: dict[str, Any] = {}
    for key, (limit, read, keys) in fields.items():
        if key not in holder:
            continue
        value = holder[key]
        if limit is not None and isinstance(value, (dict, list)) and len(value) > limit.most * room:
            raise ExcessError(limit, len(value), (*path, key), room)
        if read is not None:
            kept[key] = read(value, allowed, room, (*path, key))
        elif keys and isinstance(value, dict):
            exact, prefixes, part = getattr(allowed, keys)
            kept[key] = {
                name: entry
                for name, entry in value.items()
                if name in exact or part in name or name.startswith(prefixes)
            }
        else:
            kept[key] = value
    return kept


def _elements(value: Any, allowed: AllowList, room: float, path: Path, fields: Mapping[str, _Field]) -> Any:
    """The list, of each of whose elements only these fields stay."""
    if not isinstance(value, list):
        return value
    return [_fields(element, allowed, room, (*path, index), fields) for index, element in enumerate(value)]


def _env(env: Any, allowed: AllowList, _room: float, _path: Path) -> Any:
    """The variables that rules write, at their index; those after the last of them go."""
    if not isinstance(env, list):
        return env
    try:
        names = [variable.get("name") for variable in env]
        read = allowed.env.exact.intersection(names)
        if allowed.env.prefixes:
            read |= {name for name in names if name and name.startswith(allowed.env.prefixes)}
    except (AttributeError, TypeError):  # they are no objects with a name
        return env
    return _without_end([variable if name in read else _UNREAD for variable, name in zip(env, names, strict=True)])


def _volumes(volumes: Any, allowed: AllowList, _room: float, _path: Path) -> Any:
    """The host volumes that are read, at their index; those after the last of them go."""
    kept: list[Mapping[str, Any]] = []
    for volume in volumes if isinstance(volumes, list) else ():
        path = at(volume, "hostPath", "path") if isinstance(volume, dict) else None
        read = isinstance(path, str) and (
            path in allowed.host_paths or any(allowed.protected["host_paths"].at_path(device_access.real_path(path)))
        )
        kept.append({"name": volume.get("name"), "hostPath": volume["hostPath"]} if read else _UNREAD)
    return _without_end(kept)


def _mounts(mounts: Any, allowed: AllowList, _room: float, _path: Path) -> Any:
    """The mounts that are read, at their index; those after the last of them go."""
    kept: list[Mapping[str, Any]] = []
    for mount in objects(mounts):
        path = str(mount.get("mountPath"))
        read = path in allowed.host_paths or allowed.protected["mount_paths"].may_hold(path)
        kept.append({"name": mount.get("name"), "mountPath": path} if read else _UNREAD)
    return _without_end(kept)


def _without_end(kept: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The list without what nothing reads at its end."""
    while kept and kept[-1] is _UNREAD:
        kept.pop()
    return kept


def _affinity(required: Any, _allowed: AllowList, room: float, _path: Path) -> Any:
    """The required node affinity, whole, if its terms are not too many or too large."""
    terms = _list(required, "nodeSelectorTerms")
    if len(terms) > _TERMS.most * room:
        raise ExcessError(_TERMS, len(terms), TERMS, room)
    lists = ("matchExpressions", "matchFields")
    requirements = [requirement for term in terms for key in lists for requirement in _list(term, key)]
    values = sum(len(_list(requirement, "values")) for requirement in requirements)
    for limit, number in ((_REQUIREMENTS, len(requirements)), (_VALUES, values)):
        if number > limit.most * room:
            raise ExcessError(limit, number, TERMS, room)
    return required


def _list(holder: Any, key: str) -> list[Any]:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def _spec(spec: Any, allowed: AllowList, room: float, path: Path) -> Any:
    """The spec, if its containers are not too many, and their limits and requests together."""
    if not isinstance(spec, dict):
        return spec
    containers = [*_list(spec, "initContainers"), *_list(spec, "containers"), *_list(spec, "ephemeralContainers")]
    if len(containers) > _CONTAINERS.most * room:
        raise ExcessError(_CONTAINERS, len(containers), (*path, "containers"), room)
    number = 0
    for container in containers:
        resources = container.get("resources") if isinstance(container, dict) else None
        if isinstance(resources, dict):
            sections = resources.get("limits"), resources.get("requests")
            number += sum([len(section) for section in sections if isinstance(section, dict)])
    if number > _AMOUNTS.most * room:
        raise ExcessError(_AMOUNTS, number, (*path, "containers"), room)
    return _fields(spec, allowed, room, path, _SPEC)


_METADATA: Final = {
    "namespace": _Field(),
    "labels": _Field(LABELS, keys="labels"),
    "annotations": _Field(ANNOTATIONS, keys="annotations"),
}
_CLAIM: Final = dict.fromkeys(("name", "resourceClaimTemplateName"), _Field())
_SECURITY: Final = dict.fromkeys(("privileged", "runAsUser", "capabilities", "windowsOptions", "procMount"), _Field())
_RESOURCES: Final = {
    **dict.fromkeys(("limits", "requests"), _Field(keys="resources")),
    "claims": _Field(Limit(100, "claims in a container", _FEWER), partial(_elements, fields=_CLAIM)),
}
_CONTAINER: Final = {
    "name": _Field(),
    "restartPolicy": _Field(),
    "resources": _Field(read=partial(_fields, fields=_RESOURCES)),
    "env": _Field(
        Limit(1000, "variables in a container", "put them into a ConfigMap, and name that in envFrom"), _env
    ),
    "securityContext": _Field(read=partial(_fields, fields=_SECURITY)),
    "volumeMounts": _Field(Limit(1000, "mounts in a container", "mount the folder above"), _mounts),
}
_NODE_AFFINITY: Final = _Field(read=partial(_fields, fields={REQUIRED: _Field(read=_affinity)}))
_SPEC: Final = {
    "nodeSelector": _Field(Limit(300, "node labels in its nodeSelector", _SELECT)),
    "tolerations": _Field(
        Limit(300, "tolerations", "write one with the operator Exists instead of one for each value")
    ),
    "resourceClaims": _Field(Limit(100, "resource claims", _FEWER), partial(_elements, fields=_CLAIM)),
    "volumes": _Field(Limit(1000, "volumes", _FEWER), _volumes),
    **dict.fromkeys(("schedulerName", "runtimeClassName", "nodeName", "hostIPC", "hostPID"), _Field()),
    "terminationGracePeriodSeconds": _Field(),
    "securityContext": _Field(read=partial(_fields, fields=_SECURITY)),
    **dict.fromkeys(SECTIONS, _Field(read=partial(_elements, fields=_CONTAINER))),
    "affinity": _Field(read=partial(_fields, fields={"nodeAffinity": _NODE_AFFINITY})),
}
_POD: Final = {"metadata": _Field(read=partial(_fields, fields=_METADATA)), "spec": _Field(read=_spec)}
