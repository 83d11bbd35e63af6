"""The API server: pods, namespaces, policies and ledgers, and a check of every state they come to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from tests.laws.ledgers import GRACE, LIMITS, NAMESPACES, TENANTS, OvershootError
from webhook.core.quota import settlement
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.tally import Ask, Tally, plus, total

OPEN = "open"
"""Whose namespaces may be used by everybody, and nobody counts."""


class Policies(NamedTuple):
    """To whom each namespace belongs (nobody: nothing is admitted there), and the limits."""

    owner: Mapping[str, str]
    hard: Mapping[str, Tally]


class Object(NamedTuple):
    """A ledger in the store."""

    ledger: Ledger
    version: int


class Event(NamedTuple):
    """Something that happened to a pod; `amount` is what it holds."""

    version: int
    pod: settlement.ViewedPod
    gone: bool


@dataclass(slots=True)
class Pod:
    """A stored pod.

    written    at which version it came, or came to hold more; `changed`: at which it was last written
    stay       in which stay of its namespace with a tenant it was reserved; None: it never was
    uncounted  no ledger can have known of it before it was seen: no webhook was asked, or one with old policies
    """

    ask: Ask
    written: int
    stay: int | None
    reserved: bool
    uncounted: bool
    over: bool = False
    changed: int = 0

    @property
    def name(self) -> str:
        return f"{self.ask.namespace}/{self.ask.name}"

    @property
    def seen(self) -> settlement.ViewedPod:
        return settlement.ViewedPod(
            self.ask.uid, self.ask.namespace, self.ask.name, {} if self.over else self.ask.amount
        )


@dataclass(slots=True)
class Store:
    """All that is stored. `cas`: writes are refused if somebody else has written meanwhile."""

    cas: bool = True
    now: int = 0
    version: int = 1
    pods: dict[str, Pod] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ledgers: dict[str, Object] = field(default_factory=dict)
    policies: list[Policies] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)
    namespaces: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMESPACES, 0))
    changes: list[tuple[str, bool]] = field(default_factory=list)
    ended: dict[tuple[str, int], int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    stays: dict[tuple[str, str], int] = field(default_factory=dict)
    joined: dict[tuple[str, str], int] = field(default_factory=dict)
    stay_of: dict[str, int] = field(default_factory=dict)
    advanced: dict[str, str] = field(default_factory=dict)
    most: dict[str, Tally] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        owner = dict(zip(NAMESPACES, (*TENANTS, TENANTS[0]), strict=True))
        self.policies.append(Policies(owner, dict.fromkeys(TENANTS, LIMITS[0])))
        self.most = dict.fromkeys(TENANTS, LIMITS[0])

    # Ledgers

    def get(self, tenant: str) -> Object | None:
        return self.ledgers.get(tenant)

    def create_ledger(self, tenant: str) -> Object | None:
        if tenant in self.ledgers:
            return None
        self.version += 1
        self.ledgers[tenant] = Object(Ledger(), self.version)
        return self.ledgers[tenant]

    def delete_ledger(self, tenant: str) -> None:
        if self.ledgers.pop(tenant, None) is not None:
            self.version += 1
            self.stays = {key: stay for key, stay in self.stays.items() if key[0] != tenant}

    def meddle(self, tenant: str, **fields: Any) -> None:
        """Write something else into a ledger."""
        if tenant in self.ledgers:
            self.version += 1
            edited = replace(self.ledgers[tenant].ledger, **fields)
            self.ledgers[tenant] = Object(edited, self.version)

    def put(self, tenant: str, ledger: Ledger, version: int) -> Object | None:
        """Replace a ledger; None: it has another version by now, or is gone."""
        current = self.ledgers.get(tenant)
        if current is None or (self.cas and current.version != version):
            return None
        self.version += 1
        self.ledgers[tenant] = Object(ledger, self.version)
        self._remember(tenant, current.ledger, ledger)
        self.check(tenant)
        return self.ledgers[tenant]

    def _remember(self, tenant: str, before: Ledger, after: Ledger) -> None:
        for namespace in before.held.keys() - after.held.keys():
            self.stays.pop((tenant, namespace), None)
        for namespace in after.joining.keys() - before.joining.keys():
            self.joined[tenant, namespace] = self.now
        for namespace in after.held.keys() - before.held.keys():
            self.count += 1
            self.stays[tenant, namespace] = self.count
            if self._opened(namespace) >= self.joined.get((tenant, namespace), 0):
                self._uncount(namespace)
        if before.recount != before.recounted and after.advances.keys() - before.advances.keys():
            raise OvershootError(f"{tenant}: something is set aside while somebody waits for it")
        self._within_all(tenant, before, after)
        for name, by_uid in after.pending.items():
            stay = self.stays.get((tenant, name.partition("/")[0]))
            for uid in by_uid.keys() - before.pending.get(name, {}).keys():
                self.reserved.setdefault(uid, self.now)
                if stay is not None:
                    self.stay_of[uid] = stay
                if uid not in self.advanced:
                    self._within(tenant, after, by_uid[uid])

    def _opened(self, namespace: str) -> int:
        """When it was open last: a settler that had not heard of it yet may have let it in."""
        ends = [*self.superseded, self.now]
        return max(
            (end for end, each in zip(ends, self.policies, strict=True) if each.owner.get(namespace) == OPEN),
            default=-1,
        )

    def _uncount(self, namespace: str) -> None:
        for pod in self.live([namespace]):
            pod.uncounted = pod.uncounted or not pod.reserved

    def _within_all(self, tenant: str, before: Ledger, after: Ledger) -> None:
        """What was just set aside is within the limit, with everything else."""
        if after.advances.keys() <= before.advances.keys():
            return
        all_in_all = plus(after.used, total(after.advances.values()))
        new = total(after.advances[token] for token in after.advances.keys() - before.advances.keys())
        for key, limit in self._limits(tenant, after):
            if new.get(key) and all_in_all[key] > limit:
                raise OvershootError(f"{tenant}: {all_in_all[key]} {key} are reserved or set aside of {limit}")

    def _within(self, tenant: str, ledger: Ledger, amount: Tally) -> None:
        """What was just reserved is within the limit of the very ledger it stands in, and of some policy."""
        used = ledger.used
        for key, limit in self._limits(tenant, ledger):
            if amount.get(key) and used[key] > limit:
                raise OvershootError(f"{tenant}: {used[key]} {key} are reserved of {limit}")

    def _limits(self, tenant: str, ledger: Ledger) -> Iterable[tuple[str, Fraction]]:
        """Those of a ledger, and the highest of the policies there were."""
        return (*ledger.hard.items(), *self.most[tenant].items())

    def draw(self, tenant: str, ask: Ask, token: str) -> None:
        """A pod is admitted against an advance."""
        self.advanced[ask.uid] = token
        self.reserved.setdefault(ask.uid, self.now)
        stay = self.stays.get((tenant, ask.namespace))
        if stay is not None:
            self.stay_of[ask.uid] = stay

    # Pods

    def create_pod(self, ask: Ask, limit: int, *, reserved: bool, sneaked: bool = False) -> bool:
        """Write a pod that was admitted; not after `limit`, nor if its name is taken.

        One that is `sneaked` in passed no webhook.
        """
        name = f"{ask.namespace}/{ask.name}"
        if self.now > limit or name in self.pods or ask.namespace not in self.namespaces:
            return False
        self.version += 1
        counted = any(ask.namespace in each.ledger.held for each in self.ledgers.values())
        uncounted = sneaked or (counted and not reserved)
        stay = self.stay_of.get(ask.uid) if reserved else None
        self.pods[name] = Pod(ask, self.version, stay, reserved=reserved, uncounted=uncounted, changed=self.version)
        self._happened(self.pods[name])
        return True

    def delete_pod(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.version += 1
        self._happened(pod, gone=True)

    def end_pod(self, name: str) -> None:
        """Let a pod succeed: it holds nothing any more."""
        self.version += 1
        pod = self.pods[name]
        pod.over, pod.changed = True, self.version
        self._happened(pod)

    def grow_pod(self, name: str, amount: Tally) -> None:
        """Let an update make a pod hold more: no webhook minds where nobody counts."""
        self.version += 1
        pod = self.pods[name]
        pod.ask, pod.written, pod.changed = pod.ask._replace(amount=plus(pod.ask.amount, amount)), *[self.version] * 2
        pod.reserved, pod.stay = False, None
        pod.uncounted = pod.uncounted or any(pod.ask.namespace in each.ledger.held for each in self.ledgers.values())
        self._happened(pod)

    def _happened(self, pod: Pod, *, gone: bool = False) -> None:
        self.events.append(Event(self.version, pod.seen, gone))
        for tenant, stored in self.ledgers.items():
            if pod.ask.namespace in stored.ledger.held:
                self.check(tenant)

    # Namespaces and policies

    def change(self, policies: Policies) -> None:
        self.superseded.append(self.now)
        self.policies.append(policies)
        for tenant, most in self.most.items():
            hard = policies.hard[tenant].items()
            self.most[tenant] = {key: max(most[key], limit) for key, limit in hard if key in most}

    def flip_namespace(self, namespace: str) -> None:
        """Delete a namespace and its pods, or make it again."""
        if namespace in self.namespaces:
            for name in [name for name, pod in self.pods.items() if pod.ask.namespace == namespace]:
                self.delete_pod(name)
            self.ended[namespace, self.namespaces.pop(namespace)] = self.now
            self.changes.append((namespace, False))
            return
        self.count += 1
        self.namespaces[namespace] = self.count
        self.changes.append((namespace, True))

    def bound(self, namespace: str, made: int | None) -> int:
        """Until when a create can be written that was begun in a namespace made then."""
        if made is None or self.namespaces.get(namespace) == made:
            return self.now + GRACE
        return self.ended[namespace, made] + GRACE

    # What must be true

    def live(self, namespaces: Iterable[str]) -> list[Pod]:
        wanted = set(namespaces)
        return [pod for pod in self.pods.values() if not pod.over and pod.ask.namespace in wanted]

    def check(self, tenant: str) -> None:
        """Every live pod is held, pending or part of an advance, and those that were reserved here fit the limit."""
        ledger = self.ledgers[tenant].ledger
        live = [pod for pod in self.live(ledger.held) if not pod.uncounted]
        for pod in live:
            reserved = pod.ask.uid in ledger.pending.get(pod.name, ())
            if pod.written > ledger.view and not reserved and self.advanced.get(pod.ask.uid) not in ledger.advances:
                raise OvershootError(f"{tenant}: {pod.name} is live at {pod.written}, and not in {ledger}")
        _at_most(tenant, live, plus(ledger.used, total(ledger.advances.values())))
        here = [pod for pod in live if pod.stay == self.stays.get((tenant, pod.ask.namespace))]
        most = self.most[tenant]
        _at_most(tenant, here, {key: most.get(key, amount) for key, amount in total(_amounts(here)).items()})


def _at_most(tenant: str, pods: Iterable[Pod], limit: Tally) -> None:
    for key, amount in total(_amounts(pods)).items():
        if amount > limit.get(key, 0):
            raise OvershootError(f"{tenant}: {amount} {key} are live, and no more than {limit} were known")


def _amounts(pods: Iterable[Pod]) -> Iterable[Tally]:
    return (pod.ask.amount for pod in pods)
