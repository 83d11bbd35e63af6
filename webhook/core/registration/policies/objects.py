"""Admission policies in CEL, each with its binding, which leaves the exempt namespaces out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.core.kube.cel import like, listed
from webhook.core.policy import device_access
from webhook.core.policy.membership import NAME_LABEL, is_of_one_tenant
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Action

Object = dict[str, Any]

_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"]}
CREATED: Final = {**_PODS, "operations": ["CREATE"], "resources": ["pods"]}
DEBUGGED: Final = {**_PODS, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]}
CHANGED: Final = {
    **_PODS,
    "operations": ["UPDATE"],
    "resources": ["pods", "pods/ephemeralcontainers", "pods/status"],
}

_BY_A_PERSON: Final = """\
request.operation == 'CREATE' || request.?subResource.orValue('') == 'ephemeralcontainers' ||
!request.userInfo.username.startsWith('system:') ||
[request.userInfo.username.split(':')].exists(user, user[1] == 'serviceaccount' &&
  (user[2] == request.namespace || %s))"""

NOT_OF_A_FILE: Final = {
    "name": "not-of-a-file",
    "expression": f"""\
!('{device_access.MIRROR}' in object.metadata.?annotations.orValue({{}})) ||
request.userInfo.username != 'system:node:' + object.spec.?nodeName.orValue('')""",
}


def of_pods(rulebook: Rulebook) -> Sequence[Object]:
    """Which requests about pods are judged. Schedulers and kubelets write into pods that exist, to give devices.

    A service account is a tenant's if a policy has its namespace by name: labels of other namespaces are not seen.
    """
    tenants = [one for one in rulebook.tenancy.policies if is_of_one_tenant(one, rulebook)]
    theirs = like({name for one in tenants for name in one.namespaces.names}, "user[2]")
    spared = listed(sorted(rulebook.cluster.system_namespaces))
    by_a_person = _BY_A_PERSON % f"(!(user[2] in {spared}) && ({theirs}))"
    return [{"name": "by-a-person", "expression": by_a_person}, NOT_OF_A_FILE]


class Family(NamedTuple):
    """What one policy is about.

    rules       on which requests it is evaluated
    said        its validations, or its mutations
    conditions  which of the requests it leaves out
    """

    name: str
    rules: Sequence[Object]
    variables: Mapping[str, str]
    said: Sequence[Mapping[str, Any]]
    conditions: Sequence[Object] = ()


def validating(rulebook: Rulebook, family: Family, action: Action = "deny") -> Iterator[Object]:
    """A policy that refuses a request, or warns of it, and its binding."""
    name = f"gpu-webhook-{family.name}{'' if action == 'deny' else f'-{action}'}"
    yield _policy("Validating", name, family, validations=[*family.said])
    yield _binding("Validating", name, rulebook, validationActions=[action.capitalize()])


def mutating(rulebook: Rulebook, family: Family) -> Iterator[Object]:
    """A policy that changes a pod, also once a webhook has added a container, and its binding."""
    name = f"gpu-webhook-{family.name}"
    yield _policy("Mutating", name, family, mutations=[*family.said], reinvocationPolicy="IfNeeded")
    yield _binding("Mutating", name, rulebook)


def _policy(kind: str, name: str, family: Family, **spec: Any) -> Object:
    return _object(
        f"{kind}AdmissionPolicy",
        name,
        failurePolicy="Fail",
        matchConstraints={"resourceRules": [*family.rules]},
        matchConditions=[*family.conditions],
        variables=[{"name": key, "expression": expression} for key, expression in family.variables.items()],
        **spec,
    )


def _binding(kind: str, name: str, rulebook: Rulebook, **spec: Any) -> Object:
    exempt = {"key": NAME_LABEL, "operator": "NotIn", "values": sorted(rulebook.cluster.system_namespaces)}
    return _object(
        f"{kind}AdmissionPolicyBinding",
        name,
        policyName=name,
        matchResources={"namespaceSelector": {"matchExpressions": [exempt]}},
        **spec,
    )


def _object(kind: str, name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
