"""Reservations of this process in the ledgers of a cluster, which are written by compare-and-swap.

    draw        a pod is admitted at once, against what was set aside for this process (core/tenancy/advance.py)
    reserve     if it cannot be, it waits, and so begins what serves its tenant, one task as long as somebody waits or
                something is set aside:
    _serve      again and again, a pause between:
    _round      all who wait are judged by one state of the ledger, and written into it at once
    _renew      nobody waits: who was drawn is written down, and something set aside for the next

An ask over the limit is refused only after somebody has counted anew: a pod that was deleted a moment ago may have
made room. Whoever has to wait longer than his API server does is told to come again, and if his reservation was made
all the same it is taken back, as no pod of it appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from webhook.core.tenancy import ledger as ledgers
from webhook.core.tenancy.advance import Account
from webhook.core.tenancy.ledger import Ask, Ledger, Outcome
from webhook.metrics import Metrics
from webhook.reservations import Answered
from webhook.stores import ConflictError, Store, StoreError, Versioned

GATHER_SECONDS: Final = 0.01
"""Where many ask, how long they are waited for: every write costs the API server more than an ask does us."""

HOLD_SECONDS: Final = 0.5
"""How often what is set aside is renewed, or given back where nobody came."""

LONGEST_HOLD: Final = 8.0
"""The same while that fails."""

FIRST_PAUSE: Final = 0.015
LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks whether the tenant was counted anew."""

log = logging.getLogger(__name__)

TOO_LATE: Final = Outcome("again", why="the ledger did not answer in time")


@dataclass(slots=True, eq=False)
class _Waiting:
    """An ask that waits for its answer; `recount` is the one it has to see before it is refused.

    `late` is what becomes of it if it has none in time.
    """

    ask: Ask
    answer: asyncio.Future[Answered]
    recount: int | None = None
    late: Outcome = TOO_LATE


@dataclass(slots=True)
class _Queue:
    """The asks of one tenant, and what is known of its ledger; `crowd`: how many were last answered at once."""

    account: Account
    waiting: list[_Waiting] = field(default_factory=list)
    known: Versioned | None = None
    crowd: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Desk:
    """Reserves in a store; belongs to one event loop."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._queues: dict[str, _Queue] = {}
        self._me = secrets.token_hex(8)
        self._leaving = False

    def draw(self, tenant: str, ask: Ask) -> Answered | None:
        """Admit a pod against what was set aside for this process."""
        queue = self._queues.get(tenant)
        if queue is None or not queue.account.draw(ask, monotonic()):
            return None
        if queue.account.is_low:
            queue.more.set()
        self._metrics.reservation_seconds.observe(0)
        self._metrics.drawn += 1
        return Answered(Outcome("admit"), queue.known.ledger if queue.known else Ledger())

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer an ask before the deadline, in the monotonic clock's seconds."""
        queue = self._queues.setdefault(tenant, _Queue(Account(self._me)))
        waiting = _Waiting(ask, asyncio.get_running_loop().create_future())
        queue.waiting.append(waiting)
        queue.more.set()
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._serve(tenant, queue))
        began = monotonic()
        try:
            return await asyncio.wait_for(waiting.answer, deadline - began)
        except TimeoutError:
            return Answered(waiting.late, queue.known.ledger if queue.known else Ledger())
        finally:
            self._metrics.reservation_seconds.observe(monotonic() - began)

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer what would become of an ask by the ledger as it is now; one that is over it, by what it is soon."""
        try:
            async with asyncio.timeout(deadline - monotonic()):
                found = await self._look(tenant, ask)
                if found.outcome.verdict == "over":
                    await asyncio.sleep(HOLD_SECONDS)
                    found = await self._look(tenant, ask)
                while found.outcome.verdict == "wait":
                    await asyncio.sleep(LONGEST_PAUSE)
                    found = await self._look(tenant, ask)
                return found
        except (StoreError, TimeoutError):
            return Answered(TOO_LATE, Ledger())

    async def _look(self, tenant: str, ask: Ask) -> Answered:
        found = (await self._store.read(tenant)).ledger
        closed = {token: amount for token, amount in found.advances.items() if not amount}
        _, [outcome] = ledgers.reserve(replace(found, advances=closed), [ask])
        return Answered(outcome, found)

    async def leave(self) -> None:
        """Give back what was set aside: this process ends."""
        self._leaving = True
        for queue in self._queues.values():
            queue.more.set()
        await asyncio.gather(*(each.task for each in self._queues.values() if each.task), return_exceptions=True)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that were used of late, by tenant."""
        return ((tenant, queue.known.ledger) for tenant, queue in self._queues.items() if queue.known)

    async def _serve(self, tenant: str, queue: _Queue) -> None:
        """Answer until nobody waits, and nothing is set aside any more."""
        pause, hold = FIRST_PAUSE, HOLD_SECONDS
        while queue.waiting or queue.account.is_open:
            queue.more.clear()
            try:
                pause = await self._turn(tenant, queue, pause)
                hold = FIRST_PAUSE if self._leaving else HOLD_SECONDS
            except ConflictError:
                self._metrics.ledger_conflicts += 1
                queue.known = None
                continue
            except Exception as error:  # whatever it is, somebody waits for the next try
                self._metrics.ledger_errors += 1
                log.warning("the ledger of %s: %s", tenant, error, exc_info=not isinstance(error, StoreError))
                queue.known, pause, hold = None, LONGEST_PAUSE, min(2 * hold, LONGEST_HOLD)
            queue.waiting = [each for each in queue.waiting if not each.answer.done()]
            if queue.waiting:
                await _pause(queue.more, pause)
            elif queue.account.is_open:
                queue.more.clear()
                await _pause(queue.more, hold)

    async def _turn(self, tenant: str, queue: _Queue, pause: float) -> float:
        """Answer who waits, or renew what is set aside where nobody does; how long the next who waits is to pause."""
        if not queue.waiting:
            await self._renew(tenant, queue)
            return FIRST_PAUSE
        if queue.crowd > 1:
            await asyncio.sleep(GATHER_SECONDS)
        queue.crowd = await self._round(tenant, queue)
        return FIRST_PAUSE if queue.crowd else min(2 * pause, LONGEST_PAUSE)

    async def _round(self, tenant: str, queue: _Queue) -> int:
        """Judge everybody who waits by one state of the ledger, written once for all; how many that answered."""
        fresh = queue.known is None
        known = queue.known or await self._read(tenant, queue)
        waiting = [each for each in queue.waiting if not each.answer.done()]
        after, outcomes = ledgers.reserve(queue.account.close(known.ledger), [each.ask for each in waiting])
        judged, by = list(zip(waiting, outcomes, strict=True)), known.ledger
        for each, outcome in judged:
            each.late = outcome._replace(verdict="again") if outcome.why else TOO_LATE
        unsure = [each for each, outcome in judged if _is_unsure(each, outcome, by)]
        if unsure:
            after = replace(after, recount=after.recount + 1)
            self._metrics.recounts += 1
        if not self._leaving:
            admitted = [each.ask for each, outcome in judged if outcome.verdict == "admit"]
            after = queue.account.open(after, admitted, monotonic())
        known = await self._write(tenant, queue, known, after)
        final = [(each, outcome) for each, outcome in judged if _is_final(each, outcome, by, fresh=fresh)]
        for each in unsure:
            each.recount = after.recount
        for each, outcome in final:
            if not each.answer.done():
                each.answer.set_result(Answered(outcome, known.ledger))
        # Who is not answered has to be judged by another state than this one.
        queue.known = known if len(final) == len(judged) else None
        return len(final)

    async def _renew(self, tenant: str, queue: _Queue) -> None:
        """Write down who was admitted, and set something aside for the next."""
        known, account = await self._read(tenant, queue), queue.account
        after = account.close(known.ledger) if self._leaving else account.renew(known.ledger, monotonic())
        queue.known = await self._write(tenant, queue, known, after)

    async def _read(self, tenant: str, queue: _Queue) -> Versioned:
        known = await self._store.read(tenant)
        queue.account.learn(known.ledger)
        return known

    async def _write(self, tenant: str, queue: _Queue, known: Versioned, after: Ledger) -> Versioned:
        """Replace a ledger, unless it stays as it is."""
        if after is known.ledger:
            return known
        written = await self._store.write(tenant, after, known.version)
        queue.account.wrote(written.ledger)
        return written


def _is_unsure(waiting: _Waiting, outcome: Outcome, by: Ledger) -> bool:
    """Whether somebody has to count anew for an ask: once before it is refused, and as long as it has to wait."""
    if outcome.verdict == "wait":
        return waiting.recount is None or by.recounted >= waiting.recount
    return outcome.verdict == "over" and waiting.recount is None


def _is_final(waiting: _Waiting, outcome: Outcome, by: Ledger, *, fresh: bool) -> bool:
    """Whether an outcome can be told: the ledger that somebody is refused by has to be newer than his ask."""
    if outcome.verdict == "over":
        return waiting.recount is not None and by.recounted >= waiting.recount
    return outcome.verdict == "admit" or (fresh and outcome.verdict == "again")


async def _pause(more: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until somebody else asks."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(more.wait(), seconds)
