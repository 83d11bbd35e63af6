"""`gpu-webhook settle`: counts what every tenant uses, and writes it into the ledgers. A process of its own.

What it may write is decided by `webhook.core.quota.settlement`, which also says why any number of settlers may run,
be paused and resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Protocol

from webhook import telemetry
from webhook.cluster import client
from webhook.cluster.client import Api, ApiError
from webhook.cluster.follower import Collection, Follower
from webhook.cluster.ledgers import COLLECTION
from webhook.cluster.policies import Policies, PolicyStatus
from webhook.core.quota import settlement, stored
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, View
from webhook.core.rules.tenant_policy import Tenancy
from webhook.files.rule_files import ReloadedRules
from webhook.settler.reconciler import PODS, RETRY_SECONDS, Namespaces, Pods, Reconciler, WorkQueue

LOOK_SECONDS: Final = 0.5
"""Between two looks for lag; a settler may be behind for so long while a request waits for its refusal."""

CALM_SECONDS: Final = 5.0
"""The same where no request waits, but reservations without a pod may be left, or a limit to be changed."""

LINE_BYTES: Final = 4096
READ_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 120.0
"""A settler that has heard nothing of pods for so long does not work; a restart does no harm."""

WATCH_SECONDS: Final = 20.0
"""How long a watch of pods goes on before it is begun anew: one that is dead is found out, and `as_of` moves."""

PAUSE_SECONDS: Final = 0.05
"""Between something that happened and its settlement: what happens together is settled together."""

SOON_SECONDS: Final = 0.25
"""From a pod that came or went, or a reservation, to its settlement, where no request waits for one: while pods come
one after the other, their ledger is left to the replicas that reserve in it."""

LATER_SECONDS: Final = 1.0
"""Until a settlement is retried that failed."""

AT_ONCE: Final = 8

log = logging.getLogger(__name__)


class Lag:
    """Finds ledgers whose view is later than this settler's, written by one that has seen more and is gone.

    It knows since when which are ahead, and when pods were last to be listed because of it.
    """

    def __init__(self, ledgers: Mapping[str, Ledger], view: View, pods: Follower[Any]) -> None:
        self._ledgers, self._view, self._pods = ledgers, view, pods
        self._since: dict[tuple[str, int], float] = {}
        self._listed_at = -inf

    def found(self) -> bool:
        """Whether one and the same view of a ledger has been ahead for too long; not while pods are listed."""
        now = monotonic()
        ahead = {
            (tenant, ledger.view): LOOK_SECONDS if ledger.recount > ledger.recounted else CALM_SECONDS
            for tenant, ledger in self._ledgers.items()
            if ledger.view > self._view.version
        }
        self._since = {lag: self._since.get(lag, now) for lag in ahead}
        waited = any(now - self._since[lag] >= patience for lag, patience in ahead.items())
        if not waited or self._pods.as_of < self._listed_at:
            return False
        self._listed_at, self._since = now, {}
        return True


class Source(Protocol):
    """The settler that the page is about."""

    settlement: Settlement
    reconciler: Reconciler
    tenancy: Tenancy

    @property
    def digest(self) -> str:
        """The digest of the rules that pods are counted by; empty without rules."""

    @property
    def heard_at(self) -> float:
        """The time (monotonic) up to which everything was heard of pods, or this was started."""


async def answer_page(settler: Source, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, and close: `/metrics` for Prometheus, `/healthz` for the kubelet."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        line = (await asyncio.wait_for(reader.readline(), READ_SECONDS))[:LINE_BYTES]
        status, body = "200 OK", b"ok\n"
        if line.startswith(b"GET /metrics "):
            body = telemetry.page(_lines(settler, monotonic()))
        elif not line.startswith(b"GET /healthz "):
            status, body = "404 Not Found", b"there are /metrics and /healthz\n"
        elif monotonic() - settler.heard_at > STALLED_SECONDS:
            status, body = "503 Service Unavailable", b"nothing was heard of pods for too long\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
    writer.close()


def _lines(settler: Source, now: float) -> Iterator[str]:
    labels, counted = ("tenant", "what"), settler.reconciler
    used: dict[telemetry.Labels, float] = {}
    hard: dict[telemetry.Labels, float] = {}
    pending: dict[telemetry.Labels, float] = {}
    for name, ledger in counted.ledgers.items():
        used |= {(name, key): float(amount) for key, amount in ledger.used.items()}
        hard |= {(name, key): float(amount) for key, amount in ledger.hard.items()}
        pending[(name,)] = len(ledger.pending)
    age: dict[telemetry.Labels, float] = {(name,): round(now - at, 3) for name, at in counted.settled_at.items()}
    left: dict[telemetry.Labels, float] = {
        (exemption.name,): round(exemption.expires - time()) for exemption in settler.tenancy.exemptions
    }
    heard = round(now - settler.heard_at, 3)
    yield from telemetry.family("tenant_used", "What a tenant uses: devices, or bytes of memory.", labels, used)
    yield from telemetry.family("tenant_hard", "What a tenant may use at most.", labels, hard)
    yield from telemetry.family("tenant_pending", "Reservations of pods not yet seen.", ("tenant",), pending)
    yield from telemetry.family("settled_seconds_ago", "Since a tenant was last settled.", ("tenant",), age)
    yield from telemetry.family("exemption_seconds_left", "Until an exemption expires.", ("exemption",), left)
    yield from telemetry.family("settle_age_seconds", "How old what was heard of pods may be.", (), {(): heard})
    yield from telemetry.family("pods_seen", "Pods that are there.", (), {(): len(settler.settlement.view)})
    yield from telemetry.rulebook(settler.digest)
    yield from telemetry.family("settle_conflicts_total", "Writes that came too late.", (), {(): counted.conflicts})


class Settler:
    """One settler: what it follows, which tenants have something to settle, and their turns."""

    def __init__(self, cluster: Api, rules: ReloadedRules, grace: float = settlement.GRACE) -> None:
        self.settlement = Settlement(secrets.token_hex(8), grace)
        self.tenancy = Tenancy()
        """What policies and exemptions say, as they were last sorted."""
        self._queue = WorkQueue()
        self._namespaces = Namespaces(self.settlement, grace)
        self.reconciler = Reconciler(cluster, self.settlement, self._namespaces, self._queue)
        view = self.settlement.view
        self._pods = Follower(cluster, [PODS], Pods(view, rules, self._touch), seconds=WATCH_SECONDS)
        self._lag = Lag(self.reconciler.ledgers, view, self._pods)
        self._policies = Policies(cluster, self._policy_changed)
        self._policy_status = PolicyStatus(cluster)
        self._usages = Collection(self._usage_changed)
        self._usages_follower = Follower(cluster, [COLLECTION], self._usages)
        self._rules = rules
        self._started = monotonic()
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._outdated, self._sorted = True, False

    async def run(self) -> None:
        """Settle until cancelled."""
        following = (self._policies.run(), self._usages_follower.run(), self._follow_pods())
        async with asyncio.TaskGroup() as tasks:
            for task in (*following, self._policy_status.run(), self._turns()):
                tasks.create_task(task)

    @property
    def heard_at(self) -> float:
        """The time (monotonic) up to which everything was heard of pods, or this was started."""
        return max(self._pods.as_of, self._started)

    @property
    def digest(self) -> str:
        """The digest of the rules that pods are counted by; empty without rules."""
        return self._rules.rulebook.digest if self._rules.rulebook else ""

    # What happens

    async def _follow_pods(self) -> None:
        """Follow the pods once there are rules to count by; all of them anew when those change, or we lag behind."""
        while self._rules.rulebook is None:
            self._rules.refresh()
            await asyncio.sleep(PAUSE_SECONDS)
        while True:
            following = asyncio.create_task(self._pods.run())
            while not (self._rules.refresh() or self._lag.found()):
                await asyncio.wait([following], timeout=LOOK_SECONDS)
                if following.done():
                    following.result()  # it ends by a fault of ours only, and with it this program
            self._outdated = True
            following.cancel()

    def _touch(self, namespace: str | None) -> None:
        """Pods hold something else in a namespace; None: maybe in all of them."""
        if namespace is None:
            self._queue.add([*self._namespaces.tenants, *self._usages.objects])
        elif tenant := self._namespaces.tenant(namespace):
            self._queue.add_at(tenant, monotonic() + SOON_SECONDS)

    def _policy_changed(self, kind: str, name: str) -> None:
        if kind == "TenantPolicy":
            self._namespaces.policy_changed()
        if kind == "Namespace":
            namespaces_known = self._policies.namespaces
            self._namespaces.namespace_changed(
                name, exists=name in namespaces_known.objects, listing=namespaces_known.listing
            )
        self._outdated = True
        self._queue.stir()

    def _usage_changed(self, tenant: str) -> None:
        """A ledger was written; by another program, unless it is as the reconciler knows it."""
        raw = self._usages.objects.get(tenant)
        if raw is not None and self.reconciler.knows(tenant, raw):
            return
        if unknown := stored.unknown((raw or {}).get("status")):
            log.warning("TenantUsage %s has what nothing here reads, and loses it: %s", tenant, ", ".join(unknown))
        status = (raw or {}).get("status") or {}
        # A request that would be refused waits for the settlement, or a namespace, or the ledger is new or gone.
        if status.get("recount") != status.get("recounted") or status.get("joining") or not status.get("view"):
            self._queue.add([tenant])
        else:
            self._queue.add_at(tenant, monotonic() + SOON_SECONDS)

    # Turns

    async def _turns(self) -> None:
        """Settle the tenants that are due; one whose turn takes long keeps no other waiting."""
        turns = asyncio.Semaphore(AT_ONCE)
        while True:
            await self._queue.wait(RETRY_SECONDS if self._outdated else None)
            await asyncio.sleep(PAUSE_SECONDS)
            if self._outdated:
                self._sort()
            if not self._sorted:
                continue
            for tenant in self._queue.due():
                if tenant in self._settling:
                    self._queue.add_at(tenant, monotonic() + PAUSE_SECONDS)
                else:
                    self._settling[tenant] = asyncio.create_task(self._turn(tenant, turns))

    def _sort(self) -> None:
        """Find out anew which namespaces belong to which tenant."""
        rulebook = self._rules.rulebook
        if rulebook is None or self._policies.unknown:
            return
        self.tenancy = self._policies.tenancy(rulebook)
        self._policy_status.changed(self._policies, rulebook, self.tenancy)
        self._queue.add(self._namespaces.sort(self.tenancy, rulebook.cluster.system_namespaces))
        if not self._sorted:
            self._touch(None)
        self._outdated, self._sorted = False, True

    async def _turn(self, tenant: str, turns: asyncio.Semaphore) -> None:
        try:
            async with turns:
                if tenant not in self._policies.broken:  # its limit is in its ledger then, and nowhere else
                    await self.reconciler.settle(tenant)
        except ApiError as error:
            log.warning("%s is settled later: %s", tenant, error)
            self._queue.add_at(tenant, monotonic() + LATER_SECONDS)
        except Exception:
            log.exception("%s cannot be settled, the others go on: a fault of this program", tenant)
            self._queue.add_at(tenant, monotonic() + LATER_SECONDS)
        finally:
            del self._settling[tenant]


def settle(directory: Path, bind: tuple[str, int], grace: float) -> int:
    """Settle until told to stop; the exit code. Raises ApiError where there is no cluster."""
    telemetry.configure()
    rules = ReloadedRules(directory)
    rules.refresh()

    async def program(cluster: Api) -> None:
        settler = Settler(cluster, rules, grace)
        page = await asyncio.start_server(partial(answer_page, settler), *bind)
        try:
            await settler.run()
        finally:
            page.close()

    client.run(program)
    return 0
