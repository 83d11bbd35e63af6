"""The words of a quota's refusal: what is used, asked and left, which namespaces hold it, and what would fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Final

from webhook.core.decision import Decision, Finding, Form, Reservation, denied
from webhook.core.kube.quantity import GIB, MIB, show, show_size
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger, Outcome, fitting
from webhook.core.violations import LATER_FIX, QUOTA, TAKEN, Violation

NAMED: Final = 5
"""How many namespaces a message names, the largest holders first."""

_LONG: Final = 6
_PERCENT: Final = 100


def over(reservation: Reservation, ledger: Ledger, exceeded: Iterable[str]) -> list[Violation]:
    """A violation (GPU104) for each limit that the pod would exceed.

    `ledger` may hold the pod's own reservation already, or not.
    """
    before = _without(reservation, ledger)
    return [_over(reservation, before, key) for key in exceeded]


def admitted_over(reservation: Reservation, ledger: Ledger, exceeded: Iterable[str]) -> list[str]:
    """A warning for each limit that the pod exceeds, where the quota only warns."""
    before = _without(reservation, ledger)
    return [
        f"[GPU104] {_message(reservation, before, key)}; it is admitted, as the policy only warns" for key in exceeded
    ]


def again(reservation: Reservation, why: str) -> Violation:
    """The answer (GPU111) while it is unknown whether the pod is within the quota; the client retries."""
    message = f'the quota of the tenant "{reservation.tenant}" cannot be asked now: {why}'
    return Violation(code="GPU111", path=reservation.path, message=message, fix=LATER_FIX, rule=reservation.rule)


def taken(reservation: Reservation) -> Violation:
    """The answer (GPU115) to a pod whose name another pod has, in the words of the API server."""
    return Violation(
        code=TAKEN,
        path="metadata.name",
        message=f'pods "{reservation.ask.name}" already exists',
        fix="take another name, or delete that pod first",
    )


def _without(reservation: Reservation, ledger: Ledger) -> Ledger:
    """The ledger without the reservations of this pod's name, which only one pod can have."""
    name = f"{reservation.ask.namespace}/{reservation.ask.name}"
    if name not in ledger.pending:
        return ledger
    return replace(ledger, pending={other: by_uid for other, by_uid in ledger.pending.items() if other != name})


def _over(reservation: Reservation, ledger: Ledger, key: str) -> Violation:
    message = _message(reservation, ledger, key)
    fix = _fix(reservation, ledger, key)
    return Violation(code=QUOTA, path=reservation.path, message=message, fix=fix, rule=reservation.rule)


def _message(reservation: Reservation, ledger: Ledger, key: str) -> str:
    used, asked = ledger.used.get(key, Fraction(0)), reservation.ask.amount.get(key, Fraction(0))
    limit = ledger.hard[key]
    return (
        f'tenant "{reservation.tenant}" is over its GPU quota: uses {shown(key, used)}, '
        f"asks {shown(key, asked)}, limit {shown(key, limit)}{_unit(key, limit)}"
    )


def _fix(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """What would be admitted now, and which namespaces could free some."""
    left = ledger.hard[key] - ledger.used.get(key, Fraction(0))
    fits = _fewer(reservation, ledger, key) or _instead(reservation.form, key, left)
    holders = _holders(ledger, key)
    free = f"free some: {holders}" if holders else ""
    if fits and free:
        return f"{fits}, or {free}"
    if fits:
        return f"{fits}: nobody holds any now"
    return free or "ask the operators of the quota for more: it is zero"


def _fewer(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """How many of the requested devices would fit; empty if none, or if each counts as 1 device of the quota."""
    each = {name: asked / reservation.count for name, asked in reservation.ask.amount.items()}
    if tally.parts(key)[0] == tally.DEVICES and each[key] == 1:
        return ""
    fit = fitting(ledger, each)
    counts = f"as each counts {shown(key, each[key])}"
    return f"ask for {fit} of them instead of {reservation.count}, {counts}" if fit else ""


def _instead(form: Form, key: str, left: Fraction) -> str:
    """What to ask for instead, in the form of the request; empty if nothing would fit."""
    most, in_memory = _most(key, left), tally.parts(key)[0] == tally.MEMORY
    if form == "partition of any card" or (form == "size of any card" and not in_memory):
        return "add gpu-model: without it this counts as on the smallest card"
    if form == "partition" and most:
        return f"take a smaller partition, as {shown(key, left)} is left"
    if form == "whole" and most and (left < 1 or in_memory):
        return f"ask for {most}, if devices are shared here"
    return f"ask for {most}" if most else ""


def _most(key: str, left: Fraction) -> str:
    """The most that fits into what is left, in round numbers; empty if that is nothing."""
    what, model = tally.parts(key)
    of_model = f" of {model}" if model else ""
    if what == tally.MEMORY:
        unit = GIB if left >= GIB else MIB
        size = floor(left / unit) * unit
        return f"{show_size(size)}{of_model} or less" if size > 0 else ""
    if left >= 1:
        return f"{floor(left)}{of_model} or fewer"
    share = Fraction(floor(left * _PERCENT), _PERCENT)
    return f"{show(share)}{of_model} or less" if share > 0 else ""


def _holders(ledger: Ledger, key: str) -> str:
    """`namespace vision-dev holds 9, vision-ci 5`, the largest first; reservations are included."""
    held = ledger.by_namespace
    holding = {namespace: amount[key] for namespace, amount in held.items() if amount.get(key)}
    ranked = sorted(holding, key=lambda namespace: (-holding[namespace], namespace))
    first, *others = [f"{namespace} holds {shown(key, holding[namespace])}" for namespace in ranked[:1]] or [""]
    others = [f"{namespace} {shown(key, holding[namespace])}" for namespace in ranked[1:NAMED]]
    more = f" and {len(ranked) - NAMED} more" if len(ranked) > NAMED else ""
    return f"namespace {', '.join([first, *others])}{more}" if first else ""


def shown(key: str, amount: Fraction) -> str:
    """An amount, exact if that is short: `14`, `0.3`, `8Gi`, `about 0.33`, `about 12.4Gi`."""
    if tally.parts(key)[0] != tally.MEMORY:
        exact = show(amount)
        return exact if len(exact) <= _LONG and "/" not in exact else f"about {float(amount):.2f}"
    size = show_size(floor(amount)) if amount else "0"
    return size if len(size) <= _LONG + 2 else f"about {float(amount / GIB):.1f}Gi"


def _unit(key: str, limit: Fraction) -> str:
    what, model = tally.parts(key)
    if what == tally.MEMORY:
        return f" of memory{f' on {model}' if model else ''}"
    return f" {model + ' ' if model else ''}device{'' if limit == 1 else 's'}"


def reserved(decision: Decision, wanted: Reservation, outcome: Outcome, ledger: Ledger) -> Decision:
    """The final decision about a pod, after the ledger's outcome."""
    if outcome.verdict in ("again", "wait"):
        return denied([again(wanted, outcome.why)], decision.warnings)
    if outcome.verdict == "taken":
        return denied([taken(wanted)], decision.warnings)
    breach = Finding(policy=wanted.tenant, rule=wanted.rule, code=QUOTA, action=wanted.action)
    findings = [*decision.findings, breach] if outcome.exceeded else decision.findings
    if outcome.verdict == "over":
        violations = over(wanted, ledger, outcome.exceeded)
        return denied(violations, decision.warnings)._replace(findings=findings)
    if wanted.action != "warn" or not outcome.exceeded:
        return decision._replace(findings=findings)
    warnings = [*decision.warnings, *admitted_over(wanted, ledger, outcome.exceeded)]
    return decision._replace(warnings=warnings, findings=findings)
