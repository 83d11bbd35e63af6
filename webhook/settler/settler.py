"""`gpu-webhook settle`: counts what every tenant uses, and writes it into the ledgers. A process of its own.

What it may write is decided by `webhook.core.quota.settlement`, which also says why any number of settlers may run,
be paused and resumed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from webhook.cluster import session
from webhook.cluster.client import Api, ApiError
from webhook.cluster.follower import Collection, Follower
from webhook.cluster.ledgers import COLLECTION
from webhook.cluster.policies import Policies
from webhook.cluster.policy_status import PolicyStatus
from webhook.core.quota import settlement, stored
from webhook.core.quota.settlement import Settlement
from webhook.core.rules.tenancy import Tenancy
from webhook.files.reload import Rules
from webhook.settler import page as pages
from webhook.settler.lag import LOOK_SECONDS, Lag
from webhook.settler.namespaces import Namespaces
from webhook.settler.pods import Pods
from webhook.settler.reconciler import PODS, RETRY_SECONDS, Reconciler
from webhook.settler.workqueue import WorkQueue
from webhook.telemetry import logs

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


class Settler:
    """One settler: what it follows, which tenants have something to settle, and their turns."""

    def __init__(self, cluster: Api, rules: Rules, grace: float = settlement.GRACE) -> None:
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
            for each in (*following, self._policy_status.run(), self._turns()):
                tasks.create_task(each)

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
            known = self._policies.namespaces
            self._namespaces.namespace_changed(name, exists=name in known.objects, listing=known.listing)
        self._outdated = True
        self._queue.stir()

    def _usage_changed(self, tenant: str) -> None:
        """A ledger was written; by another program, unless it is as the reconciler knows it."""
        found = self._usages.objects.get(tenant)
        if found is not None and self.reconciler.knows(tenant, found):
            return
        if unknown := stored.unknown((found or {}).get("status")):
            log.warning("TenantUsage %s has what nothing here reads, and loses it: %s", tenant, ", ".join(unknown))
        if found is None or _urgent(found.get("status") or {}):
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


def _urgent(status: Mapping[str, object]) -> bool:
    """Whether a request waits for a ledger's settlement that would be refused, or a namespace."""
    return bool(status.get("recount") != status.get("recounted") or status.get("joining") or not status.get("view"))


def settle(directory: Path, bind: tuple[str, int], grace: float) -> int:
    """Settle until told to stop; the exit code. Raises ApiError where there is no cluster."""
    logs.configure(logs.Lines(logs.STDOUT), "info")
    rules = Rules(directory)
    rules.refresh()

    async def program(cluster: Api) -> None:
        settler = Settler(cluster, rules, grace)
        page = await asyncio.start_server(partial(pages.answer, settler), *bind)
        try:
            await settler.run()
        finally:
            page.close()

    session.run(program)
    return 0
