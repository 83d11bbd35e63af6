"""Brings the ledger of one tenant up to date: reads, lists and compare-and-swaps, as `Settlement.step` says."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

from webhook.cluster.client import Api, ConflictError, Object
from webhook.cluster.ledgers import TenantUsages, Versioned
from webhook.core.kube.quantity import shown
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, Step
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.settler.namespaces import Namespaces
from webhook.settler.workqueue import WorkQueue

PODS: Final = "/api/v1/pods"

RETRY_SECONDS: Final = 0.2
"""Until a settlement is retried that waits for something of which no watch tells."""

TRIES: Final = 50
"""How often a settlement is tried against other writers of the ledger, before the tenant goes back to the queue."""


log = logging.getLogger(__name__)


class Reconciler:
    """Settles tenants, and remembers their ledgers.

    ledgers     as they were last read or written, by tenant
    settled_at  when each was last settled (monotonic)
    conflicts   how many writes came too late
    """

    def __init__(self, cluster: Api, settlement: Settlement, namespaces: Namespaces, queue: WorkQueue) -> None:
        self.ledgers: dict[str, Ledger] = {}
        self.settled_at: dict[str, float] = {}
        self.conflicts = 0
        self._api, self._store = cluster, TenantUsages(cluster)
        self._settlement, self._namespaces, self._queue = settlement, namespaces, queue
        self._versions: dict[str, str] = {}

    def knows(self, tenant: str, found: Object) -> bool:
        """Whether a ledger is still the one that was read or written here last."""
        return self._versions.get(tenant) == str(found["metadata"]["resourceVersion"])

    async def settle(self, tenant: str) -> None:
        """Take steps until there is none to take; raises ApiError."""
        seen: set[str] = set()
        for _ in range(TRIES):
            known = await self._store.read(tenant)
            self._learn(tenant, known)
            policy = self._namespaces.policy(tenant)
            if policy is None and not known.version:
                return
            step = self._step(tenant, policy)
            if step.get or step.roll or step.newest or step.look - seen:
                seen |= step.look
                await self._look(tenant, known.ledger, step)
                continue
            if step.look:
                self._queue.add_at(tenant, monotonic() + RETRY_SECONDS)
            try:
                done = await self._write(tenant, step, known, unlimited=policy is None)
            except ConflictError:
                self.conflicts += 1
                continue
            if done:
                self.settled_at[tenant] = monotonic()
                return
        self._queue.add_at(tenant, monotonic() + RETRY_SECONDS)

    def _step(self, tenant: str, policy: TenantPolicy | None) -> Step:
        """The next step of a tenant, which also has its turn when the step says."""
        hard = policy.quota.hard if policy and policy.quota else tally.NOTHING
        step = self._settlement.step(tenant, hard, self._namespaces.of(tenant), monotonic())
        if step.wake is not None:
            self._queue.add_at(tenant, step.wake)
        return step

    def _learn(self, tenant: str, known: Versioned) -> None:
        """Take over a ledger as it is now; a tenant that waits for a namespace which has left it has its turn."""
        before = self.ledgers.pop(tenant, Ledger())
        _tell(tenant, before, known.ledger)
        self._settlement.read(tenant, known.ledger if known.version else None, monotonic())
        self._versions[tenant] = known.version
        if known.version:
            self.ledgers[tenant] = known.ledger
        else:
            self.settled_at.pop(tenant, None)
        left = {*before.held, *before.joining} - {*known.ledger.held, *known.ledger.joining}
        self._queue.add(filter(None, map(self._namespaces.tenant, left)))

    async def _write(self, tenant: str, step: Step, known: Versioned, *, unlimited: bool) -> bool:
        """Write what the step says; whether that was all for now."""
        if step.ledger is None:
            left = known.ledger
            if unlimited and not (left.held or left.joining or left.pending or left.advances):
                await self._store.delete(tenant, known.version)
                self._learn(tenant, Versioned(Ledger(), ""))
            return True
        if not known.version:
            await self._store.create(tenant)
            return False
        self._learn(tenant, await self._store.write(tenant, step.ledger, known.version))
        return not step.ledger.joining and not unlimited

    async def _look(self, tenant: str, ledger: Ledger, step: Step) -> None:
        """Read and list what the step asks for, of the ledger that was read before."""
        if step.newest:
            self._settlement.newest(tenant, ledger.view, await self._api.version(PODS))
        for name in step.get:
            asked = monotonic()
            self._settlement.found(tenant, name, await self._store.uid(name), asked)
        if step.roll:
            self._settlement.roll(await self._store.all(), monotonic())
        for namespace in step.look:
            asked = monotonic()
            pods = await self._api.list(f"/api/v1/namespaces/{namespace}/pods")
            self._settlement.looked(namespace, [found["metadata"]["uid"] for found in pods], asked)


def _tell(tenant: str, before: Ledger, after: Ledger) -> None:
    """Log what became of a ledger that cannot be read as a whole."""
    for problem in (*after.problems, *map(shown, after.unread)):
        if problem not in (*before.problems, *map(shown, before.unread)):
            log.warning("TenantUsage %s was edited, and nobody is admitted until it is counted: %s", tenant, problem)
    if after.repaired != before.repaired and after.repaired:
        log.warning("TenantUsage %s is counted anew: %s", tenant, after.repaired)
    for key in [key for key, times in after.suspects.items() if times > before.suspects.get(key, 0)]:
        log.warning("tenant %s: pods of %s were admitted and never stored (%d)", tenant, key, after.suspects[key])
    if before.unread and not after.unread:
        log.warning("TenantUsage %s: the lines that could not be read are removed", tenant)
