"""`gpu-webhook settle`: counts what the pods of every tenant hold, and writes it into the tenant's ledger.

It also writes what the policies come to: the conditions of each, and what the API server refuses by itself. Here is
when a tenant is settled, and by which reads, lists and compare-and-swaps. `webhook.core.quota.settlement` decides
what may be written, and says why any number of settlers may run, be paused and resumed.

There is no Lease. Two settlers do no harm, as the compare-and-swap and the view of each ledger stop the one that has
seen less; a Lease would only save the second one's work.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Final

from webhook import telemetry
from webhook.cluster import client, ledgers
from webhook.cluster.client import GROUP, Api, ApiError, Follower, Object
from webhook.cluster.policies import ADMISSION_POLICIES, BINDINGS, REGISTRATION, Policies
from webhook.core.forms.document import API_VERSION, UnreadableError
from webhook.core.kube import pod
from webhook.core.kube.quantity import shown
from webhook.core.policy import in_force, membership, unknown_devices, usage
from webhook.core.quota import settlement, stored, tally
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, View, ViewedPod
from webhook.core.registration import configurations
from webhook.core.registration import policies as registration
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy, TenantPolicy
from webhook.files.rule_files import ReloadedRules

PODS: Final = "/api/v1/pods"

RETRY_SECONDS: Final = 0.2
"""Until a settlement is retried that waits for something of which no watch tells."""

TRIES: Final = 50
"""How often a settlement is tried against other writers of the ledger, before the tenant goes back to the queue."""

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

PACE: Final = 4
"""How many times as long as its last settlement took a tenant waits for the next, where no request waits for one: the
slower the API server is, the more writes of a ledger come too late, and pods wait for those of the replicas."""

LONGEST_PAUSE: Final = 2.0

LATER_SECONDS: Final = 1.0
"""Until a settlement is retried that failed."""

AT_ONCE: Final = 8

ROUND_SECONDS: Final = 1.0
"""Between two rounds of writes: settlers of two versions may disagree, and overwrite each other no faster."""

NET_SECONDS: Final = 10.0
"""Between two looks at admission policies: so long an edited one, or an exemption that has ended, may stand. As long
goes by after a failure, as where an older cluster has no such policies."""

Values = dict[telemetry.Labels, float]

log = logging.getLogger(__name__)


class Pods(client.Handler[ViewedPod]):
    """Follows the pods of the cluster into the settler's view: what each of them holds.

    `touched` is told the namespace in which other amounts are held now; None: maybe in all of them.
    """

    def __init__(self, view: View, rules: ReloadedRules, touched: Callable[[str | None], None]) -> None:
        self._view, self._rules, self._touched = view, rules, touched
        self._counter: usage.Counter | None = None

    def keep(self, raw: Object) -> ViewedPod:
        """What the settlement has to know of a pod."""
        metadata, rulebook, amount = raw["metadata"], self._rules.rulebook, tally.NOTHING
        if rulebook is not None and pod.live(raw):
            if self._counter is None or self._counter.rulebook is not rulebook:
                self._counter = usage.Counter(rulebook)
            amount = self._counter.held(raw).tally
        return ViewedPod(metadata["uid"], metadata["namespace"], metadata["name"], amount)

    def listed(self, kept: list[ViewedPod], version: int) -> None:
        """All pods there are."""
        self._view.listed(kept, version)
        self._touched(None)

    def changed(self, kept: ViewedPod, version: int, *, exists: bool) -> None:
        """A pod was added, changed or deleted."""
        before = self._view.held(kept.namespace)
        if exists:
            self._view.saw(kept, version)
        else:
            self._view.lost(kept.uid, version)
        if before != self._view.held(kept.namespace):
            self._touched(kept.namespace)

    def bookmarked(self, version: int) -> None:
        """Nothing more happened up to a version."""
        self._view.reached(version)


class Namespaces:
    """Which tenant's ledger counts which namespace, as the policies say now.

    It tells the settlement which of them may hold pods without reservation.

    quotas   the policies of the tenants that have a quota, by tenant
    wanted   the namespaces that a tenant's ledger is to count
    tenants  the tenant that counts a namespace
    """

    def __init__(self, settlement: Settlement, grace: float) -> None:
        self._settlement, self._grace = settlement, grace
        self.quotas: dict[str, TenantPolicy] = {}
        self.wanted: dict[str, set[str]] = {}
        self.tenants: dict[str, str] = {}
        self._known: set[str] = set()
        self._changed_at = monotonic()

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
        before = {name: (policy.quota, self.wanted[name]) for name, policy in self.quotas.items()}
        self.quotas = {policy.name: policy for policy in tenancy.policies if policy.quota is not None}
        wanted: dict[str, set[str]] = {name: set() for name in self.quotas}
        self.tenants = {}
        for namespace in tenancy.labels:
            owners = None if namespace in exempt else membership.member(namespace, tenancy)
            tenant = None
            if owners and owners.policy:
                tenant = owners.policy.name if owners.policy.name in wanted else None
            elif owners:  # of several policies that claim it, the one that counts it goes on
                counting = (name for name in (rival.name for rival in owners.rivals) if name in wanted)
                tenant = next((name for name in counting if namespace in self.wanted.get(name, ())), None)
            if tenant is None:
                self._settlement.open(namespace, monotonic())
            else:
                self.tenants[namespace] = tenant
                wanted[tenant].add(namespace)
        self.wanted = wanted
        after = {name: (policy.quota, wanted[name]) for name, policy in self.quotas.items()}
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


class WorkQueue:
    """Names that are due now or later, each once, as controllers of Kubernetes have it.

    Belongs to one event loop; times are of the monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self._stirred = asyncio.Event()

    def add(self, names: Iterable[str], at: float = -inf) -> None:
        """Make names due at a time, if they are not before. By default it is now, and `wait` ends at once."""
        earlier = dict.fromkeys((name for name in names if at < self._times.get(name, inf)), at)
        self._times |= earlier
        if earlier or at == -inf:
            self._stirred.set()

    def soon(self, name: str) -> None:
        """Make a name due in SOON_SECONDS, or later where its last turn took long."""
        self.add([name], monotonic() + self._pauses.get(name, SOON_SECONDS))

    def took(self, name: str, seconds: float) -> None:
        """Take note of how long a turn took."""
        self._pauses[name] = min(max(SOON_SECONDS, PACE * seconds), LONGEST_PAUSE)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a name is added or due; with `seconds`, until one is added or they are over."""
        soonest = min(self._times.values(), default=None)
        if seconds is None and soonest is not None:
            seconds = max(0.0, soonest - monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), seconds)

    def due(self) -> list[str]:
        """Take out all that are due."""
        now = monotonic()
        due = sorted(name for name, at in self._times.items() if at <= now)
        for name in due:
            del self._times[name]
        self._stirred.clear()
        return due


class Settler:
    """One settler: what it follows, which tenants have something to settle, and their turns.

    tenancy     what policies and exemptions say, as they were last sorted
    ledgers     as they were last read or written, by tenant
    settled_at  when each was last settled (monotonic)
    conflicts   how many writes came too late
    registers   whether it writes what of the webhook configurations depends on rules
    """

    def __init__(self, cluster: Api, rules: ReloadedRules, grace: float = settlement.GRACE) -> None:
        self.settlement = Settlement(secrets.token_hex(8), grace)
        self.tenancy = Tenancy()
        self.ledgers: dict[str, Ledger] = {}
        self.settled_at: dict[str, float] = {}
        self.conflicts = 0
        self.registers = False
        self._api, self._store, self._rules = cluster, ledgers.TenantUsages(cluster), rules
        self._versions: dict[str, str] = {}
        self._queue = WorkQueue()
        self._namespaces = Namespaces(self.settlement, grace)
        self._pods = Follower(cluster, [PODS], Pods(self.settlement.view, rules, self._touch), WATCH_SECONDS)
        self._ahead_since: dict[tuple[str, int], float] = {}
        self._listed_at = -inf
        self._policies = Policies(cluster, self._policy_changed)
        self._conditions: list[tuple[Object, list[in_force.Condition]]] = []
        self._in_force: Rulebook
        self._status_due, self._net_due = asyncio.Event(), asyncio.Event()
        self._usages = client.Collection(self._usage_changed)
        self._usages_follower = Follower(cluster, [ledgers.COLLECTION], self._usages)
        self._started = monotonic()
        self._net_at = self._started
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._outdated, self._sorted = True, False

    async def run(self) -> None:
        """Settle until cancelled."""
        following = (self._policies.run(), self._usages_follower.run(), self._follow_pods())
        async with asyncio.TaskGroup() as tasks:
            for task in (*following, self._write_conditions(), self._write_net(), self._turns()):
                tasks.create_task(task)

    # What happens

    async def _follow_pods(self) -> None:
        """Follow the pods once there are rules to count by; all of them anew when those change, or we lag behind."""
        while self._rules.rulebook is None:
            self._rules.refresh()
            await asyncio.sleep(PAUSE_SECONDS)
        while True:
            following = asyncio.create_task(self._pods.run())
            while not (self._rules.refresh() or self._is_behind()):
                await asyncio.wait([following], timeout=LOOK_SECONDS)
                if following.done():
                    following.result()  # it ends by a fault of ours only, and with it this program
            self._outdated = True
            following.cancel()

    def _is_behind(self) -> bool:
        """Whether pods are to be listed anew: the view of a ledger is later than ours, as its settler saw more.

        One and the same view has to be ahead for a while. While pods are listed because of it, they are not again.
        """
        now, view = monotonic(), self.settlement.view.version
        ahead = {
            (tenant, ledger.view): LOOK_SECONDS if ledger.recount > ledger.recounted else CALM_SECONDS
            for tenant, ledger in self.ledgers.items()
            if ledger.view > view
        }
        self._ahead_since = {lag: self._ahead_since.get(lag, now) for lag in ahead}
        waited = any(now - self._ahead_since[lag] >= patience for lag, patience in ahead.items())
        if not waited or self._pods.as_of < self._listed_at:
            return False
        self._listed_at, self._ahead_since = now, {}
        return True

    def _touch(self, namespace: str | None) -> None:
        """Pods hold something else in a namespace; None: maybe in all of them."""
        if namespace is None:
            self._queue.add([*self._namespaces.quotas, *self._usages.objects])
        elif tenant := self._namespaces.tenants.get(namespace):
            self._queue.soon(tenant)

    def _policy_changed(self, kind: str, name: str) -> None:
        if kind == "TenantPolicy":
            self._namespaces.policy_changed()
        if kind == "Namespace":
            namespaces = self._policies.namespaces
            exists, listing = name in namespaces.objects, namespaces.listing
            self._namespaces.namespace_changed(name, exists=exists, listing=listing)
        self._outdated = True
        self._queue.add(())

    def _usage_changed(self, tenant: str) -> None:
        """A ledger was written; by another program, unless it is as it was read or written here last."""
        raw = self._usages.objects.get(tenant)
        if raw is not None and self._versions.get(tenant) == str(raw["metadata"]["resourceVersion"]):
            return
        status = (raw or {}).get("status") or {}
        if unknown := stored.unknown(status):
            log.warning("TenantUsage %s has what nothing here reads, and loses it: %s", tenant, ", ".join(unknown))
        # A request that would be refused waits for the settlement, or a namespace, or the ledger is new or gone.
        if status.get("recount") != status.get("recounted") or status.get("joining") or not status.get("view"):
            self._queue.add([tenant])
        else:
            self._queue.soon(tenant)

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
                    self._queue.add([tenant], monotonic() + PAUSE_SECONDS)
                else:
                    self._settling[tenant] = asyncio.create_task(self._turn(tenant, turns))

    def _sort(self) -> None:
        """Find out anew which namespaces belong to which tenant, and what the policies come to."""
        rulebook = self._rules.rulebook
        if rulebook is None or self._policies.unknown:
            return
        self.tenancy = self._policies.tenancy(rulebook)
        self._in_force = replace(rulebook, tenancy=self.tenancy)
        ties = in_force.ties(self.tenancy, rulebook.cluster.system_namespaces)
        strict = unknown_devices.refused_by_default(self.tenancy, rulebook.cluster)
        policies, self._conditions = self._policies.policies, []
        for name, policy in policies.objects.items():
            problems, taken = policies.problems.get(name, ()), name in self._policies.taken
            conditions = in_force.conditions_of(problems, ties.get(name), taken=taken, strict=name in strict)
            self._conditions.append((policy, conditions))
        self._status_due.set()
        self._net_due.set()
        self._queue.add(self._namespaces.sort(self.tenancy, rulebook.cluster.system_namespaces))
        if not self._sorted:
            self._touch(None)
        self._outdated, self._sorted = False, True

    async def _turn(self, tenant: str, turns: asyncio.Semaphore) -> None:
        try:
            async with turns:
                # Where no readable policy was ever seen the limit is in the ledger, and nowhere else.
                if tenant not in self._policies.policies.instead:
                    began = monotonic()
                    await self._settle(tenant)
                    self._queue.took(tenant, monotonic() - began)
        except ApiError as error:
            log.warning("%s is settled later: %s", tenant, error)
            self._queue.add([tenant], monotonic() + LATER_SECONDS)
        except Exception:
            log.exception("%s cannot be settled, the others go on: a fault of this program", tenant)
            self._queue.add([tenant], monotonic() + LATER_SECONDS)
        finally:
            del self._settling[tenant]

    async def _settle(self, tenant: str) -> None:
        """Take steps until there is none to take; raises ApiError."""
        looked: set[str] = set()
        for _ in range(TRIES):
            versioned = await self._store.read(tenant)
            self._learn(tenant, versioned)
            policy, ledger = self._namespaces.quotas.get(tenant), versioned.ledger
            if policy is None and not versioned.version:
                return
            hard = policy.quota.hard if policy and policy.quota else tally.NOTHING
            step = self.settlement.step(tenant, hard, self._namespaces.wanted.get(tenant, ()), monotonic())
            if step.wake is not None:
                self._queue.add([tenant], step.wake)
            if step.get or step.roll or step.newest or step.look - looked:
                looked |= step.look
                await self._look(tenant, ledger.view, step)
                continue
            if step.look:
                self._queue.add([tenant], monotonic() + RETRY_SECONDS)
            try:
                if step.ledger is None:
                    if policy is None and not (ledger.held or ledger.joining or ledger.pending or ledger.advances):
                        await self._store.delete(tenant, versioned.version)
                        self._learn(tenant, ledgers.Versioned(Ledger(), ""))
                elif not versioned.version:
                    await self._store.create(tenant)
                    continue
                else:
                    self._learn(tenant, await self._store.write(tenant, step.ledger, versioned.version))
                    if step.ledger.joining or policy is None:
                        continue
            except client.ConflictError:
                self.conflicts += 1
                continue
            self.settled_at[tenant] = monotonic()
            return
        self._queue.add([tenant], monotonic() + RETRY_SECONDS)

    def _learn(self, tenant: str, versioned: ledgers.Versioned) -> None:
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
        self.settlement.read(tenant, after if versioned.version else None, monotonic())
        self._versions[tenant] = versioned.version
        if versioned.version:
            self.ledgers[tenant] = after
        else:
            self.settled_at.pop(tenant, None)
        left = {*before.held, *before.joining} - {*after.held, *after.joining}
        self._queue.add(filter(None, map(self._namespaces.tenants.get, left)))

    async def _look(self, tenant: str, view: int, step: settlement.Step) -> None:
        """Read and list what a step asks for; `view`: of the ledger that was read before."""
        if step.newest:
            self.settlement.newest(tenant, view, await self._api.version(PODS))
        for name in step.get:
            began = monotonic()
            self.settlement.found(tenant, name, await self._store.uid(name), began)
        if step.roll:
            self.settlement.roll(await self._store.all(), monotonic())
        for namespace in step.look:
            began = monotonic()
            listed = [raw["metadata"] for raw in await self._api.list(f"/api/v1/namespaces/{namespace}/pods")]
            pods = [(metadata["uid"], int(metadata["resourceVersion"])) for metadata in listed]
            self.settlement.looked(namespace, pods, began)

    # What is written beside ledgers

    async def _write_conditions(self) -> None:
        """Keep in the status of every TenantPolicy whether it is in force, as its author looks there first."""
        while True:
            await self._status_due.wait()
            self._status_due.clear()
            for policy, conditions in self._conditions:
                before, now = policy.get("status") or {}, client.timestamp()
                status = in_force.status(conditions, policy["metadata"]["generation"], before, now)
                if status is None:
                    continue
                metadata = {key: policy["metadata"][key] for key in ("name", "resourceVersion")}
                written = {"apiVersion": API_VERSION, "kind": "TenantPolicy", "metadata": metadata, "status": status}
                try:
                    await self._api.replace(f"{GROUP}/tenantpolicies/{metadata['name']}/status", written)
                except (client.MissingError, client.ConflictError):
                    continue  # it has changed, and the follower will tell
                except ApiError as error:
                    log.warning("conditions are written later: %s", error)
                    self._status_due.set()
            await asyncio.sleep(ROUND_SECONDS)

    async def _write_net(self) -> None:
        """Keep what the API server refuses by itself in step with rules and TenantPolicies.

        The manifests have admission policies without their expressions, and their bindings. Filled in, they refuse a
        pod that reaches a device without asking, whether a replica answers or not. So are webhooks (`registers`).
        """
        await self._net_due.wait()
        while True:
            self._net_due.clear()
            try:
                for name, policy, binding in registration.filled_in(self._in_force, time()):
                    for path, wanted in ((f"{ADMISSION_POLICIES}/{name}", policy), (f"{BINDINGS}/{name}", binding)):
                        there = await self._api.get(path)
                        if not wanted.items() <= there["spec"].items():
                            await self._api.replace(path, {**there, "spec": {**there["spec"], **wanted}})
                            log.info("%s is what rules and policies say", path)
                for kind in ("mutating", "validating") if self.registers else ():
                    path = f"{REGISTRATION}/{kind}webhookconfigurations/{configurations.NAME}"
                    there = await self._api.get(path)
                    registered = configurations.filled_in(there, self._in_force)
                    if registered != there:
                        await self._api.replace(path, registered)
                        log.info("%s is what rules say", path)
                self._net_at = monotonic()
            except UnreadableError as error:
                log.warning("what the API server refuses by itself is written later: %s", error)
            await asyncio.sleep(ROUND_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._net_due.wait(), NET_SECONDS)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close: `/metrics` for Prometheus, `/healthz` for the kubelet."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            line = (await asyncio.wait_for(reader.readline(), READ_SECONDS))[:LINE_BYTES]
            # The time up to which everything was heard of pods, or this was started.
            silent = monotonic() - max(self._pods.as_of, self._started)
            status, body = "200 OK", b"ok\n"
            if line.startswith(b"GET /metrics "):
                body = telemetry.page(self._metrics(silent))
            elif not line.startswith(b"GET /healthz "):
                status, body = "404 Not Found", b"there are /metrics and /healthz\n"
            elif silent > STALLED_SECONDS:
                status, body = "503 Service Unavailable", b"nothing was heard of pods for too long\n"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    def _metrics(self, silent: float) -> Iterator[str]:
        family, rulebook, now = telemetry.family, self._rules.rulebook, monotonic()
        used: Values = {}
        hard: Values = {}
        pending: Values = {}
        for tenant, ledger in self.ledgers.items():
            used |= {(tenant, key): float(amount) for key, amount in ledger.used.items()}
            hard |= {(tenant, key): float(amount) for key, amount in ledger.hard.items()}
            pending[(tenant,)] = len(ledger.pending)
        age: Values = {(tenant,): round(now - at, 3) for tenant, at in self.settled_at.items()}
        left: Values = {(exemption.name,): round(exemption.expires - time()) for exemption in self.tenancy.exemptions}
        wrong: Values = {
            (policy["metadata"]["name"], condition.reason): 1
            for policy, conditions in self._conditions
            for condition in conditions
            if (condition.type, condition.status) in in_force.NOT_IN_FORCE
        }
        net: Values = {(): round(now - self._net_at, 3)}
        labels = ("tenant", "what")
        yield from family("tenant_used", "What a tenant uses: devices, or bytes of memory.", labels, used)
        yield from family("tenant_hard", "What a tenant may use at most.", labels, hard)
        yield from family("tenant_pending", "Reservations of pods not yet seen.", ("tenant",), pending)
        yield from family("settled_seconds_ago", "Since a tenant was last settled.", ("tenant",), age)
        yield from family("exemption_seconds_left", "Until an exemption expires.", ("exemption",), left)
        yield from family("settle_age_seconds", "How old what was heard of pods may be.", (), {(): round(silent, 3)})
        yield from family("policies_not_in_force", "1: not as it is written.", ("policy", "reason"), wrong)
        yield from family("net_age_seconds", "Since admission policies were last as rules say.", (), net)
        yield from family("pods_seen", "Pods that are there.", (), {(): len(self.settlement.view)})
        yield from telemetry.rulebook(rulebook.digest if rulebook else "")
        yield from family("settle_conflicts_total", "Writes that came too late.", (), {(): self.conflicts})


def settle(directory: Path, bind: tuple[str, int], grace: float, *, registers: bool, log_level: str) -> int:
    """Settle until told to stop; the exit code. Raises ApiError where there is no cluster."""
    telemetry.configure(log_level)
    rules = ReloadedRules(directory)
    rules.refresh()

    async def program(cluster: Api) -> None:
        settler = Settler(cluster, rules, grace)
        settler.registers = registers
        page = await asyncio.start_server(settler.answer, *bind)
        try:
            await settler.run()
        finally:
            page.close()

    client.run(program)
    return 0
