"""The world: everything that can happen next, each with small numbers that say to whom and how."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.laws.ledgers import AMOUNTS, GRACE, LIMITS, NAMES, NAMESPACES, TENANTS, LeakError
from tests.laws.ledgers.network import Network
from tests.laws.ledgers.replicas import Clients, Create, Opening, Replica
from tests.laws.ledgers.settlers import Making, Settler
from tests.laws.ledgers.store import OPEN, Policies, Store
from webhook.core.quota import tally
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import UNKNOWN_VIEW
from webhook.core.quota.settlement import Settlement
from webhook.core.quota.tally import Ask

SKEWS: Final = (0, 1000, 7)


class World:
    """Three replicas and two settlers. Every number is taken modulo how many there are to choose from."""

    def __init__(
        self,
        *,
        making: Making = Settlement,
        opening: Opening = Account,
        cas: bool = True,
        trusting: bool = False,
        believing: bool = False,
    ) -> None:
        self.store = Store(cas=cas)
        self.network = Network()
        self.clients = Clients(self.store)
        self.making = making
        self.opening = opening
        self.trusting = trusting
        self.believing = believing
        self.uids = 0
        self.starts = 0
        self.replicas = [self._replica() for _ in range(3)]
        self.settlers = [self._settler(), self._settler()]
        self.quiet()

    def _settler(self) -> Settler:
        self.starts += 1
        skew = SKEWS[self.starts % len(SKEWS)]
        return Settler(f"settler-{self.starts}", skew, self.store, self.network, self.making)

    def _replica(self) -> Replica:
        self.starts += 1
        name = f"replica-{self.starts}"
        looks = self.starts % 3 == 0
        believes = self.trusting, self.believing
        return Replica(name, self.store, self.network, self.clients, *believes, looks, self.opening)

    # What can happen

    def time(self, one: int, _: int) -> None:
        self.store.now += 1 + one % 3

    def ask(self, one: int, two: int) -> None:
        """Somebody creates a pod; its name may be taken."""
        self._create(self._asked(one, two), self.replicas[(one // 4 + two) % len(self.replicas)], slow=one % 3 == 0)

    def crowd(self, one: int, two: int) -> None:
        """Pods of a namespace come to one replica one after the other; it writes when the first two are there."""
        replica = self.replicas[one % len(self.replicas)]
        for number in range(len(NAMES)):
            self._create(self._asked(one + number, two), replica, slow=one % 3 == 0)
            before = len(self.network.calls)
            if number == 1:
                for tenant in TENANTS:
                    replica.reserve(tenant)
            for call in self.network.calls[before:]:
                self.network.finish(call)

    def attack(self, one: int, two: int) -> None:
        """Somebody creates large pods that are refused after they were admitted, or whose name a pod has."""
        for number in range(3):
            asked = self._asked(one, two + number)._replace(author=f"mallory-{one % 2}", amount=AMOUNTS[2])
            self._create(asked, self.replicas[(two + number) % len(self.replicas)], slow=False, doomed=one % 4 > 0)

    def _create(self, ask: Ask, replica: Replica, *, slow: bool, doomed: bool = False) -> None:
        if ask.namespace in self.store.namespaces:
            create = Create(ask, self.store.namespaces[ask.namespace], slow=slow, doomed=doomed)
            self.clients.creates.append(create)
            replica.review(create)

    def sneak(self, one: int, two: int) -> None:
        """Somebody creates a pod while no webhook is there."""
        self.store.create_pod(self._asked(one, two), self.store.now, reserved=False, sneaked=True)

    def _asked(self, one: int, two: int) -> Ask:
        self.uids += 1
        return Ask(
            namespace=NAMESPACES[two % len(NAMESPACES)],
            name=NAMES[one % len(NAMES)],
            uid=f"uid-{self.uids}",
            author=f"user-{one % 3}",
            amount=AMOUNTS[(one + two) % len(AMOUNTS)],
        )

    def review_again(self, one: int, two: int) -> None:
        """The API server sends a review once more, to another replica."""
        waiting = [create for create in self.clients.creates if not create.admitted]
        if waiting:
            self.replicas[two % len(self.replicas)].review(waiting[one % len(waiting)])

    def reserve(self, one: int, two: int) -> None:
        self.replicas[one % len(self.replicas)].reserve(TENANTS[two % len(TENANTS)])

    def renew(self, one: int, two: int) -> None:
        self.replicas[one % len(self.replicas)].renew(TENANTS[two % len(TENANTS)])

    def kill(self, one: int, _: int) -> None:
        """A replica is killed, with all that it knows and has not answered; another begins."""
        killed = self.replicas[one % len(self.replicas)]
        for call in killed.writing.values():
            call.waiting = False
        self.replicas[one % len(self.replicas)] = self._replica()

    def refresh(self, one: int, two: int) -> None:
        """A replica hears how a ledger is now."""
        tenant = TENANTS[two % len(TENANTS)]
        self.replicas[one % len(self.replicas)].known[tenant] = self.store.get(tenant)

    def answer(self, one: int, two: int) -> None:
        """One of the calls under way is done and answered, or that goes wrong."""
        calls = [call for call in self.network.calls if call.held <= self.store.now]
        if not calls:
            return
        call = calls[one % len(calls)]
        match two % 8:
            case 0:
                self.network.deliver(call)
            case 1:
                self.network.give_up(call)
            case 2:
                self.network.lose(call)
            case 3:
                call.held = max(call.held, self.store.now + one % (3 * GRACE))
            case _:
                self.network.finish(call)

    def write(self, one: int, _: int) -> None:
        """A create ends: it is written, or its name is taken, or it is too late."""
        admitted = [create for create in self.clients.creates if create.admitted and create.begins <= self.store.now]
        if admitted:
            self.clients.write(admitted[one % len(admitted)])

    def drop(self, one: int, _: int) -> None:
        """A create ends otherwise, admitted or not."""
        if self.clients.creates:
            del self.clients.creates[one % len(self.clients.creates)]

    def delete(self, one: int, _: int) -> None:
        if self.store.pods:
            self.store.delete_pod(list(self.store.pods)[one % len(self.store.pods)])

    def end(self, one: int, _: int) -> None:
        if self.store.pods:
            self.store.end_pod(list(self.store.pods)[one % len(self.store.pods)])

    def grow(self, one: int, two: int) -> None:
        """Somebody narrows the nodes of a pod in a namespace that is open to all."""
        owner = self.store.policies[-1].owner
        pods = [name for name, pod in self.store.pods.items() if owner.get(pod.ask.namespace) == OPEN]
        if pods:
            self.store.grow_pod(pods[one % len(pods)], AMOUNTS[two % len(AMOUNTS)])

    def watch(self, one: int, two: int) -> None:
        self.settlers[one % len(self.settlers)].watch(1 + two % 8)

    def stall(self, one: int, two: int) -> None:
        """A settler sees nothing of the pods for a while."""
        self.settlers[one % len(self.settlers)].blind = self.store.now + two % (3 * GRACE)

    def list_pods(self, one: int, _: int) -> None:
        self.settlers[one % len(self.settlers)].list_pods()

    def get(self, one: int, two: int) -> None:
        self.settlers[one % len(self.settlers)].get(TENANTS[two % len(TENANTS)])

    def step(self, one: int, two: int) -> None:
        self.settlers[one % len(self.settlers)].step(TENANTS[two % len(TENANTS)])

    def settle(self, one: int, two: int) -> None:
        """A round as it is when nothing goes wrong, but for what the settler sees of the pods."""
        before = len(self.network.calls)
        self.get(one, two)
        self.step(one, two)
        for call in self.network.calls[before:]:
            self.network.finish(call)

    def restart(self, one: int, _: int) -> None:
        """A settler is killed, and another begins."""
        self.settlers[one % len(self.settlers)] = self._settler()

    def learn(self, one: int, _: int) -> None:
        """Somebody hears of policies and namespaces."""
        everybody: list[Replica | Settler] = [*self.replicas, *self.settlers]
        everybody[one % len(everybody)].learn()

    def limit(self, one: int, two: int) -> None:
        tenant = TENANTS[two % len(TENANTS)]
        latest = self.store.policies[-1]
        self.store.change(latest._replace(hard={**latest.hard, tenant: LIMITS[one % len(LIMITS)]}))

    def move(self, one: int, two: int) -> None:
        """A namespace comes to a tenant, or to nobody, or is open to all."""
        latest = self.store.policies[-1]
        owner = (*TENANTS, *TENANTS, OPEN, None)[one % 6]
        namespace = NAMESPACES[two % len(NAMESPACES)]
        others = {name: whose for name, whose in latest.owner.items() if name != namespace}
        self.store.change(Policies({**others, **({namespace: owner} if owner else {})}, latest.hard))

    def flip_namespace(self, one: int, _: int) -> None:
        self.store.flip_namespace(NAMESPACES[one % len(NAMESPACES)])

    def meddle(self, one: int, two: int) -> None:
        """Somebody edits a ledger: a view that nobody can have seen, or one that cannot be read."""
        view = UNKNOWN_VIEW if two % 2 else self.store.version + 1000 + two
        self.store.meddle(TENANTS[one % len(TENANTS)], view=view)

    def inflate(self, one: int, two: int) -> None:
        """Somebody edits the limits in a ledger: there is more, or none."""
        hard = (
            {} if two % 4 == 0 else {key: limit * (1 + two % 9) for key, limit in LIMITS[two % len(LIMITS)].items()}
        )
        self.store.meddle(TENANTS[one % len(TENANTS)], hard=hard)

    def delete_ledger(self, one: int, _: int) -> None:
        self.store.delete_ledger(TENANTS[one % len(TENANTS)])

    # The end

    def quiet(self) -> None:
        """Let all end that was begun, and a grace and more pass; then nothing may be left, and nothing missing."""
        self.clients.creates.clear()
        for call in list(self.network.calls):
            self.network.finish(call)
        for _ in range(len(self.store.policies) + len(self.store.changes)):
            for one in range(len(self.replicas) + len(self.settlers)):
                self.learn(one, 0)
        for _ in range(16):
            self.store.now += GRACE // 4
            self._rest()
        for tenant in TENANTS:
            self._check_quiet(tenant)

    def _rest(self) -> None:
        """Let everybody do what is left to do, and nothing go wrong."""
        for two in range(len(TENANTS)):
            for one in range(len(self.replicas)):
                self.renew(one, two)
        for call in list(self.network.calls):
            self.network.finish(call)
        for one in range(len(self.settlers)):
            self.settlers[one].watch(len(self.store.events))
            self.settlers[one].catch_up()
            for two in range(len(TENANTS)):
                self.settle(one, two)

    def _check_quiet(self, tenant: str) -> None:
        ledger = self.store.ledgers[tenant].ledger
        policies = self.store.policies[-1]
        here = [name for name in self.store.namespaces if policies.owner.get(name) == tenant]
        held = {name: tally.total(pod.ask.amount for pod in self.store.live([name])) for name in here}
        expected = replace(
            ledger,
            hard=policies.hard[tenant],
            held=held,
            pending={},
            authors={},
            advances={},
            joining={},
            recounted=ledger.recount,
            unread=(),
            problems=(),
        )
        if ledger != expected:
            raise LeakError(f"{tenant}: {ledger} instead of {expected}")


Action = Callable[[World, int, int], None]

WEIGHTS: Final[dict[Action, int]] = {
    World.time: 40,
    World.ask: 80,
    World.crowd: 30,
    World.attack: 4,
    World.review_again: 12,
    World.reserve: 90,
    World.renew: 60,
    World.kill: 2,
    World.refresh: 16,
    World.answer: 240,
    World.write: 70,
    World.drop: 6,
    World.delete: 30,
    World.end: 8,
    World.grow: 8,
    World.watch: 40,
    World.stall: 12,
    World.sneak: 2,
    World.list_pods: 3,
    World.get: 16,
    World.step: 16,
    World.settle: 60,
    World.restart: 3,
    World.learn: 60,
    World.limit: 3,
    World.move: 8,
    World.flip_namespace: 1,
    World.delete_ledger: 1,
    World.meddle: 1,
    World.inflate: 2,
}


def simulate(world: World, seed: int, steps: int) -> None:
    """So many steps at random, and quiet after them; what happens often differs from seed to seed."""
    random = Random(seed)  # noqa: S311 - it has to be the same for everybody
    weights = [weight * random.choice((1, 4, 4, 24)) for weight in WEIGHTS.values()]
    for action in random.choices(list(WEIGHTS), weights, k=steps):
        action(world, random.randrange(1 << 12), random.randrange(1 << 12))
    world.quiet()
