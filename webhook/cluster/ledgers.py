"""Reservations of this replica in the ledgers of a cluster, which are written by compare-and-swap.

A ledger is the status of one TenantUsage object. To answer a request, in this order:

    draw        a pod is admitted at once, from the replica's escrow (core/quota/escrow.py)
    reserve     a name that another pod has is refused: so would the API server do, a moment later, and nobody would
                tell that the reservation stands for nothing. Else, if the escrow does not suffice, the request waits,
                and starts the task of its tenant, which runs while requests wait or the escrow is open:
    _serve      turn after turn, a pause between. Where no request waits, drawn pods are written down as reservations,
                and the escrow is opened anew. Else
    _round      all requests that wait are judged by one state of the ledger, and written into it at once

A request over the limit is refused only after the settler has counted anew: a pod that was deleted a moment ago may
have made room. A request that has to wait longer than the API server allows is answered "retry". If its reservation
was written all the same, the settler takes it back, as no pod of it appears.

The author of a Deployment never sees a refusal: the pods are created by a controller. So the owner of pods that a
quota refuses gets an event, at most every ten minutes.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, NamedTuple

from webhook.cluster import client
from webhook.cluster.client import GROUP, Api, ApiError, Object
from webhook.core.decision import Decision
from webhook.core.forms.document import API_VERSION
from webhook.core.kube import fields
from webhook.core.quota import ledger as ledgers
from webhook.core.quota import stored
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Answered, Ledger, Outcome
from webhook.core.quota.tally import Ask
from webhook.core.review import AdmissionRequest
from webhook.core.violations import QUOTA
from webhook.telemetry import Metrics

COLLECTION: Final = f"{GROUP}/tenantusages"
WRITE_SECONDS: Final = 3.0

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

WINDOW_SECONDS: Final = 600.0
"""Between two events for one owner of pods."""

OWNERS: Final = 10_000
"""How many are remembered; one that was forgotten gets another event early."""

AT_ONCE: Final = 20
"""How many events are written at once; one that comes meanwhile is dropped, the next refusal brings it again."""

MESSAGE_LENGTH: Final = 1024
"""What the API server takes (core/validation/events.go, NoteLengthLimit)."""

TOO_LATE: Final = Outcome("again", why="the ledger did not answer in time")

log = logging.getLogger(__name__)


class Versioned(NamedTuple):
    """A ledger, and the version of the object that holds it; "": there is no object."""

    ledger: Ledger
    version: str


def _read(raw: Object) -> Versioned:
    return Versioned(stored.read(raw.get("status") or {}), str(raw["metadata"]["resourceVersion"]))


class TenantUsages:
    """The ledgers of a cluster, and the pods they reserve for; every method raises ApiError."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; empty where there is no object."""
        raw = await self._api.find(f"{COLLECTION}/{tenant}")
        return Versioned(Ledger(), "") if raw is None else _read(raw)

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace the ledger if it still has this version; raises ConflictError if it has not.

        What is stored is what was sent, as a whole; but advances only where the definition of TenantUsage is new
        enough to keep them.
        """
        metadata, status = {"name": tenant, "resourceVersion": version}, stored.write(ledger)
        replacement = {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": metadata, "status": status}
        answer = await self._api.replace(f"{COLLECTION}/{tenant}/status", replacement, WRITE_SECONDS)
        kept = ledger if (answer.get("status") or {}).get("advances") else replace(ledger, advances={})
        return Versioned(kept, str(answer["metadata"]["resourceVersion"]))

    async def create(self, tenant: str) -> Versioned:
        """Create the object of a new tenant, not yet counted; raises ConflictError if it is there."""
        made = {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": {"name": tenant}}
        return _read(await self._api.create(COLLECTION, made))

    async def delete(self, tenant: str, version: str) -> None:
        """Delete the object if it still has this version; raises ConflictError if it has not."""
        with contextlib.suppress(client.MissingError):
            await self._api.delete(f"{COLLECTION}/{tenant}", version)

    async def uid(self, name: str) -> str | None:
        """The UID of the pod that has a name (`namespace/name`) now: a quorum read."""
        namespace, _, pod = name.partition("/")
        raw = await self._api.find(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        return None if raw is None else str(raw["metadata"]["uid"])

    async def all(self) -> dict[str, Ledger]:
        """All ledgers, of one moment: a consistent list."""
        return {raw["metadata"]["name"]: _read(raw).ledger for raw in await self._api.list(COLLECTION)}


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


class Reservations:
    """Reserves in a store of ledgers; belongs to one event loop."""

    def __init__(self, store: TenantUsages, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics
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
            try:
                async with asyncio.timeout(deadline - began):
                    uid = await self._store.uid(ask.place)
            except ApiError as error:  # this replica cannot read pods: suspects stay limited
                self._metrics.ledger[("error",)] += 1
                log.warning("whether a pod has the name is not known: %s", error)
                uid = None
            if uid not in {None, ask.uid}:
                return Answered(Outcome("taken"), Ledger())
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
        except TimeoutError:
            return Answered(TOO_LATE, Ledger())
        finally:
            self._metrics.reservation_seconds.observe(monotonic() - began)

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """What would become of an ask by the ledger as it is now; of one over the limit, by what it is soon."""

        async def look() -> Answered:
            ledger = (await self._store.read(tenant)).ledger
            closed = {token: amount for token, amount in ledger.advances.items() if not amount}
            _, [outcome] = ledgers.reserve(replace(ledger, advances=closed), [ask])
            return Answered(outcome, ledger)

        try:
            async with asyncio.timeout(deadline - monotonic()):
                preview = await look()
                if preview.outcome.verdict == "over":
                    await asyncio.sleep(HOLD_SECONDS)
                    preview = await look()
                while preview.outcome.verdict == "wait":
                    await asyncio.sleep(LONGEST_PAUSE)
                    preview = await look()
                return preview
        except (ApiError, TimeoutError):
            return Answered(TOO_LATE, Ledger())

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
        pause, hold, account = FIRST_PAUSE, HOLD_SECONDS, queue.account
        while queue.waiting or account.is_open:
            queue.more.clear()
            try:
                if queue.waiting:
                    if queue.crowd > 1:
                        await asyncio.sleep(GATHER_SECONDS)
                    queue.crowd = await self._round(tenant, queue)
                    pause = FIRST_PAUSE if queue.crowd else min(2 * pause, LONGEST_PAUSE)
                else:
                    versioned = await self._read(tenant, queue)
                    ledger, now = versioned.ledger, monotonic()
                    after = account.close(ledger) if self._closing else account.renew(ledger, now)
                    queue.known = await self._write(tenant, queue, versioned, after)
                    pause = FIRST_PAUSE
                hold = FIRST_PAUSE if self._closing else HOLD_SECONDS
            except client.ConflictError:
                self._metrics.ledger[("conflict",)] += 1
                queue.known = None
                continue
            except Exception as error:  # whatever it is, requests wait for the next turn
                self._metrics.ledger[("error",)] += 1
                log.warning("the ledger of %s: %s", tenant, error, exc_info=not isinstance(error, ApiError))
                queue.known, pause, hold = None, LONGEST_PAUSE, min(2 * hold, LONGEST_HOLD)
            queue.waiting = [request for request in queue.waiting if not request.answer.done()]
            if not queue.waiting:
                queue.more.clear()
            if queue.waiting or account.is_open:
                with contextlib.suppress(TimeoutError):  # or until another request comes
                    await asyncio.wait_for(queue.more.wait(), pause if queue.waiting else hold)

    async def _round(self, tenant: str, queue: _Queue) -> int:
        """Judge the requests that wait by one state of the ledger, written once for all; how many that answered."""
        fresh = queue.known is None
        versioned = queue.known or await self._read(tenant, queue)
        ledger = versioned.ledger
        waiting = [request for request in queue.waiting if not request.answer.done()]
        after, outcomes = ledgers.reserve(queue.account.close(ledger), [request.ask for request in waiting])
        admitted: list[Ask] = []
        unsure: list[_Waiting] = []
        final: list[tuple[_Waiting, Outcome]] = []
        for request, outcome in zip(waiting, outcomes, strict=True):
            request.late = outcome._replace(verdict="again") if outcome.why else TOO_LATE
            recounted = request.recount is not None and ledger.recounted >= request.recount
            match outcome.verdict:
                case "admit":
                    admitted.append(request.ask)
                    final.append((request, outcome))
                case "again" if fresh:
                    final.append((request, outcome))
                case "over" if recounted:  # a refusal is only by a ledger that was counted after the request
                    final.append((request, outcome))
                case "over" | "wait" if request.recount is None or recounted:
                    unsure.append(request)
        if unsure:
            after = replace(after, recount=after.recount + 1)
            self._metrics.ledger[("recount",)] += 1
        if not self._closing:
            after = queue.account.open(after, admitted, monotonic())
        versioned = await self._write(tenant, queue, versioned, after)
        for request in unsure:
            request.recount = after.recount
        for request, outcome in final:
            if not request.answer.done():
                request.answer.set_result(Answered(outcome, versioned.ledger))
        # Requests without an answer have to be judged by another state than this one.
        queue.known = versioned if len(final) == len(waiting) else None
        return len(final)

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


class Events:
    """Writes events in the background; belongs to one event loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: OrderedDict[str, float] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def record(self, request: AdmissionRequest, decision: Decision) -> None:
        """Take note of a decision; write an event for the owner of a refused pod if it had none lately."""
        texts = [violation.message for violation in decision.violations if violation.code == QUOTA]
        owner = next(fields.controllers(request.pod), None)
        if not texts or owner is None or len(self._writing) >= AT_ONCE:
            return
        uid, now = str(owner.get("uid")), monotonic()
        if now - self._told.get(uid, -WINDOW_SECONDS) < WINDOW_SECONDS:
            return
        self._told[uid] = now
        self._told.move_to_end(uid)
        if len(self._told) > OWNERS:
            self._told.popitem(last=False)
        about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner}
        component, at = "gpu-webhook", client.timestamp()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{str(owner.get('name', ''))[:200]}-", "namespace": request.namespace},
            "involvedObject": {**about, "namespace": request.namespace},
            "type": "Warning",
            "reason": "GPUQuotaExceeded",
            "message": f"[{QUOTA}] {'; '.join(texts)}"[:MESSAGE_LENGTH],
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": component,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        writing = asyncio.get_running_loop().create_task(self._write(request.namespace, event))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, namespace: str, event: Object) -> None:
        try:
            await self._api.create(f"/api/v1/namespaces/{namespace}/events", event)
        except ApiError as error:
            log.warning("an event was not written: %s", error)
