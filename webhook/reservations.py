"""Reservations of this process: a pod that a quota counts passes here after it was judged, before it is admitted.

    Desk        in a cluster: the ledger is an object there, written by compare-and-swap
    Offline     without one: the ledger is in memory, and nobody tells it when a pod is gone

All asks of one tenant that wait at a moment share one write. An ask over the limit is refused only after somebody has
counted anew: a pod that was deleted a moment ago may have made room. Whoever has to wait longer than his API server
does is told to come again, and if his reservation was made all the same it is taken back, as no pod of it appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, NamedTuple, Protocol

from webhook.core.tenancy import ledger as core
from webhook.core.tenancy.ledger import Ask, Ledger, Outcome
from webhook.core.tenancy.tally import Tally
from webhook.metrics import Metrics

GATHER_SECONDS: Final = 0.01
"""Where many ask, how long they are waited for: every write costs the API server more than an ask does us."""

FIRST_PAUSE: Final = 0.015
LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks whether the tenant was counted anew."""

log = logging.getLogger(__name__)

TOO_LATE: Final = Outcome("again", why="the ledger did not answer in time")


class StoreError(Exception):
    """A ledger could not be read, or it is not known whether it was written."""


class ConflictError(StoreError):
    """Somebody else has written the ledger meanwhile."""


class Versioned(NamedTuple):
    """A ledger, and the version of the object it stands in."""

    ledger: Ledger
    version: str


class Store(Protocol):
    """Where ledgers are: one object a tenant, which is replaced only in the version it was read in."""

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; raises StoreError."""

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace it; raises ConflictError, or StoreError if it may or may not have been replaced."""


class Answered(NamedTuple):
    """What becomes of an ask, and the ledger that says so."""

    outcome: Outcome
    ledger: Ledger


class Reserving(Protocol):
    """Whoever answers asks."""

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer an ask of a tenant before `deadline` (of the monotonic clock)."""

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer what would become of an ask, and write nothing."""

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that are known here, by tenant."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """An ask that waits for its answer; `recount` is the one it has to see before it is refused."""

    ask: Ask
    answer: asyncio.Future[Answered]
    recount: int | None = None


@dataclass(slots=True)
class _Queue:
    """The asks of one tenant, and what is known of its ledger; `crowd`: how many were last answered at once."""

    waiting: list[_Waiting] = field(default_factory=list)
    known: Versioned | None = None
    crowd: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Desk:
    """Reserves in a store; belongs to one event loop."""

    def __init__(self, store: Store, metrics: Metrics, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._queues: dict[str, _Queue] = {}

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer an ask before the deadline, in the monotonic clock's seconds."""
        queue = self._queues.setdefault(tenant, _Queue())
        waiting = _Waiting(ask, asyncio.get_running_loop().create_future())
        queue.waiting.append(waiting)
        queue.more.set()
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._serve(tenant, queue))
        began = self._clock()
        try:
            return await asyncio.wait_for(waiting.answer, deadline - began)
        except TimeoutError:
            return Answered(TOO_LATE, queue.known.ledger if queue.known else Ledger())
        finally:
            self._metrics.reservation_seconds.observe(self._clock() - began)

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer what would become of an ask by the ledger as it is now."""
        try:
            async with asyncio.timeout(deadline - self._clock()):
                found = (await self._store.read(tenant)).ledger
        except (StoreError, TimeoutError):
            return Answered(TOO_LATE, Ledger())
        _, [outcome] = core.reserve(found, [ask])
        return Answered(outcome, found)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that were used of late, by tenant."""
        return ((tenant, queue.known.ledger) for tenant, queue in self._queues.items() if queue.known)

    async def _serve(self, tenant: str, queue: _Queue) -> None:
        """Answer until nobody waits."""
        pause = FIRST_PAUSE
        while queue.waiting:
            queue.more.clear()
            try:
                if queue.crowd > 1:
                    await asyncio.sleep(GATHER_SECONDS)
                queue.crowd = await self._round(tenant, queue)
                pause = FIRST_PAUSE if queue.crowd else min(2 * pause, LONGEST_PAUSE)
            except ConflictError:
                self._metrics.ledger_conflicts += 1
                queue.known = None
                continue
            except StoreError as error:
                self._metrics.ledger_errors += 1
                log.warning("the ledger of %s: %s", tenant, error)
                queue.known, pause = None, LONGEST_PAUSE
            queue.waiting = [each for each in queue.waiting if not each.answer.done()]
            if queue.waiting:
                await _pause(queue.more, pause)

    async def _round(self, tenant: str, queue: _Queue) -> int:
        """Judge everybody who waits by one state of the ledger, written once for all; how many that answered."""
        fresh = queue.known is None
        known = queue.known or await self._store.read(tenant)
        waiting = [each for each in queue.waiting if not each.answer.done()]
        after, outcomes = core.reserve(known.ledger, [each.ask for each in waiting])
        judged, by = list(zip(waiting, outcomes, strict=True)), known.ledger
        unsure = [each for each, outcome in judged if outcome.verdict == "over" and each.recount is None]
        if unsure:
            after = replace(after, recount=after.recount + 1)
            self._metrics.recounts += 1
        if after is not known.ledger:
            known = await self._store.write(tenant, after, known.version)
        final = [(each, outcome) for each, outcome in judged if _is_final(each, outcome, by, fresh=fresh)]
        for each in unsure:
            each.recount = after.recount
        for each, outcome in final:
            if not each.answer.done():
                each.answer.set_result(Answered(outcome, known.ledger))
        # Who is not answered has to be judged by another state than this one.
        queue.known = known if len(final) == len(judged) else None
        return len(final)


def _is_final(waiting: _Waiting, outcome: Outcome, by: Ledger, *, fresh: bool) -> bool:
    """Whether an outcome can be told: the ledger that somebody is refused by has to be newer than his ask."""
    if outcome.verdict == "over":
        return waiting.recount is not None and by.recounted >= waiting.recount
    return fresh or outcome.verdict == "admit"


async def _pause(more: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until somebody else asks."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(more.wait(), seconds)


class Offline:
    """Reserves in memory, for whoever tries the server without a cluster: what was admitted once counts for good."""

    def __init__(self, limits: Callable[[str], Tally]) -> None:
        self._limits = limits
        self._ledgers: dict[str, Ledger] = {}

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - nobody has to wait
        """Answer an ask of a tenant."""
        before = self._ledgers.get(tenant, Ledger(view=1))
        known = replace(before, hard=self._limits(tenant), held={ask.namespace: {}, **before.held})
        after, [outcome] = core.reserve(known, [ask])
        self._ledgers[tenant] = after
        return Answered(outcome, after)

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer what would become of an ask."""
        before = self._ledgers.get(tenant)
        answered = await self.reserve(tenant, ask, deadline)
        if before is None:
            del self._ledgers[tenant]
        else:
            self._ledgers[tenant] = before
        return answered

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers, by tenant."""
        return iter(self._ledgers.items())
