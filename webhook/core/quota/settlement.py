"""What one settler knows, and what it may therefore write into the ledgers.

A settler watches all pods and all ledgers. It may see changes late, it may be paused and resumed, and two may run at
once. None of that lets a ledger count too little: every write is a compare-and-swap, and a settler's view only grows.
A settler has one monotonic clock, in seconds. `grace` is longer than any create can take, from its reservation or its
escrow until the pod is in etcd.

A ledger that somebody edited is written anew, as only its reservations and escrows are known to nobody else. A line
of these that cannot be read is treated as an escrow of unknown size: nothing is reserved beside it.

The view in a ledger is a fence: a settler that has seen less must not write. A view that no settler can have written
is none. Every settler's view is the version of a list or an event of pods that it got before it wrote. Versions only
grow, and a consistent list has the present one. So if a list that was requested after the view was read has a lower
version, somebody edited the view, or the object is of another etcd or of a time after the backup that etcd was
restored from. A view that settlers wrote before it is at most the version of that list too. So a settler may write as
soon as it has seen as much as the list, and a compare-and-swap finds that nobody wrote since.

A namespace is counted in one ledger at most. It leaves a ledger in one step, and joins another in four:

    out     a settler that finds it belongs elsewhere writes the ledger without it. The ledger must have no escrow
            then, so that every admitted pod has a reservation; these stay until the settler sees the pods
    joining a settler writes it into the ledger that is to count it, with a token that is never used twice
    clear   a consistent list of all ledgers, requested after that, shows it in no other ledger. No other settler lets
            it in while the token is there, as that takes the same list. From now on the settler waits for `grace`,
            unless no pod can have been admitted in the namespace before
    looked  the view has seen every pod of a consistent list, requested after that, as it is there or later: where
            nobody counts, an update may make a pod hold more than it did when it was seen first
    in      the ledger is written with what the view says of it, if the token is still there

So by then the view has every pod that any other ledger admitted, and every later pod is reserved here.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from webhook.core.kube.quantity import Fraction
from webhook.core.quota.ledger import FORGET, UNKNOWN_VIEW, Ledger, Seen, blamed, settle
from webhook.core.quota.tally import NOTHING, Tally

# The pods of a cluster as one settler has seen them: maybe late, and never going back in time.

MOST_GONE: Final = 20_000
"""How many deleted pods are remembered. The reservation of a forgotten one is dropped after the grace."""


class ViewedPod(NamedTuple):
    """A stored pod. One that has ended (Succeeded, Failed) has an empty amount."""

    uid: str
    namespace: str
    name: str
    amount: Tally


class View:
    """All pods up to one version, and their sums by namespace."""

    def __init__(self) -> None:
        self.version = 0
        self._live: dict[str, ViewedPod] = {}
        self._gone: dict[str, None] = {}
        self._sums: dict[str, dict[str, Fraction]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: object) -> bool:
        """Whether the pod was seen, deleted since or not."""
        return uid in self._live or uid in self._gone

    def has_seen(self, uid: str, version: int) -> bool:
        """Whether the pod was seen as it was at a version, or later."""
        return version <= self.version and uid in self

    def listed(self, pods: Iterable[ViewedPod], version: int) -> None:
        """Take over a consistent list of all pods at a version.

        Versions only grow, so a list older than the view is of an etcd that was restored from a backup: what was seen
        later never was, and the view begins anew.
        """
        if version < self.version:
            self._live, self._gone, self._sums = {}, {}, {}
        listed = {pod.uid: pod for pod in pods}
        for uid in [uid for uid in self._live if uid not in listed]:
            self._drop(uid)
        for pod in listed.values():
            self._put(pod)
        self.version = version

    def saw(self, pod: ViewedPod, version: int) -> None:
        """Take over a pod that was added or changed."""
        if version > self.version:
            self._put(pod)
            self.version = version

    def lost(self, uid: str, version: int) -> None:
        """Take over that a pod was deleted."""
        if version > self.version:
            self._drop(uid)
            self.version = version

    def reached(self, version: int) -> None:
        """Take over that nothing else happened up to a version (a bookmark)."""
        self.version = max(self.version, version)

    def held(self, namespace: str) -> Tally:
        """What the live pods of a namespace hold."""
        return dict(self._sums.get(namespace, NOTHING))

    def _put(self, pod: ViewedPod) -> None:
        before = self._live.get(pod.uid)
        self._live[pod.uid] = pod
        if before is None or before.amount != pod.amount:
            if before is not None:
                self._add(before, -1)
            self._add(pod, 1)

    def _drop(self, uid: str) -> None:
        pod = self._live.pop(uid, None)
        if pod is not None:
            self._add(pod, -1)
        self._gone[uid] = None
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _add(self, pod: ViewedPod, times: int) -> None:
        if not pod.amount:
            return
        sums = self._sums.setdefault(pod.namespace, {})
        for key, amount in pod.amount.items():
            sums[key] = sums.get(key, Fraction(0)) + times * amount
            if not sums[key]:
                del sums[key]
        if not sums:
            del self._sums[pod.namespace]


# What one settler knows, and what it may therefore write into the ledgers.

GRACE: Final = 45.0
"""Seconds. A create ends at most 34 s after its review. The review is answered by policies that are at most 10 s old
(webhook/cluster/policies.py), or from an escrow that is at most 2 s old (escrow.USE_SECONDS)."""


@dataclass(slots=True)
class _Joining:
    """A namespace that joins a ledger: from when on it is clear, and which of its pods the view has not seen."""

    token: str
    clear: float | None = None
    unseen: set[tuple[str, int]] | None = None


@dataclass(slots=True)
class _Tenant:
    """What is known of one ledger.

    first    when each of its reservations and escrows was first seen
    phantoms the reservations that no pod has
    unseen   for each escrow and namespace, the pods that a list found after the escrow's time and the view lacked
    blamed   when each number of a suspect was first seen
    newest   a view in the ledger, and the version of the cluster's pods some time after that view was read
    """

    ledger: Ledger
    first: dict[str, float] = field(default_factory=dict)
    phantoms: set[str] = field(default_factory=set)
    unseen: dict[str, dict[str, set[tuple[str, int]]]] = field(default_factory=dict)
    joining: dict[str, _Joining] = field(default_factory=dict)
    blamed: dict[str, float] = field(default_factory=dict)
    newest: tuple[int, int] = 0, 0


class Step(NamedTuple):
    """What a settler does next for one tenant.

    ledger   write it over the one that was read, by compare-and-swap; None: nothing to write
    get      read the pods of these names (`namespace/name`), for `found`
    roll     list all ledgers, for `roll`
    look     list the pods of these namespaces, for `looked`
    newest   find out the present version of the cluster's pods by a consistent list, for `newest`
    wake     take the next step at this time, if nothing happens before
    """

    ledger: Ledger | None = None
    get: frozenset[str] = frozenset()
    roll: bool = False
    look: frozenset[str] = frozenset()
    newest: bool = False
    wake: float | None = None


class Settlement:
    """What one settler knows. No other settler ever has the name `me`; all times are of the settler's clock."""

    def __init__(self, me: str, grace: float = GRACE) -> None:
        self.view = View()
        self._me = me
        self._grace = grace
        self._tokens = 0
        self._tenants: dict[str, _Tenant] = {}
        self._where: dict[str, set[str]] = {}
        self._calm: set[str] = set()
        self._opened: dict[str, float] = {}

    def read(self, tenant: str, ledger: Ledger | None, now: float) -> None:
        """Take over a ledger as it was read or watched; None: it does not exist."""
        state = self._tenants.pop(tenant, None)
        if state is not None:
            for namespace in {*state.ledger.held, *state.ledger.joining}:
                self._where[namespace].discard(tenant)
        if ledger is None:
            return
        state = state or _Tenant(Ledger())
        before, state.ledger = state.ledger.suspects, ledger
        state.blamed = {
            key: state.blamed[key] if before.get(key) == times else now for key, times in ledger.suspects.items()
        }
        lost = (*ledger.advances, *ledger.unread)
        reserved = (uid for by_uid in ledger.pending.values() for uid in by_uid)
        state.first = {line: state.first.get(line, now) for line in (*reserved, *lost)}
        state.phantoms &= state.first.keys()
        state.unseen = {token: state.unseen.get(token, {}) for token in lost}
        joining = {}
        for namespace, token in ledger.joining.items():
            known = state.joining.get(namespace)
            joining[namespace] = known if known and known.token == token else _Joining(token)
        state.joining = joining
        self._tenants[tenant] = state
        self._calm -= ledger.held.keys()
        for namespace in {*ledger.held, *ledger.joining}:
            self._where.setdefault(namespace, set()).add(tenant)

    def roll(self, ledgers: Mapping[str, Ledger], now: float) -> None:
        """Take over all ledgers of one consistent list; `now` is after its answer."""
        for tenant in [tenant for tenant in self._tenants if tenant not in ledgers]:
            self.read(tenant, None, now)
        for tenant, ledger in ledgers.items():
            self.read(tenant, ledger, now)
        reserved = {name.partition("/")[0] for ledger in ledgers.values() for name in ledger.pending}
        unclear = any(ledger.unread for ledger in ledgers.values())
        for tenant, state in self._tenants.items():
            for namespace, joining in state.joining.items():
                if joining.clear is None and self._where[namespace] == {tenant}:
                    calm = namespace in self._calm and namespace not in reserved and not unclear
                    joining.clear = now if calm else now + self._grace

    def found(self, tenant: str, name: str, uid: str | None, asked: float) -> None:
        """Take over the UID that a consistent read of a pod found; `asked` is before the read was sent."""
        if state := self._tenants.get(tenant):
            for reserved in state.ledger.pending.get(name, ()):
                if reserved != uid and asked - state.first[reserved] > self._grace:
                    state.phantoms.add(reserved)

    def looked(self, namespace: str, pods: Iterable[tuple[str, int]], asked: float) -> None:
        """Take over the pods, by UID and version, of a consistent list of a namespace, sent after `asked`."""
        fresh = {stored for stored in pods if not self.view.has_seen(*stored)}
        for tenant in self._where.get(namespace, ()):
            state = self._tenants[tenant]
            joining = state.joining.get(namespace)
            if joining is not None and joining.clear is not None and asked >= joining.clear:
                joining.unseen = fresh
            for token, unseen in state.unseen.items():
                if asked - state.first[token] > self._grace:
                    unseen[namespace] = fresh

    def newest(self, tenant: str, view: int, version: int) -> None:
        """Take over the version of a consistent list of pods, requested after `view` was read in the ledger."""
        if tenant in self._tenants:
            self._tenants[tenant].newest = view, version

    def born(self, namespace: str, now: float) -> None:
        """Note that a namespace was created: no pod can have been admitted in it, unless the name was in use."""
        if now - self._opened.get(namespace, -inf) > self._grace:
            self._calm.add(namespace)

    def changed(self) -> None:
        """Note that policies changed: pods of a new namespace may have been admitted by the policies before."""
        self._calm.clear()

    def open(self, namespace: str, now: float) -> None:
        """Note that a namespace is gone, or admits pods without reservations: to join a ledger it has to wait."""
        self._calm.discard(namespace)
        self._opened.pop(namespace, None)
        self._opened[namespace] = now
        for oldest, when in list(self._opened.items()):
            if now - when <= self._grace:
                break
            del self._opened[oldest]

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        """The next step for a tenant with the limits `hard`, to which the namespaces `wanted` belong."""
        state = self._tenants.get(tenant)
        if state is None:
            return Step(Ledger(hard=hard, view=self.view.version)) if self.view.version else Step()
        # Names with a reservation whose pod should have been seen by now.
        pending = state.ledger.pending
        missing = {
            uid: state.first[uid] + self._grace
            for by_uid in pending.values()
            for uid in by_uid
            if uid not in state.phantoms and uid not in self.view
        }
        get = frozenset(
            name for name, by_uid in pending.items() if any(now > missing.get(uid, inf) for uid in by_uid)
        )
        wakes = [due for due in missing.values() if now <= due]
        roll, look, ready, joining = self._moves(tenant, state, wanted, now, wakes)
        # The escrows to remove, or the namespaces that have to be listed before.
        expired: set[str] = set()
        for token, unseen in state.unseen.items():
            due = state.first[token] + self._grace
            if now <= due:
                wakes.append(due)
            elif late := [namespace for namespace in state.ledger.held if self._waits(unseen.get(namespace))]:
                look.update(late)
            else:
                expired.add(token)
        # Suspects of whom nothing was heard for long.
        forgiven = frozenset(key for key, heard in state.blamed.items() if now > heard + FORGET * self._grace)
        wakes += [heard + FORGET * self._grace for key, heard in state.blamed.items() if key not in forgiven]
        # The suspects against whom phantoms count: reservations made before the last that counted add nothing.
        guilty = frozenset(
            key
            for name, by_uid in pending.items()
            for uid in by_uid.keys() & state.phantoms
            for key in blamed(state.ledger.suspects, name.partition("/")[0], state.ledger.authors.get(uid, ""))
            if state.first[uid] > state.blamed.get(key, -inf)
        )

        # The ledger, with the newest version instead of a view that no settler can have written.
        ledger = state.ledger
        view, newest = state.newest
        if view == ledger.view and view > newest:
            wrong = f"view: {view} is later than the version of the cluster, {newest}"
            problems = ledger.problems if view == UNKNOWN_VIEW else (*ledger.problems, wrong)
            ledger = replace(ledger, view=newest, problems=problems)

        lent = [*(token for token, amount in ledger.advances.items() if amount), *ledger.unread]
        staying = ledger.held.keys() - set(wanted) if any(line not in expired for line in lent) else set()
        counted = [name for name in (*wanted, *sorted(staying)) if name in ledger.held or name in ready]
        held = {namespace: self.view.held(namespace) for namespace in counted}
        present = {uid for uid in state.first if uid in self.view}
        facts = Seen(self.view.version, held, present, state.phantoms, expired, guilty, forgiven)
        after = settle(ledger, hard, facts)
        if after is not None:
            after = replace(after, joining=joining)
            if staying:  # while a recount is open no replica opens an escrow
                recount = max(ledger.recount, ledger.recounted + 1)
                after = replace(after, recount=recount, recounted=ledger.recounted)
            if state.ledger.view and after == replace(state.ledger, view=after.view):
                after = None
        behind = ledger.view > self.view.version and state.newest[0] != state.ledger.view
        return Step(after, get, roll, frozenset(look), behind, min(wakes, default=None))

    def _moves(
        self, tenant: str, state: _Tenant, wanted: Collection[str], now: float, wakes: list[float]
    ) -> tuple[bool, set[str], set[str], Mapping[str, str]]:
        """Whether to list the ledgers, which namespaces to list, which are ready to join, and which go on joining.

        A namespace begins to join if no other ledger has it.
        """
        roll, look, ready, tokens = False, set[str](), set[str](), dict[str, str]()
        for namespace in (namespace for namespace in wanted if namespace not in state.ledger.held):
            joining = state.joining.get(namespace)
            if joining is None:
                if not self._where.get(namespace, set()) - {tenant}:
                    self._tokens += 1
                    tokens[namespace] = f"{self._me}-{self._tokens}"
                continue
            tokens[namespace] = joining.token
            if joining.clear is None:
                roll = True
            elif now < joining.clear:
                wakes.append(joining.clear)
            elif self._waits(joining.unseen):
                look.add(namespace)
            else:
                ready.add(namespace)
                del tokens[namespace]
        return roll, look, ready, tokens

    def _waits(self, unseen: Collection[tuple[str, int]] | None) -> bool:
        """Whether a namespace was not listed yet, or the view lacks a pod of the list, or has an older one."""
        return unseen is None or not all(self.view.has_seen(*stored) for stored in unseen)
