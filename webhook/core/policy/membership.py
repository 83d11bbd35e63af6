"""Which policy applies to a namespace, and what the status of a policy says of that."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.core.forms.labels import Expression
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace, and that nobody can change."""

ACCOUNT: Final = "system:serviceaccount:"
"""How the users begin that are service accounts; their namespace follows."""

_INDEX: Final = "*"
"""The key of policies that select by pattern or label; no namespace is called so."""


class Membership(NamedTuple):
    """The policy of a namespace, or None. `rivals` are several policies of the same priority that select it."""

    policy: TenantPolicy | None
    rivals: Sequence[TenantPolicy] = ()


def member(namespace: str, tenancy: Tenancy) -> Membership:
    """The policy of the highest priority that selects the namespace, or the default; the answer is remembered."""
    membership: Membership | None = tenancy.cache.get(namespace)
    if membership is not None:
        return membership
    labels = tenancy.labels.get(namespace, {NAME_LABEL: namespace})
    candidates = _candidates(namespace, tenancy)
    selecting = [policy for policy in candidates if selects(policy.namespaces, namespace, labels)]
    highest = max((policy.priority for policy in selecting), default=0)
    best = [policy for policy in selecting if policy.priority == highest]
    membership = Membership(best[0]) if len(best) == 1 else Membership(None if best else tenancy.default, best or ())
    tenancy.cache[namespace] = membership
    return membership


def undecided(namespace: str, tenancy: Tenancy) -> Iterator[TenantPolicy]:
    """The policies that would be, or not be, for a namespace by its labels, if these are not known."""
    chosen = member(namespace, replace(tenancy, without_policy=None))
    best = [policy for policy in (chosen.policy, *chosen.rivals) if policy is not None]
    least = max((policy.priority for policy in best), default=None)
    for policy in _candidates(namespace, tenancy):
        names, selector = policy.namespaces.names, policy.namespaces.selector or ()
        if not (least is None or policy.priority >= least or policy in best):
            continue
        # Labels other than its name decide if it is selected.
        by_name = [expression for expression in selector if expression.key == NAME_LABEL]
        rest = len(selector) > len(by_name) and not any(fnmatchcase(namespace, glob) for glob in names)
        if rest and all(_matches(expression, {NAME_LABEL: namespace}) for expression in by_name):
            yield policy


def _candidates(namespace: str, tenancy: Tenancy) -> Iterable[TenantPolicy]:
    """The policies that may select a namespace: those that name it, and those with a pattern or a selector."""
    index: dict[str, list[TenantPolicy]] | None = tenancy.cache.get(_INDEX)
    if index is None:
        index = tenancy.cache[_INDEX] = {_INDEX: []}
        for policy in tenancy.policies:
            names, selector = policy.namespaces.names, policy.namespaces.selector
            is_open = selector is not None or any(set(name) & set("*?[") for name in names)
            for key in {_INDEX} if is_open else {*names}:
                index.setdefault(key, []).append(policy)
    return (*index[_INDEX], *index.get(namespace, ()))


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


def unselected(rulebook: Rulebook) -> list[str]:
    """The namespaces that no policy selects, without those that are exempt."""
    tenancy, exempt = replace(rulebook.tenancy, without_policy=None), rulebook.cluster.system_namespaces
    return [name for name in sorted(tenancy.labels.keys() - exempt) if member(name, tenancy) == Membership(None)]


def platform_accounts(rulebook: Rulebook) -> list[str]:
    """The users, as globs, that are of the platform beside parts of Kubernetes."""
    namespaces = sorted(rulebook.cluster.system_namespaces)
    writers = [writer for backend in rulebook.enabled for writer in backend.writers]
    return [*(f"{ACCOUNT}{name}:*" for name in namespaces), *rulebook.cluster.platform_accounts, *writers]


def is_of_the_platform(user: str, rulebook: Rulebook) -> bool:
    """Whether a user is a part of Kubernetes, or listed: whose namespace it is says nothing, as tenants make some."""
    part = user.startswith("system:") and not user.startswith((ACCOUNT, "system:anonymous"))
    return part or any(fnmatchcase(user, glob) for glob in platform_accounts(rulebook))


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
    ties: dict[str, Tie] = {}
    for namespace in sorted(tenancy.labels.keys() - set(system)):
        rivals = {policy.name for policy in member(namespace, tenancy).rivals}
        for name in rivals:
            tie = ties.setdefault(name, Tie([], set()))
            tie.namespaces.append(namespace)
            tie.others.update(rivals - {name})
    return ties


NOT_IN_FORCE: Final = {("Accepted", "False"), ("Ambiguous", "True")}
"""Conditions, by type and status, of a policy that does not hold as it is written."""


def conditions_of(
    problems: Iterable[str], tie: Tie | None, *, taken: bool = False, strict: bool = False
) -> list[Condition]:
    """The conditions of a policy.

    `problems`: why it cannot be used; `taken`: a rule file has one of this name; `strict`: because of its quota alone
    pods with unknown devices are refused.
    """
    if taken:
        return [TAKEN, ALONE]
    accepted = VALID._replace(message=f"{VALID.message}; {STRICT}") if strict else VALID
    if wrong := "; ".join(problems):
        then = (
            "until that is mended its last good version holds; without one no GPU pod is admitted in its namespaces"
        )
        accepted = Condition("Accepted", "False", "Invalid", f"{wrong}; {then}"[:LONGEST])
    if tie is None:
        return [accepted, ALONE]
    more = len(tie.namespaces) - NAMED
    there = f"{', '.join(tie.namespaces[:NAMED])}{f' and {more} more' if more > 0 else ''}"
    message = (
        f"of the same priority, for the same namespaces ({there}), as {', '.join(sorted(tie.others))}: "
        "no GPU pod is admitted there until one of them has a higher priority"
    )
    return [accepted, Condition("Ambiguous", "True", "SamePriority", message[:LONGEST])]


def status(
    conditions: Iterable[Condition], generation: int, before: Mapping[str, Any], now: str
) -> Mapping[str, Any] | None:
    """The status to write; None if it is the same. `now` is a time in the form of Kubernetes."""
    since = {
        (condition["type"], condition["status"]): condition["lastTransitionTime"]
        for condition in before.get("conditions") or ()
    }
    written = {
        "observedGeneration": generation,
        "conditions": [
            {
                **condition._asdict(),
                "observedGeneration": generation,
                "lastTransitionTime": since.get((condition.type, condition.status), now),
            }
            for condition in conditions
        ],
    }
    return None if written == before else written
