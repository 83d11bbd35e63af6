"""The ledger of one tenant: what may be used, what is, and what has been promised to pods not yet seen.

Pure state, and what may happen to it: asks are reserved for and what pods hold is settled here, advances are opened
and closed in advance.py. Whoever holds it (a TenantUsage object in a cluster, memory
offline) replaces it as a whole, and only if nobody else has meanwhile: a compare-and-swap. With that, the totals hold
for any number of replicas and settlers, paused, doubled or killed:

    every live pod that was admitted is in `held`, in `pending`, or part of an advance (advance.py): it was reserved
    before it was written, and a settlement takes it out of `pending` only when it has seen it, or has seen that it
    never came to be
    nothing that is reserved or set aside lets their sum grow over `hard`

One name holds one pod at a time, so of the reservations of one name the largest counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import Final, Literal, NamedTuple

from webhook.core.tenancy import tally
from webhook.core.tenancy.tally import Tally

MOST_PENDING: Final = 2000
"""Reservations waiting to be seen, above which none is made; closing an advance adds to them all the same. At this
size a write takes some 40 ms; it is full only while nobody settles."""

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
    advances what replicas may admit before they reserve for it, each by a token that is never used twice; nothing: it
             was closed since the last settlement, and pods of it may be in `held` and in `pending`
    joining  namespaces on their way into `held`, each with a token that is never used twice (settlement.py)
    recount  how often somebody has asked for a settlement before he refuses, and for no more advances until he has
             looked; `recounted`: how often he got it
    """

    hard: Tally = field(default_factory=dict)
    held: Mapping[str, Tally] = field(default_factory=dict)
    view: int = 0
    pending: Pending = field(default_factory=dict)
    advances: Mapping[str, Tally] = field(default_factory=dict)
    joining: Mapping[str, str] = field(default_factory=dict)
    recount: int = 0
    recounted: int = 0

    @property
    def used(self) -> Tally:
        """What counts against the limit, by itself: of an advance nobody knows yet what will be used."""
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
    """A pod on its way into the cluster; without a name and UID: any that is like it.

    `enforced`: it is refused where it would be over the limit. `created`: when the API server began to create it, by
    its own clock in seconds since 1970; 0 where that is not known.
    """

    namespace: str
    amount: Tally
    name: str = ""
    uid: str = ""
    enforced: bool = True
    created: float = 0.0

    @property
    def place(self) -> str:
        """Where it is to be: `namespace/name`."""
        return f"{self.namespace}/{self.name}"


_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_of_a_pod(ask: Ask) -> bool:
    """Whether a pod can be called so: an API server has checked that before it asks, and others may say anything."""
    return names_a_pod(ask.namespace, ask.name) and _UID.fullmatch(ask.uid) is not None


def names_a_pod(namespace: str, name: str) -> bool:
    """Whether a pod in a namespace can have a name."""
    return _NAMESPACE.fullmatch(namespace) is not None and _NAME.fullmatch(name) is not None


TWICE: Final = "some pods may be counted twice for a moment"
AWAY: Final = "what is left is set aside for a server that seems to be gone, and free again after 45 seconds"


class Outcome(NamedTuple):
    """What becomes of an ask.

    `admit`: once the ledger is written. `over`: `exceeded` says of what; an ask that is not enforced is admitted with
    it. `wait`: it would be over if replicas use up their advances, or as pods may be counted twice. `again`: nothing
    can be said now. `why` says why of both.
    """

    verdict: Literal["admit", "over", "wait", "again"]
    exceeded: tuple[str, ...] = ()
    why: str = ""


def reserve(ledger: Ledger, asks: Iterable[Ask]) -> tuple[Ledger, list[Outcome]]:
    """Reserve for pods, one after the other: the ledger that has to be written, and what becomes of each ask."""
    draft = Draft(ledger)
    outcomes = [draft.reserve(ask) for ask in asks]
    return (replace(ledger, pending=draft.pending) if draft.pending != ledger.pending else ledger), outcomes


def fitting(ledger: Ledger, amount: Tally) -> int | None:
    """How many times an amount fits beside what is used; None where nothing of it is limited."""
    used = ledger.used
    rooms = (
        floor(max(Fraction(0), limit - used.get(key, Fraction(0))) / amount[key])
        for key, limit in ledger.hard.items()
        if amount.get(key)
    )
    return min(rooms, default=None)


class Draft:
    """A ledger in which is being reserved; `pending` is as it will be."""

    def __init__(self, ledger: Ledger) -> None:
        self.pending: dict[str, Mapping[str, Tally]] = dict(ledger.pending)
        self._ledger = ledger
        self._used = dict(ledger.used)
        self._advanced = tally.total(ledger.advances.values())
        self._unsettled = not all(ledger.advances.values())
        self._many = sum(map(len, ledger.pending.values()))

    def reserve(self, ask: Ask) -> Outcome:
        """Reserve for one pod, if it is admitted."""
        by_uid = self.pending.get(ask.place, {})
        if why := self._not_now(ask):
            return Outcome("again", why=why)
        if ask.uid in by_uid:
            return Outcome("admit")
        if why := self._full(by_uid):
            return Outcome("again", why=why)
        before, after = _largest(by_uid), _largest({**by_uid, ask.uid: ask.amount})
        grown = {key: self._used.get(key, Fraction(0)) + amount - before.get(key, 0) for key, amount in after.items()}
        exceeded = self._over(grown, ask)
        if ask.enforced and exceeded:
            return Outcome("wait", why=TWICE) if self._unsettled else Outcome("over", exceeded)
        if ask.enforced and self._over(tally.plus(grown, self._advanced), ask):
            return Outcome("wait", why=AWAY)
        self._used |= grown
        self._many += 1
        self.pending[ask.place] = {**by_uid, ask.uid: ask.amount}
        return Outcome("admit", exceeded)

    def _over(self, used: Tally, ask: Ask) -> tuple[str, ...]:
        return tuple(key for key in tally.over(used, self._ledger.hard) if ask.amount.get(key))

    def _not_now(self, ask: Ask) -> str:
        if not self._ledger.view:
            return "nobody has counted yet what the tenant uses"
        return "" if ask.namespace in self._ledger.held else f"the namespace {ask.namespace} is not counted yet"

    def _full(self, by_uid: Mapping[str, Tally]) -> str:
        if len(by_uid) >= MOST_OF_NAME:
            return f"{MOST_OF_NAME} pods of this name wait to be counted"
        return f"{MOST_PENDING} pods of the tenant wait to be counted" if self._many >= MOST_PENDING else ""


class Seen(NamedTuple):
    """What one who watches pods knows of one tenant.

    version  up to which version all changes were seen
    held     what live pods hold in each namespace that is counted for the tenant
    settled  the UIDs of pods that need no reservation any more: live ones, and those that came and went
    phantoms the UIDs of reservations that have been there longer than any create can take, and whose pod a read
             sent after that did not find
    expired  the tokens of advances that have been there as long, of whose pods there are none but seen ones
    """

    version: int
    held: Mapping[str, Tally]
    settled: Collection[str]
    phantoms: Collection[str] = frozenset()
    expired: Collection[str] = frozenset()


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
    advances = {token: amount for token, amount in ledger.advances.items() if amount and token not in seen.expired}
    return replace(
        ledger,
        hard=hard,
        held=seen.held,
        view=seen.version,
        pending=pending,
        advances=advances,
        recounted=ledger.recount,
    )
