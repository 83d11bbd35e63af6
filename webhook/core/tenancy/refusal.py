"""What a quota says to the author of a pod: what is used, asked and left, who holds it, and what would fit now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Final

from webhook.core.decision import Form, Reservation
from webhook.core.quantity import GIB, MIB, show, show_size
from webhook.core.tenancy import tally
from webhook.core.tenancy.ledger import Ledger, fitting
from webhook.core.tenancy.tally import Tally
from webhook.core.violations import LATER_FIX, QUOTA, Violation

NAMED: Final = 5
"""How many namespaces a message names, those that hold most."""

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
        f"[GPU104] {_said(reservation, before, key)}; it is admitted, as the policy only warns" for key in exceeded
    ]


def again(reservation: Reservation, why: str) -> Violation:
    """The answer (GPU111) while nobody can say whether the pod is within the quota."""
    return Violation(
        code="GPU111",
        path=reservation.path,
        message=f'the quota of the tenant "{reservation.tenant}" cannot be asked now: {why}',
        fix=LATER_FIX,
        rule=reservation.rule,
    )


def _without(reservation: Reservation, ledger: Ledger) -> Ledger:
    """The ledger without what is reserved for pods of this name, of which only one can be."""
    name = f"{reservation.ask.namespace}/{reservation.ask.name}"
    if name not in ledger.pending:
        return ledger
    return replace(ledger, pending={other: by_uid for other, by_uid in ledger.pending.items() if other != name})


def _over(reservation: Reservation, ledger: Ledger, key: str) -> Violation:
    return Violation(
        code=QUOTA,
        path=reservation.path,
        message=_said(reservation, ledger, key),
        fix=_fix(reservation, ledger, key),
        rule=reservation.rule,
    )


def _said(reservation: Reservation, ledger: Ledger, key: str) -> str:
    used, asked = ledger.used.get(key, Fraction(0)), reservation.ask.amount.get(key, Fraction(0))
    limit = ledger.hard[key]
    return (
        f'tenant "{reservation.tenant}" is over its GPU quota: uses {shown(key, used)}, '
        f"asks {shown(key, asked)}, limit {shown(key, limit)}{_unit(key, limit)}"
    )


def _fix(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """What would be admitted now, and who would have to free some."""
    left = ledger.hard[key] - ledger.used.get(key, Fraction(0))
    fits = _fewer(reservation, ledger, key) or _instead(reservation.form, key, left)
    holders = _holders(ledger, key)
    free = f"free some: {holders}" if holders else ""
    if fits and free:
        return f"{fits}, or {free}"
    if fits:
        return f"{fits}: nobody holds any now"
    return free or "ask whoever sets the quota for more: it lets nobody have any"


def _fewer(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """How many of several devices would fit; empty where it is none, or they are what the quota counts one by one."""
    each = {name: asked / reservation.count for name, asked in reservation.ask.amount.items()}
    if key.partition("/")[0] == tally.DEVICES and each[key] == 1:
        return ""
    fit = fitting(ledger, each)
    counts = f"as each counts {shown(key, each[key])}"
    return f"ask for {fit} of them instead of {reservation.count}, {counts}" if fit else ""


def _instead(form: Form, key: str, left: Fraction) -> str:
    """What else would fit, said of what was asked; empty where nothing would."""
    most, in_memory = _most(key, left), key.partition("/")[0] == tally.MEMORY
    if form == "partition of any card" or (form == "size of any card" and not in_memory):
        return "add gpu-model: without it this counts as on the smallest card"
    if form == "partition" and most:
        return f"take a smaller partition, as {shown(key, left)} is left"
    if form == "whole" and most and (left < 1 or in_memory):
        return f"ask for {most}, if devices are shared here"
    return f"ask for {most}" if most else ""


def _most(key: str, left: Fraction) -> str:
    """The most that can be asked for of what is left, in round numbers; empty where that is nothing."""
    what, _, model = key.partition("/")
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
    """`namespace vision-dev holds 9, vision-ci 5`, the largest first, with what is reserved for pods not yet seen."""
    held = ledger.by_namespace
    holding = {namespace: amount[key] for namespace, amount in held.items() if amount.get(key)}
    ranked = sorted(holding, key=lambda namespace: (-holding[namespace], namespace))
    first, *others = [f"{namespace} holds {shown(key, holding[namespace])}" for namespace in ranked[:1]] or [""]
    others = [f"{namespace} {shown(key, holding[namespace])}" for namespace in ranked[1:NAMED]]
    more = f" and {len(ranked) - NAMED} more" if len(ranked) > NAMED else ""
    return f"namespace {', '.join([first, *others])}{more}" if first else ""


def shown(key: str, amount: Fraction) -> str:
    """Exact where that is short: `14`, `0.3`, `8Gi`, `about 0.33`, `about 12.4Gi`."""
    if key.partition("/")[0] != tally.MEMORY:
        exact = show(amount)
        return exact if len(exact) <= _LONG and "/" not in exact else f"about {float(amount):.2f}"
    size = show_size(floor(amount)) if amount else "0"
    return size if len(size) <= _LONG + 2 else f"about {float(amount / GIB):.1f}Gi"


def _unit(key: str, limit: Fraction) -> str:
    what, _, model = key.partition("/")
    if what == tally.MEMORY:
        return f" of memory{f' on {model}' if model else ''}"
    return f" {model + ' ' if model else ''}device{'' if limit == 1 else 's'}"


def words(amount: Tally) -> Iterator[str]:
    """What a tally counts, for people: `4 devices`, `40Gi of memory`."""
    for key in (tally.DEVICES, tally.MEMORY):
        if key in amount:
            yield f"{shown(key, amount[key])}{_unit(key, amount[key])}"
