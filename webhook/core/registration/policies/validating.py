"""ValidatingAdmissionPolicies: what the API server refuses alone, even if our webhooks are deleted (Kubernetes 1.30).

Each refuses a part of what the webhook refuses, by the documents of a rules directory. Where CEL cannot tell what the
webhook knows the pod is admitted: a pod with a resource of any vendor may be served by any enabled back end, `..` in
a mount path is not resolved, and a namespace without a policy is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.core.kube.cel import listed, text
from webhook.core.plan import shortfall
from webhook.core.policy import device_access
from webhook.core.registration.policies import bypasses, ceilings, guards, objects, tenants, untranslated
from webhook.core.registration.policies.objects import CHANGED, CREATED, Family, Object, of_pods
from webhook.core.rules import cluster
from webhook.core.rules.protected_names import names
from webhook.core.rules.protection import Access
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Action

WHAT_BECOMES: Final[Mapping[Action, frozenset[Access]]] = {
    "deny": frozenset({"deny", "remove"}),
    "warn": frozenset({"warn"}),
}

_KINDS: Final = {
    "labels": "the label",
    "annotations": "the annotation",
    "runtimeClasses": "the runtime class",
    "env": "the variable",
    "volumeMounts": "the mount at",
    "flags": "",
    "capabilities": "the capability",
    "hostPaths": "the host path",
}
_REACHES: Final = f"may give devices that the pod does not ask for, {device_access.UNCOUNTED}; {device_access.FIX}"
_UNTRANSLATED: Final = {
    "expression": "!variables.asked || variables.none || variables.served",
    "message": "[GPU601] the pod asks for a GPU and has no GPU resource: the webhook gpu-webhook did not see it, or"
    f" another one took its work away; {shortfall.CREATE_AGAIN}",
    "reason": "Forbidden",
}


def render(rulebook: Rulebook, namespace: str = cluster.OWN) -> list[Object]:
    """Every policy with its binding, for a server in a namespace."""
    served = {"served": untranslated.carries(rulebook)}
    asking = {**served, **untranslated.variables()}
    shorthand = Family("shorthand", [CREATED], asking, [_UNTRANSLATED], of_pods(rulebook))
    made = [
        each
        for one in (shorthand, *guards.families(rulebook, namespace))
        for each in objects.validating(rulebook, one)
    ]
    for action in WHAT_BECOMES:
        for family in _of_tenants(rulebook, served, action):
            made += objects.validating(rulebook, family, action)
    return made


def _of_tenants(rulebook: Rulebook, served: Mapping[str, str], action: Action) -> Iterator[Family]:
    """What the policies of tenants say, with an action."""
    holding = {"policy": tenants.holding(rulebook.tenancy)}
    if tenant := of_tenants(rulebook, WHAT_BECOMES[action]):
        known, values = names(rulebook.protections), bypasses.Values(one.name for one in rulebook.enabled)
        about = {**holding, "tenant": tenant, "containers": bypasses.CONTAINERS, **served}
        for name, family in (("device-names", bypasses.of_names), ("node-access", bypasses.of_nodes)):
            found = family(known, values)
            refused = [_none_of(section) for section in found if section in _KINDS]
            yield Family(name, [CREATED, CHANGED], {**about, **found}, refused, of_pods(rulebook))
    bounds, exceeded = ceilings.of(rulebook, action)
    if exceeded:
        yield Family("ceilings", [CREATED], {**holding, **bounds}, exceeded, of_pods(rulebook))


def of_tenants(rulebook: Rulebook, accesses: frozenset[Access]) -> str:
    """Whether the policy of the pod's namespace says one of these, and nothing exempts the pod; "" if none does."""
    policies = rulebook.tenancy.policies
    saying = [one.name for one in policies if device_access.action(one, rulebook.cluster) in accesses]
    spared = tenants.spared(rulebook.tenancy, "deviceAccess")
    return f"variables.policy in {listed(saying)} && !({spared})" if saying else ""


def _none_of(section: str) -> Mapping[str, str]:
    """The validation that a section has nothing protected."""
    found, kind = f"variables.{section}", _KINDS[section]
    said = f"'[{device_access.CODE}] {kind}{' ' * bool(kind)}' + {found}.join(', ') + ' ' + "
    return {
        "expression": f"!variables.tenant || {found}.size() == 0",
        "messageExpression": f"{said}{text(_REACHES)}",
        "message": f"[{device_access.CODE}] something in {section} {_REACHES}",
        "reason": "Forbidden",
    }
