"""A pod without what its GPU system needed: the way back from `plan` and `inject`, as far as rules tell it.

A key that a rule computes goes; one that it writes as a constant goes where it has that value, so a queue or a
scheduler that the author chose stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from webhook.core import affinity, claims
from webhook.core.backend import Constant, Output
from webhook.core.choice import Served
from webhook.core.pod import Pod

_INJECTED: Final = ("schedulerName", "runtimeClassName", "tolerations", "nodeSelector", "affinity", "resourceClaims")


def bare(pod: Pod, served: Sequence[Served]) -> dict[str, Any]:
    """The pod as its author might have written it before any system was chosen; empty holders go."""
    metadata = dict(pod.raw.get("metadata") or {})
    for section in ("annotations", "labels"):
        left = _left(metadata.get(section) or {}, section, served)
        metadata = with_value(metadata, section, left)
    spec = dict(pod.spec)
    for field in _INJECTED:
        spec = with_value(spec, field, _FIELDS[field](spec.get(field), pod, served))
    for container in pod.containers:
        path = container.path[1:]
        here = [one for one in served if one.asked.container.path == container.path]
        spec = _replaced(spec, path, partial(_container, served=here))
    return {**pod.raw, "metadata": metadata, "spec": spec}


def with_value(holder: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The holder with the value, or without the key where nothing is left of it; the order of keys stays."""
    return {name: value if name == key else entry for name, entry in holder.items() if name != key or value}


def _replaced(holder: Any, path: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(holder)
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [_replaced(entry, rest, change) if index == step else entry for index, entry in enumerate(holder)]
    return {key: _replaced(value, rest, change) if key == step else value for key, value in holder.items()}


def _left(present: Mapping[str, Any], section: str, served: Sequence[Served]) -> dict[str, Any]:
    """The annotations or labels that no rule wrote, and no scheduler of its system."""
    written = [getattr(one.mode.outputs, section) for one in served]
    reserved = [word for one in served if one.mode.companions for word in one.mode.companions.reserved]
    return {
        key: value
        for key, value in present.items()
        if not any(key in outputs and _wrote(outputs[key], value) for outputs in written)
        and not any(key == word or (word[-1:] == "*" and key.startswith(word[:-1])) for word in reserved)
    }


def _wrote(output: Output, value: Any) -> bool:
    """Whether a rule wrote a value: it computes it, or would write just that."""
    return not isinstance(output, Constant) or value in (
        output.value if isinstance(output.value, tuple) else [output.value]
    )


def _container(raw: Mapping[str, Any], served: Sequence[Served]) -> dict[str, Any]:
    container = dict(raw)
    resources = dict(container.get("resources") or {})
    owned = {name for one in served for name in one.backend.owns}
    for section in ("limits", "requests"):
        left = {name: value for name, value in (resources.get(section) or {}).items() if name not in owned}
        resources = with_value(resources, section, left)
    names = {name for one in served for name in claims.names(one.asked.container) if one.mode.claims}
    kept = [claim for claim in resources.get("claims") or () if claim.get("name") not in names]
    env = [entry for entry in container.get("env") or () if not _injected(entry, served)]
    return with_value(with_value(container, "resources", with_value(resources, "claims", kept)), "env", env)


def _injected(variable: Mapping[str, Any], served: Sequence[Served]) -> bool:
    outputs = (one.mode.outputs.env for one in served)
    name = variable.get("name")
    return any(name in env and _wrote(env[name], variable.get("value")) for env in outputs if name)


def _scheduler(present: Any, _pod: Pod, served: Sequence[Served]) -> Any:
    wanted = [one.backend.inject.scheduler for one in served]
    return None if any(constant and constant.value == present for constant in wanted) else present


def _runtime_class(present: Any, _pod: Pod, served: Sequence[Served]) -> Any:
    wanted = [one.backend.inject.runtime_class for one in served]
    return None if any(constant and constant.value == present for constant in wanted) else present


def _tolerations(present: Any, _pod: Pod, served: Sequence[Served]) -> Any:
    wanted = [dict(toleration) for one in served for toleration, _ in one.backend.inject.tolerations]
    return [toleration for toleration in present or () if toleration not in wanted]


def _node_selector(present: Any, _pod: Pod, served: Sequence[Served]) -> Any:
    keys = _node_labels(served)
    return {key: value for key, value in (present or {}).items() if key not in keys}


def _node_labels(served: Iterable[Served]) -> set[str]:
    return {key for one in served for key in one.mode.outputs.node_affinity}


def _affinity(present: Any, pod: Pod, served: Sequence[Served]) -> Any:
    return affinity.without(pod, _node_labels(served)) if present else present


def _resource_claims(present: Any, _pod: Pod, served: Sequence[Served]) -> Any:
    gone = {name for one in served if one.mode.claims for name in claims.names(one.asked.container)}
    return [claim for claim in present or () if claim.get("name") not in gone]


_FIELDS: Final[Mapping[str, Callable[[Any, Pod, Sequence[Served]], Any]]] = {
    "schedulerName": _scheduler,
    "runtimeClassName": _runtime_class,
    "tolerations": _tolerations,
    "nodeSelector": _node_selector,
    "affinity": _affinity,
    "resourceClaims": _resource_claims,
}
