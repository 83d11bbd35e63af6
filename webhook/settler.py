"""Counts what every tenant uses, and writes it into the ledgers: `gpu-webhook settle`, a process of its own.

What it may write is decided by `webhook.core.tenancy.settlement`, which also says why any number of these may run, be
paused and resumed. This follows the cluster, and does as it is told: reads, lists, and compare-and-swaps.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from webhook import api, logs, settlerpage
from webhook.api import Api, ApiError, MissingError, Object
from webhook.conditions import Conditions
from webhook.core.tenancy import counting, membership, settlement, tally
from webhook.core.tenancy.ledger import Ledger, names_a_pod
from webhook.core.tenancy.policy import Tenancy, TenantPolicy
from webhook.core.tenancy.settlement import Settlement, Step
from webhook.core.tenancy.tally import Tally
from webhook.core.tenancy.view import Pod
from webhook.follower import Collection, Follower
from webhook.lag import LOOK_SECONDS, Lag
from webhook.policywatch import Policies
from webhook.rulewatch import Rules
from webhook.stores import ConflictError, StoreError, Versioned
from webhook.tenantusages import COLLECTION, UsageObjects
from webhook.workqueue import WorkQueue

PODS: Final = "/api/v1/pods"
WATCH_SECONDS: Final = 20.0
"""How long a watch of pods goes on before it is begun anew: one that is dead is found out, and `as_of` moves."""

PAUSE_SECONDS: Final = 0.05
"""Between something that happened and its settlement: what happens together is settled together."""

SOON_SECONDS: Final = 0.25
"""From a pod that came or went, or a reservation, to its settlement, where nobody waits for one: while pods come one
after the other, their ledger is left to those who reserve in it."""

AGAIN_SECONDS: Final = 0.2
"""Until a settlement is tried again that waits for something which nobody will tell."""

LATER_SECONDS: Final = 1.0
"""Until one is tried again that failed."""

TRIES: Final = 50
"""How often one is tried against others who write the same ledger, before its turn comes again."""

AT_ONCE: Final = 8

log = logging.getLogger(__name__)


class Settler:
    """One settler: what it follows, which tenants have something to settle, and their turns."""

    def __init__(self, cluster: Api, rules: Rules, grace: float = settlement.GRACE) -> None:
        self.settlement = Settlement(secrets.token_hex(8), grace)
        self.ledgers: dict[str, Ledger] = {}
        """As they were last read or written, by tenant."""
        self.settled_at: dict[str, float] = {}
        self.tenancy = Tenancy()
        """What policies and exemptions say, as they were last sorted."""
        self.conflicts = 0
        self._started = monotonic()
        self.pods = Follower(cluster, PODS, _Pods(self), seconds=WATCH_SECONDS)
        self._api, self._rules, self._grace = cluster, rules, grace
        self._store = UsageObjects(cluster)
        self._policies = Policies(cluster, self._policy_changed)
        self._conditions = Conditions(cluster)
        self._usages = Collection(self._usage_changed)
        self._quotas: dict[str, TenantPolicy] = {}
        self._wanted: dict[str, set[str]] = {}
        self._tenants: dict[str, str] = {}
        self._changed_at = monotonic()
        self._known: set[str] = set()
        self._written: dict[str, str] = {}
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._queue = WorkQueue()
        self._lag = Lag(self.ledgers, self.settlement.view, self.pods)
        self._counter: counting.Counter | None = None
        self._outdated, self._sorted = True, False

    async def run(self) -> None:
        """Settle until cancelled."""
        usages = Follower(self._api, COLLECTION, self._usages)
        running = (self._policies.run(), usages.run(), self._conditions.run(), self._count_pods(), self._turns())
        async with asyncio.TaskGroup() as tasks:
            for each in running:
                tasks.create_task(each)

    @property
    def heard_at(self) -> float:
        """The time (monotonic) up to which everything was heard of pods, or this was started."""
        return max(self.pods.as_of, self._started)

    # What happens

    async def _count_pods(self) -> None:
        """Follow the pods once there are rules to count by; all of them anew when those change, or we lag behind."""
        while self._rules.rulebook is None:
            self._rules.refresh()
            await asyncio.sleep(PAUSE_SECONDS)
        while True:
            following = asyncio.create_task(self.pods.run())
            while not (self._rules.refresh() or self._lag.found()):
                await asyncio.wait([following], timeout=LOOK_SECONDS)
                if following.done():
                    following.result()  # it ends by a fault of ours only, and with it this program
            self._outdated = True
            following.cancel()

    def amount(self, found: Object) -> Tally:
        """What a pod holds."""
        rulebook = self._rules.rulebook
        if rulebook is None or not counting.live(found):
            return tally.NOTHING
        if self._counter is None or self._counter.rulebook is not rulebook:
            self._counter = counting.Counter(rulebook)
        return self._counter.held(found).tally

    def touch(self, namespace: str) -> None:
        """What is held in a namespace may be something else."""
        tenant = self._tenants.get(namespace)
        if tenant is not None:
            self._queue.add_at(tenant, monotonic() + SOON_SECONDS)

    def touch_all(self) -> None:
        """What is held anywhere may be."""
        self._queue.add([*self._quotas, *self._usages.objects])

    def _policy_changed(self, kind: str, name: str) -> None:
        if kind == "TenantPolicy":
            self._changed_at = monotonic()
            self.settlement.changed()
        if kind == "Namespace":
            self._namespace_changed(name)
        self._outdated = True
        self._queue.stir()

    def _namespace_changed(self, name: str) -> None:
        """In a new one nobody can have been admitted without a reservation, if policies have long been the same."""
        now = monotonic()
        if name not in self._policies.namespaces.objects:
            self._known.discard(name)
            self.settlement.open(name, now)
        elif name not in self._known:
            self._known.add(name)
            if self._policies.namespaces.listing or now - self._changed_at <= self._grace:
                self.settlement.open(name, now)
            else:
                self.settlement.born(name, now)

    def _usage_changed(self, tenant: str) -> None:
        """A ledger was written; by somebody else, if it is not as we wrote it."""
        found = self._usages.objects.get(tenant)
        if found is not None and self._written.get(tenant) == found["metadata"]["resourceVersion"]:
            return
        if found is None or _urgent(found.get("status") or {}):
            self._queue.add([tenant])
        else:
            self._queue.add_at(tenant, monotonic() + SOON_SECONDS)

    # Turns

    async def _turns(self) -> None:
        """Settle whoever has something to settle; a tenant whose turn takes long keeps no other waiting."""
        turns = asyncio.Semaphore(AT_ONCE)
        while True:
            await self._queue.wait(AGAIN_SECONDS if self._outdated else None)
            await asyncio.sleep(PAUSE_SECONDS)
            if self._outdated:
                self._sort()
            if not self._sorted:
                continue
            for tenant in self._queue.due():
                if tenant in self._taking:
                    self._queue.add_at(tenant, monotonic() + PAUSE_SECONDS)
                else:
                    self._taking[tenant] = asyncio.create_task(self._turn(tenant, turns))

    def _sort(self) -> None:
        """Find out anew which namespaces are whose."""
        rulebook = self._rules.rulebook
        if rulebook is None or self._policies.unknown:
            return
        tenancy = self.tenancy = self._policies.tenancy(rulebook, rulebook.tenancy)
        self._conditions.changed(self._policies, rulebook, tenancy)
        before = {name: (policy.quota, self._wanted[name]) for name, policy in self._quotas.items()}
        self._quotas = {each.name: each for each in tenancy.policies if each.quota is not None}
        exempt = rulebook.cluster.system_namespaces
        owners = {name: None if name in exempt else self._tenant(name, tenancy) for name in tenancy.labels}
        self._wanted = {name: set() for name in self._quotas}
        for namespace, tenant in owners.items():
            if tenant is None:
                self.settlement.open(namespace, monotonic())
            else:
                self._wanted[tenant].add(namespace)
        self._tenants = {namespace: tenant for namespace, tenant in owners.items() if tenant is not None}
        after = {name: (policy.quota, self._wanted[name]) for name, policy in self._quotas.items()}
        self._queue.add(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if not self._sorted:
            self.touch_all()
        self._outdated, self._sorted = False, True

    def _tenant(self, namespace: str, tenancy: Tenancy) -> str | None:
        """Whose quota counts a namespace. While policies are in conflict over it nobody is admitted, and it stays."""
        found = membership.member(namespace, tenancy)
        for policy in (found.policy,) if found.policy else found.rivals:
            if policy.quota is not None and (found.policy or namespace in self._wanted.get(policy.name, ())):
                return policy.name
        return None

    async def _turn(self, tenant: str, turns: asyncio.Semaphore) -> None:
        try:
            async with turns:
                if tenant not in self._policies.broken:  # what it may use then is in its ledger, and nowhere else
                    await self._settle(tenant)
        except (StoreError, ApiError) as error:
            log.warning("%s is settled later: %s", tenant, error)
            self._queue.add_at(tenant, monotonic() + LATER_SECONDS)
        except Exception:
            log.exception("%s cannot be settled, the others go on: a fault of this program", tenant)
            self._queue.add_at(tenant, monotonic() + LATER_SECONDS)
        finally:
            del self._taking[tenant]

    async def _settle(self, tenant: str) -> None:
        """Take steps until there is none to take."""
        seen: set[str] = set()
        for _ in range(TRIES):
            known = await self._read(tenant)
            policy = self._quotas.get(tenant)
            if policy is None and not known.version:
                return
            hard = policy.quota.hard if policy and policy.quota else tally.NOTHING
            step = self.settlement.step(tenant, hard, self._wanted.get(tenant, set()), monotonic())
            if step.wake is not None:
                self._queue.add_at(tenant, step.wake)
            if step.get or step.roll or step.look - seen:
                seen |= step.look
                await self._look(tenant, step)
                continue
            if step.look:
                self._queue.add_at(tenant, monotonic() + AGAIN_SECONDS)
            try:
                done = await self._write(tenant, step, known, unlimited=policy is None)
            except ConflictError:
                self.conflicts += 1
                continue
            if done:
                self.settled_at[tenant] = monotonic()
                return
        self._queue.add_at(tenant, monotonic() + AGAIN_SECONDS)

    async def _read(self, tenant: str) -> Versioned:
        known = await self._store.read(tenant)
        self._learn(tenant, known)
        return known

    def _learn(self, tenant: str, known: Versioned) -> None:
        """Take over a ledger as it is now; whoever waits for a namespace that has left it has his turn."""
        before = self.ledgers.pop(tenant, Ledger())
        self.settlement.read(tenant, known.ledger if known.version else None, monotonic())
        self._written[tenant] = known.version
        if known.version:
            self.ledgers[tenant] = known.ledger
        else:
            self.settled_at.pop(tenant, None)
        left = {*before.held, *before.joining} - {*known.ledger.held, *known.ledger.joining}
        self._queue.add(self._tenants[namespace] for namespace in left if namespace in self._tenants)

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

    async def _look(self, tenant: str, step: Step) -> None:
        """Look at what the step wants looked at."""
        for name in step.get:
            namespace, _, pod = name.partition("/")
            asked = monotonic()
            self.settlement.found(tenant, name, await self._uid(namespace, pod), asked)
        if step.roll:
            self.settlement.roll(await self._store.roll(), monotonic())
        for namespace in step.look:
            asked = monotonic()
            self.settlement.looked(namespace, await self._uids(namespace), asked)

    async def _uid(self, namespace: str, name: str) -> str | None:
        """Whom a name belongs to now; a ledger may hold, by hand, what no pod can be called."""
        if not names_a_pod(namespace, name):
            return None
        try:
            found = await self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except MissingError:
            return None
        return str(found["metadata"]["uid"])

    async def _uids(self, namespace: str) -> list[str]:
        return [
            found["metadata"]["uid"]
            async for page in self._api.pages(f"/api/v1/namespaces/{namespace}/pods")
            for found in page["items"] or ()
        ]


def _urgent(status: Mapping[str, object]) -> bool:
    """Whether somebody waits for a ledger's settlement: an ask that would be refused, or a namespace."""
    return bool(status.get("recount") != status.get("recounted") or status.get("joining") or not status.get("view"))


class _Pods:
    """Hears of pods, and puts what each holds into the view."""

    def __init__(self, settler: Settler) -> None:
        self._settler = settler

    def keep(self, found: Object) -> Pod:
        """What the settlement has to know of a pod."""
        metadata = found["metadata"]
        return Pod(metadata["uid"], metadata["namespace"], metadata["name"], self._settler.amount(found))

    def listed(self, kept: list[Pod], version: int) -> None:
        """All pods there are."""
        self._settler.settlement.view.listed(kept, version)
        self._settler.touch_all()

    def saw(self, kept: Pod, version: int) -> None:
        """A pod that was added or changed."""
        view = self._settler.settlement.view
        before = view.held(kept.namespace)
        view.saw(kept, version)
        if before != view.held(kept.namespace):
            self._settler.touch(kept.namespace)

    def lost(self, kept: Pod, version: int) -> None:
        """A pod that was deleted."""
        view = self._settler.settlement.view
        before = view.held(kept.namespace)
        view.lost(kept.uid, version)
        if before != view.held(kept.namespace):
            self._settler.touch(kept.namespace)

    def reached(self, version: int) -> None:
        """Nothing more happened up to a version."""
        self._settler.settlement.view.reached(version)


def settle(directory: Path, bind: tuple[str, int], grace: float) -> int:
    """Settle until told to stop; the exit code."""
    logs.configure(logs.Lines(logs.STDOUT), "info")
    rules = Rules(directory)
    rules.refresh()
    try:
        asyncio.run(_settle(rules, bind, grace))
    except asyncio.CancelledError:
        log.info("stopped")
    return 0


async def _settle(rules: Rules, bind: tuple[str, int], grace: float) -> None:
    """Run one settler and the page of its figures; SIGTERM and SIGINT end both."""
    loop = asyncio.get_running_loop()
    me = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: me and me.cancel())
    cluster = await api.connect()
    settler = Settler(cluster, rules, grace)
    page = await asyncio.start_server(partial(settlerpage.answer, settler), *bind)
    try:
        await settler.run()
    finally:
        page.close()
        await cluster.close()
