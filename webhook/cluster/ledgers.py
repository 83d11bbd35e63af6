"""Reservations of this replica in the ledgers of a cluster, which are written by compare-and-swap.

    draw        a pod is admitted at once, from the replica's escrow (core/quota/escrow.py)
    reserve     a name that another pod has is refused: so would the API server do, a moment later, and nobody would
                tell that the reservation stands for nothing. Else, if the escrow does not suffice, the request waits,
                and starts the task of its tenant, which runs while requests wait or the escrow is open:
    _serve      turn after turn, a pause between:
    _round      all requests that wait are judged by one state of the ledger, and written into it at once
    _renew      no request waits: drawn pods are written down as reservations, and the escrow is opened anew

A request over the limit is refused only after the settler has counted anew: a pod that was deleted a moment ago may
have made room. A request that has to wait longer than the API server allows is answered "retry". If its reservation
was written all the same, the settler takes it back, as no pod of it appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, NamedTuple, Protocol

from webhook.cluster.client import GROUP, Api, ApiError, ConflictError, MissingError, Object
from webhook.core.forms.document import API_VERSION
from webhook.core.quota import ledger as ledgers
from webhook.core.quota import stored
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Answered, Ask, Ledger, Outcome
from webhook.telemetry import Metrics

# Ledgers in a cluster: the status of one TenantUsage object for each tenant, replaced by compare-and-swap.

COLLECTION: Final = f"{GROUP}/tenantusages"
WRITE_SECONDS: Final = 3.0


class Versioned(NamedTuple):
    """A ledger, and the version of the object that holds it; "": there is no object."""

    ledger: Ledger
    version: str


class Store(Protocol):
    """Where reservations are written: one ledger a tenant. `TenantUsages` is the one of a cluster."""

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; raises ApiError."""

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace it; raises ConflictError, or ApiError where it may or may not have been replaced."""

    async def uid(self, name: str) -> str | None:
        """The UID of the pod that has a name (`namespace/name`) now; raises ApiError."""


class TenantUsages:
    """The ledgers of a cluster, and the pods they reserve for; every method raises ApiError."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; empty where there is no object."""
        raw = await self._api.find(f"{COLLECTION}/{tenant}")
        return Versioned(Ledger(), "") if raw is None else read(raw)

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace the ledger if it still has this version; raises ConflictError if it has not.

        What is stored is what was sent, as a whole; but advances only where the definition of TenantUsage is new
        enough to keep them.
        """
        replacement = written(tenant, ledger, version)
        answer = await self._api.replace(f"{COLLECTION}/{tenant}/status", replacement, WRITE_SECONDS)
        kept = ledger if (answer.get("status") or {}).get("advances") else replace(ledger, advances={})
        return Versioned(kept, str(answer["metadata"]["resourceVersion"]))

    async def create(self, tenant: str) -> Versioned:
        """Create the object of a new tenant, not yet counted; raises ConflictError if it is there."""
        return read(await self._api.create(COLLECTION, written(tenant, None, "")))

    async def delete(self, tenant: str, version: str) -> None:
        """Delete the object if it still has this version; raises ConflictError if it has not."""
        try:
            await self._api.delete(f"{COLLECTION}/{tenant}", version)
        except MissingError:
            return

    async def uid(self, name: str) -> str | None:
        """The UID of the pod that has a name (`namespace/name`) now: a quorum read."""
        namespace, _, pod = name.partition("/")
        raw = await self._api.find(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        return None if raw is None else str(raw["metadata"]["uid"])

    async def all(self) -> dict[str, Ledger]:
        """All ledgers, of one moment: a consistent list."""
        return {raw["metadata"]["name"]: read(raw).ledger for raw in await self._api.list(COLLECTION)}


def read(raw: Object) -> Versioned:
    """The ledger in an object, and what is wrong with it."""
    return Versioned(stored.read(raw.get("status") or {}), str(raw["metadata"]["resourceVersion"]))


def written(tenant: str, ledger: Ledger | None, version: str) -> Object:
    """The object of a tenant."""
    metadata = {"name": tenant, **({"resourceVersion": version} if version else {})}
    status = {} if ledger is None else {"status": stored.write(ledger)}
    return {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": metadata, **status}


# Reservations of this replica in the ledgers of a cluster, which are written by compare-and-swap.

GATHER_SECONDS: Final = 0.01
"""How long others are waited for where several requests came at once: a write costs the API server more than a
request costs this replica."""

HOLD_SECONDS: Final = 0.5
"""How often the escrow is renewed, or closed where nothing was drawn."""

LONGEST_HOLD: Final = 8.0
"""The same while writes fail."""

FIRST_PAUSE: Final = 0.015
LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks whether the settler has counted the tenant anew."""

log = logging.getLogger(__name__)

TAKEN: Final = Outcome("taken")

TOO_LATE: Final = Outcome("again", why="the ledger did not answer in time")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for its answer.

    recount  the count of the settler that it has to see before it is refused
    late     its answer if there is none in time
    """

    ask: Ask
    answer: asyncio.Future[Answered]
    recount: int | None = None
    late: Outcome = TOO_LATE

    def is_unsure(self, outcome: Outcome, by: Ledger) -> bool:
        """Whether a new count is needed: once before a refusal, and for as long as the request has to wait."""
        if outcome.verdict == "wait":
            return self.recount is None or by.recounted >= self.recount
        return outcome.verdict == "over" and self.recount is None

    def is_final(self, outcome: Outcome, by: Ledger, *, fresh: bool) -> bool:
        """Whether an outcome is the answer: a refusal is only by a ledger that was counted after the request."""
        if outcome.verdict == "over":
            return self.recount is not None and by.recounted >= self.recount
        return outcome.verdict == "admit" or (fresh and outcome.verdict == "again")


@dataclass(slots=True)
class _Queue:
    """The requests of one tenant, and what is known of its ledger; `crowd`: how many were last answered at once."""

    account: Account
    waiting: list[_Waiting] = field(default_factory=list)
    known: Versioned | None = None
    crowd: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger as far as it is known."""
        return self.known.ledger if self.known else Ledger()

    def unanswered(self) -> list[_Waiting]:
        """The requests that still wait."""
        return [request for request in self.waiting if not request.answer.done()]


class _Verdicts(NamedTuple):
    """Requests with their outcomes by one state of a ledger, and the ledger that reserves for those admitted.

    `fresh`: the ledger was read for them.
    """

    by: Ledger
    after: Ledger
    outcomes: Sequence[tuple[_Waiting, Outcome]]
    fresh: bool

    def unsure(self) -> list[_Waiting]:
        return [request for request, outcome in self.outcomes if request.is_unsure(outcome, self.by)]

    def final(self) -> list[tuple[_Waiting, Outcome]]:
        return [pair for pair in self.outcomes if pair[0].is_final(pair[1], self.by, fresh=self.fresh)]

    def admitted(self) -> list[Ask]:
        return [request.ask for request, outcome in self.outcomes if outcome.verdict == "admit"]


class Reservations:
    """Reserves in a store of ledgers; belongs to one event loop."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._queues: dict[str, _Queue] = {}
        self._replica = secrets.token_hex(8)
        self._closing = False

    def draw(self, tenant: str, ask: Ask) -> Answered | None:
        """Admit a pod from the escrow; None where it does not suffice."""
        queue = self._queues.get(tenant)
        if queue is None or not queue.account.draw(ask, monotonic()):
            return None
        if queue.account.is_low:
            queue.more.set()
        self._metrics.reservation_seconds.observe(0)
        self._metrics.ledger[("drawn",)] += 1
        return Answered(Outcome("admit"), queue.ledger)

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Reserve in the ledger and answer before the deadline, in the monotonic clock's seconds."""
        began = monotonic()
        try:
            async with asyncio.timeout(deadline - began):
                taken = await self._is_taken(ask)
            return Answered(TAKEN, Ledger()) if taken else await self._reserved(tenant, ask, deadline)
        except TimeoutError:
            return Answered(TOO_LATE, Ledger())
        finally:
            self._metrics.reservation_seconds.observe(monotonic() - began)

    async def _is_taken(self, ask: Ask) -> bool:
        """Whether another pod has the name; False if this replica cannot read pods: suspects stay limited."""
        try:
            return await self._store.uid(ask.place) not in {None, ask.uid}
        except ApiError as error:
            self._metrics.ledger[("error",)] += 1
            log.warning("whether a pod has the name is not known: %s", error)
            return False

    async def _reserved(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        queue = self._queues.setdefault(tenant, _Queue(Account(self._replica)))
        waiting = _Waiting(ask, asyncio.get_running_loop().create_future())
        queue.waiting.append(waiting)
        queue.more.set()
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._serve(tenant, queue))
        try:
            return await asyncio.wait_for(waiting.answer, deadline - monotonic())
        except TimeoutError:
            return Answered(waiting.late, queue.ledger)

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """What would become of an ask by the ledger as it is now; of one over the limit, by what it is soon."""
        try:
            async with asyncio.timeout(deadline - monotonic()):
                preview = await self._preview(tenant, ask)
                if preview.outcome.verdict == "over":
                    await asyncio.sleep(HOLD_SECONDS)
                    preview = await self._preview(tenant, ask)
                while preview.outcome.verdict == "wait":
                    await asyncio.sleep(LONGEST_PAUSE)
                    preview = await self._preview(tenant, ask)
                return preview
        except (ApiError, TimeoutError):
            return Answered(TOO_LATE, Ledger())

    async def _preview(self, tenant: str, ask: Ask) -> Answered:
        ledger = (await self._store.read(tenant)).ledger
        closed = {token: amount for token, amount in ledger.advances.items() if not amount}
        _, [outcome] = ledgers.reserve(replace(ledger, advances=closed), [ask])
        return Answered(outcome, ledger)

    async def close(self) -> None:
        """Close the escrow of every tenant: this process ends."""
        self._closing = True
        for queue in self._queues.values():
            queue.more.set()
        await asyncio.gather(*(queue.task for queue in self._queues.values() if queue.task), return_exceptions=True)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that were used of late, by tenant."""
        return ((tenant, queue.known.ledger) for tenant, queue in self._queues.items() if queue.known)

    async def _serve(self, tenant: str, queue: _Queue) -> None:
        """Take turns until no request waits and the escrow is closed."""
        pause, hold = FIRST_PAUSE, HOLD_SECONDS
        while queue.waiting or queue.account.is_open:
            queue.more.clear()
            try:
                pause = await self._turn(tenant, queue, pause)
                hold = FIRST_PAUSE if self._closing else HOLD_SECONDS
            except ConflictError:
                self._metrics.ledger[("conflict",)] += 1
                queue.known = None
                continue
            except Exception as error:  # whatever it is, requests wait for the next turn
                self._metrics.ledger[("error",)] += 1
                log.warning("the ledger of %s: %s", tenant, error, exc_info=not isinstance(error, ApiError))
                queue.known, pause, hold = None, LONGEST_PAUSE, min(2 * hold, LONGEST_HOLD)
            queue.waiting = queue.unanswered()
            if queue.waiting:
                await _pause(queue.more, pause)
            elif queue.account.is_open:
                queue.more.clear()
                await _pause(queue.more, hold)

    async def _turn(self, tenant: str, queue: _Queue, pause: float) -> float:
        """Answer the requests that wait, or renew the escrow where none does; the pause before the next turn."""
        if not queue.waiting:
            await self._renew(tenant, queue)
            return FIRST_PAUSE
        if queue.crowd > 1:
            await asyncio.sleep(GATHER_SECONDS)
        queue.crowd = await self._round(tenant, queue)
        return FIRST_PAUSE if queue.crowd else min(2 * pause, LONGEST_PAUSE)

    async def _round(self, tenant: str, queue: _Queue) -> int:
        """Judge the requests that wait by one state of the ledger, written once for all; how many that answered."""
        fresh = queue.known is None
        versioned = queue.known or await self._read(tenant, queue)
        judged = _judge(queue, versioned.ledger, fresh=fresh)
        after, unsure, final = judged.after, judged.unsure(), judged.final()
        if unsure:
            after = replace(after, recount=after.recount + 1)
            self._metrics.ledger[("recount",)] += 1
        if not self._closing:
            after = queue.account.open(after, judged.admitted(), monotonic())
        versioned = await self._write(tenant, queue, versioned, after)
        for request in unsure:
            request.recount = after.recount
        for request, outcome in final:
            if not request.answer.done():
                request.answer.set_result(Answered(outcome, versioned.ledger))
        # Requests without an answer have to be judged by another state than this one.
        queue.known = versioned if len(final) == len(judged.outcomes) else None
        return len(final)

    async def _renew(self, tenant: str, queue: _Queue) -> None:
        """Write drawn pods down as reservations, and open the escrow anew."""
        versioned, account = await self._read(tenant, queue), queue.account
        after = account.close(versioned.ledger) if self._closing else account.renew(versioned.ledger, monotonic())
        queue.known = await self._write(tenant, queue, versioned, after)

    async def _read(self, tenant: str, queue: _Queue) -> Versioned:
        versioned = await self._store.read(tenant)
        queue.account.learn(versioned.ledger)
        return versioned

    async def _write(self, tenant: str, queue: _Queue, versioned: Versioned, after: Ledger) -> Versioned:
        """Replace a ledger, unless it stays as it is. One that cannot be read as a whole is left to the settler."""
        if after is versioned.ledger or versioned.ledger.problems:
            return versioned
        written = await self._store.write(tenant, after, versioned.version)
        queue.account.wrote(written.ledger)
        return written


def _judge(queue: _Queue, ledger: Ledger, *, fresh: bool) -> _Verdicts:
    """Judge the requests of a queue that wait, in their order."""
    waiting = queue.unanswered()
    after, outcomes = ledgers.reserve(queue.account.close(ledger), [request.ask for request in waiting])
    for request, outcome in zip(waiting, outcomes, strict=True):
        request.late = outcome._replace(verdict="again") if outcome.why else TOO_LATE
    return _Verdicts(ledger, after, list(zip(waiting, outcomes, strict=True)), fresh)


async def _pause(more: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until another request comes."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(more.wait(), seconds)
