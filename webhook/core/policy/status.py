"""The conditions in the status of a TenantPolicy: whether it is in force, and whether another one conflicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.policy.membership import member
from webhook.core.rules.tenancy import Tenancy

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


def of(problems: Iterable[str], tie: Tie | None, *, taken: bool = False, strict: bool = False) -> list[Condition]:
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
