"""What an API server does with a pod and a patch, as far as it matters which pods it stores.

Written from RFC 6902 and from the validation of Kubernetes (pkg/apis/core/validation), apart from `webhook/core`.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

Object = Mapping[str, Any]

_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?"
)
_SUFFIXES: Final = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9), "": Fraction(1),
}  # fmt: skip
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_SOURCES: Final = {
    "configMapKeyRef": "key", "secretKeyRef": "key", "fileKeyRef": "key",
    "fieldRef": "fieldPath", "resourceFieldRef": "resource",
}  # fmt: skip
_OWN: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")


class NotTakenError(Exception):
    """The API server refuses the pod; the message says why."""


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after JSON Patch operations of the kinds that our webhook makes."""
    root = {"": document}
    for operation in operations:
        holder, key = _place(root, operation["path"])
        match operation["op"]:
            case "add" if isinstance(holder, list):
                holder.insert(len(holder) if key == "-" else _index(holder, key, 1), operation["value"])
            case "add":
                holder[key] = operation["value"]
            case "replace" if isinstance(holder, list):
                holder[_index(holder, key)] = operation["value"]
            case "replace":
                assert key in holder
                holder[key] = operation["value"]
            case "remove" if isinstance(holder, list):
                del holder[_index(holder, key)]
            case "remove":
                del holder[key]
            case other:
                raise AssertionError(other)
    return root[""]


def _place(root: Any, pointer: str) -> tuple[Any, str]:
    """The holder that a pointer leads into, and the last step."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]
    at = root
    for step in steps[:-1]:
        at = at[_index(at, step)] if isinstance(at, list) else at[step]
    assert isinstance(at, dict | list), pointer
    return at, steps[-1]


def _index(there: list[Any], step: str, beyond: int = 0) -> int:
    assert re.fullmatch("0|[1-9][0-9]*", step), step
    assert int(step) < len(there) + beyond, step
    return int(step)


def amount(value: Any) -> Fraction:
    """A quantity as Kubernetes reads it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise NotTakenError(f"{value!r} is no quantity")
    match = _QUANTITY.fullmatch(str(value))
    if match is None or len(str(value)) > 100 or len(match[3] or "") > 3:
        raise NotTakenError(f"{value!r} is no quantity")
    return Fraction(match[1]) * _SUFFIXES[match[2] or ""] * Fraction(10) ** int(match[3] or 0)


def check(pod: Any) -> None:
    """Raise NotTakenError for a pod that an API server would not store."""
    metadata, spec = _object(pod, "metadata"), _object(pod, "spec")
    for section, values in (("labels", _VALUE), ("annotations", re.compile("(?s:.*)"))):
        for key, value in _object(metadata, section).items():
            _take(_is_qualified(key), key)
            _take(isinstance(value, str) and values.fullmatch(value), value)
    _check_placing(spec)
    claims = [_text(claim, "name") for claim in _objects(spec, "resourceClaims")]
    _take(len(claims) == len({*claims}) and all(map(_LABEL.fullmatch, claims)), claims)
    volumes = [_check_volume(each) for each in _objects(spec, "volumes")]
    _take(len(volumes) == len({*volumes}), volumes)
    names = [_check_container(each, claims, volumes) for each in containers(spec)]
    _take(len(names) == len({*names}) and spec.get("containers"), names)
    _take(not spec.get("ephemeralContainers"), "ephemeralContainers of a new pod")


def containers(spec: Object) -> Iterator[Object]:
    """The containers that start with a pod."""
    yield from _objects(spec, "initContainers")
    yield from _objects(spec, "containers")


def _check_source(variable: Object) -> None:
    """A variable's value is said, or taken from one place."""
    if variable.get("valueFrom") is None:
        _text(variable, "value")
        return
    sources = _object(variable, "valueFrom")
    _take(len(sources) == 1 and not _text(variable, "value"), variable)
    for kind in sources:
        _take(kind in _SOURCES and _text(_object(sources, kind), _SOURCES[kind]), variable)


def _check_volume(volume: Object) -> str:
    host = _object(volume, "hostPath")
    if volume.get("hostPath") is not None:
        path = _text(host, "path")
        _take(path and ".." not in path.split("/"), host)
    name = _text(volume, "name")
    _take(_LABEL.fullmatch(name), name)
    return name


def _check_container(container: Object, claims: list[str], volumes: list[str]) -> str:
    name = _text(container, "name")
    _take(_LABEL.fullmatch(name), name)
    resources = _object(container, "resources")
    limits, requests = _object(resources, "limits"), _object(resources, "requests")
    for resource, value in [*limits.items(), *requests.items()]:
        _take(amount(value) >= 0, value)
        if not _OWN.fullmatch(resource):
            _take("/" in resource and _is_qualified(resource), resource)
            _take(amount(value) % 1 == 0, value)
    for resource, value in requests.items():
        if not _OWN.fullmatch(resource):
            _take(resource in limits and amount(limits[resource]) == amount(value), f"{resource} is overcommitted")
    for claim in _objects(resources, "claims"):
        _take(_text(claim, "name") in claims, claim)
    for variable in _objects(container, "env"):
        _take(_text(variable, "name"), variable)
        _check_source(variable)
    for mount in _objects(container, "volumeMounts"):
        _take(_text(mount, "mountPath") and _text(mount, "name") in volumes, mount)
    context = _object(container, "securityContext")
    _take(context.get("privileged") in (None, True, False), context)
    added = _object(context, "capabilities").get("add") or []
    _take(isinstance(added, list) and all(isinstance(each, str) for each in added), added)
    _take(container.get("restartPolicy") in (None, "Always"), "restartPolicy")
    return name


def _check_placing(spec: Object) -> None:
    for key in ("schedulerName", "runtimeClassName", "nodeName", "restartPolicy"):
        _text(spec, key)
    for key, value in _object(spec, "nodeSelector").items():
        _take(_is_qualified(key) and isinstance(value, str) and _VALUE.fullmatch(value), value)
    for toleration in _objects(spec, "tolerations"):
        for key in ("key", "operator", "value", "effect"):
            _text(toleration, key)
    node = _object(
        _object(_object(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in _objects(node, "nodeSelectorTerms"):
        for one in [*_objects(term, "matchExpressions"), *_objects(term, "matchFields")]:
            _take(_is_qualified(_text(one, "key")), one)
            values = one.get("values") or []
            _take(isinstance(values, list) and all(isinstance(each, str) for each in values), one)
            known = {"In": 1, "NotIn": 1, "Exists": 0, "DoesNotExist": 0, "Gt": 1, "Lt": 1}
            _take(bool(values) == known.get(_text(one, "operator"), 2), one)


def _is_qualified(key: object) -> bool:
    """Whether it can be the key of a label, an annotation or a resource."""
    if not isinstance(key, str):
        return False
    prefix, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and bool(_SUBDOMAIN.fullmatch(prefix) if slash else not prefix)


def _object(holder: Any, key: str) -> Object:
    found = holder.get(key) if isinstance(holder, dict) else None
    _take(isinstance(holder, dict) and (found is None or isinstance(found, dict)), key)
    return found or {}


def _objects(holder: Any, key: str) -> list[Object]:
    found = holder.get(key)
    _take(found is None or (isinstance(found, list) and all(isinstance(each, dict) for each in found)), key)
    return found or []


def _text(holder: Object, key: str) -> str:
    found = holder.get(key)
    _take(found is None or isinstance(found, str), key)
    return found or ""


def _take(fine: object, what: object) -> None:
    if not fine:
        raise NotTakenError(str(what))
