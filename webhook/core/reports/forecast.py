"""Whether pods would be within the quota of their tenant, and what would be left: by a ledger that is only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from webhook.core.decision import Decision, Reservation
from webhook.core.policy import refusal
from webhook.core.policy.membership import member
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ask, Ledger, fitting, reserve
from webhook.core.quota.tally import Tally
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import Quota, TenantPolicy
from webhook.core.violations import Action

Ledgers = Mapping[str, Ledger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One thing that is counted: what is used, what all of the pods ask, and the limit, None where there is none."""

    key: str
    used: Fraction
    asked: Fraction
    limit: Fraction | None

    @property
    def left(self) -> Fraction | None:
        """What is left beside them; less than nothing where they ask too much."""
        return None if self.limit is None else self.limit - self.used - self.asked

    def plain(self) -> dict[str, float | None]:
        """The numbers for JSON: bytes are whole, and of devices the nearest there is."""
        amounts = {"used": self.used, "asked": self.asked, "limit": self.limit, "left": self.left}
        return {key: None if each is None else tally.plain(each) for key, each in amounts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a policy and its ledger say to `pods` pods that are alike.

    `fit` is how many of them the quota admits as things stand, None if it limits nothing that they ask; `action` is
    what becomes of the others, None without a quota, and `lifted`: an exemption holds, and nothing becomes of them.
    `amounts` is empty for pods that count nothing.
    """

    tenant: str
    rule: str
    namespace: str
    pods: int
    fit: int | None
    action: Action | None
    lifted: bool = False
    amounts: tuple[Amount, ...] = ()

    def contract(self) -> dict[str, Any]:
        """The form of `tenant` in `explain -o json`."""
        return {
            "name": self.tenant,
            "policy": self.rule,
            "namespace": self.namespace,
            "pods": self.pods,
            "fit": self.fit,
            "enforcementAction": self.action,
            "lifted": self.lifted,
            "totals": {amount.key: amount.plain() for amount in self.amounts},
        }


class Foreseen(NamedTuple):
    """The decision with the word of the ledger, what is behind it, and the ledgers if the pods were created."""

    decision: Decision
    prospect: Prospect | None
    ledgers: Ledgers


def foresee(
    decision: Decision,
    pods: int,
    namespace: str,
    tenancy: Tenancy,
    ledgers: Ledgers,
    *,
    imagined: bool = False,
) -> Foreseen:
    """The result for so many copies of a pod that was judged so.

    `imagined`: nobody counts anything meanwhile, so a ledger that is not there, or does not count the namespace,
    holds nothing there; else a pod would have to wait for it.
    """
    policy = member(namespace, tenancy).policy
    if policy is None:
        return Foreseen(decision, None, ledgers)
    wanted, quota = decision.reservation, policy.quota
    if wanted is None or quota is None or not pods:
        return Foreseen(decision, _prospect(policy, namespace, pods), ledgers)
    ledger = replace(ledgers.get(policy.name, Ledger()), hard=quota.hard, advances={})
    if imagined:
        ledger = replace(ledger, view=ledger.view or 1, held={namespace: tally.NOTHING, **ledger.held})
    if not ledger.view:
        answered = _answered(decision, wanted, ledger, pods, None)
        return Foreseen(answered, _prospect(policy, namespace, pods), ledgers)
    fit = fitting(ledger, wanted.ask.amount)
    prospect = replace(
        _prospect(policy, namespace, pods),
        fit=fit,
        lifted=wanted.action != quota.action,
        amounts=tuple(_amounts(ledger, quota, _times(wanted.ask.amount, pods))),
    )
    entering = pods if fit is None or not wanted.ask.enforced else min(pods, fit)
    known = {**ledgers, policy.name: _with(ledger, wanted.ask, entering)}
    return Foreseen(_answered(decision, wanted, ledger, pods, fit), prospect, known)


def _prospect(policy: TenantPolicy, namespace: str, pods: int) -> Prospect:
    action = policy.quota.action if policy.quota else None
    return Prospect(tenant=policy.name, rule=policy.rule, namespace=namespace, pods=pods, fit=None, action=action)


def _answered(decision: Decision, wanted: Reservation, ledger: Ledger, pods: int, fit: int | None) -> Decision:
    _, [first] = reserve(ledger, [wanted.ask])
    answered = refusal.reserved(decision, wanted, first, ledger)._replace(reservation=None)
    if first.verdict != "admit" or first.exceeded or fit is None or fit >= pods:
        return answered
    full = _with(ledger, wanted.ask, fit)
    _, [next_one] = reserve(full, [wanted.ask])
    then = {"deny": "the others will be refused", "warn": "the others are over the quota"}.get(wanted.action)
    over = refusal.over(wanted, full, next_one.exceeded) if then else ()
    said = [f"of its {pods} pods {fit} fit, and {then}: [GPU104] {violation.message}" for violation in over]
    return answered._replace(warnings=[*answered.warnings, *said])


def _with(ledger: Ledger, ask: Ask, pods: int) -> Ledger:
    """The ledger once so many pods of an ask live; they are held, as imagined pods have no names to be pending by."""
    if ask.namespace not in ledger.held:
        return ledger
    held = tally.plus(ledger.held[ask.namespace], _times(ask.amount, pods))
    return replace(ledger, held={**ledger.held, ask.namespace: held})


def _times(amount: Tally, pods: int) -> Tally:
    return {key: pods * each for key, each in amount.items()}


def _amounts(ledger: Ledger, quota: Quota, asked: Tally) -> list[Amount]:
    used = ledger.used
    zero = Fraction(0)
    return [
        Amount(key=key, used=used.get(key, zero), asked=asked.get(key, zero), limit=quota.hard.get(key))
        for key in sorted({*quota.hard, tally.DEVICES}, key=lambda key: ("/" in key, key))
    ]
