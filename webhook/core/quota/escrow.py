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

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import Final

from webhook.core.quota import tally
from webhook.core.quota.ledger import MOST_PENDING, PART, Draft, Ledger, Pending
from webhook.core.quota.tally import NOTHING, Ask, Tally

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
        """Whether a pod is admitted from the present escrow; `now` is of a monotonic clock.

        If it does not fit, or may be counted already, or is of a suspect, it goes through `reserve`, which knows what
        is pending.
        """
        lent = self._usable
        if lent is None or now > lent.until or ask.created > lent.created or lent.drawn >= MOST_DRAWN:
            return False
        if ask.place in lent.reserved or lent.draft.is_suspect(ask) or not ask.amount.keys() <= lent.amount.keys():
            return False
        if lent.draft.reserve(ask._replace(enforced=True)).verdict != "admit":
            return False
        lent.drawn += 1
        self._recent.append((now, ask))
        return True

    def close(self, ledger: Ledger) -> Ledger:
        """The ledger with reservations instead of this replica's escrows; from now on nothing is drawn."""
        self._usable = None
        return self._closed(ledger)

    def open(self, ledger: Ledger, admitted: Iterable[Ask], now: float) -> Ledger:
        """The ledger with an escrow for pods like the recent ones, or unchanged if that is not worth while."""
        self._admitted = [(now, ask) for ask in admitted]
        # A request of any replica that waits for a recount, or did a moment ago, is judged first.
        before, self._recount = self._recount, ledger.recount
        if ledger.recount != ledger.recounted or before not in {None, ledger.recount}:
            self._waited = now
        recent = [ask for when, ask in (*self._recent, *self._admitted) if when >= now - LOOK_BACK_SECONDS]
        waited_for = now < self._waited + PATIENCE_SECONDS
        if waited_for or not recent or not ledger.view or len(ledger.pending) > MOST_PENDING // 2:
            return ledger

        # A multiple of the largest of the recent pods.
        largest = reduce(tally.at_least, (ask.amount for ask in recent), NOTHING)
        taken = tally.plus(ledger.used, tally.total(ledger.advances.values()))
        room = (
            (limit - taken.get(key, 0)) // (self._part * largest[key])
            for hard in (ledger.hard, recent[-1].hard)
            for key, limit in hard.items()
            if largest.get(key)
        )
        many = min([GROWTH * len(recent), *room])
        if many < self._least:
            return ledger
        amount = {key: many * per_pod for key, per_pod in largest.items()}

        self._count += 1
        self._offered = f"{self._me}-{self._count}"
        nothing_held = dict.fromkeys(ledger.held, NOTHING)
        lent = Ledger(hard=amount, held=nothing_held, view=ledger.view, suspects=ledger.suspects)
        self._advances[self._offered] = _Advance(
            token=self._offered,
            amount=amount,
            draft=Draft(lent),
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

    def _closed(self, ledger: Ledger) -> Ledger:
        """The ledger without this replica's escrows that nothing is drawn from."""
        mine = [
            token
            for token, amount in ledger.advances.items()
            if amount and token.rpartition("-")[0] == self._me and token != self.present
        ]
        if not mine:
            return ledger
        pending, advances, authors = dict(ledger.pending), dict(ledger.advances), dict(ledger.authors)
        for token in mine:
            del advances[token]
            lent = self._advances.get(token)
            if lent is None or not lent.draft.pending:
                continue
            advances[token] = NOTHING
            authors |= lent.draft.authors
            for place, by_uid in lent.draft.pending.items():
                pending[place] = {**pending.get(place, {}), **by_uid}
        return replace(ledger, pending=pending, advances=advances, authors=authors)
