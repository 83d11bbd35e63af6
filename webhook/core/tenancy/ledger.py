"""The ledger of one tenant: what may be used, what is, and what has been promised to pods not yet seen.

Pure state, and the only two things that may happen to it. Whoever holds it (a TenantUsage object in a cluster, memory
offline) replaces it as a whole, and only if nobody else has meanwhile: a compare-and-swap. With that, the totals hold
for any number of replicas and settlers, paused, doubled or killed:

    every live pod that was admitted is in `held` or in `pending`: it was reserved before it was written, and a
    settlement takes it out of `pending` only when it has seen it, or has seen that it never came to be
    `reserve` never lets their sum grow over `hard`

One name holds one pod at a time, so of the reservations of one name the largest counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from webhook.core.tenancy import tally
from webhook.core.tenancy.tally import Tally

MOST_PENDING: Final = 2000
"""Reservations waiting to be seen. At this size a write takes some 40 ms; it is full only while nobody settles."""

MOST_OF_NAME: Final = 16
"""Those of one name: whoever creates again and again what is there already is asked about before he is refused."""

Pending = Mapping[str, Mapping[str, Tally]]
"""By `namespace/name`, then by the UID of the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known of one tenant.

    hard     what may be used at most; empty: nothing is limited
    held     what live pods hold, by namespace: all the namespaces that are counted here, and no others
    view     the version of the cluster's pods up to which `held` is right; 0: nothing is known yet
    pending  reservations of pods that are not in `held`
    joining  namespaces on their way into `held`, each with a token that is never used twice (settlement.py)
    recount  how often somebody has asked for a settlement before he refuses; `recounted`: how often he got it
    """

    hard: Tally = field(default_factory=dict)
    held: Mapping[str, Tally] = field(default_factory=dict)
    view: int = 0
    pending: Pending = field(default_factory=dict)
    joining: Mapping[str, str] = field(default_factory=dict)
    recount: int = 0
    recounted: int = 0

    @property
    def used(self) -> Tally:
        """What counts against the limit."""
        reserved = (_largest(by_uid) for by_uid in self.pending.values())
        return tally.plus(tally.total(self.held.values()), tally.total(reserved))

    @property
    def by_namespace(self) -> Mapping[str, Tally]:
        """The same for each namespace: what it holds, and what is reserved for pods of it that are not yet seen."""
        used = dict(self.held)
        for name, by_uid in self.pending.items():
            namespace = name.partition("/")[0]
            used[namespace] = tally.plus(used.get(namespace, tally.NOTHING), _largest(by_uid))
        return used


def _largest(by_uid: Mapping[str, Tally]) -> Tally:
    if len(by_uid) == 1:
        return next(iter(by_uid.values()))
    most: Tally = tally.NOTHING
    for amount in by_uid.values():
        most = tally.at_least(most, amount)
    return most


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A pod on its way into the cluster; `enforced`: it is refused where it would be over the limit."""

    namespace: str
    name: str
    uid: str
    amount: Tally
    enforced: bool = True


_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_of_a_pod(ask: Ask) -> bool:
    """Whether a pod can be called so: an API server has checked that before it asks, and others may say anything."""
    return names_a_pod(ask.namespace, ask.name) and _UID.fullmatch(ask.uid) is not None


def names_a_pod(namespace: str, name: str) -> bool:
    """Whether a pod in a namespace can have a name."""
    return _NAMESPACE.fullmatch(namespace) is not None and _NAME.fullmatch(name) is not None


class Outcome(NamedTuple):
    """What becomes of an ask.

    `admit`: once the ledger is written. `over`: `exceeded` says of what; an ask that is not enforced is admitted with
    it. `again`: nothing can be said now, and `why` says why.
    """

    verdict: Literal["admit", "over", "again"]
    exceeded: tuple[str, ...] = ()
    why: str = ""


def reserve(ledger: Ledger, asks: Iterable[Ask]) -> tuple[Ledger, list[Outcome]]:
    """Reserve for pods, one after the other: the ledger that has to be written, and what becomes of each ask."""
    used = dict(ledger.used)
    pending = dict(ledger.pending)
    outcomes = [_reserve(ledger, pending, used, ask) for ask in asks]
    return (replace(ledger, pending=pending) if pending != ledger.pending else ledger), outcomes


def _reserve(ledger: Ledger, pending: dict[str, Mapping[str, Tally]], used: dict[str, Fraction], ask: Ask) -> Outcome:
    """Reserve for one pod, and add it to `pending` and `used`, if it is admitted."""
    name = f"{ask.namespace}/{ask.name}"
    by_uid = pending.get(name, {})
    if why := _not_now(ledger, ask):
        return Outcome("again", why=why)
    if ask.uid in by_uid:
        return Outcome("admit")
    if why := _full(pending, by_uid):
        return Outcome("again", why=why)
    before, after = _largest(by_uid), _largest({**by_uid, ask.uid: ask.amount})
    grown = {key: used.get(key, Fraction(0)) + amount - before.get(key, 0) for key, amount in after.items()}
    exceeded = tuple(key for key in tally.over(grown, ledger.hard) if ask.amount.get(key))
    if exceeded and ask.enforced:
        return Outcome("over", exceeded)
    used |= grown
    pending[name] = {**by_uid, ask.uid: ask.amount}
    return Outcome("admit", exceeded)


def _not_now(ledger: Ledger, ask: Ask) -> str:
    if not ledger.view:
        return "nobody has counted yet what the tenant uses"
    return "" if ask.namespace in ledger.held else f"the namespace {ask.namespace} is not counted yet"


def _full(pending: Pending, by_uid: Mapping[str, Tally]) -> str:
    if len(by_uid) >= MOST_OF_NAME:
        return f"{MOST_OF_NAME} pods of this name wait to be counted"
    many = sum(map(len, pending.values())) >= MOST_PENDING
    return f"{MOST_PENDING} pods of the tenant wait to be counted" if many else ""


class Seen(NamedTuple):
    """What one who watches pods knows of one tenant.

    version  up to which version all changes were seen
    held     what live pods hold in each namespace that is counted for the tenant
    settled  the UIDs of pods that need no reservation any more: live ones, and those that came and went
    phantoms the UIDs of reservations that have been there longer than any create can take, and whose pod a read
             sent after that did not find
    """

    version: int
    held: Mapping[str, Tally]
    settled: Collection[str]
    phantoms: Collection[str] = frozenset()


def settle(ledger: Ledger, hard: Tally, seen: Seen) -> Ledger | None:
    """The ledger after a look at the pods; None if somebody has seen more already."""
    if ledger.view > seen.version:
        return None
    pending = {
        name: left
        for name, by_uid in ledger.pending.items()
        if (
            left := {
                uid: each for uid, each in by_uid.items() if uid not in seen.settled and uid not in seen.phantoms
            }
        )
    }
    return replace(ledger, hard=hard, held=seen.held, view=seen.version, pending=pending, recounted=ledger.recount)
