"""Which policy applies to a namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.core.forms.labels import Expression
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy

# Which policy applies to a namespace.

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace, and that nobody can change."""

_INDEX: Final = "*"
"""The key of policies that select by pattern or label; no namespace is called so."""


class Membership(NamedTuple):
    """The policy of a namespace, or None. `rivals` are several policies of the same priority that select it."""

    policy: TenantPolicy | None
    rivals: Sequence[TenantPolicy] = ()


def member(namespace: str, tenancy: Tenancy) -> Membership:
    """The policy of the highest priority that selects the namespace; the answer is remembered."""
    found: Membership | None = tenancy.cache.get(namespace)
    if found is None:
        found = tenancy.cache[namespace] = _member(namespace, tenancy)
    return found


def _member(namespace: str, tenancy: Tenancy) -> Membership:
    labels = tenancy.labels.get(namespace, {NAME_LABEL: namespace})
    selecting = [
        policy for policy in _candidates(namespace, tenancy) if selects(policy.namespaces, namespace, labels)
    ]
    if not selecting:
        return Membership(None)
    highest = max(policy.priority for policy in selecting)
    best = [policy for policy in selecting if policy.priority == highest]
    return Membership(best[0]) if len(best) == 1 else Membership(None, best)


def is_of_one_tenant(policy: TenantPolicy, rulebook: Rulebook) -> bool:
    """Whether a policy is a tenant's alone: it has no system namespaces."""
    return all(member(each, rulebook.tenancy).policy is not policy for each in rulebook.cluster.system_namespaces)


def undecided(namespace: str, tenancy: Tenancy) -> Iterator[TenantPolicy]:
    """The policies that would be, or not be, for a namespace by its labels, if these are not known."""
    chosen = member(namespace, tenancy)
    best = (chosen.policy, *chosen.rivals)
    least = max((policy.priority for policy in best if policy is not None), default=None)
    for policy in _candidates(namespace, tenancy):
        if (least is None or policy.priority >= least or policy in best) and _depends(policy.namespaces, namespace):
            yield policy


def _depends(namespaces: Namespaces, name: str) -> bool:
    """Whether the labels of a namespace decide if it is selected, beside its name."""
    if namespaces.selector is None or any(fnmatchcase(name, glob) for glob in namespaces.names):
        return False
    by_name = [each for each in namespaces.selector if each.key == NAME_LABEL]
    rest = len(namespaces.selector) > len(by_name)
    return rest and all(_matches(each, {NAME_LABEL: name}) for each in by_name)


def _candidates(namespace: str, tenancy: Tenancy) -> Iterable[TenantPolicy]:
    """The policies that may select a namespace: those that name it, and those with a pattern or a selector."""
    index: dict[str, list[TenantPolicy]] | None = tenancy.cache.get(_INDEX)
    if index is None:
        index = tenancy.cache[_INDEX] = {_INDEX: []}
        for policy in tenancy.policies:
            for key in _keys(policy.namespaces):
                index.setdefault(key, []).append(policy)
    return (*index[_INDEX], *index.get(namespace, ()))


def _keys(namespaces: Namespaces) -> set[str]:
    """The names in a selection; `_INDEX` if it has a pattern or a selector."""
    if namespaces.selector is not None or any(set(name) & set("*?[") for name in namespaces.names):
        return {_INDEX}
    return {*namespaces.names}


def selects(namespaces: Namespaces, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a selection selects a namespace, by its name or by its labels."""
    if any(fnmatchcase(name, glob) for glob in namespaces.names):
        return True
    selector = namespaces.selector
    return selector is not None and all(_matches(expression, labels) for expression in selector)


def _matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """As Kubernetes does (apimachinery/pkg/labels, Requirement.Matches): `NotIn` holds where the key is absent."""
    present = labels.get(expression.key)
    match expression.operator:
        case "In":
            return present is not None and present in expression.values
        case "NotIn":
            return present is None or present not in expression.values
        case "Exists":
            return present is not None
        case _:
            return present is None


# The conditions in the status of a TenantPolicy: whether it is in force, and whether another one conflicts.

NAMED: Final = 5
"""How many namespaces a message names."""

LONGEST: Final = 32768
"""The longest message of a condition (apimachinery/pkg/apis/meta/v1, Condition)."""


class Condition(NamedTuple):
    """One condition, in the form of Kubernetes, without its times."""

    type: str
    status: str
    reason: str
    message: str


VALID: Final = Condition("Accepted", "True", "Valid", "it is in force as it stands")
STRICT: Final = (
    "its quota cannot count devices that no rule knows, so pods with one are refused; list what is no GPU under "
    "otherDevices of the Cluster document, or say unknownDevices: warn"
)
"""Said of a policy with a quota that does not say what becomes of unknown devices."""

TAKEN: Final = Condition("Accepted", "False", "NameTaken", "the rule files have a policy of this name, which holds")
ALONE: Final = Condition("Ambiguous", "False", "NoConflict", "no other policy of its priority has its namespaces")


class Tie(NamedTuple):
    """The namespaces that a policy and `others` of the same priority select."""

    namespaces: list[str]
    others: set[str]


def ties(tenancy: Tenancy, system: Collection[str]) -> Mapping[str, Tie]:
    """The policies that conflict, by name. Namespaces in `system` belong to no tenant."""
    found: dict[str, Tie] = {}
    for namespace in sorted(tenancy.labels.keys() - set(system)):
        rivals = {policy.name for policy in member(namespace, tenancy).rivals}
        for name in rivals:
            tie = found.setdefault(name, Tie([], set()))
            tie.namespaces.append(namespace)
            tie.others.update(rivals - {name})
    return found


def conditions_of(
    problems: Iterable[str], tie: Tie | None, *, taken: bool = False, strict: bool = False
) -> list[Condition]:
    """The conditions of a policy.

    `problems`: why it cannot be used; `taken`: a rule file has one of this name; `strict`: because of its quota alone
    pods with unknown devices are refused.
    """
    accepted = _accepted("; ".join(problems), strict=strict)
    return [TAKEN, ALONE] if taken else [accepted, _ambiguous(tie) if tie else ALONE]


def _accepted(problems: str, *, strict: bool) -> Condition:
    if not problems:
        return VALID._replace(message=f"{VALID.message}; {STRICT}") if strict else VALID
    meant = "until that is mended its last good version holds; without one no GPU pod is admitted in its namespaces"
    return Condition("Accepted", "False", "Invalid", f"{problems}; {meant}"[:LONGEST])


def _ambiguous(tie: Tie) -> Condition:
    more = len(tie.namespaces) - NAMED
    there = f"{', '.join(tie.namespaces[:NAMED])}{f' and {more} more' if more > 0 else ''}"
    message = (
        f"of the same priority, for the same namespaces ({there}), as {', '.join(sorted(tie.others))}: "
        "no GPU pod is admitted there until one of them has a higher priority"
    )
    return Condition("Ambiguous", "True", "SamePriority", message[:LONGEST])


def status(
    conditions: Iterable[Condition], generation: int, before: Mapping[str, Any], now: str
) -> Mapping[str, Any] | None:
    """The status to write; None if it is the same. `now` is a time in the form of Kubernetes."""
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in before.get("conditions") or ()}
    written = {
        "observedGeneration": generation,
        "conditions": [
            {
                **each._asdict(),
                "observedGeneration": generation,
                "lastTransitionTime": since.get((each.type, each.status), now),
            }
            for each in conditions
        ],
    }
    return None if written == before else written
