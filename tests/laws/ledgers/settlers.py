"""Settlers: they watch pods, namespaces and policies, each as late as it likes, and write what they may."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.laws.ledgers import GRACE
from tests.laws.ledgers.network import Call, Network
from tests.laws.ledgers.store import OPEN, Object, Policies, Store
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, Step

Making = Callable[[str, float], Settlement]


@dataclass(slots=True, eq=False)
class Settler:
    """One settler; `skew`: its clock less that of the world. A restart is a new one."""

    name: str
    skew: int
    store: Store
    network: Network
    making: Making = Settlement
    settlement: Settlement = field(init=False)
    read: dict[str, Object | None] = field(default_factory=dict)
    blind: int = 0
    policy: int = 0
    events: int = 0
    changes: int = 0
    namespaces: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.settlement = self.making(self.name, GRACE)
        self.policy = len(self.store.policies) - 1
        self.changes = len(self.store.changes)
        self.namespaces = set(self.store.namespaces)
        self.list_pods()

    @property
    def now(self) -> int:
        return self.store.now + self.skew

    @property
    def policies(self) -> Policies:
        return self.store.policies[self.policy]

    # What it sees

    def list_pods(self) -> None:
        self.settlement.view.listed([pod.seen for pod in self.store.pods.values()], self.store.version)
        self.events = len(self.store.events)

    def catch_up(self) -> None:
        """List the pods if a ledger is of a later view, as nothing else may tell that this settler missed nothing."""
        if any(stored.ledger.view > self.settlement.view.version for stored in self.store.ledgers.values()):
            self.list_pods()

    def watch(self, most: int) -> None:
        """Some more of what happened to pods; a bookmark if that is all."""
        if self.store.now < self.blind:
            return
        view = self.settlement.view
        for event in self.store.events[self.events : self.events + most]:
            if event.gone:
                view.lost(event.pod.uid, event.version)
            else:
                view.saw(event.pod, event.version)
        self.events = min(self.events + most, len(self.store.events))
        if self.events == len(self.store.events) and most > 1:
            view.reached(self.store.version)

    def learn(self) -> None:
        """Hear of one more change of the policies, and one of the namespaces."""
        if self.policy < len(self.store.policies) - 1:
            self.policy += 1
            for namespace, owner in self.policies.owner.items():
                if owner == OPEN:
                    self.settlement.open(namespace, self.now)
        if self.changes < len(self.store.changes):
            namespace, made = self.store.changes[self.changes]
            self.changes += 1
            if made:
                self.namespaces.add(namespace)
                self.settlement.born(namespace, self.now)
            else:
                self.namespaces.discard(namespace)
                self.settlement.open(namespace, self.now)

    def get(self, tenant: str) -> None:
        """Read a ledger; what is done with it may come much later."""
        self.read[tenant] = self.store.get(tenant)
        self._heard(tenant)

    def _heard(self, tenant: str) -> None:
        stored = self.read.get(tenant)
        self.settlement.read(tenant, stored.ledger if stored else None, self.now)

    # What it does

    def step(self, tenant: str) -> None:
        """Send what comes next for a tenant, by the ledger that was read last."""
        stored = self.read.get(tenant)
        if stored is None:
            self.network.send(Call(lambda: self.store.create_ledger(tenant), lambda _: None))
            return
        self._heard(tenant)
        wanted = [
            namespace
            for namespace, owner in self.policies.owner.items()
            if owner == tenant and namespace in self.namespaces
        ]
        step = self.settlement.step(tenant, self.policies.hard[tenant], wanted, self.now)
        if step.ledger is not None:
            self._write(tenant, stored, step.ledger)
        self._ask(tenant, stored.ledger.view, step)

    def _write(self, tenant: str, stored: Object, ledger: Ledger) -> None:
        def done(written: Object | None) -> None:
            if written is not None:
                self.read[tenant] = written
                self._heard(tenant)

        self.network.send(Call(lambda: self.store.put(tenant, ledger, stored.version), done))

    def _ask(self, tenant: str, view: int, step: Step) -> None:
        for name in sorted(step.get):
            self._get_pod(tenant, name, self.now)
        if step.newest:
            done = partial(self.settlement.newest, tenant, view)
            self.network.send(Call(lambda: self.store.version, done))
        if step.roll:
            self.network.send(Call(lambda: dict(self.store.ledgers), self._roll))
        for namespace in sorted(step.look):
            self._look(namespace, self.now)

    def _get_pod(self, tenant: str, name: str, asked: int) -> None:
        done = partial(self.settlement.found, tenant, name, asked=asked)
        self.network.send(Call(partial(self._uid, name), done))

    def _look(self, namespace: str, asked: int) -> None:
        done = partial(self.settlement.looked, namespace, asked=asked)
        self.network.send(Call(partial(self._pods, namespace), done))

    def _roll(self, stored: dict[str, Object]) -> None:
        """The list is as old as its answer took to come: `now` is after it."""
        self.read = dict(stored)
        self.settlement.roll({tenant: each.ledger for tenant, each in stored.items()}, self.now)

    def _uid(self, name: str) -> str | None:
        pod = self.store.pods.get(name)
        return pod.ask.uid if pod else None

    def _pods(self, namespace: str) -> list[tuple[str, int]]:
        return [(pod.ask.uid, pod.changed) for pod in self.store.pods.values() if pod.ask.namespace == namespace]
