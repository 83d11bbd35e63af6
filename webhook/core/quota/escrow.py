"""Escrow: what one replica has set aside in a ledger, to admit pods from without a write for each.

The write for every pod is what makes a quota expensive. Far from the limit a replica sets an amount aside in the
ledger (`advances` there), admits pods from it at once, and writes their reservations later, many in one write:

    open    a write sets an amount aside. The replica uses it only after the write has succeeded
    draw    a pod is admitted from it, until USE_SECONDS after that write was sent, by the replica's clock
    close   a write removes it and reserves for every pod that was drawn. From the moment this write begins nothing is
            drawn, whether the write succeeds or not. The token stays, without an amount, until the next settlement:
            the settler may have seen a pod before its reservation was written, and then the pod counts twice
    renew   one write closes the escrow before and opens the next, while pods are drawn from the present one

So each pod is part of an escrow in the ledger, or it has a reservation. A settler removes the escrow of a stopped
replica (settlement.py), when no pod of it can appear any more and all that appeared were seen. A pod is never refused
because of an escrow: it waits until the escrow is closed, and meanwhile no other is opened. So totals stay exact, and
small requests do not starve a large one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import Final

from webhook.core.quota import tally
from webhook.core.quota.ledger import MOST_PENDING, PART, Ask, Draft, Ledger, Pending
from webhook.core.quota.tally import NOTHING, Tally

USE_SECONDS: Final = 2.0
"""How long pods may be drawn. The settlers' grace is that much longer than any create takes."""

LEAST: Final = 4
"""Fewer pods than this are not worth an escrow."""

MOST_DRAWN: Final = 300
"""Pods of one escrow. All of them must fit into the ledger at once, beside the reservations of other replicas."""

LOOK_BACK_SECONDS: Final = 1.0
"""Over how long pods are counted, to estimate how many will come next."""

GROWTH: Final = 2
"""How many pods are expected for each that came in that time."""

PATIENCE_SECONDS: Final = 0.5
"""How long no escrow is opened after a request waited for a recount: it is judged first."""

CLOCK_SECONDS: Final = 1.0
"""The resolution of creation times. Clocks of API servers may differ by more: the grace has room for that."""


@dataclass(slots=True)
class _Advance:
    """One escrow.

    `until` is the last moment at which a pod may be drawn, by the replica's clock. `created` is the last moment at
    which its create may have begun, by the API server's clock: while a machine is paused the other clock goes on.
    """

    token: str
    amount: Tally
    draft: Draft
    reserved: Pending
    until: float
    created: float
    drawn: int = 0

    def draw(self, ask: Ask, now: float) -> bool:
        """Admit a pod if it fits. All others, and suspects, go through `reserve`, which knows what is pending."""
        if now > self.until or ask.created > self.created or ask.place in self.reserved:
            return False
        if self.draft.is_suspect(ask):
            return False
        if self.drawn >= MOST_DRAWN or not ask.amount.keys() <= self.amount.keys():
            return False
        if self.draft.reserve(ask._replace(enforced=True)).verdict != "admit":
            return False
        self.drawn += 1
        return True


class Account:
    """The escrows of one replica in one tenant's ledger. No other replica ever has or had the name `me`."""

    def __init__(self, me: str, *, part: int = PART, least: int = LEAST, use: float = USE_SECONDS) -> None:
        self._me, self._part, self._least, self._use = me, part, least, use
        self._count = 0
        self._recent: deque[tuple[float, Ask]] = deque(maxlen=MOST_DRAWN)
        self._admitted: list[tuple[float, Ask]] = []
        self._advances: dict[str, _Advance] = {}
        self._offered = ""
        self._usable: _Advance | None = None
        self._recount: int | None = None
        self._waited = -inf

    @property
    def is_open(self) -> bool:
        """Whether an escrow has to be closed."""
        return bool(self._advances)

    @property
    def present(self) -> str:
        """The token of the escrow that pods are drawn from; empty without one."""
        return self._usable.token if self._usable else ""

    @property
    def is_low(self) -> bool:
        """Whether enough pods were drawn to be worth the write that renews the escrow."""
        return self._usable is not None and self._usable.drawn >= MOST_DRAWN // 2

    def draw(self, ask: Ask, now: float) -> bool:
        """Whether a pod is admitted from the present escrow; `now` is of a monotonic clock."""
        drawn = self._usable is not None and self._usable.draw(ask, now)
        if drawn:
            self._recent.append((now, ask))
        return drawn

    def close(self, ledger: Ledger) -> Ledger:
        """The ledger with reservations instead of this replica's escrows; from now on nothing is drawn."""
        self._usable = None
        return self._closed(ledger)

    def open(self, ledger: Ledger, admitted: Iterable[Ask], now: float) -> Ledger:
        """The ledger with an escrow for pods like the recent ones, or unchanged if that is not worth while."""
        self._admitted = [(now, ask) for ask in admitted]
        if self._is_waited_for(ledger, now):
            return ledger
        recent = [ask for when, ask in (*self._recent, *self._admitted) if when >= now - LOOK_BACK_SECONDS]
        amount = self._amount(ledger, recent)
        if amount is None:
            return ledger
        self._count += 1
        self._offered = f"{self._me}-{self._count}"
        self._advances[self._offered] = _Advance(
            token=self._offered,
            amount=amount,
            draft=Draft(
                Ledger(
                    hard=amount, held=dict.fromkeys(ledger.held, NOTHING), view=ledger.view, suspects=ledger.suspects
                )
            ),
            reserved=ledger.pending,
            until=now + self._use,
            created=max(ask.created for ask in recent) + self._use + CLOCK_SECONDS,
        )
        return replace(ledger, advances={**ledger.advances, self._offered: amount})

    def renew(self, ledger: Ledger, now: float) -> Ledger:
        """The ledger with the next escrow, for when the present one is used up; closed if no pod was drawn."""
        if self._usable is None or not self._usable.drawn:
            return self.close(ledger)
        closed = self._closed(ledger)
        opened = self.open(closed, (), now)
        return self.close(ledger) if opened is closed else opened

    def wrote(self, ledger: Ledger) -> None:
        """Note that the ledger of the last `close`, `open` or `renew` is stored."""
        self.learn(ledger)
        self._usable = self._advances.get(self._offered)
        self._recent.extend(self._admitted)
        self._admitted = []

    def learn(self, ledger: Ledger) -> None:
        """Note what is stored: an escrow that is missing there was closed, or removed by a settler."""
        self._advances = {token: lent for token, lent in self._advances.items() if ledger.advances.get(token)}

    def _is_waited_for(self, ledger: Ledger, now: float) -> bool:
        """Whether a request of any replica waits for a recount, or did a moment ago."""
        before, self._recount = self._recount, ledger.recount
        if ledger.recount != ledger.recounted or (before is not None and before != ledger.recount):
            self._waited = now
        return now < self._waited + PATIENCE_SECONDS

    def _closed(self, ledger: Ledger) -> Ledger:
        """The ledger without this replica's escrows that nothing is drawn from."""
        mine = [token for token, amount in ledger.advances.items() if amount and self._is_closing(token)]
        if not mine:
            return ledger
        pending, advances, authors = dict(ledger.pending), dict(ledger.advances), dict(ledger.authors)
        for token in mine:
            del advances[token]
            authors |= self._authors(token)
            for place, by_uid in self._drawn(token).items():
                pending[place] = {**pending.get(place, {}), **by_uid}
                advances[token] = NOTHING
        return replace(ledger, pending=pending, advances=advances, authors=authors)

    def _is_closing(self, token: str) -> bool:
        return token.rpartition("-")[0] == self._me and token != self.present

    def _drawn(self, token: str) -> Pending:
        advance = self._advances.get(token)
        return advance.draft.pending if advance else {}

    def _authors(self, token: str) -> Mapping[str, str]:
        advance = self._advances.get(token)
        return advance.draft.authors if advance else {}

    def _amount(self, ledger: Ledger, recent: Sequence[Ask]) -> Tally | None:
        """A multiple of the largest of the recent pods; None if an escrow is not worth while."""
        if not recent or not ledger.view or len(ledger.pending) > MOST_PENDING // 2:
            return None
        largest = reduce(tally.at_least, (ask.amount for ask in recent), NOTHING)
        taken = tally.plus(ledger.used, tally.total(ledger.advances.values()))
        room = (
            (limit - taken.get(key, 0)) // (self._part * largest[key])
            for key, limit in ledger.hard.items()
            if largest.get(key)
        )
        many = min([GROWTH * len(recent), *room])
        return {key: many * amount for key, amount in largest.items()} if many >= self._least else None
