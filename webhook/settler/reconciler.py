"""Brings the ledger of one tenant up to date: reads, lists and compare-and-swaps, as `Settlement.step` says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, KeysView
from math import inf
from time import monotonic
from typing import Final

from webhook.cluster.client import Api, ConflictError, Object
from webhook.cluster.follower import Handler
from webhook.cluster.ledgers import TenantUsages, Versioned
from webhook.core.kube import pod
from webhook.core.kube.quantity import shown
from webhook.core.policy import membership, usage
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, Step, View, ViewedPod
from webhook.core.rules.tenant_policy import Tenancy, TenantPolicy
from webhook.files.rule_files import ReloadedRules

PODS: Final = "/api/v1/pods"

RETRY_SECONDS: Final = 0.2
"""Until a settlement is retried that waits for something of which no watch tells."""

TRIES: Final = 50
"""How often a settlement is tried against other writers of the ledger, before the tenant goes back to the queue."""

log = logging.getLogger(__name__)


class Pods(Handler[ViewedPod]):
    """Follows the pods of the cluster into the settler's view: what each of them holds.

    `touched` is told the namespace in which other amounts are held now; None: maybe in all of them.
    """

    def __init__(self, view: View, rules: ReloadedRules, touched: Callable[[str | None], None]) -> None:
        self._view, self._rules, self._touched = view, rules, touched
        self._counter: usage.Counter | None = None

    def keep(self, raw: Object) -> ViewedPod:
        """What the settlement has to know of a pod."""
        metadata, rulebook = raw["metadata"], self._rules.rulebook
        amount = tally.NOTHING
        if rulebook is not None and pod.live(raw):
            if self._counter is None or self._counter.rulebook is not rulebook:
                self._counter = usage.Counter(rulebook)
            amount = self._counter.held(raw).tally
        return ViewedPod(metadata["uid"], metadata["namespace"], metadata["name"], amount)

    def listed(self, kept: list[ViewedPod], version: int) -> None:
        """All pods there are."""
        self._view.listed(kept, version)
        self._touched(None)

    def updated(self, kept: ViewedPod, version: int) -> None:
        """A pod was added or changed."""
        self._change(kept.namespace, lambda: self._view.saw(kept, version))

    def deleted(self, kept: ViewedPod, version: int) -> None:
        """A pod was deleted."""
        self._change(kept.namespace, lambda: self._view.lost(kept.uid, version))

    def _change(self, namespace: str, change: Callable[[], None]) -> None:
        before = self._view.held(namespace)
        change()
        if before != self._view.held(namespace):
            self._touched(namespace)

    def bookmarked(self, version: int) -> None:
        """Nothing more happened up to a version."""
        self._view.reached(version)


class Namespaces:
    """Which tenant's ledger counts which namespace, as the policies say now.

    Tells the settlement which of them may hold pods without reservation.
    """

    def __init__(self, settlement: Settlement, grace: float) -> None:
        self._settlement, self._grace = settlement, grace
        self._quotas: dict[str, TenantPolicy] = {}
        self._wanted: dict[str, set[str]] = {}
        self._tenants: dict[str, str] = {}
        self._known: set[str] = set()
        self._changed_at = monotonic()

    @property
    def tenants(self) -> KeysView[str]:
        """The tenants that have a quota."""
        return self._quotas.keys()

    def policy(self, tenant: str) -> TenantPolicy | None:
        """The policy of a tenant, if it has a quota."""
        return self._quotas.get(tenant)

    def of(self, tenant: str) -> Collection[str]:
        """The namespaces that a tenant's ledger is to count."""
        return self._wanted.get(tenant, set())

    def tenant(self, namespace: str) -> str | None:
        """The tenant that counts a namespace."""
        return self._tenants.get(namespace)

    def policy_changed(self) -> None:
        """A policy is another one: pods may have been admitted by the one before."""
        self._changed_at = monotonic()
        self._settlement.changed()

    def namespace_changed(self, name: str, *, exists: bool, listing: bool) -> None:
        """A namespace came, changed or went; `listing`: that was found in a list, and may be long ago.

        In a new one no pod can have been admitted without a reservation, if policies have been the same for long.
        """
        now = monotonic()
        if not exists:
            self._known.discard(name)
            self._settlement.open(name, now)
        elif name not in self._known:
            self._known.add(name)
            if listing or now - self._changed_at <= self._grace:
                self._settlement.open(name, now)
            else:
                self._settlement.born(name, now)

    def sort(self, tenancy: Tenancy, exempt: Collection[str]) -> set[str]:
        """Assign every namespace anew; the tenants that have another quota or other namespaces now."""
        before = {name: (policy.quota, self._wanted[name]) for name, policy in self._quotas.items()}
        self._quotas = {policy.name: policy for policy in tenancy.policies if policy.quota is not None}
        wanted: dict[str, set[str]] = {name: set() for name in self._quotas}
        self._tenants = {}
        for namespace in tenancy.labels:
            owners = None if namespace in exempt else membership.member(namespace, tenancy)
            tenant = None
            if owners and owners.policy:
                tenant = owners.policy.name if owners.policy.name in wanted else None
            elif owners:  # of several policies that claim it, the one that counts it goes on
                counting = (name for name in (rival.name for rival in owners.rivals) if name in wanted)
                tenant = next((name for name in counting if namespace in self._wanted.get(name, ())), None)
            if tenant is None:
                self._settlement.open(namespace, monotonic())
            else:
                self._tenants[namespace] = tenant
                wanted[tenant].add(namespace)
        self._wanted = wanted
        after = {name: (policy.quota, wanted[name]) for name, policy in self._quotas.items()}
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


class WorkQueue:
    """Names that are due now or later, each once, as controllers of Kubernetes have it.

    Belongs to one event loop; times are of the monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._later: dict[str, float] = {}
        self._stirred = asyncio.Event()

    def add(self, names: Iterable[str]) -> None:
        """Make names due."""
        self._now.update(names)
        self._stirred.set()

    def add_at(self, name: str, at: float) -> None:
        """Make a name due at a time, if it is not before."""
        if at < self._later.get(name, inf):
            self._later[name] = at
            self._stirred.set()

    def stir(self) -> None:
        """End `wait`, though no name is due."""
        self._stirred.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a name is added or due; with `seconds`, until one is added or they are over."""
        soonest = min(self._later.values(), default=None)
        if seconds is None and soonest is not None:
            seconds = max(0.0, soonest - monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), seconds)

    def due(self) -> list[str]:
        """Take out all that are due."""
        now = monotonic()
        due = self._now | {name for name, at in self._later.items() if at <= now}
        self._now = set()
        for name in due:
            self._later.pop(name, None)
        self._stirred.clear()
        return sorted(due)


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

    def knows(self, tenant: str, raw: Object) -> bool:
        """Whether a ledger is still the one that was read or written here last."""
        return self._versions.get(tenant) == str(raw["metadata"]["resourceVersion"])

    async def settle(self, tenant: str) -> None:
        """Take steps until there is none to take; raises ApiError."""
        tenants: set[str] = set()
        for _ in range(TRIES):
            versioned = await self._store.read(tenant)
            self._learn(tenant, versioned)
            policy = self._namespaces.policy(tenant)
            if policy is None and not versioned.version:
                return
            hard = policy.quota.hard if policy and policy.quota else tally.NOTHING
            step = self._settlement.step(tenant, hard, self._namespaces.of(tenant), monotonic())
            if step.wake is not None:
                self._queue.add_at(tenant, step.wake)
            if step.get or step.roll or step.newest or step.look - tenants:
                tenants |= step.look
                await self._look(tenant, versioned.ledger, step)
                continue
            if step.look:
                self._queue.add_at(tenant, monotonic() + RETRY_SECONDS)
            try:
                done = await self._write(tenant, step, versioned, unlimited=policy is None)
            except ConflictError:
                self.conflicts += 1
                continue
            if done:
                self.settled_at[tenant] = monotonic()
                return
        self._queue.add_at(tenant, monotonic() + RETRY_SECONDS)

    def _learn(self, tenant: str, versioned: Versioned) -> None:
        """Take over a ledger as it is now; a tenant that waits for a namespace which has left it has its turn."""
        before, after = self.ledgers.pop(tenant, Ledger()), versioned.ledger
        # Log what became of a ledger that cannot be read as a whole.
        for problem in (*after.problems, *map(shown, after.unread)):
            if problem not in (*before.problems, *map(shown, before.unread)):
                log.warning(
                    "TenantUsage %s was edited, and nobody is admitted until it is counted: %s", tenant, problem
                )
        if after.repaired != before.repaired and after.repaired:
            log.warning("TenantUsage %s is counted anew: %s", tenant, after.repaired)
        for key in [key for key, times in after.suspects.items() if times > before.suspects.get(key, 0)]:
            log.warning("tenant %s: pods of %s were admitted and never stored (%d)", tenant, key, after.suspects[key])
        if before.unread and not after.unread:
            log.warning("TenantUsage %s: the lines that could not be read are removed", tenant)
        self._settlement.read(tenant, after if versioned.version else None, monotonic())
        self._versions[tenant] = versioned.version
        if versioned.version:
            self.ledgers[tenant] = after
        else:
            self.settled_at.pop(tenant, None)
        left = {*before.held, *before.joining} - {*after.held, *after.joining}
        self._queue.add(filter(None, map(self._namespaces.tenant, left)))

    async def _write(self, tenant: str, step: Step, versioned: Versioned, *, unlimited: bool) -> bool:
        """Write what the step says; whether that was all for now."""
        if step.ledger is None:
            left = versioned.ledger
            if unlimited and not (left.held or left.joining or left.pending or left.advances):
                await self._store.delete(tenant, versioned.version)
                self._learn(tenant, Versioned(Ledger(), ""))
            return True
        if not versioned.version:
            await self._store.create(tenant)
            return False
        self._learn(tenant, await self._store.write(tenant, step.ledger, versioned.version))
        return not step.ledger.joining and not unlimited

    async def _look(self, tenant: str, ledger: Ledger, step: Step) -> None:
        """Read and list what the step asks for, of the ledger that was read before."""
        if step.newest:
            self._settlement.newest(tenant, ledger.view, await self._api.version(PODS))
        for name in step.get:
            asked_at = monotonic()
            self._settlement.found(tenant, name, await self._store.uid(name), asked_at)
        if step.roll:
            self._settlement.roll(await self._store.all(), monotonic())
        for namespace in step.look:
            asked_at = monotonic()
            pods = await self._api.list(f"/api/v1/namespaces/{namespace}/pods")
            self._settlement.looked(namespace, [raw["metadata"]["uid"] for raw in pods], asked_at)
