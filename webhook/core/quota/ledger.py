"""The ledger of one tenant: its limits, what its live pods hold, and the reservations of pods not yet seen.

Pure state and its transitions: `reserve` and `settle` are here, the escrow is opened and closed in escrow.py. A
TenantUsage object holds the ledger (without a cluster: memory). A writer replaces it as a whole, by compare-and-swap:
the write fails if another writer was faster. The total is exact for any number of replicas and settlers, paused,
doubled or killed, because of two invariants:

    every live pod that was admitted is in `held`, in `pending`, or part of an escrow in `advances`: it is reserved
    before it is stored, and a settlement removes it from `pending` only after the settler has seen the pod, or has
    made sure that the pod was never stored
    no reservation and no escrow lets the sum of the three exceed `hard`

Only one pod can have a name at a time, so of several reservations of one name the largest counts.

What clients can keep reserved for pods that are never stored is bounded: see Suspects.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, Literal, NamedTuple

from webhook.core.forms import labels
from webhook.core.kube.quantity import Fraction, shown
from webhook.core.quota import tally
from webhook.core.quota.tally import Ask, Tally

# Suspects: users and namespaces whose reservations came to nothing again and again, and what they may reserve. Where
# clients show no certificate anybody can write a review in the name of others. So the author of a reservation has the
# client's address then, as `author@address`, and what came from one address counts against nobody at another.

HABIT: Final = 2
"""How often reservations of a user come to nothing in a namespace until the user is suspect there."""
HABIT_OF_NAMESPACE: Final = 4
"""The same of all users of a namespace who are not suspect yet: anybody may have many names."""
MOST_SUSPECTS: Final = 8
"""Users of one namespace who are kept in mind; for others the namespace is blamed."""
FORGET: Final = 16
"""Graces until what came to nothing is forgotten."""
MOST_KEYS: Final = 400
"""With so many no further address is kept in mind: some 20 KB, however many addresses somebody has."""
Suspects = Mapping[str, int]
"""How often reservations came to nothing, by `namespace author` and by namespace; or `namespace@address` for both."""


def _keys(namespace: str, author: str) -> tuple[str, str]:
    """The key of an author, and that of all authors in the namespace from the same address."""
    user, at, address = author.partition("@")
    everybody = f"{namespace}{at}{address}"
    return f"{everybody} {user}", everybody


def is_suspect(suspects: Suspects, namespace: str, author: str) -> bool:
    """Whether what an author reserves in a namespace is bounded."""
    key, everybody = _keys(namespace, author)
    return suspects.get(key, 0) >= HABIT or suspects.get(everybody, 0) >= HABIT_OF_NAMESPACE


def namespaces(suspects: Suspects) -> list[str]:
    """The namespaces in which what somebody reserves is bounded, each with the address that this comes from."""
    bounded = (key for key, times in suspects.items() if times >= (HABIT if " " in key else HABIT_OF_NAMESPACE))
    return sorted({key.partition(" ")[0] for key in bounded})


def blamed(suspects: Suspects, namespace: str, author: str) -> list[str]:
    """Whom a reservation that came to nothing counts against: its author, first together with the namespace."""
    key, everybody = _keys(namespace, author)
    authors = [suspect for suspect in suspects if suspect.startswith(f"{everybody} ")]
    if key not in authors and len(authors) >= MOST_SUSPECTS:
        return [everybody]
    return [key] if suspects.get(key, 0) >= HABIT else [key, everybody]


def settled(suspects: Suspects, blamed: frozenset[str], forgiven: Collection[str]) -> Suspects:
    """The suspects after a settlement. New ones are added as far as there is room in their namespace."""
    after = {key: times + (key in blamed) for key, times in suspects.items() if key not in forgiven}
    room = Counter(key.partition(" ")[0] for key in after if " " in key)
    for key in sorted(blamed - suspects.keys()):
        everybody, of_author, _ = key.partition(" ")
        if (not of_author or room[everybody] < MOST_SUSPECTS) and ("@" not in key or len(after) < MOST_KEYS):
            after[key] = 1
            room[everybody] += bool(of_author)
    return after


# The ledger of one tenant: its limits, what its live pods hold, and the reservations of pods not yet seen.

MOST_PENDING: Final = 2000
"""Reservations of pods not yet seen. With so many no further one is made, except by closing an escrow. At this size a
write takes some 40 ms. Only while no settler runs a ledger becomes so full."""
MOST_OF_NAME: Final = 16
"""Reservations of one name: a client may create a pod again and again whose name is taken, and the API server has
each create reviewed before it refuses it."""
PART: Final = 8
"""What is kept for a moment for some, suspects or the pods of an escrow, is at most one PARTth."""
UNKNOWN_VIEW: Final = 1 << 63
"""Stands for a view that cannot be read: later than any, so that no settler takes its own for later."""
Pending = Mapping[str, Mapping[str, Tally]]
"""By `namespace/name`, then by the UID of the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known of one tenant.

    hard     the limits; without any nothing is limited
    held     what live pods hold, by namespace: exactly the namespaces that this ledger counts
    view     the version of the cluster's pods up to which `held` is right; 0 before the first settlement
    pending  reservations of pods that are not in `held`
    advances the escrow of each replica, by a token that is never used twice. An empty amount: the escrow was closed
             since the last settlement, so its pods may be in `held` and in `pending`
    joining  namespaces that will be counted here, each with a token that is never used twice (settlement.py)
    unread   lines of reservations and escrows that cannot be read, because somebody edited them. Nothing is reserved
             until the settler has made sure that no pod of theirs can appear, and has removed them
    problems what else of the object cannot be read. Nothing is reserved, and no replica writes the object, until the
             settler has written it anew
    authors  the author of each reservation that has one, by UID
    suspects how often reservations came to nothing (Suspects)
    repaired what the settler last found to be wrong and wrote anew, for people
    recount  how many recounts replicas have requested. A replica requests one before it refuses a pod, and until the
             settler has counted no escrow is opened. `recounted`: how many of them are done
    """

    hard: Tally = field(default_factory=dict)
    held: Mapping[str, Tally] = field(default_factory=dict)
    view: int = 0
    pending: Pending = field(default_factory=dict)
    authors: Mapping[str, str] = field(default_factory=dict)
    suspects: Suspects = field(default_factory=dict)
    advances: Mapping[str, Tally] = field(default_factory=dict)
    joining: Mapping[str, str] = field(default_factory=dict)
    recount: int = 0
    recounted: int = 0
    unread: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    repaired: str = ""

    @property
    def used(self) -> Tally:
        """What counts against the limits: held and reserved. Escrow is not in it, as it may be closed unused."""
        reserved = (_largest(by_uid) for by_uid in self.pending.values())
        return tally.plus(tally.total(self.held.values()), tally.total(reserved))

    @property
    def by_namespace(self) -> Mapping[str, Tally]:
        """What counts against the limits, by namespace: held, and reserved for pods not yet seen."""
        used = dict(self.held)
        for name, by_uid in self.pending.items():
            namespace = name.partition("/")[0]
            used[namespace] = tally.plus(used.get(namespace, tally.NOTHING), _largest(by_uid))
        return used


def _largest(by_uid: Mapping[str, Tally]) -> Tally:
    if len(by_uid) == 1:
        return next(iter(by_uid.values()))
    return reduce(tally.at_least, by_uid.values(), tally.NOTHING)


_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def is_of_a_pod(ask: Ask) -> bool:
    """Whether name and UID can be those of a pod. An API server checks that; another client may not."""
    return names_a_pod(ask.namespace, ask.name) and is_uid(ask.uid)


def names_a_pod(namespace: str, name: str) -> bool:
    """Whether both names are legal in Kubernetes."""
    return labels.is_dns_label(namespace) and _NAME.fullmatch(name) is not None


def is_uid(text: str) -> bool:
    """Whether a pod can have this UID."""
    return _UID.fullmatch(text) is not None


TWICE: Final = "some pods may be counted twice for a moment"
AWAY: Final = "what is left is set aside for a server that seems to be gone, until the settler's --grace is over"
DIFFERS: Final = "its TenantUsage has a higher limit than its TenantPolicy: one of them was just changed"
SUSPECT: Final = (
    "pods of this user were admitted and never stored, again and again, so for a while "
    f"no more than 1/{PART} of the quota is reserved for such pods, until they are stored"
)


class Outcome(NamedTuple):
    """The result for one pod.

    admit  the pod is admitted after the ledger is written; with `exceeded` its ask was not enforced
    over   the limits in `exceeded` would be exceeded
    wait   the pod would be over a limit if replicas use up their escrows, or because pods may be counted twice, or it
           is over the limit of its policy only
    again  the ledger cannot decide now
    taken  another pod has the name

    `why` has the reason of `wait` and `again`.
    """

    verdict: Literal["admit", "over", "wait", "again", "taken"]
    exceeded: tuple[str, ...] = ()
    why: str = ""


class Answered(NamedTuple):
    """The result for one pod, and the ledger it was judged by."""

    outcome: Outcome
    ledger: Ledger


def reserve(ledger: Ledger, asks: Iterable[Ask]) -> tuple[Ledger, list[Outcome]]:
    """Reserve for pods, one after the other. Returns the ledger to write, and the result for each pod."""
    draft = Draft(ledger)
    outcomes = [draft.reserve(ask) for ask in asks]
    if draft.pending == ledger.pending:
        return ledger, outcomes
    return replace(ledger, pending=draft.pending, authors=draft.authors), outcomes


def fitting(ledger: Ledger, amount: Tally) -> int | None:
    """How many times an amount fits into what is free; None if no limit applies to it."""
    used = ledger.used
    rooms = (
        int(max(Fraction(0), limit - used.get(key, Fraction(0))) // amount[key])
        for key, limit in ledger.hard.items()
        if amount.get(key)
    )
    return min(rooms, default=None)


class Draft:
    """A ledger while reservations are added to it; `pending` has them all."""

    def __init__(self, ledger: Ledger) -> None:
        self.pending: dict[str, Mapping[str, Tally]] = dict(ledger.pending)
        self.authors: dict[str, str] = dict(ledger.authors)
        self._ledger = ledger
        self._used = dict(ledger.used)
        self._advanced = tally.total(ledger.advances.values())
        self._unsettled = not all(ledger.advances.values())
        self._many = sum(map(len, ledger.pending.values()))

    def reserve(self, ask: Ask) -> Outcome:
        """Reserve for one pod, unless the result is a refusal."""
        ledger = self._ledger
        if wrong := (*ledger.problems, *ledger.unread):
            why = f"its TenantUsage was edited; it cannot be read until it is counted anew: {shown(wrong[0])}"
            return Outcome("again", why=why)
        if not ledger.view:
            return Outcome("again", why="nobody has counted yet what the tenant uses")
        if ask.namespace not in ledger.held:
            return Outcome("again", why=f"the namespace {ask.namespace} is not counted yet")
        by_uid = self.pending.get(ask.place, {})
        if ask.uid in by_uid:
            return Outcome("admit")
        if len(by_uid) >= MOST_OF_NAME:
            return Outcome("again", why=f"{MOST_OF_NAME} pods of this name wait to be counted")
        if self._many >= MOST_PENDING:
            return Outcome("again", why=f"{MOST_PENDING} pods of the tenant wait to be counted")
        if self.is_suspect(ask) and not self._leaves_room(ask):
            return Outcome("again", why=SUSPECT)

        before, after = _largest(by_uid), _largest({**by_uid, ask.uid: ask.amount})
        grown = {key: self._used.get(key, Fraction(0)) + amount - before.get(key, 0) for key, amount in after.items()}
        exceeded = self._over(grown, ask, ledger.hard)
        if ask.enforced and exceeded:
            return Outcome("wait", why=TWICE) if self._unsettled else Outcome("over", exceeded)
        at_most = tally.plus(grown, self._advanced) if self._advanced else grown
        if ask.enforced and self._over(at_most, ask, ledger.hard):
            return Outcome("wait", why=AWAY)
        if ask.enforced and self._over(at_most, ask, ask.hard):
            return Outcome("wait", why=DIFFERS)
        self._used |= grown
        self._many += 1
        self.pending[ask.place] = {**by_uid, ask.uid: ask.amount}
        if ask.author:
            self.authors[ask.uid] = ask.author
        return Outcome("admit", exceeded)

    def is_suspect(self, ask: Ask) -> bool:
        """Whether what the author of a pod reserves is bounded."""
        return bool(self._ledger.suspects) and is_suspect(self._ledger.suspects, ask.namespace, ask.author)

    def _leaves_room(self, ask: Ask) -> bool:
        """Whether what all suspects have reserved, and this pod, is within a part of the limits."""
        reserved = [
            amount
            for name, by_uid in self.pending.items()
            for uid, amount in by_uid.items()
            if is_suspect(self._ledger.suspects, name.partition("/")[0], self.authors.get(uid, ""))
        ]
        most = {key: limit / PART for key, limit in self._ledger.hard.items() if ask.enforced and ask.amount.get(key)}
        return len(reserved) < MOST_PENDING // PART and not tally.over(tally.total([*reserved, ask.amount]), most)

    def _over(self, used: Tally, ask: Ask, hard: Tally) -> tuple[str, ...]:
        return tuple(key for key in tally.over(used, hard) if ask.amount.get(key))


class Seen(NamedTuple):
    """What a settler knows of one tenant.

    version  the version of the cluster's pods up to which the settler has seen every change
    held     what live pods hold in each namespace that is counted for the tenant
    settled  the UIDs of pods that need no reservation any more: live pods, and pods that are gone
    phantoms the UIDs of reservations that are older than any create can take, and whose pod was not found by a read
             sent after that time
    blamed   the suspects against whom phantoms count
    forgiven the suspects of whom nothing was heard for long
    expired  the tokens of escrows that are as old, and the lines that cannot be read; all of their pods were seen
    """

    version: int
    held: Mapping[str, Tally]
    settled: Collection[str]
    phantoms: Collection[str] = frozenset()
    expired: Collection[str] = frozenset()
    blamed: frozenset[str] = frozenset()
    forgiven: Collection[str] = frozenset()


def settle(ledger: Ledger, hard: Tally, facts: Seen) -> Ledger | None:
    """The ledger as a settler writes it, whatever it could not read; None if another settler has seen more."""
    if ledger.view > facts.version:
        return None
    pending: dict[str, Mapping[str, Tally]] = {}
    for name, by_uid in ledger.pending.items():
        left = {uid: by_uid[uid] for uid in by_uid if uid not in facts.settled and uid not in facts.phantoms}
        if left:
            pending[name] = left
    return replace(
        ledger,
        hard=hard,
        held=facts.held,
        view=facts.version,
        pending=pending,
        authors={uid: ledger.authors[uid] for by_uid in pending.values() for uid in by_uid if uid in ledger.authors},
        suspects=settled(ledger.suspects, facts.blamed, facts.forgiven),
        advances={key: amount for key, amount in ledger.advances.items() if amount and key not in facts.expired},
        recounted=ledger.recount,
        unread=tuple(line for line in ledger.unread if line not in facts.expired),
        problems=(),
        repaired="; ".join(ledger.problems) or ledger.repaired,
    )
