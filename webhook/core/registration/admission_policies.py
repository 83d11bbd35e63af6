"""ValidatingAdmissionPolicies: what the API server refuses alone, even if our webhooks are deleted (Kubernetes 1.30).

Each refuses a part of what the webhook refuses, by the documents of a rules directory. Where CEL cannot tell what the
webhook knows the pod is admitted: a pod with a resource of any vendor may be served by any enabled back end, `..` in
a mount path is not resolved, and a namespace without a policy is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core.forms.labels import Expression
from webhook.core.policy import device_access
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.registration import protected, untranslated
from webhook.core.registration.cel import any_of, indented, like, listed, text
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.protected_names import names
from webhook.core.rules.protection import Access
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.violations import Action

Object = dict[str, Any]

WHAT_BECOMES: Final[Mapping[Action, frozenset[Access]]] = {
    "deny": frozenset({"deny", "remove"}),
    "warn": frozenset({"warn"}),
}

_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"]}
_CREATED: Final = {**_PODS, "operations": ["CREATE"], "resources": ["pods"]}
_CHANGED: Final = {
    **_PODS,
    "operations": ["UPDATE"],
    "resources": ["pods", "pods/ephemeralcontainers", "pods/status"],
}

_BY_A_PERSON: Final = """\
request.operation == 'CREATE' || !request.userInfo.username.startsWith('system:') ||
request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"""
"""Schedulers and kubelets write into pods that exist, by which devices are given."""

_NOT_MIRRORED: Final = f"""\
!('{device_access.MIRROR}' in object.metadata.?annotations.orValue({{}})) ||
request.userInfo.username != 'system:node:' + object.spec.?nodeName.orValue('')"""

_CONDITIONS: Final = (
    {"name": "by-a-person", "expression": _BY_A_PERSON},
    {"name": "not-of-a-file", "expression": _NOT_MIRRORED},
)

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
_REACHES: Final = "may give devices that the pod does not ask for, and no quota counts that"
_LEAVE_OUT: Final = (
    'leave it out, and ask for GPUs as gpu: "1"; if the pod needs it, ask an operator of the cluster for an Exemption'
    " that lifts deviceAccess"
)
_UNTRANSLATED: Final = {
    "expression": "!variables.asked || variables.none || variables.served",
    "message": "[GPU601] the pod asks for a GPU and has no GPU resource: the webhook gpu-webhook did not see it, or"
    " another one took its work away; create the pod again; if it happens again, show this to an operator of the"
    " cluster",
    "reason": "Forbidden",
}


def render(rulebook: Rulebook) -> list[Object]:
    """Every policy with its binding; those of protected names for the tenants whose pods are judged by them."""
    served = {"served": untranslated.carries(rulebook)}
    made = [
        *_policy(rulebook, "shorthand", "deny", [_CREATED], {**served, **untranslated.variables()}, [_UNTRANSLATED])
    ]
    known, values = names(rulebook.protections), protected.Values(one.name for one in rulebook.enabled)
    families = {"device-names": protected.of_names(known, values), "node-access": protected.of_nodes(known, values)}
    for action, accesses in WHAT_BECOMES.items():
        tenant = _tenant(rulebook, accesses)
        for name, found in families.items() if tenant else ():
            refused = [_none_of(section) for section in found if section in _KINDS]
            variables = {"tenant": tenant, "containers": protected.CONTAINERS, **served, **found}
            made += _policy(rulebook, name, action, [_CREATED, _CHANGED], variables, refused)
    return made


def _none_of(section: str) -> Object:
    """The validation that a section has nothing protected."""
    found, kind = f"variables.{section}", _KINDS[section]
    said = f"'[{device_access.CODE}] {kind}{' ' * bool(kind)}' + {found}.join(', ') + ' ' + "
    return {
        "expression": f"!variables.tenant || {found}.size() == 0",
        "messageExpression": f"{said}{text(f'{_REACHES}; {_LEAVE_OUT}')}",
        "message": f"[{device_access.CODE}] something in {section} {_REACHES}; {_LEAVE_OUT}",
        "reason": "Forbidden",
    }


def _policy(
    rulebook: Rulebook,
    family: str,
    action: Action,
    rules: Sequence[Object],
    variables: Mapping[str, str],
    validations: Sequence[Object],
) -> Iterator[Object]:
    """A policy and its binding, which leaves the exempt namespaces out."""
    name = f"gpu-webhook-{family}{'' if action == 'deny' else f'-{action}'}"
    exempt = {"key": NAME_LABEL, "operator": "NotIn", "values": sorted(rulebook.cluster.system_namespaces)}
    yield _object(
        "ValidatingAdmissionPolicy",
        name,
        failurePolicy="Fail",
        matchConstraints={"resourceRules": [*rules]},
        matchConditions=[*_CONDITIONS],
        variables=[{"name": key, "expression": expression} for key, expression in variables.items()],
        validations=[*validations],
    )
    yield _object(
        "ValidatingAdmissionPolicyBinding",
        name,
        policyName=name,
        validationActions=[action.capitalize()],
        matchResources={"namespaceSelector": {"matchExpressions": [exempt]}},
    )


def _object(kind: str, name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


# Whose pods


def _tenant(rulebook: Rulebook, accesses: frozenset[Access]) -> str:
    """Whether the policy of the pod's namespace says one of these, and nothing exempts the pod; "" if none does."""
    tenancy = rulebook.tenancy
    policies = [one for one in tenancy.policies if device_access.action(one, rulebook.cluster) in accesses]
    if not policies:
        return ""
    theirs = any_of(_holds(one, tenancy.policies) for one in policies)
    lifted = any_of(_lifts(one) for one in tenancy.exemptions if "deviceAccess" in one.lifts)
    labels = "[namespaceObject.metadata.?labels.orValue({})]"
    return f"!({lifted}) && {labels}.exists(labels,\n{indented(theirs)})"


def _holds(policy: TenantPolicy, every: Iterable[TenantPolicy]) -> str:
    """Whether a policy selects the namespace, and none selects it that has its priority or a higher one."""
    others = [one for one in every if one is not policy and one.priority >= policy.priority]
    return f"({_selects(policy)} && !({any_of(map(_selects, others))}))"


def _selects(policy: TenantPolicy) -> str:
    """As `membership.selects`."""
    named, selector = policy.namespaces.names, policy.namespaces.selector
    conditions = [like(named, "request.namespace")] if named else []
    conditions += [] if selector is None else [" && ".join(map(_matches, selector)) or "true"]
    return f"({any_of(conditions)})"


def _matches(expression: Expression) -> str:
    there = f"{text(expression.key)} in labels"
    match expression.operator:
        case "In" | "NotIn":
            there += f" && labels[{text(expression.key)}] in {listed(expression.values)}"
            return f"({there})" if expression.operator == "In" else f"!({there})"
        case "Exists":
            return there
        case _:
            return f"!({there})"


def _lifts(exemption: Exemption) -> str:
    """Whether an exemption is for the pod; CEL has no clock, so one that has ended holds until the next rendering."""
    users = like(exemption.users, "request.userInfo.username") if exemption.users else "true"
    return f"(({like(exemption.namespaces, 'request.namespace')}) && ({users}))"
