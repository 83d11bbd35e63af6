"""ValidatingAdmissionPolicies: what the API server refuses alone, even if our webhooks are deleted (Kubernetes 1.30).

Each refuses a part of what the webhook refuses, by the documents of a rules directory. Where CEL cannot tell what the
webhook knows the pod is admitted: a pod with a resource of any vendor may be served by any enabled back end, `..` in
a mount path is not resolved, and a namespace without a policy is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import floor
from typing import Any, Final, NamedTuple

from webhook.core import request
from webhook.core.forms.document import API_VERSION
from webhook.core.forms.labels import Expression
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.pod import CORE
from webhook.core.plan import allocation
from webhook.core.policy import device_access
from webhook.core.policy.membership import NAME_LABEL, is_of_one_tenant, selects
from webhook.core.quota import tally
from webhook.core.registration import bypasses, conditions, configurations
from webhook.core.registration.conditions import any_of, indented, like, list_literal, literal
from webhook.core.request import ASKING, PREFIX
from webhook.core.rules import cluster
from webhook.core.rules.modes import Mode
from webhook.core.rules.protection import Access, protected_names
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.tenant_policy import Ceiling, Exemption, Namespaces, Tenancy, TenantPolicy
from webhook.core.rules.verbs import Slot
from webhook.core.violations import Action

# Admission policies in CEL, each with its binding, which leaves the exempt namespaces out.

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
    spared = list_literal(sorted(rulebook.cluster.system_namespaces))
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


# In CEL: which TenantPolicy holds in the namespace of a request, and whom an Exemption spares.


def policy_holding(tenancy: Tenancy) -> str:
    """The name of the policy, as `membership.member` finds it; "" if none holds, or several of one priority do."""
    ordered = sorted(tenancy.policies, key=lambda one: -one.priority)
    levels = ",\n".join(_selecting(level) for _, level in groupby(ordered, lambda one: one.priority))
    return f"""\
[namespaceObject.metadata.?labels.orValue({{}})].map(labels, [
{indented(levels)}
].map(level, level.filter(name, level[name])).filter(names, names.size() > 0)).map(levels,
  levels.size() > 0 && levels[0].size() == 1 ? levels[0][0] : '')[0]"""


def spared_by_exemption(tenancy: Tenancy, lifted: str) -> str:
    """Whether an exemption lifts a rule; CEL has no clock, so one that has ended holds until the next rendering."""
    return any_of(_covers(one) for one in tenancy.exemptions if lifted in one.lifts)


def _selecting(policies: Iterable[TenantPolicy]) -> str:
    """Whether each of these policies selects the namespace, by the policy's name."""
    each = ",\n".join(f"{literal(one.name)}: {_selects(one.namespaces)}" for one in policies)
    return f"{{\n{indented(each)}}}"


def _selects(namespaces: Namespaces) -> str:
    """As `membership.selects`."""
    conditions = [like(namespaces.names, "request.namespace")] if namespaces.names else []
    if namespaces.selector is not None:
        conditions.append(" && ".join(map(_matches, namespaces.selector)) or "true")
    return any_of(conditions)


def _matches(expression: Expression) -> str:
    there = f"{literal(expression.key)} in labels"
    match expression.operator:
        case "In" | "NotIn":
            there += f" && labels[{literal(expression.key)}] in {list_literal(expression.values)}"
            return f"({there})" if expression.operator == "In" else f"!({there})"
        case "Exists":
            return there
        case _:
            return f"!({there})"


def _covers(exemption: Exemption) -> str:
    users = like(exemption.users, "request.userInfo.username") if exemption.users else "true"
    return f"(({like(exemption.namespaces, 'request.namespace')}) && ({users}))"


# In CEL: who may change which namespaces a policy is for, and what a ledger says.

VERB: Final = "assign"
"""Of RBAC, on TenantPolicies: who has it says which namespaces are whose."""

_GROUP, _, _VERSION = API_VERSION.partition("/")
_LEDGERS: Final = {
    "apiGroups": [_GROUP],
    "apiVersions": [_VERSION],
    "operations": ["UPDATE"],
    "resources": ["tenantusages/status"],
}
_NAMESPACES: Final = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["namespaces", "namespaces/finalize", "namespaces/status"],
}
_LABELS: Final = {
    "labels": "object.metadata.?labels.orValue({})",
    "before": "request.operation == 'CREATE' ? {} : oldObject.metadata.?labels.orValue({})",
}
_DIFFERS: Final = """\
((key in variables.labels) != (key in variables.before) || variables.labels[key] != variables.before[key])"""
_MAY: Final = f"authorizer.group('{_GROUP}').resource('tenantpolicies').check('{VERB}').allowed()"


def guard_families(rulebook: Rulebook, namespace: str) -> Iterator[Family]:
    """Both policies, for programs in a namespace."""
    keys = {each.key for one in rulebook.tenancy.policies for each in one.namespaces.selector or ()} - {NAME_LABEL}
    theirs = f"(key in {list_literal(sorted(keys))} || key.startsWith({literal(configurations.LABELS)}))"
    changed = f"[variables.labels, variables.before].map(labels, labels.filter(key, {theirs} &&\n  {_DIFFERS}))"
    kept = {
        "expression": f"variables.changed.all(keys, keys.size() == 0) || {_MAY}",
        "messageExpression": "'the label ' + (variables.changed[0] + variables.changed[1])[0] + "
        + literal(f" says which GPU policy is for the namespace: only who may {VERB} tenantpolicies changes it"),
        "reason": "Forbidden",
    }
    accounts = literal(f"system:serviceaccount:{namespace}:")
    settled = {
        "expression": f"request.userInfo.username.startsWith({accounts})",
        "message": f"only accounts of {namespace} write what tenants use; delete a TenantUsage that is wrong, and"
        " the settler counts anew",
        "reason": "Forbidden",
    }
    yield Family("namespaces", [_NAMESPACES], {**_LABELS, "changed": changed}, [kept])
    yield Family("ledgers", [_LEDGERS], {}, [settled])


# In CEL: whether a pod asks in the shorthand, and whether it carries anything that its request may have become.

LABELS: Final = "object.metadata.?labels.orValue({})"
ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"

_HOLDERS: Final = "[object.spec.containers, object.spec.?initContainers.orValue([])]"
_AMOUNTS: Final = "[holder.?resources.?limits.orValue({}), holder.?resources.?requests.orValue({})]"
_NUMBER: Final = "matches('^[-+.]?[0-9]')"
_NOTHING: Final = "matches('^(?i:none|[0.]+%?)$')"
_CLAIM: Final = "matches('^[a-z0-9][a-z0-9-]*$')"
_QUALIFIED: Final = [PREFIX + key.removeprefix("gpu-") for key in ASKING]
_OF_A_CONTAINER: Final = [locations.annotation(key, "") for key in ASKING]


def carries(rulebook: Rulebook) -> str:
    """Whether a container may have a device: by a vendor's resource, a claim, or a key by which a back end is asked.

    A resource that no rule knows counts if the pod has the note of a translation, as at /validate.
    """
    domains = {name.partition("/")[0] for name in rulebook.resources if not isinstance(name, Slot)}
    vendors = list_literal(sorted({f"{domain}/" for domain in domains} | {extended_resources.DEVICE_CLASS}))
    unknown = f"!(name in {list_literal(CORE)}) && !name.startsWith('hugepages-')"
    slots = [name for by_key in rulebook.slots.values() for name in by_key]
    heads = sorted({slot.partition("{")[0] for slot in slots})
    keys = f"{list_literal(heads)}.exists(head, key.startsWith(head))"
    asked = f" ||\n[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,\n{indented(keys)}))" if heads else ""
    return f"""\
has(object.spec.resourceClaims) ||
{_amounts(f"{vendors}.exists(vendor, name.startsWith(vendor))")} ||
('{locations.NOTE}' in {ANNOTATIONS} &&
{indented(_amounts(unknown))}){asked}"""


def variables() -> Mapping[str, str]:
    """`none`: some place says that a container gets no GPU. `asked`: a place asks, or says what is refused."""
    return {"none": _none(), "asked": _asked()}


def _amounts(condition: str) -> str:
    """Whether a limit or a request has a `name` that fits."""
    return f"""\
{_HOLDERS}.exists(holders, holders.exists(holder,
  {_AMOUNTS}.exists(amounts, amounts.exists(name,
{indented(condition, 4)}))))"""


def _none() -> str:
    one = list_literal(["gpu", f"{PREFIX}gpu"])
    head = literal(_OF_A_CONTAINER[0])
    return f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,
  (key in {one} || key.startsWith({head})) && entries[key].{_NOTHING})) ||
{_amounts(f"name == '{PREFIX}gpu' && amounts[name] == '0'")}"""


def _asked() -> str:
    """Numbers only where others may use the same label: `gpu: a100` is left alone."""
    words = list_literal(request.AMOUNTS)
    plain = list_literal(key for key in ASKING if key not in {"gpu", "gpu-profile", "gpu-claim"})
    resources = sorted(name for name in locations.RESOURCES if name.startswith(PREFIX))
    return f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key, key in {list_literal(_QUALIFIED)} ||
  (key == 'gpu' && (entries[key].{_NUMBER} || entries[key].lowerAscii() in {words})))) ||
{LABELS}.exists(key, [{LABELS}[key]].exists(value,
  (key in {plain} && value.{_NUMBER}) || (key == 'gpu-profile' && value != '') ||
  (key == 'gpu-claim' && value.{_CLAIM}))) ||
{ANNOTATIONS}.exists(key, {list_literal(_OF_A_CONTAINER)}.exists(head, key.startsWith(head) && key != head)) ||
{_amounts(f"name in {list_literal(resources)} && amounts[name] != '0'")}"""


# Kubernetes' own ResourceQuotas: bounds of tenants with one namespace, which hold without the webhook.


def render_resource_quotas(rulebook: Rulebook) -> Iterator[dict[str, Any]]:
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


# In CEL: whether a container, or a pod, asks for more whole devices than its policy lets one have.

_SIDECAR: Final = "holder.?restartPolicy.orValue('') == 'Always'"
_ALL: Final = 100
_ANY: Final = "1000000000.0"
_EXCEEDED: Final = {
    "container": (
        "[GPU102] a container asks",
        "variables.asked.exists(holders, holders.exists(devices, devices > variables.container))",
    ),
    "pod": (
        "[GPU103] the pod asks",
        "variables.asked[0].sum() > variables.pod || variables.asked[1].exists(devices, devices > variables.pod)",
    ),
}


def ceilings_exceeded(rulebook: Rulebook, action: Action) -> tuple[Mapping[str, str], list[Mapping[str, str]]]:
    """The variables and validations of the ceilings that have an action; no validation if none has.

    `asked` are the whole devices of the containers that run at once, and of the init containers.
    """
    resources = whole_devices(rulebook)
    variables = {
        "asked": f"""\
[dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])).filter(holder, {_SIDECAR}),
 dyn(object.spec.?initContainers.orValue([])).filter(holder, !({_SIDECAR}))].map(holders, holders.map(holder,
  [holder.?resources.?limits.orValue({{}})].map(limits, limits.filter(name, name in {list_literal(resources)}
  ).map(name, quantity(limits[name]).asApproximateFloat()).sum())[0]))"""
    }
    refused = []
    for scope, (said, exceeded) in _EXCEEDED.items():
        most = [f"{literal(name)}: {devices}.0" for name, devices in _most(rulebook, scope, action)]
        if most and resources:
            variables[scope] = f"{{{', '.join(most)}}}[?variables.policy].orValue({_ANY})"
            refused.append(
                _validation(scope, said, f"{spared_by_exemption(rulebook.tenancy, scope)} ||\n!({exceeded})")
            )
    return variables, refused


def _validation(scope: str, said: str, holds: str) -> Mapping[str, str]:
    return {
        "expression": holds,
        "messageExpression": f"{literal(f'{said} for more than ')} + string(int(variables.{scope})) + "
        f"' whole devices, the most that the policy ' + variables.policy + {literal(f' lets a {scope} have')}",
        "message": f"{said} for more whole devices than the policy lets a {scope} have",
        "reason": "Forbidden",
    }


def _most(rulebook: Rulebook, scope: str, action: Action) -> Iterator[tuple[str, int]]:
    """The most whole devices, each with all of its compute, by the policy's name."""
    for policy in rulebook.tenancy.policies:
        ceiling: Ceiling | None = getattr(policy, scope)
        if ceiling and ceiling.action == action:
            said = [(ceiling.devices, 1), (ceiling.cores, _ALL)]
            bounds = [floor(most / each) for most, each in said if most is not None]
            yield from ((policy.name, bound) for bound in sorted(bounds)[:1])


# ValidatingAdmissionPolicies: what the API server refuses alone, even if our webhooks are deleted (Kubernetes 1.30).

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
    f" another one took its work away; {allocation.CREATE_AGAIN}",
    "reason": "Forbidden",
}


def render_validating(rulebook: Rulebook, namespace: str = cluster.OWN) -> list[Object]:
    """Every policy with its binding, for a server in a namespace."""
    served = {"served": carries(rulebook)}
    asking = {**served, **variables()}
    shorthand = Family("shorthand", [CREATED], asking, [_UNTRANSLATED], of_pods(rulebook))
    made = [each for one in (shorthand, *guard_families(rulebook, namespace)) for each in validating(rulebook, one)]
    for action in WHAT_BECOMES:
        for family in _of_tenants(rulebook, served, action):
            made += validating(rulebook, family, action)
    return made


def _of_tenants(rulebook: Rulebook, served: Mapping[str, str], action: Action) -> Iterator[Family]:
    """What the policies of tenants say, with an action."""
    holding = {"policy": policy_holding(rulebook.tenancy)}
    if tenant := of_tenants(rulebook, WHAT_BECOMES[action]):
        known, values = protected_names(rulebook.protections), bypasses.Values(one.name for one in rulebook.enabled)
        about = {**holding, "tenant": tenant, "containers": bypasses.CONTAINERS, **served}
        for name, family in (("device-names", bypasses.of_names), ("node-access", bypasses.of_nodes)):
            found = family(known, values)
            refused = [_none_of(section) for section in found if section in _KINDS]
            yield Family(name, [CREATED, CHANGED], {**about, **found}, refused, of_pods(rulebook))
    bounds, exceeded = ceilings_exceeded(rulebook, action)
    if exceeded:
        yield Family("ceilings", [CREATED], {**holding, **bounds}, exceeded, of_pods(rulebook))


def of_tenants(rulebook: Rulebook, accesses: frozenset[Access]) -> str:
    """Whether the policy of the pod's namespace says one of these, and nothing exempts the pod; "" if none does."""
    policies = rulebook.tenancy.policies
    saying = [one.name for one in policies if device_access.action(one, rulebook.cluster) in accesses]
    spared = spared_by_exemption(rulebook.tenancy, "deviceAccess")
    return f"variables.policy in {list_literal(saying)} && !({spared})" if saying else ""


def _none_of(section: str) -> Mapping[str, str]:
    """The validation that a section has nothing protected."""
    found, kind = f"variables.{section}", _KINDS[section]
    said = f"'[{device_access.CODE}] {kind}{' ' * bool(kind)}' + {found}.join(', ') + ' ' + "
    return {
        "expression": f"!variables.tenant || {found}.size() == 0",
        "messageExpression": f"{said}{literal(_REACHES)}",
        "message": f"[{device_access.CODE}] something in {section} {_REACHES}",
        "reason": "Forbidden",
    }


# A MutatingAdmissionPolicy: containers without a GPU say that they have none, whatever their image says.

_NO_DEVICE: Final = {"void", "none"}
"""Values that name no device."""

_SECTIONS: Final = {
    "containers": "request.operation == 'CREATE'",
    "initContainers": "request.operation == 'CREATE'",
    "ephemeralContainers": "request.operation == 'UPDATE'",
}


def render_mutating(rulebook: Rulebook) -> Iterator[Object]:
    """The policy and its binding; nothing if every tenant may reach devices as it likes."""
    tenant = of_tenants(rulebook, WHAT_BECOMES["deny"])
    if tenant:
        holding = policy_holding(rulebook.tenancy)
        variables = {"policy": holding, "tenant": tenant, "values": _values(rulebook)}
        said = [_mutation(section, when) for section, when in _SECTIONS.items()]
        ordinary = conditions.of_ordinary_pods(rulebook, "request.operation == 'UPDATE' || ")
        left_out = [NOT_OF_A_FILE, ordinary]
        yield from mutating(rulebook, Family("no-devices", [CREATED, DEBUGGED], variables, said, left_out))


def _values(rulebook: Rulebook) -> str:
    """The value with which each variable names no device, of those of the vendors whose back ends are enabled."""
    vendors = {vendor for backend in rulebook.enabled for vendor in backend.vendors}
    theirs = protected_names([one for one in rulebook.protections if vendors & {*one.vendors}])
    known = (one for one in theirs["env"].exact.values() if {*one.harmless[:1]} & _NO_DEVICE)
    return f"{{{', '.join(f'{literal(one.name)}: {literal(one.harmless[0])}' for one in known)}}}"


def _mutation(section: str, when: str) -> dict[str, object]:
    """What adds the variables that a container lacks; a list of plain maps, as the API server fails on typed ones."""
    lacks = "variables.values.filter(name, !holder.?env.orValue([]).exists(variable, variable.name == name))"
    old = f"oldObject.spec.?{section}.orValue([]).exists(old, old.name == holder.name)"
    return {
        "patchType": "JSONPatch",
        "jsonPatch": {
            "expression": f"""\
!variables.tenant || !({when}) ? [] :
object.spec.?{section}.orValue([]).filter(holder, request.operation == 'CREATE' || !{old}).map(holder, JSONPatch{{
  op: 'add',
  path: '/spec/{section}/' + string(object.spec.{section}.indexOf(holder)) + '/env',
  value: holder.?env.orValue([]).filter(variable, true) +
    {lacks}.map(name, {{'name': name, 'value': variables.values[name]}})
}})"""
        },
    }
