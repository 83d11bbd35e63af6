"""The projection of a pod: the part that rules and policies read. All else is removed before a decision is made.

The allow-list of what may be read is made from a rulebook when it is first used. A rule or policy that reads another
label, annotation, env name or host path extends the list by being loaded. So no decision can depend on what is not
listed, and pods with equal projections get equal decisions, which the server remembers (`server/memo.py`).

A pruned pod keeps its shape: mappings and lists stay where they are, and elements keep their index. So an edit of the
pruned pod is the same edit of the whole pod. A field of a wrong shape is kept whole, so that `kube.pod` refuses it by
its path. Nothing depends on a pod that is over the budget and asks for no GPU: its projection is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from webhook.core.interpret import extended_resources, interpret, locations
from webhook.core.interpret.locations import BEGINNINGS
from webhook.core.kube.fields import Path, at, field_path, mapping, objects
from webhook.core.kube.node_affinity import TERMS
from webhook.core.kube.pod import SECTIONS
from webhook.core.plan import allocation
from webhook.core.policy import device_access, unknown_devices
from webhook.core.policy.membership import member
from webhook.core.request import PREFIX
from webhook.core.review import AdmissionRequest
from webhook.core.rules.protection import ProtectedNames
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

# The budget of a review: how many of everything a pod may have if it asks for a GPU.


class Limit(NamedTuple):
    """The most of one thing, its name for people, and how to have fewer."""

    most: int
    what: str
    fix: str


_BUDGET_UNREAD: Final = "leave out those that nothing reads"
_FEWER: Final = "make several pods of it"
_SELECT: Final = "give those nodes one label, and select by that"

CONTAINERS: Final = Limit(128, "containers", _FEWER)
AMOUNTS: Final = Limit(1500, "limits and requests in its containers", _BUDGET_UNREAD)
SELECTORS: Final = Limit(100, "nodeSelectorTerms", _SELECT)
REQUIREMENTS: Final = Limit(1000, "requirements in its nodeSelectorTerms", _SELECT)
VALUES: Final = Limit(5000, "values in its nodeSelectorTerms", _SELECT)
BYTES: Final = Limit(256 << 10, "bytes of names and values that rules read", "write shorter ones")

OF_METADATA: Final[Mapping[str, Limit]] = {
    "labels": Limit(500, "labels", _BUDGET_UNREAD),
    "annotations": Limit(1000, "annotations", _BUDGET_UNREAD),
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


def check_budget(pod: Mapping[str, Any]) -> None:
    """Raise ExcessError for the first thing of which a pod has too much. Only lengths are looked at.

    A pod with a UID has passed /mutate, which may have added to it, so it may have twice as much.
    """
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    room = 2 if metadata.get("uid") else 1
    _lengths(metadata, OF_METADATA, ("metadata",), room)
    _lengths(spec, OF_SPEC, ("spec",), room)
    lists = [(section, found) for section in SECTIONS if isinstance(found := spec.get(section), list)]
    within_budget(CONTAINERS, sum(len(found) for _, found in lists), ("spec", "containers"), room)
    amounts = sum(
        _budget_container(container, ("spec", section, index), room)
        for section, found in lists
        for index, container in enumerate(found)
        if isinstance(container, dict)
    )
    within_budget(AMOUNTS, amounts, ("spec", "containers"), room)
    if spec.get("affinity"):
        _check_terms(pod, room)


def _budget_container(container: Mapping[str, Any], path: Path, room: int) -> int:
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
            within_budget(limit, len(value), (*path, key), room)


def _check_terms(pod: Mapping[str, Any], room: int) -> None:
    terms = _list(at(pod, *TERMS))
    within_budget(SELECTORS, len(terms), TERMS, room)
    requirements = [one for term in terms for one in _requirements(term)]
    within_budget(REQUIREMENTS, len(requirements), TERMS, room)
    within_budget(VALUES, sum(len(_list(at(one, "values"))) for one in requirements), TERMS, room)


def _requirements(term: Any) -> Iterator[Any]:
    for key in ("matchExpressions", "matchFields"):
        yield from _list(at(term, key))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def within_budget(limit: Limit, found: int, path: Path, room: int = 1) -> None:
    """Raise ExcessError if there is more than the limit, or more than `room` times that."""
    if found > limit.most * room:
        message = (
            f"the pod has {found} {limit.what}, and one that asks for a GPU may have {limit.most * room}: "
            "all other reviews wait while they are read"
        )
        raise ExcessError(Violation(code="GPU003", path=field_path(path), message=message, fix=limit.fix))


# The projection of a pod: the part that rules and policies read. All else is removed before a decision is made.

_SPEC: Final = ("nodeSelector", "tolerations", "schedulerName", "runtimeClassName", "nodeName", "hostIPC", "hostPID")
"""Fields of a pod's spec that are kept whole."""

_CONTAINER: Final = ("name", "restartPolicy")
_SECURITY: Final = ("privileged", "runAsUser", "capabilities", "windowsOptions")
_NODE_AFFINITY: Final = ("requiredDuringSchedulingIgnoredDuringExecution",)
_CLAIM: Final = ("name", "resourceClaimTemplateName")
_REQUIREMENTS: Final = ("limits", "requests")

_EMPTY: Final[Mapping[str, Any]] = {"metadata": {}, "spec": {}}
_UNREAD: Final[Mapping[str, Any]] = {}
"""Replaces an environment variable that nothing reads, so that those after it keep their index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """What rules and policies may read of a pod, beside the fields above.

    labels        keys; those that begin with `gpu`, in any capitals, or contain our prefix are always read
    annotations   keys; those that contain our prefix are always read
    prefixes      how further annotations begin, also with `gpu` in any capitals
    beginnings    the same of labels
    env           names of environment variables
    env_prefixes  how further names of environment variables begin
    resources     names of resources; those with a `/`, or that begin with `gpu`, are always read
    host_paths    paths of host volumes
    protected     protected names, which are read wherever they stand
    """

    labels: frozenset[str]
    annotations: frozenset[str]
    prefixes: tuple[str, ...]
    beginnings: tuple[str, ...]
    env: frozenset[str]
    env_prefixes: tuple[str, ...]
    resources: frozenset[str]
    host_paths: frozenset[str]
    protected: Mapping[str, ProtectedNames]


def project(request: AdmissionRequest, rulebook: Rulebook) -> AdmissionRequest:
    """The request with its pods pruned to what the rulebook reads; a pruned request stays as it is.

    Raises Refusal (GPU003) for a pod that is over the budget of a review and asks for a GPU.
    """
    allowed = allow_list(rulebook)
    if request.projection is allowed:
        return request
    try:
        pod, text = (None, b"") if request.pod is None else _pruned(request.pod, allowed)
        old_pod = None if request.old_pod is None else _before(request.old_pod, rulebook)
    except ExcessError as excess:
        if _depends(request, rulebook):
            raise Refusal(excess.violation) from None
        pod, old_pod, text = _EMPTY, None if request.old_pod is None else _EMPTY, b""
    return request._replace(pod=pod, old_pod=old_pod, projection=allowed, text=text)


def _pruned(pod: Mapping[str, Any], allowed: AllowList) -> tuple[Mapping[str, Any], bytes]:
    """The pruned pod, also as JSON, which is empty if it is nested too deep for that. Raises ExcessError."""
    check_budget(pod)
    pruned = prune(pod, allowed)
    try:
        text = orjson.dumps(pruned)
    except TypeError:
        text = b""
    within_budget(BYTES, len(text), ("spec",))
    return pruned, text


def _before(old_pod: Mapping[str, Any], rulebook: Rulebook) -> Mapping[str, Any]:
    """The pruned pod before an update, which is never refused for its size."""
    try:
        check_budget(old_pod)
    except ExcessError:
        if not _concerns_gpus(old_pod, rulebook):
            return _EMPTY
    return prune(old_pod, allow_list(rulebook))


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
    allowed = allow_list(rulebook)
    after, before = (_metadata(mapping(pod, "metadata"), allowed) for pod in there)
    return after != before


def _concerns_gpus(pod: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether anything in a pod of any size may concern a rule or a policy."""
    labels, annotations = mapping(pod, "metadata", "labels"), mapping(pod, "metadata", "annotations")
    if interpret.metadata_concerns_gpus(labels, annotations, rulebook):
        return True
    if unknown_devices.asks_disabled(labels, annotations, rulebook):
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


# The allow-list


def allow_list(rulebook: Rulebook) -> AllowList:
    """What a rulebook and its policies read of a pod; made once for each rulebook."""
    known: AllowList | None = rulebook.cache.get(AllowList)
    if known is None:
        known = rulebook.cache[AllowList] = _allow_list(rulebook)
    return known


def _allow_list(rulebook: Rulebook) -> AllowList:
    modes = [mode for backend in rulebook.backends.values() for mode in backend.modes]
    outputs = [*(mode.outputs for mode in modes), *(each.inject.outputs for each in rulebook.backends.values())]
    companions = [mode.companions for mode in modes if mode.companions is not None]
    policies = rulebook.tenancy.policies
    reserved = sorted({key for each in companions for key in each.reserved})
    protected = device_access.minded(rulebook)
    return AllowList(
        labels=_union(
            protected["labels"].exact,
            rulebook.all_slots["label"],
            *(each.labels for each in outputs),
            *(policy.labels for policy in policies),
        ),
        annotations=_union(
            ("gpu", locations.DEFAULT_CONTAINER, device_access.MIRROR),
            protected["annotations"].exact,
            rulebook.all_slots["annotation"],
            rulebook.all_annotations,
            allocation.addresses(rulebook),
            *(each.annotations for each in outputs),
            *(policy.annotations for policy in policies),
            (key for key in reserved if "*" not in key),
        ),
        prefixes=(
            *BEGINNINGS,
            *protected["annotations"].beginnings,
            *sorted({key.partition("*")[0] for key in reserved if "*" in key}),
            *(prefix for source in rulebook.sources for prefix in source.prefixes),
            *sorted({slot.head for slot in rulebook.per_container}),
        ),
        beginnings=(*BEGINNINGS, *protected["labels"].beginnings),
        env=_union(protected["env"].exact, *(mode.outputs.env for mode in modes)),
        env_prefixes=protected["env"].beginnings,
        resources=_union(rulebook.resources, locations.RESOURCES),
        host_paths=frozenset(each.requires["hostPath"] for each in companions if "hostPath" in each.requires),
        protected=protected,
    )


def _union(*keys: Iterable[str]) -> frozenset[str]:
    return frozenset(chain.from_iterable(keys))


# The pod


def prune(pod: Mapping[str, Any], allowed: AllowList) -> Mapping[str, Any]:
    """The pod with only what may be read."""
    return {
        key: _PARTS[key](part, allowed) if isinstance(part, dict) else part
        for key, part in pod.items()
        if key in _PARTS
    }


def _metadata(metadata: Mapping[str, Any], allowed: AllowList) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    if "namespace" in metadata:
        kept["namespace"] = metadata["namespace"]
    if "labels" in metadata:
        kept["labels"] = _labels(metadata["labels"], allowed)
    if "annotations" in metadata:
        kept["annotations"] = _annotations(metadata["annotations"], allowed)
    return kept


def _labels(labels: Any, allowed: AllowList) -> Any:
    if not isinstance(labels, dict):
        return labels
    keys, beginnings = allowed.labels, allowed.beginnings
    return {key: value for key, value in labels.items() if key in keys or key.startswith(beginnings) or PREFIX in key}


def _annotations(annotations: Any, allowed: AllowList) -> Any:
    if not isinstance(annotations, dict):
        return annotations
    keys, prefixes = allowed.annotations, allowed.prefixes
    return {
        key: value for key, value in annotations.items() if key in keys or PREFIX in key or key.startswith(prefixes)
    }


def _spec(spec: Mapping[str, Any], allowed: AllowList) -> dict[str, Any]:
    kept: dict[str, Any] = _only(spec, _SPEC)
    for section in SECTIONS:
        if section in spec:
            kept[section] = _each(spec[section], _container, allowed)
    if "affinity" in spec:
        kept["affinity"] = _affinity(spec["affinity"])
    if "securityContext" in spec:
        kept["securityContext"] = _only(spec["securityContext"], _SECURITY)
    if "resourceClaims" in spec:
        kept["resourceClaims"] = _each(spec["resourceClaims"], _claim, allowed)
    if "volumes" in spec:
        kept["volumes"] = _host_volumes(spec["volumes"], allowed)
    return kept


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any], AllowList], dict[str, Any]]]] = {
    "metadata": _metadata,
    "spec": _spec,
}


def _affinity(affinity: Any) -> Any:
    if not isinstance(affinity, dict):
        return affinity
    return {"nodeAffinity": _only(affinity["nodeAffinity"], _NODE_AFFINITY)} if "nodeAffinity" in affinity else {}


def _container(container: Any, allowed: AllowList) -> Any:
    if not isinstance(container, dict):
        return container
    kept = _only(container, _CONTAINER)
    if "resources" in container:
        kept["resources"] = _resources(container["resources"], allowed)
    if "env" in container:
        kept["env"] = _env(container["env"], allowed)
    if "securityContext" in container:
        kept["securityContext"] = _only(container["securityContext"], _SECURITY)
    if "volumeMounts" in container:
        kept["volumeMounts"] = _mounts(container["volumeMounts"], allowed)
    return kept


def _resources(resources: Any, allowed: AllowList) -> Any:
    if not isinstance(resources, dict):
        return resources
    kept: dict[str, Any] = {}
    for section in _REQUIREMENTS:
        if section in resources:
            kept[section] = _extended(resources[section], allowed.resources)
    if "claims" in resources:
        kept["claims"] = _each(resources["claims"], _claim, allowed)
    return kept


def _extended(amounts: Any, known: frozenset[str]) -> Any:
    if not isinstance(amounts, dict):
        return amounts
    return {
        name: value for name, value in amounts.items() if name in known or "/" in name or name.startswith(BEGINNINGS)
    }


def _env(env: Any, allowed: AllowList) -> Any:
    """The variables that rules write, at their index; those after the last of them go."""
    if not isinstance(env, list):
        return env
    try:
        names = [variable.get("name") for variable in env]
        read = allowed.env.intersection(names)
        if allowed.env_prefixes:
            read |= {name for name in names if name and name.startswith(allowed.env_prefixes)}
    except (AttributeError, TypeError):  # they are no objects with a name
        return env
    if not read:
        return []
    last = max(index for index, name in enumerate(names) if name in read)
    return [env[index] if names[index] in read else _UNREAD for index in range(last + 1)]


def _claim(claim: Any, _: AllowList) -> Any:
    return _only(claim, _CLAIM)


def _host_volumes(volumes: Any, allowed: AllowList) -> Any:
    """The host volumes that are read, at their index; those after the last of them go."""
    return _trimmed([_host_volume(volume, allowed) for volume in (volumes if isinstance(volumes, list) else ())])


def _host_volume(volume: Any, allowed: AllowList) -> Mapping[str, Any]:
    if not isinstance(volume, dict) or "hostPath" not in volume:
        return _UNREAD
    path = at(volume, "hostPath", "path")
    if not isinstance(path, str):
        return _UNREAD
    protected = any(allowed.protected["host_paths"].at_path(device_access.real_path(path)))
    if protected or path in allowed.host_paths:
        return {"name": volume.get("name"), "hostPath": volume["hostPath"]}
    return _UNREAD


def _mounts(mounts: Any, allowed: AllowList) -> Any:
    """The mounts that are read, at their index; those after the last of them go."""
    return _trimmed([_mount(mount, allowed) for mount in objects(mounts)])


def _mount(mount: Mapping[str, Any], allowed: AllowList) -> Mapping[str, Any]:
    path = str(mount.get("mountPath"))
    if path in allowed.host_paths or allowed.protected["mount_paths"].may_hold(path):
        return {"name": mount.get("name"), "mountPath": path}
    return _UNREAD


def _trimmed(kept: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    while kept and kept[-1] is _UNREAD:
        kept.pop()
    return kept


def _each(value: Any, prune: Callable[[Any, AllowList], Any], allowed: AllowList) -> Any:
    return [prune(entry, allowed) for entry in value] if isinstance(value, list) else value


def _only(value: Any, keys: Sequence[str]) -> Any:
    """The mapping with only these keys; what is no mapping stays as it is."""
    return {key: value[key] for key in keys if key in value} if isinstance(value, dict) else value
