"""ValidatingAdmissionPolicies: what the API server refuses alone, even if our webhooks are deleted (Kubernetes 1.30).

Each refuses a part of what the webhook refuses, by the documents of a rules directory. Where CEL cannot tell what the
webhook knows the pod is admitted: a pod with a resource of any vendor may be served by any enabled back end, `..` in
a mount path is not resolved, and a namespace without a policy is left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import API_VERSION
from webhook.core.interpret import locations
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube.pod import CORE
from webhook.core.plan import allocation
from webhook.core.policy import device_access, limits
from webhook.core.policy.membership import ACCOUNT, NAME_LABEL, member, platform_accounts, undecided
from webhook.core.quota import tally
from webhook.core.registration import conditions
from webhook.core.registration.conditions import any_of, indented, like, list_literal, literal
from webhook.core.registration.configurations import Object, not_exempt
from webhook.core.request import AMOUNTS, ASKING, PREFIX
from webhook.core.rules import cluster
from webhook.core.rules.cluster import ACCESS, Access, protected_names
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import RULES, Ceiling, Tenancy, TenantPolicy
from webhook.core.rules.verbs import Slot
from webhook.core.violations import Action

_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"]}
CREATED: Final = {**_PODS, "operations": ["CREATE"], "resources": ["pods"]}
DEBUGGED: Final = {**_PODS, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]}
CHANGED: Final = {**_PODS, "operations": ["UPDATE"], "resources": ["pods", "pods/ephemeralcontainers", "pods/status"]}

_UNCOUNTED_CLAIM: Final = (
    'may hold a GPU, and no quota counts it; ask for gpu: "1" instead, or have its device class listed in the Cluster'
    " document under otherDevices if it is of no GPU"
)

VERB: Final = "assign"
"""Of RBAC, on TenantPolicies: who has it says which namespaces are whose."""

MAY_ASSIGN: Final = f"authorizer.group('{PREFIX[:-1]}').resource('tenantpolicies').check('{VERB}').allowed()"

LABELS: Final = "object.metadata.?labels.orValue({})"
ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"

NOTHING: Final = "'^(?i:none|[0.]*%?)$'"
"""A pattern of the values by which a pod asks for no GPU."""

NOT_OF_A_FILE: Final = {
    "name": "not-of-a-file",
    "expression": f"""\
!('{device_access.MIRROR}' in {ANNOTATIONS}) ||
request.userInfo.username != 'system:node:' + object.spec.?nodeName.orValue('')""",
}

WHAT_BECOMES: Final[Mapping[Action, Sequence[Access]]] = {"deny": ("deny", "remove"), "warn": ("warn",)}
_KINDS: Final = {
    "labels": "the label ",
    "annotations": "the annotation ",
    "runtimeClasses": "the runtime class ",
    "env": "the variable ",
    "volumeMounts": "the mount at ",
    "flags": "",
    "capabilities": "the capability ",
    "hostPaths": "the host path ",
}


class Family(NamedTuple):
    """What one policy is about.

    rules       on which requests it is evaluated
    said        its validations, or its mutations
    conditions  which of the requests it leaves out
    namespaces  the selector of those that it is about; empty: all but the exempt ones
    action      what becomes of such a request
    """

    name: str
    rules: Sequence[Object]
    variables: Mapping[str, str]
    said: Sequence[Mapping[str, Any]]
    conditions: Sequence[Object] = ()
    namespaces: Mapping[str, Any] = {}
    action: Action = "deny"


def render_validating(rulebook: Rulebook, namespace: str = cluster.OWN) -> list[Object]:
    """Every policy with its binding, for a server in a namespace."""
    families = [_shorthand(rulebook), *_guards(rulebook, namespace)]
    sections = conditions.Bypasses(rulebook).of_names()
    for action in WHAT_BECOMES:
        if _having(rulebook, action):
            matching = of_pods(rulebook)
            families.append(_reaching("device-names", [CREATED, CHANGED], matching, sections, rulebook, action))
        families += _ceilings(rulebook, action)
    return [made for family in families for made in _written("Validating", family, rulebook)]


def filled_in(rulebook: Rulebook, at: float) -> Iterator[tuple[str, Object, Object]]:
    """What the settler writes into the spec of each policy of the manifests, by name, and into that of its binding.

    They protect devices from pods and claims that the webhook is not asked about, and quotas from deletions, as
    exemptions are at a time. For which requests they are the manifests say.
    """
    tenancy, by_name = rulebook.tenancy, attrgetter("name")  # not in the order in which a program has heard of them
    exemptions = sorted((exemption for exemption in tenancy.exemptions if at < exemption.expires), key=by_name)
    policies = sorted(tenancy.policies, key=by_name)
    rulebook = replace(rulebook, tenancy=replace(tenancy, exemptions=exemptions, policies=policies))
    reaching = {"name": "may-reach-a-device", "expression": conditions.reaching(rulebook)}
    matching, sections = [NOT_OF_A_FILE, reaching], conditions.Bypasses(rulebook).of_devices()
    families = [_reaching("devices", [], matching, sections, rulebook, action) for action in WHAT_BECOMES]
    families += [_deletions(rulebook, action) for action in WHAT_BECOMES]
    for family in [*families, _claims(rulebook)]:
        policy, binding = _written("Validating", family, rulebook)
        written = {key: policy["spec"][key] for key in ("matchConditions", "variables", "validations")}
        acts = ["Warn"] if rulebook.tenancy.observing else binding["spec"]["validationActions"]
        bound = {"matchResources": binding["spec"]["matchResources"], "validationActions": acts}
        yield policy["metadata"]["name"], written, bound


def render_mutating(rulebook: Rulebook) -> Iterator[Object]:
    """A policy by which containers without a GPU say that they have none, whatever their image says.

    Nothing if every tenant may reach devices as it likes.
    """
    tenant = of_tenants(rulebook, "deny")
    if not tenant:
        return
    # The value with which each variable names no device, of those of the vendors whose back ends are enabled.
    vendors = {vendor for backend in rulebook.enabled for vendor in backend.vendors}
    theirs = protected_names([protection for protection in rulebook.protections if vendors & {*protection.vendors}])
    values = {
        variable.name: variable.harmless[0]
        for variable in theirs["env"].exact.values()
        if variable.harmless[:1] in {("void",), ("none",)}
    }
    # Plain maps, as the API server panics on typed ones [measured, 1.36.3].
    entries = ", ".join(f"{{'name': {literal(name)}, 'value': {literal(value)}}}" for name, value in values.items())

    def added(section: str, old: str = "false") -> str:
        """For each container of a section, what adds the variables that it lacks."""
        env = f"'/spec/{section}/' + string(index) + '/env'"
        return f"""\
object.spec.?{section}.orValue([]).transformList(index, holder, !({old}),
  holder.?env.orValue([]).size() == 0 ? [JSONPatch{{op: 'add', path: {env}, value: variables.entries}}] :
  [holder.env.map(variable, variable.name in {list_literal(values)}, variable.name)].map(there,
    variables.entries.filter(entry, !(entry.name in there)).map(entry,
      JSONPatch{{op: 'add', path: {env} + '/-', value: entry}}))[0])"""

    old = "oldObject.spec.?ephemeralContainers.orValue([]).exists(old, old.name == holder.name)"
    # One patch for all, as each costs the API server a copy of the pod.
    containers = indented(f"{added('containers')} +\n{added('initContainers')}")
    patches = f"({conditions.CREATED} ?\n{containers} :\n{indented(added('ephemeralContainers', old))}).flatten()"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": f"!variables.tenant ? [] :\n{patches}"}}

    # It runs again once it, or a webhook, has changed a pod: what it has added stands at the end.
    last = " && ".join(
        f"env[env.size() - {count}].name == {literal(name)}" for count, name in enumerate(reversed(values), 1)
    )
    lacks = f"""\
!({conditions.CREATED}) || [object.spec.containers, object.spec.?initContainers.orValue([])].exists(holders,
  holders.exists(holder, [holder.?env.orValue([])].exists(env, env.size() < {len(values)} || !(
    {last}))))"""
    ordinary = f"!({conditions.CREATED}) ||\n!({_asks(rulebook)})"
    matching = [
        NOT_OF_A_FILE,
        {"name": "lacks-a-variable", "expression": lacks},
        {"name": "asks-for-no-device", "expression": ordinary},
    ]
    variables = {**policy_holding(rulebook.tenancy), "tenant": tenant, "entries": f"[{entries}]"}
    selector = _namespaces_having(rulebook, "deny")
    family = Family("no-devices", [CREATED, DEBUGGED], variables, [mutation], matching, selector)
    yield from _written("Mutating", family, rulebook)


def _written(kind: str, family: Family, rulebook: Rulebook) -> Iterator[Object]:
    """The policy, which refuses a request, warns of it or changes the pod, and its binding.

    A mutating one runs again once a webhook has added a container. Both leave the exempt namespaces out.
    """
    name = f"gpu-webhook-{family.name}{'' if family.action == 'deny' else f'-{family.action}'}"
    does: Object = {"mutations": [*family.said], "reinvocationPolicy": "IfNeeded"}
    binds: Object = {}
    if kind == "Validating":
        does = {"validations": [{**validation, "reason": "Forbidden"} for validation in family.said]}
        binds = {"validationActions": [family.action.capitalize()]}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [*family.rules]},
        "matchConditions": [*family.conditions],
        "variables": [{"name": key, "expression": expression} for key, expression in family.variables.items()],
        **does,
    }
    selected = {"namespaceSelector": family.namespaces or not_exempt(rulebook), "objectSelector": {}}
    binding = {"policyName": name, "matchResources": {**selected, "matchPolicy": "Equivalent"}, **binds}
    for end, spec in (("", policy), ("Binding", binding)):
        yield {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}AdmissionPolicy{end}",
            "metadata": {"name": name},
            "spec": spec,
        }


# In CEL: which pods are judged, which TenantPolicy holds in their namespace, and whom an Exemption spares.


def of_pods(rulebook: Rulebook) -> Sequence[Object]:
    """Which requests about pods are judged. Schedulers and kubelets write into pods that exist, to give devices."""
    by_a_person = f"""\
(request.operation == 'CREATE' && request.?subResource.orValue('') == '') ||
request.?subResource.orValue('') == 'ephemeralcontainers' ||
[request.userInfo.username].exists(user, !(
  (user.startsWith('system:') && !user.startsWith('{ACCOUNT}') && !user.startsWith('system:anonymous')) ||
{indented(like(platform_accounts(rulebook), "user"))}))"""
    return [{"name": "by-a-person", "expression": by_a_person}, NOT_OF_A_FILE]


SEVERAL: Final = "?"
"""In the place of a policy's name, where several of one priority select the namespace."""

LONGEST: Final = 40_000
"""The most letters of one variable: the API server parses no expression of more than 100,000 [measured, 1.36.3]."""


def policy_holding(tenancy: Tenancy) -> Mapping[str, str]:
    """Variables, of which `policy` is the name that `membership.member` finds, "" if none holds, or SEVERAL."""
    forms = {"In": "({0} && {1})", "NotIn": "!({0} && {1})", "Exists": "{0}", "DoesNotExist": "!({0})"}
    variables = {"ofNamespace": "namespaceObject.metadata.?labels.orValue({})"}
    has, levels = "variables.ofNamespace", []
    ordered = sorted(tenancy.policies, key=lambda policy: -policy.priority)
    for _, policies in groupby(ordered, lambda policy: policy.priority):
        parts = [""]
        for policy in policies:
            names, selector = policy.namespaces.names, policy.namespaces.selector
            selecting = [like(names, "request.namespace")] if names else []
            if selector is not None:
                labels = [(literal(label.key), label) for label in selector]
                matching = (
                    forms[label.operator].format(f"{key} in {has}", f"{has}[{key}] in {list_literal(label.values)}")
                    for key, label in labels
                )
                selecting.append(" && ".join(matching) or "true")
            entry = f"{literal(policy.name)}: {any_of(selecting)}"
            if parts[-1] and len(parts[-1]) + len(entry) > LONGEST:
                parts.append("")
            parts[-1] += f"{parts[-1] and ','}\n{indented(entry)}"
        selected = []
        for part in parts:
            name = f"selecting{len(variables)}"
            variables[name] = f"[{{{part}\n}}].map(level, level.filter(name, level[name]))[0]"
            selected.append(f"variables.{name}")
        levels.append(" + ".join(selected))
    chosen = f"names.size() == 1 ? names[0] : {literal(SEVERAL)}"
    every = indented(",\n".join([*levels, f"[{literal(tenancy.default.name if tenancy.default else '')}]"]))
    variables["policy"] = f"[\n{every}\n].filter(names, names.size() > 0).map(names, {chosen})[0]"
    return variables


def spared_by_exemption(tenancy: Tenancy, lifted: str) -> str:
    """Whether all exemptions that hold, and at least one, lift a rule, as in `judge.exempted_rules`.

    CEL has no clock, so an exemption that has ended holds until the next rendering. Nor has it brackets in globs: a
    glob of users with one lifts nothing here.
    """
    lifting: list[str] = []
    other: list[str] = []
    for exemption in tenancy.exemptions:
        lifts = lifted in exemption.lifts
        users = [user for user in exemption.users if not (lifts and "[" in user)]
        of_users = like(users, "request.userInfo.username") if exemption.users else "true"
        holds = f"(({like(exemption.namespaces, 'request.namespace')}) && ({of_users}))"
        (lifting if lifts else other).append(holds)
    if not lifting:
        return "false"
    return f"variables.policy != '' && ({any_of(lifting)}) && !({any_of(other)})"


def of_tenants(rulebook: Rulebook, action: Action, rule: str = "deviceAccess") -> str:
    """Whether the pod's namespace has the action, by its policy or without one, and nothing exempts the pod.

    "" if no namespace has it.
    """
    names = [policy.name if policy else "" for policy in _having(rulebook, action, rule)]
    spared = spared_by_exemption(rulebook.tenancy, rule)
    return f"variables.policy in {list_literal(names)} && !({spared})" if names else ""


def _having(rulebook: Rulebook, action: Action, rule: str = "deviceAccess") -> list[TenantPolicy | None]:
    """The policies whose namespaces have the action of a rule; None: those without a policy have it, too.

    A cluster that observes warns where others refuse.
    """
    accesses = WHAT_BECOMES[action]
    if rulebook.tenancy.observing:
        accesses = ACCESS if action == "warn" else ()
    if rule == "quota":
        return [policy for policy in rulebook.tenancy.policies if policy.quota and policy.quota.action in accesses]
    tenancy = [*rulebook.tenancy.policies, None]
    return [policy for policy in tenancy if device_access.action(policy, rulebook.cluster) in accesses]


def _without_devices(rulebook: Rulebook, action: Action) -> list[str]:
    """What `policy` is where nobody gets a device: policies that cannot be read, SEVERAL, and maybe none."""
    tenancy = rulebook.tenancy
    if action != ("warn" if tenancy.observing else "deny"):
        return []
    broken = [policy.name for policy in tenancy.policies if policy.broken]
    return [*broken, *([SEVERAL] if len(tenancy.policies) > 1 else []), *([""] if tenancy.closed else [])]


def _namespaces_having(rulebook: Rulebook, action: Action, rule: str = "deviceAccess") -> Object:
    """A selector of the namespaces that may have the action: API servers ask it first, and it costs them nothing."""
    without = [name for name in _without_devices(rulebook, action) if name or rule == "deviceAccess"]
    also = rulebook.tenancy.policies if without else ()  # any of them may be one of several
    names: set[str] = set()
    for policy in [*_having(rulebook, action, rule), *also, *([None] if "" in without else [])]:
        if policy is None or policy is rulebook.tenancy.default or policy.namespaces.selector is not None:
            return not_exempt(rulebook)
        names.update(policy.namespaces.names)
    if any(set(name) & set("*?[") for name in names):
        return not_exempt(rulebook)
    listed = sorted(name for name in names if not rulebook.cluster.exempts(name))
    nowhere = {"key": NAME_LABEL, "operator": "DoesNotExist"}
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": listed} if listed else nowhere]}


# The families: what the API server refuses.


def _shorthand(rulebook: Rulebook) -> Family:
    """A pod that asks in the shorthand and carries nothing that its request may have become: nobody translated it.

    `none`: some place says that a container gets no GPU.
    """
    of_a_container = locations.annotation("gpu", "")
    any_key = f"key in {list_literal(['gpu', f'{PREFIX}gpu'])} || key.startsWith({literal(of_a_container)})"
    none = f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,
  ({any_key}) && entries[key].matches({NOTHING}))) ||
{_amounts(f"name == '{PREFIX}gpu' && amounts[name] == '0'")}"""
    untranslated = {
        "expression": "!variables.asked || variables.none || variables.served",
        "message": "[GPU601] the pod asks for a GPU and has no GPU resource: the webhook gpu-webhook did not see it,"
        f" or another one took its work away; {allocation.CREATE_AGAIN}",
    }
    variables = {**carries(rulebook), "none": none, "asked": _asks_in_shorthand()}
    return Family("shorthand", [CREATED], variables, [untranslated], of_pods(rulebook))


def _asks_in_shorthand() -> str:
    """Whether a place asks for a GPU, or says what is refused, but not that there is none.

    Of labels that others may use too only numbers ask: `gpu: a100` is left alone. An annotation for a container that
    the pod does not have asks for nothing.
    """
    of_containers = list_literal(locations.annotation(key, "") for key in ASKING)
    qualified = list_literal(PREFIX + key.removeprefix("gpu-") for key in ASKING)
    plain = list_literal(key for key in ASKING if key not in {"gpu", "gpu-profile", "gpu-claim"})
    resources = list_literal(sorted(name for name in locations.RESOURCES if name.startswith(PREFIX)))
    number, claim = "matches('^[-+.]?[0-9]')", "matches('^[a-z0-9][a-z0-9-]*$')"
    return f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key, key.contains('gpu') && (key in {qualified} ||
  (key == 'gpu' && (entries[key].{number} || entries[key].lowerAscii() in {list_literal(AMOUNTS)}))) &&
  !entries[key].matches({NOTHING}))) ||
{LABELS}.exists(key, key.startsWith('gpu') && [{LABELS}[key]].exists(value,
  (key in {plain} && value.{number}) || (key == 'gpu-profile' && value != '') ||
  (key == 'gpu-claim' && value.{claim}))) ||
{ANNOTATIONS}.exists(key, key.contains('gpu') && {of_containers}.exists(head, key.startsWith(head) &&
  (object.spec.containers + object.spec.?initContainers.orValue([])).exists(holder, key == head + holder.name) &&
  !{ANNOTATIONS}[key].matches({NOTHING}))) ||
{_amounts(f"name in {resources} && amounts[name] != '0'")}"""


def _asks(rulebook: Rulebook) -> str:
    """Whether a pod asks for a device in any way, whoever is to translate it; an amount of nothing does not."""
    fits = f"!(name in {[*CORE]}) && amounts[name] != '0' && {_of_a_vendor(rulebook)}"
    return f"""\
object.spec.?resourceClaims.orValue([]).size() > 0 ||
{_amounts(fits)} ||
{_asks_in_shorthand()}{_by_slot(rulebook, f" && !entries[key].matches({NOTHING})")}"""


def _of_a_vendor(rulebook: Rulebook) -> str:
    """Whether a `name` begins as those of resources that may be devices."""
    domains = {name.partition("/")[0] for name in rulebook.resources if not isinstance(name, Slot)}
    vendors = sorted({f"{domain}/" for domain in domains} | {DEVICE_CLASS})
    return f"{list_literal(vendors)}.exists(vendor, name.startsWith(vendor))"


def _by_slot(rulebook: Rulebook, asks: str = "") -> str:
    """Or whether a pod has a key by which a back end is asked, and it `asks`; nothing if there are no such keys."""
    heads = sorted({slot.partition("{")[0] for by_key in rulebook.slots.values() for slot in by_key})
    keys = indented(f"{list_literal(heads)}.exists(head, key.startsWith(head)){asks}")
    return f" ||\n[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,\n{keys}))" if heads else ""


def carries(rulebook: Rulebook) -> Mapping[str, str]:
    """Variables: `served` is whether a container may have a device, `byResource` whether otherwise than by a claim.

    That is by a vendor's resource, or by a key by which a back end is asked. A resource that no rule knows counts if
    the pod has the note of a translation, as at /validate.
    """
    unknown = f"!(name in {list_literal(CORE)}) && !name.startsWith('hugepages-')"
    by_resource = f"""\
{_amounts(_of_a_vendor(rulebook))} ||
('{locations.NOTE}' in {ANNOTATIONS} &&
{indented(_amounts(unknown))}){_by_slot(rulebook)}"""
    return {"byResource": by_resource, "served": "has(object.spec.resourceClaims) || variables.byResource"}


def _amounts(condition: str) -> str:
    """Whether a limit or a request has a `name` that fits."""
    amounts = "[holder.?resources.?limits.orValue({}), holder.?resources.?requests.orValue({})]"
    return f"""\
[object.spec.containers, object.spec.?initContainers.orValue([])].exists(holders, holders.exists(holder,
  {amounts}.exists(amounts, amounts.exists(name,
{indented(condition, 4)}))))"""


def _guards(rulebook: Rulebook, namespace: str) -> Iterator[Family]:
    """Who may change which namespaces a policy is for, and what a ledger says; for programs in a namespace."""
    group, _, version = API_VERSION.partition("/")
    names = ["namespaces", "namespaces/finalize", "namespaces/status"]
    namespaces = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": names}
    keys = {label.key for policy in rulebook.tenancy.policies for label in policy.namespaces.selector or ()}
    listed = list_literal(sorted(keys - {NAME_LABEL}))
    theirs = f"(key in {listed} || key.startsWith({literal(PREFIX)}))"
    variables = {
        "labels": LABELS,
        "before": "request.operation == 'CREATE' ? {} : oldObject.metadata.?labels.orValue({})",
        "changed": f"""\
[variables.labels, variables.before].map(labels, labels.filter(key, {theirs} &&
  ((key in variables.labels) != (key in variables.before) || variables.labels[key] != variables.before[key])))""",
    }
    kept = {
        "expression": f"variables.changed.all(keys, keys.size() == 0) || {MAY_ASSIGN}",
        "messageExpression": "'the label ' + (variables.changed[0] + variables.changed[1])[0] + "
        + literal(f" says which GPU policy is for the namespace: only who may {VERB} tenantpolicies changes it"),
    }
    yield Family("namespaces", [namespaces], variables, [kept])

    status = ["tenantusages/status"]
    ledgers = {"apiGroups": [group], "apiVersions": [version], "operations": ["UPDATE"], "resources": status}
    accounts = literal(f"system:serviceaccount:{namespace}:")
    settled = {
        "expression": f"request.userInfo.username.startsWith({accounts})",
        "message": f"only accounts of {namespace} write what tenants use; delete a TenantUsage that is wrong, and"
        " the settler counts anew",
    }
    yield Family("ledgers", [ledgers], {}, [settled])


def _reaching(
    name: str,
    rules: Sequence[Object],
    matching: Sequence[Object],
    sections: Mapping[str, str],
    rulebook: Rulebook,
    action: Action,
) -> Family:
    """A family that refuses what is in some sections, in the namespaces that have the action."""
    tenant, without = of_tenants(rulebook, action) or "false", _without_devices(rulebook, action)
    variables = {**policy_holding(rulebook.tenancy), "tenant": tenant}
    variables |= {"containers": conditions.NEW_CONTAINERS, **carries(rulebook), **sections}
    reaches = f"may give devices that the pod does not ask for, {device_access.UNCOUNTED}; {device_access.FIX}"
    refused = []
    for section, kind in _KINDS.items():
        if section in sections:
            text = f"'[{device_access.CODE}] {kind}' + variables.{section}.join(', ') + ' ' + {literal(reaches)}"
            message = f"[{device_access.CODE}] something in {section} {reaches}"
            # Where no policy holds, who takes the whole node may be a storage or network plugin.
            strict = [name for name in without if name or section in {"env", "runtimeClasses"}]
            applies = "variables.tenant" + (f" || variables.policy in {list_literal(strict)}" if strict else "")
            holds = f"!({applies}) || variables.{section}.size() == 0"
            refused.append({"expression": holds, "messageExpression": text, "message": message})
    return Family(name, rules, variables, refused, matching, _namespaces_having(rulebook, action), action)


def _deletions(rulebook: Rulebook, action: Action) -> Family:
    """A deletion with which a pod that runs is gone at once, and counts no more, while its kubelet still ends it.

    An eviction says nothing of its pod: all with such a grace period are refused. With one of 1 second, or more, the
    pod stays until its kubelet has ended it (pkg/registry/core/pod/strategy.go, CheckGracefulDelete). Of a DELETE
    that says none the period is the pod's own: one of 0, from before the quota, is kept: its kubelet takes no longer.
    """
    options = f"({conditions.CREATED} ? dyn(object).?deleteOptions : request.?options)"
    at_once = {"name": "at-once", "expression": f"{options}.?gracePeriodSeconds.orValue(1) == 0"}
    [by_a_person, _] = of_pods(rulebook)
    strict = list_literal(filter(None, _without_devices(rulebook, action)))
    let = f"""\
!(variables.policy in {strict} || ({of_tenants(rulebook, action, "quota") or "false"})) || {MAY_ASSIGN} ||
!({conditions.CREATED} || (oldObject.spec.?nodeName.orValue('') != '' &&
  oldObject.spec.?terminationGracePeriodSeconds.orValue(1) != 0 &&
  !(oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed']) && [oldObject].exists(pod,
{indented(conditions.asking(rulebook), 4)})))"""
    message = "[GPU117] a grace period of 0 would free the quota while the pod runs on: leave out --force, or grant"
    message += " 1 s or more; if the node of the pod is gone, ask an operator of the cluster to delete the pod"
    refused, selector = {"expression": let, "message": message}, _namespaces_having(rulebook, action, "quota")
    variables = policy_holding(rulebook.tenancy)
    return Family("deletions", (), variables, [refused], [at_once, by_a_person], selector, action)


def _claims(rulebook: Rulebook) -> Family:
    """A claim, or a template of claims, of devices that may be GPUs, where nothing counts them.

    What schedulers claim for extended resources is counted at the pod; a template may have their annotation, too. An
    exemption has to lift all rules of these policies, for all users: none is the controller that makes pods' claims.
    """
    tenancy, globs = rulebook.tenancy, rulebook.cluster.other_devices
    refusing = [policy for policy in tenancy.policies if limits.judged_by_class(policy, rulebook)]
    rules = [rule for rule in RULES if any(getattr(policy, rule) is not None for policy in refusing)]
    spared = " && ".join(spared_by_exemption(tenancy, rule) for rule in rules) or "false"
    listed = {glob.removeprefix(DEVICE_CLASS) for glob in globs if glob.startswith(DEVICE_CLASS)}
    nobody = _without_devices(rulebook, "warn" if tenancy.observing else "deny") if listed else []
    other = like((glob for glob in listed if "[" not in glob), "name")
    variables = {
        **policy_holding(tenancy),
        "spec": "request.resource.resource == 'resourceclaims' ? object.spec : object.spec.spec",
        "classes": f"""\
(has(variables.spec.devices) ? variables.spec.devices.?requests.orValue([]) : dyn([{{}}])).map(wanted,
  (has(wanted.exactly) ? [wanted.exactly] : wanted.?firstAvailable.orValue([wanted])
  ).map(kind, kind.?deviceClassName.orValue('unknown')).filter(name, !({other})).join(', ')
).filter(names, names != '')""",
    }
    refused = {
        "expression": f"""\
!(variables.policy in {list_literal(nobody)} ||
  (variables.policy in {list_literal(policy.name for policy in refusing)} && !({spared}))) ||
variables.classes.size() == 0""",
        "messageExpression": f"'[GPU108] a claim of ' + variables.classes.join(', ') + ' {_UNCOUNTED_CLAIM}'",
        "message": f"[GPU108] a claim {_UNCOUNTED_CLAIM}",
    }
    schedulers = {"system:kube-scheduler", *(f"{ACCOUNT}{name}:*" for name in rulebook.cluster.system_namespaces)}
    counted = f"""\
'resource.kubernetes.io/extended-resource-claim' in {ANNOTATIONS} &&
!('resource.kubernetes.io/pod-claim-name' in {ANNOTATIONS}) &&
({like(schedulers, "request.userInfo.username")})"""
    matching = [{"name": "of-no-counted-resource", "expression": f"!({counted})"}]
    return Family("claims", [], variables, [refused], matching)


def _ceilings(rulebook: Rulebook, action: Action) -> Iterator[Family]:
    """A container, or a pod, that asks for more whole devices than its policy lets one have.

    `asked` are the whole devices of the containers that run at once, and of the init containers.
    """
    resources = whole_devices(rulebook)
    sidecar = "holder.?restartPolicy.orValue('') == 'Always'"
    variables = {
        **policy_holding(rulebook.tenancy),
        "asked": f"""\
[dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])).filter(holder, {sidecar}),
 dyn(object.spec.?initContainers.orValue([])).filter(holder, !({sidecar}))].map(holders, holders.map(holder,
  [holder.?resources.?limits.orValue({{}})].map(limits, limits.filter(name, name in {list_literal(resources)}
  ).map(name, quantity(limits[name]).asApproximateFloat()).sum())[0]))""",
    }
    exceeded = {
        "container": "variables.asked.exists(holders, holders.exists(devices, devices > variables.container))",
        "pod": "variables.asked[0].sum() > variables.pod ||"
        " variables.asked[1].exists(devices, devices > variables.pod)",
    }
    refused = []
    for scope, text in (("container", "[GPU102] a container"), ("pod", "[GPU103] the pod")):
        most = []
        for policy in rulebook.tenancy.policies:
            ceiling: Ceiling | None = getattr(policy, scope)
            if ceiling and ceiling.action == action:
                limits = [(ceiling.devices, 1), (ceiling.cores, 100)]  # whole devices have all of their compute
                bounds = [int(limit // whole) for limit, whole in limits if limit is not None]
                most += [f"{literal(policy.name)}: {min(bounds)}.0"] if bounds else []
        if most and resources:
            variables[scope] = f"{{{', '.join(most)}}}[?variables.policy].orValue(1000000000.0)"
            number = f"{literal(f'{text} asks for more than ')} + string(int(variables.{scope})) + "
            lets = (
                f"' whole devices, the most that the policy ' + variables.policy + {literal(f' lets a {scope} have')}"
            )
            message = f"{text} asks for more whole devices than the policy lets a {scope} have"
            holds = f"{spared_by_exemption(rulebook.tenancy, scope)} ||\n!({exceeded[scope]})"
            refused.append({"expression": holds, "messageExpression": number + lets, "message": message})
    if refused:
        yield Family("ceilings", [CREATED], variables, refused, of_pods(rulebook), action=action)


def whole_devices(rulebook: Rulebook) -> list[str]:
    """The resources each of which is a device, whichever back end it may be of."""
    whole = []
    for name, resource in rulebook.resources.items():
        # Each mode that writes it is for whole devices, and writes their number and nothing else.
        counted = (
            mode.when.devices == "whole" and [amount.what for amount in mode.amounts.values()] == ["count"]
            for backend in (resource.known if resource.shared else resource.owners)
            for mode in backend.modes
            if resource.name in mode.amounts
        )
        if resource.owners and not isinstance(resource.name, Slot) and all(counted):
            whole.append(name)
    return sorted(whole)


# Kubernetes' own ResourceQuotas: bounds of tenants with one namespace, which hold without the webhook.


def render_resource_quotas(rulebook: Rulebook) -> Iterator[Object]:
    """A ResourceQuota for each tenant that has one namespace, by name, and no Exemption from its quota there."""
    resources, tenancy = whole_devices(rulebook), rulebook.tenancy
    for policy in tenancy.policies:
        limits = policy.quota.hard if policy.quota and policy.quota.action == "deny" else {}
        namespaces = policy.namespaces
        if not resources or tally.DEVICES not in limits or len(namespaces.names) != 1 or policy is tenancy.default:
            continue
        [name] = namespaces.names
        if set(name) & set("*?") or namespaces.selector is not None or rulebook.cluster.exempts(name):
            continue
        # Another policy may hold there, by labels or by a pattern.
        if member(name, tenancy).policy is not policy or any(undecided(name, tenancy)):
            continue
        if not any("quota" in exemption.lifts and exemption.covers(name) for exemption in tenancy.exemptions):
            hard = {f"requests.{resource}": str(int(limits[tally.DEVICES])) for resource in resources}
            metadata = {"name": "gpu-webhook", "namespace": name}
            yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
