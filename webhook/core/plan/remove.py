"""A pod without what its back end needed: the inverse of `plan` and `inject`, as far as rules tell.

A key whose value a rule computes is removed. A key with a constant is removed if it has that value, so a queue or a
scheduler that the author chose stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from webhook.core.kube import node_affinity
from webhook.core.kube.pod import Pod
from webhook.core.plan import resource_claims
from webhook.core.plan.choose import Assignment
from webhook.core.rules.outputs import Constant
from webhook.core.rules.vocabulary import CONTAINER


def bare(pod: Pod, served: Sequence[Assignment]) -> dict[str, Any]:
    """The pod as its author might have written it before a back end was chosen, without empty mappings and lists."""
    metadata = dict(pod.raw.get("metadata") or {})
    for section in ("annotations", "labels"):
        left = _left(metadata.get(section) or {}, section, served)
        metadata = with_value(metadata, section, left)
    spec = dict(pod.spec)
    for key, left in _fields(pod, served).items():
        spec = with_value(spec, key, left)
    for container in pod.containers:
        path = container.path[1:]
        here = [one for one in served if one.asked.container.path == container.path]
        spec = _replaced(spec, path, partial(_container, served=here))
    return {**pod.raw, "metadata": metadata, "spec": spec}


def with_value(holder: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The mapping with the value, or without the key if the value is empty; the order of keys stays."""
    return {name: value if name == key else entry for name, entry in holder.items() if name != key or value}


def _replaced(holder: Any, path: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(holder)
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [_replaced(entry, rest, change) if index == step else entry for index, entry in enumerate(holder)]
    return {key: _replaced(value, rest, change) if key == step else value for key, value in holder.items()}


def _left(present: Mapping[str, Any], section: str, served: Sequence[Assignment]) -> dict[str, Any]:
    """The annotations or labels that neither a rule nor the back end's scheduler wrote."""
    written = [
        {key.replace(CONTAINER, one.asked.container.name): output for key, output in outputs.items()}
        for one in served
        for outputs in [getattr(one.mode.outputs, section)]
    ]
    companions = [one.mode.companions for one in served if one.mode.companions is not None]
    return {
        key: value
        for key, value in present.items()
        if not any(key in outputs and outputs[key].wrote(value) for outputs in written)
        and not any(each.reserves(key) for each in companions)
    }


def _container(raw: Mapping[str, Any], served: Sequence[Assignment]) -> dict[str, Any]:
    container = dict(raw)
    resources = dict(container.get("resources") or {})
    owned = {name for one in served for name in one.backend.owns}
    for section in ("limits", "requests"):
        left = {name: value for name, value in (resources.get(section) or {}).items() if name not in owned}
        resources = with_value(resources, section, left)
    names = {name for one in served for name in resource_claims.names(one.asked.container) if one.mode.claims}
    kept = [claim for claim in resources.get("claims") or () if claim.get("name") not in names]
    env = [entry for entry in container.get("env") or () if not _injected(entry, served)]
    return with_value(with_value(container, "resources", with_value(resources, "claims", kept)), "env", env)


def _injected(variable: Mapping[str, Any], served: Sequence[Assignment]) -> bool:
    outputs = (one.mode.outputs.env for one in served)
    name = variable.get("name")
    return any(name in env and env[name].wrote(variable.get("value")) for env in outputs if name)


def _fields(pod: Pod, served: Sequence[Assignment]) -> Mapping[str, Any]:
    """What is left of each field of the spec that something is injected into."""
    spec, injected = pod.spec, [one.backend.inject for one in served]
    tolerations = [dict(toleration) for each in injected for toleration, _ in each.tolerations]
    labels = {key for one in served for key in one.mode.outputs.node_affinity}
    claims = {name for one in served if one.mode.claims for name in resource_claims.names(one.asked.container)}
    return {
        "schedulerName": _unless(spec.get("schedulerName"), [each.scheduler for each in injected]),
        "runtimeClassName": _unless(spec.get("runtimeClassName"), [each.runtime_class for each in injected]),
        "tolerations": [each for each in spec.get("tolerations") or () if each not in tolerations],
        "nodeSelector": {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in labels},
        "affinity": node_affinity.without(pod, labels) if spec.get("affinity") else None,
        "resourceClaims": [each for each in spec.get("resourceClaims") or () if each.get("name") not in claims],
    }


def _unless(present: Any, constants: Iterable[Constant | None]) -> Any:
    """What the author wrote; None where it is what a rule writes."""
    return None if any(constant and constant.value == present for constant in constants) else present
