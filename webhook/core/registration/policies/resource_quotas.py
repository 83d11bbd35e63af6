"""Kubernetes' own ResourceQuotas: bounds of tenants with one namespace, which hold without the webhook.

A resource each of which is a whole device is bounded by the devices of the tenant's quota. The webhook counts at
least as many, as it counts all resources together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webhook.core.policy.membership import selects
from webhook.core.quota import tally
from webhook.core.rules.modes import Mode
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.rules.vocabulary import Slot


def render(rulebook: Rulebook) -> Iterator[dict[str, Any]]:
    """A ResourceQuota for each tenant that has one namespace, by name, and no Exemption from its quota there."""
    resources = whole_devices(rulebook)
    for policy in rulebook.tenancy.policies:
        namespace = _only(policy, rulebook)
        devices = policy.quota.hard.get(tally.DEVICES) if policy.quota and policy.quota.action == "deny" else None
        if namespace and resources and devices is not None:
            yield {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "gpu-webhook", "namespace": namespace},
                "spec": {"hard": {f"requests.{name}": str(int(devices)) for name in resources}},
            }


def whole_devices(rulebook: Rulebook) -> list[str]:
    """The resources each of which is a whole device."""
    return sorted(name for name, known in rulebook.resources.items() if _is_whole(known))


def _is_whole(resource: Resource) -> bool:
    """Whether each of a resource is a device, whichever back end it may be of."""
    backends = resource.known if resource.shared else resource.owners
    modes = [mode for backend in backends for mode in backend.modes if resource.name in mode.amounts]
    return bool(resource.owners) and not isinstance(resource.name, Slot) and all(_whole(mode) for mode in modes)


def _whole(mode: Mode) -> bool:
    """Whether a mode is for whole devices, and writes their number and nothing else."""
    return mode.when.devices == "whole" and [amount.what for amount in mode.amounts.values()] == ["count"]


def _only(policy: TenantPolicy, rulebook: Rulebook) -> str:
    """The one namespace of a policy; empty if it may have others, or something else may hold there."""
    names: Sequence[str] = policy.namespaces.names
    if len(names) != 1 or set(names[0]) & set("*?") or policy.namespaces.selector is not None:
        return ""
    others = [one for one in rulebook.tenancy.policies if one is not policy and one.priority >= policy.priority]
    may_be = any(one.namespaces.selector is not None or selects(one.namespaces, names[0], {}) for one in others)
    spared = any("quota" in one.lifts and one.covers(names[0]) for one in rulebook.tenancy.exemptions)
    return "" if may_be or spared or rulebook.cluster.exempts(names[0]) else names[0]
