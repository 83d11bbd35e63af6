"""Replicas of the webhook: they judge by policies and ledgers that may be old, and reserve in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tests.laws.ledgers import GRACE, USE, OvershootError
from tests.laws.ledgers.network import Call, Network
from tests.laws.ledgers.store import OPEN, Object, Policies, Store
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Ledger, reserve
from webhook.core.quota.tally import Ask


@dataclass(slots=True, eq=False)
class Create:
    """A pod on its way; `made`: when its namespace was made. Once admitted it can be written until `limit`.

    `slow`: it takes nearly all of that time. `doomed`: it is refused after it was admitted.
    """

    ask: Ask
    made: int
    admitted: bool = False
    reserved: bool = False
    slow: bool = False
    doomed: bool = False
    limit: int = 0

    @property
    def begins(self) -> int:
        """From when on it can be written."""
        return self.limit - 3 if self.slow else 0


@dataclass(slots=True)
class Clients:
    """All creates that are not over."""

    store: Store
    creates: list[Create] = field(default_factory=list)
    admissions: int = 0
    refusals: int = 0

    def admit(self, create: Create, limit: int, *, reserved: bool) -> None:
        self.admissions += 1
        create.admitted, create.reserved = True, reserved
        create.limit = min(limit, self.store.bound(create.ask.namespace, create.made))

    def write(self, create: Create) -> None:
        """Write it, unless it is too late or the name is taken."""
        self.creates.remove(create)
        if not create.doomed:
            self.store.create_pod(create.ask, create.limit, reserved=create.reserved)


Opening = Callable[..., Account]


@dataclass(slots=True, eq=False)
class Replica:
    """One process of the webhook; `name` is one that no other has or had.

    `trusting`: it takes a lost answer for a good one. `believing`: the limits in a ledger are all that it knows.
    `looks`: it refuses a name that a pod has.
    """

    name: str
    store: Store
    network: Network
    clients: Clients
    trusting: bool = False
    believing: bool = False
    looks: bool = False
    opening: Opening = Account
    policy: int = 0
    accounts: dict[str, Account] = field(default_factory=dict)
    known: dict[str, Object | None] = field(default_factory=dict)
    waiting: dict[str, list[Create]] = field(default_factory=dict)
    writing: dict[str, Call] = field(default_factory=dict)

    @property
    def policies(self) -> Policies:
        return self.store.policies[self.policy]

    def learn(self) -> None:
        """Hear of one more change of the policies."""
        self.policy = min(self.policy + 1, len(self.store.policies) - 1)

    def review(self, create: Create) -> None:
        """Judge a create: admit it where nobody counts, or let it wait for a reservation."""
        owner = self.policies.owner.get(create.ask.namespace)
        if owner not in {OPEN, None} and self.looks and create.ask.place in self.store.pods:
            self.clients.creates.remove(create)
        elif owner == OPEN:
            latest = self.policy == len(self.store.policies) - 1
            since = self.store.now if latest else self.store.superseded[self.policy]
            self.clients.admit(create, since + GRACE, reserved=False)
        elif owner is not None and not self._draw(owner, create):
            self.waiting.setdefault(owner, []).append(create)

    def _draw(self, tenant: str, create: Create) -> bool:
        """Admit a create against an advance, if there is one."""
        account = self._account(tenant)
        if create.admitted or not account.draw(self._bounded(tenant, create), self.store.now):
            return False
        self.store.draw(tenant, create.ask, account.present)
        self.clients.admit(create, self.store.now + GRACE - USE, reserved=True)
        return True

    def _bounded(self, tenant: str, create: Create) -> Ask:
        """The ask with the limits of its policy, as far as this replica knows it."""
        return create.ask if self.believing else create.ask._replace(hard=self.policies.hard[tenant])

    def _account(self, tenant: str) -> Account:
        if tenant not in self.accounts:
            self.accounts[tenant] = self.opening(self.name, part=1, least=1, use=USE)
        return self.accounts[tenant]

    def renew(self, tenant: str) -> None:
        """Write down who was admitted against an advance, and set something aside for the next."""
        stored, account = self.store.get(tenant), self._account(tenant)
        if tenant in self.writing or stored is None or not account.is_open:
            return
        account.learn(stored.ledger)
        self.known[tenant] = stored
        after = account.renew(stored.ledger, self.store.now)
        if after is not stored.ledger:
            self._write(tenant, stored, after, ())

    def reserve(self, tenant: str) -> None:
        """Judge everybody who waits by one state of the ledger, written once for all."""
        creates = [create for create in self.waiting.get(tenant, ()) if not create.admitted]
        if tenant in self.writing or not creates:
            return
        known = self.known.get(tenant)
        fresh = known is None
        known = known or self.store.get(tenant)
        if known is None:
            self.waiting.pop(tenant)
            return
        account = self._account(tenant)
        if fresh:
            account.learn(known.ledger)
        asks = [self._bounded(tenant, create) for create in creates]
        after, outcomes = reserve(account.close(known.ledger), asks)
        verdicts = [(create, outcome.verdict) for create, outcome in zip(creates, outcomes, strict=True)]
        yes = [create for create, verdict in verdicts if verdict == "admit"]
        no = [create for create, verdict in verdicts if verdict != "admit"]
        if fresh:
            self._refuse(tenant, no)
        if any(outcome.verdict in ("over", "wait") for outcome in outcomes):
            after = replace(after, recount=after.recount + 1)
        after = account.open(after, [self._bounded(tenant, create) for create in yes], self.store.now)
        if after is known.ledger:
            self._admit(tenant, yes)
            self.known[tenant] = None if no else known
            return
        self._write(tenant, known, after, yes)

    def _write(self, tenant: str, known: Object, after: Ledger, yes: Sequence[Create]) -> None:
        def done(stored: Object | None) -> None:
            self.writing.pop(tenant)
            self.known[tenant] = stored
            if stored is not None:
                self._account(tenant).wrote(after)
                self._admit(tenant, yes)

        def unknown() -> None:
            self.writing.pop(tenant)
            self.known[tenant] = None
            if self.trusting:
                self._account(tenant).wrote(after)
                self._admit(tenant, yes)

        self.writing[tenant] = Call(lambda: self.store.put(tenant, after, known.version), done, unknown)
        self.network.send(self.writing[tenant])

    def _admit(self, tenant: str, creates: Sequence[Create]) -> None:
        for create in creates:
            if create in self.clients.creates and not create.admitted:
                if create.ask.uid not in self.store.reserved:
                    raise OvershootError(f"{create.ask} is admitted, and was never reserved")
                self.clients.admit(create, self.store.reserved[create.ask.uid] + GRACE, reserved=True)
        self.waiting[tenant] = [create for create in self.waiting.get(tenant, ()) if create not in creates]

    def _refuse(self, tenant: str, creates: Sequence[Create]) -> None:
        self.clients.refusals += len(creates)
        self.waiting[tenant] = [create for create in self.waiting[tenant] if create not in creates]
