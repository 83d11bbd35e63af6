"""The conditions in the status of a TenantPolicy: whether it is in force, and whether another one conflicts."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.policy.membership import member
from webhook.core.rules.tenant_policy import Tenancy

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
