"""The words of a quota's refusal: what is used, asked and left, which namespaces hold it, and what would fit."""

from collections.abc import Iterable
from dataclasses import replace
from math import floor
from typing import Final

from webhook.core.decision import Decision, Finding, Reservation, denied
from webhook.core.kube.quantity import GIB, MIB, Fraction, show, show_size
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger, Outcome, fitting
from webhook.core.violations import LATER_FIX, QUOTA, TAKEN, Violation

NAMED_NAMESPACES: Final = 5
"""How many namespaces a message names, the largest holders first."""


def after_ledger(decision: Decision, wanted: Reservation, outcome: Outcome, ledger: Ledger) -> Decision:
    """The final decision about a pod, after the ledger's outcome."""
    if outcome.verdict in ("again", "wait"):
        # The client retries (GPU111).
        message = f'the quota of the tenant "{wanted.tenant}" cannot be asked now: {outcome.why}'
        later = Violation(code="GPU111", path=wanted.path, message=message, fix=LATER_FIX, rule=wanted.rule)
        return denied([later], decision.warnings)
    if outcome.verdict == "taken":
        # Another pod has its name (GPU115): in the words of the API server.
        message, fix = f'pods "{wanted.ask.name}" already exists', "take another name, or delete that pod first"
        return denied([Violation(code=TAKEN, path="metadata.name", message=message, fix=fix)], decision.warnings)
    breach = Finding(wanted.tenant, wanted.rule, QUOTA, wanted.action, wanted.exemption)
    findings = [*decision.findings, breach] if outcome.exceeded else decision.findings
    if outcome.verdict == "over":
        violations = over(wanted, ledger, outcome.exceeded)
        return denied(violations, decision.warnings)._replace(findings=findings)
    warnings = [*decision.warnings]
    if wanted.gaps and any(tally.parts(key)[0] == tally.DEVICES for key in wanted.ask.hard):
        warnings.append(f"{_gaps(wanted)} (quota of {wanted.tenant}, {wanted.path})")
    if wanted.action == "warn":
        texts = (violation.message for violation in over(wanted, ledger, outcome.exceeded))
        warnings += (f"[{QUOTA}] {text}; it is admitted, as the policy only warns" for text in texts)
    return decision._replace(warnings=warnings, findings=findings)


def over(reservation: Reservation, ledger: Ledger, exceeded: Iterable[str]) -> list[Violation]:
    """A violation (GPU104) for each limit that the pod would exceed.

    `ledger` may hold the pod's own reservation already, or not: only one pod can have its name.
    """
    others = {name: by_uid for name, by_uid in ledger.pending.items() if name != reservation.ask.place}
    ledger = replace(ledger, pending=others)
    violations: list[Violation] = []
    for key in exceeded:
        used, amount = ledger.used.get(key, Fraction(0)), reservation.ask.amount.get(key, Fraction(0))
        limit, (what, model) = ledger.hard[key], tally.parts(key)
        unit = f" {f'{model} ' if model else ''}device{'' if limit == 1 else 's'}"
        if what == tally.MEMORY:
            unit = f" of memory{f' on {model}' if model else ''}"
        message = (
            f'tenant "{reservation.tenant}" is over its GPU quota: uses {tally.rounded(key, used)}, '
            f"asks {tally.rounded(key, amount)}, limit {tally.rounded(key, limit)}{unit}"
        )
        # Which namespaces could free some, the largest first: `namespace vision-dev holds 9, vision-ci 5`.
        held = {namespace: amounts[key] for namespace, amounts in ledger.by_namespace.items() if amounts.get(key)}
        ranked = sorted(held.items(), key=lambda holder: (-holder[1], holder[0]))
        more = f" and {len(ranked) - NAMED_NAMESPACES} more" if len(ranked) > NAMED_NAMESPACES else ""
        holders = [
            f"{namespace} {'' if place else 'holds '}{tally.rounded(key, held_there)}"
            for place, (namespace, held_there) in enumerate(ranked[:NAMED_NAMESPACES])
        ]
        free = f"free some: namespace {', '.join(holders)}{more}" if holders else ""
        fits = _fitting(reservation, ledger, key)
        fix = free or "ask the operators of the quota for more: it is zero"
        if fits:
            fix = f"{fits}, or {free}" if free else f"{fits}: nobody holds any now"
        violations.append(
            Violation(code=QUOTA, path=reservation.path, message=message, fix=fix, rule=reservation.rule)
        )
    return violations


def _fitting(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """What would be admitted now, in the form of the request; empty if nothing would."""
    left, (what, model) = ledger.hard[key] - ledger.used.get(key, Fraction(0)), tally.parts(key)
    # How many of the devices that were asked for, unless each counts as 1 device of the quota.
    per_device = {name: amount / reservation.count for name, amount in reservation.ask.amount.items()}
    fit = None if what == tally.DEVICES and per_device[key] == 1 else fitting(ledger, per_device)
    if fit:
        counts = f"as each counts {tally.rounded(key, per_device[key])}"
        return f"ask for {fit} of them instead of {reservation.count}, {counts}"
    if reservation.gaps and what != tally.MEMORY:
        return _gaps(reservation)
    if reservation.form == "partition of any card":
        return "add gpu-model: without it this counts as on the smallest card"

    # The most that fits into what is left, in round numbers.
    of_model = f" of {model}" if model else ""
    if what == tally.MEMORY:
        unit = GIB if left >= GIB else MIB
        size = floor(left / unit) * unit
        most = f"{show_size(size)}{of_model} or less" if size > 0 else ""
    elif left >= 1:
        most = f"{floor(left)}{of_model} or fewer"
    else:
        share = Fraction(floor(left * 100), 100)
        most = f"{show(share)}{of_model} or less" if share > 0 else ""
    if most and reservation.form == "partition":
        return f"take a smaller partition, as {tally.rounded(key, left)} is left"
    shared = reservation.form == "whole" and (left < 1 or what == tally.MEMORY)
    return f"ask for {most}{', if devices are shared here' if shared else ''}" if most else ""


def _gaps(reservation: Reservation) -> str:
    """What to add so that less than whole devices may count, and why it does not without."""
    keys, reasons = (" and ".join(texts) for texts in (reservation.gaps.keys(), reservation.gaps.values()))
    return f"add {keys}: a part of a device counts as a whole one, as {reasons}"
