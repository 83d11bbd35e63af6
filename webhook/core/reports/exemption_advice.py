"""An Exemption that has ended, is misspelt, or lifts nothing: advice for its author."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.core.forms.document import nearest
from webhook.core.kube.quantity import shown
from webhook.core.kube.time import duration
from webhook.core.policy.membership import member
from webhook.core.reports import policy_reach
from webhook.core.reports.checkup import several
from webhook.core.reports.policy_reach import Place
from webhook.core.reports.policy_terms import Advice
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, TenantPolicy

ACCOUNT: Final = "system:serviceaccount:"
GROUPS: Final = ("system:serviceaccounts", "system:authenticated", "system:masters")
"""How names of groups begin that are taken for names of users."""


def advice(exemption: Exemption, rulebook: Rulebook, at: float) -> Iterator[Advice]:
    """What is wrong with an exemption at a time in seconds since 1970; the rulebook has all policies."""
    if exemption.expires <= at:
        ended = f"it ended {duration(at - exemption.expires)} ago and lifts nothing; write a later time, or delete it"
        yield Advice("spec.expires", ended)
    around = policy_reach.place(rulebook, exemption.namespaces)
    yield from policy_reach.of_names("spec.namespaces", exemption.namespaces, around)
    yield from _users(exemption, around)
    yield from _lifted(exemption, around, rulebook)


def _users(exemption: Exemption, around: Place) -> Iterator[Advice]:
    """Names of groups, and of service accounts that cannot be."""
    for user in exemption.users[: policy_reach.SUGGESTED]:
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        if user.startswith(GROUPS):
            said = f"{shown(user)} is a group, and users are compared; write {ACCOUNT}<namespace>:*"
        elif not user.startswith(ACCOUNT) or "*" in namespace:
            continue
        elif not name:
            said = f"{shown(user)} has no name after its namespace; write {ACCOUNT}{shown(namespace)}:*"
        elif around.made_up or namespace in around.labels:
            continue
        else:
            said = f"there is no namespace {shown(namespace)}{nearest(namespace, around.labels)}"
        yield Advice("spec.users", said)


def _lifted(exemption: Exemption, around: Place, rulebook: Rulebook) -> Iterator[Advice]:
    """Rules that no policy of its namespaces has."""
    selection = Namespaces(names=exemption.namespaces)
    own = policy_reach.selected(selection, around)
    found = (member(name, rulebook.tenancy).policy for name in policy_reach.judged(own or (), rulebook))
    policies = {policy.name: policy for policy in found if policy is not None}
    if own is None:
        yield Advice("spec.namespaces", policy_reach.TOO_MANY)
    elif not own:
        yield Advice("spec.namespaces", f"it is for no namespace; the cluster has {len(around.labels)}")
    elif not policies:
        yield Advice("spec.namespaces", f"no TenantPolicy is for {several(own, ', ')}, so it lifts nothing")
    elif missing := sorted(rule for rule in exemption.lifts if not _have(rule, [*policies.values()])):
        names = several([policy.rule for policy in policies.values()], ", ")
        yield Advice("spec.lifts", f"{names} sets no {several(missing, ', ')}, so lifting that does nothing")


def _have(rule: str, policies: Sequence[TenantPolicy]) -> bool:
    """Whether one of them has the rule, or may have: of a broken one nothing is known."""
    return any(policy.broken or getattr(policy, rule) is not None for policy in policies)
