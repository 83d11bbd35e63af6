"""Advances: what one replica may admit before it writes down for whom.

A write for every pod is what a quota costs. Far from the limit a replica has the ledger set something aside instead,
admits pods against that at once, and later turns what it has used into their reservations:

    open    a write sets it aside; it is used only once that is known to have succeeded
    draw    a pod is admitted against it, for USE_SECONDS after that write was sent, by the clock of the replica
    close   a write takes it away again and reserves for every pod that was drawn; nothing is drawn any more from the
            moment that write is begun, whatever becomes of it. Its token stays without an amount until the next
            settlement: a pod may have been seen before it was reserved for, and be counted twice
    renew   one write closes the one before and opens the next, while the present one is drawn from

So a pod is part of an advance that stands in the ledger, or it is reserved. The advance of a replica that died is
taken away by a settler (settlement.py), when no pod of it can come any more and those that came are seen. Nobody is
refused because of what is set aside, but waits for it, and meanwhile nothing more is: totals stay exact, and who
wants much gets it before those who want little take it from under him.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import Final

from webhook.core.tenancy import tally
from webhook.core.tenancy.ledger import MOST_PENDING, Ask, Draft, Ledger, Pending
from webhook.core.tenancy.tally import NOTHING, Tally

USE_SECONDS: Final = 2.0
"""What is left of the settlers' grace after it is longer than any create takes."""

PART: Final = 8
"""Of what is free no more than a PARTth is set aside at once."""

LEAST: Final = 4
"""Pods for which it is worth while."""

MOST_DRAWN: Final = 300
"""Pods of one advance: they have to fit into the ledger all at once, beside those that others reserve meanwhile."""

LOOK_BACK_SECONDS: Final = 1.0
"""How far back the past goes that the next moment is expected to be like."""

GROWTH: Final = 2
"""How many pods are expected for each that came in that time."""

PATIENCE_SECONDS: Final = 0.5
"""For how long nothing is set aside after somebody waited for a count: until he has looked whether there is room."""

CLOCK_SECONDS: Final = 1.0
"""To what times are rounded. Clocks of API servers may differ by some more: the grace has room for it."""


@dataclass(slots=True)
class _Advance:
    """Something that is set aside.

    `until` is the last moment that a pod of it may be admitted, by the clock of the replica, and `created` the last
    that its create may have begun, by that of the API server: one of them goes on while a whole machine is paused.
    """

    token: str
    amount: Tally
    draft: Draft
    reserved: Pending
    until: float
    created: float
    drawn: int = 0

    def draw(self, ask: Ask, now: float) -> bool:
        """A name that is reserved for already goes the long way, where it is known how often."""
        if now > self.until or ask.created > self.created or ask.place in self.reserved:
            return False
        if self.drawn >= MOST_DRAWN or not ask.amount.keys() <= self.amount.keys():
            return False
        if self.draft.reserve(replace(ask, enforced=True)).verdict != "admit":
            return False
        self.drawn += 1
        return True


class Account:
    """What one replica has of the ledger of one tenant; `me` is a name that no other one has or had."""

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
        """Whether something has to be closed."""
        return bool(self._advances)

    @property
    def present(self) -> str:
        """The token of what is drawn from."""
        return self._usable.token if self._usable else ""

    @property
    def is_low(self) -> bool:
        """Whether as many pods were drawn as are wanted for one write."""
        return self._usable is not None and self._usable.drawn >= MOST_DRAWN // 2

    def draw(self, ask: Ask, now: float) -> bool:
        """Whether a pod is admitted against the advance there is; `now`: of a clock that never goes back."""
        drawn = self._usable is not None and self._usable.draw(ask, now)
        if drawn:
            self._recent.append((now, ask))
        return drawn

    def close(self, ledger: Ledger) -> Ledger:
        """The ledger with reservations instead of this replica's advances; from now on nothing is drawn."""
        self._usable = None
        return self._closed(ledger)

    def open(self, ledger: Ledger, admitted: Iterable[Ask], now: float) -> Ledger:
        """The ledger with something set aside, if it is worth while: for pods as they came of late."""
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
            draft=Draft(Ledger(hard=amount, held=dict.fromkeys(ledger.held, NOTHING), view=ledger.view)),
            reserved=ledger.pending,
            until=now + self._use,
            created=max(ask.created for ask in recent) + self._use + CLOCK_SECONDS,
        )
        return replace(ledger, advances={**ledger.advances, self._offered: amount})

    def renew(self, ledger: Ledger, now: float) -> Ledger:
        """The ledger with something set aside for when the present advance is used up; closed, where nobody came."""
        if self._usable is None or not self._usable.drawn:
            return self.close(ledger)
        closed = self._closed(ledger)
        opened = self.open(closed, (), now)
        return self.close(ledger) if opened is closed else opened

    def wrote(self, ledger: Ledger) -> None:
        """The ledger that was closed, and maybe opened, is stored."""
        self.learn(ledger)
        self._usable = self._advances.get(self._offered)
        self._recent.extend(self._admitted)
        self._admitted = []

    def learn(self, ledger: Ledger) -> None:
        """What is stored: an advance that is not there any more is closed, or no pod of it is on its way."""
        self._advances = {token: each for token, each in self._advances.items() if ledger.advances.get(token)}

    def _is_waited_for(self, ledger: Ledger, now: float) -> bool:
        """Whether somebody waits for what is set aside, or did a moment ago."""
        before, self._recount = self._recount, ledger.recount
        if ledger.recount != ledger.recounted or (before is not None and before != ledger.recount):
            self._waited = now
        return now < self._waited + PATIENCE_SECONDS

    def _closed(self, ledger: Ledger) -> Ledger:
        """Without the advances that nothing is drawn from."""
        mine = [token for token, amount in ledger.advances.items() if amount and self._is_closing(token)]
        if not mine:
            return ledger
        pending, advances = dict(ledger.pending), dict(ledger.advances)
        for token in mine:
            del advances[token]
            for place, by_uid in self._drawn(token).items():
                pending[place] = {**pending.get(place, {}), **by_uid}
                advances[token] = NOTHING
        return replace(ledger, pending=pending, advances=advances)

    def _is_closing(self, token: str) -> bool:
        return token.rpartition("-")[0] == self._me and token != self.present

    def _drawn(self, token: str) -> Pending:
        advance = self._advances.get(token)
        return advance.draft.pending if advance else {}

    def _amount(self, ledger: Ledger, recent: Sequence[Ask]) -> Tally | None:
        """So many times the largest of the pods that came of late."""
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
