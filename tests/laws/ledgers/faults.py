"""Protocols from which one thing is taken away: the world has to notice each."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

from tests.laws.ledgers import LeakError, OvershootError
from tests.laws.ledgers.world import World
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, Step
from webhook.core.quota.tally import Ask, Tally


class _Unfenced(Settlement):
    """Writes over a ledger that somebody has settled who has seen more."""

    def read(self, tenant: str, ledger: Ledger | None, now: float) -> None:
        super().read(tenant, ledger and replace(ledger, view=min(ledger.view, 1)), now)


class _Unread(Settlement):
    """Drops a reservation after the grace without a read of the pod."""

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        for name in super().step(tenant, hard, wanted, now).get:
            self.found(tenant, name, None, now)
        return super().step(tenant, hard, wanted, now)


class _Eager(Settlement):
    """Drops a reservation as soon as it finds another pod of the name: that create can only be refused, it thinks."""

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        step = super().step(tenant, hard, wanted, now)
        known = self._tenants.get(tenant)
        return step if known is None else step._replace(get=frozenset(known.ledger.pending))

    def found(self, tenant: str, name: str, uid: str | None, asked: float) -> None:
        known = self._tenants.get(tenant)
        if known is not None and uid is not None:
            known.phantoms |= known.ledger.pending.get(name, {}).keys() - {uid}
        super().found(tenant, name, uid, asked)


class _Careful(_Eager):
    """The same, but only if it finds the other pod for the first time after it has seen the reservation."""

    def __init__(self, me: str, grace: float) -> None:
        super().__init__(me, grace)
        self._found: dict[str, float] = {}

    def found(self, tenant: str, name: str, uid: str | None, asked: float) -> None:
        known = self._tenants.get(tenant)
        there = uid and self._found.setdefault(uid, asked)
        later = there and known and all(known.first[each] < there for each in known.ledger.pending.get(name, ()))
        found = super().found if later else partial(Settlement.found, self)
        found(tenant, name, uid, asked)


class _Forgetful(Settlement):
    """Never drops a reservation whose pod it has not seen."""

    def found(self, tenant: str, name: str, uid: str | None, asked: float) -> None:
        """Nothing was found out."""


class Unlisted(Settlement):
    """Does not ask whether another ledger has a namespace."""

    def roll(self, ledgers: Mapping[str, Ledger], now: float) -> None:
        super().roll({tenant: ledger if ledger.joining else Ledger() for tenant, ledger in ledgers.items()}, now)
        for tenant, ledger in ledgers.items():
            self.read(tenant, ledger, now)

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        self._where = {namespace: tenants & {tenant} for namespace, tenants in self._where.items()}
        step = super().step(tenant, hard, wanted, now)
        for each, known in list(self._tenants.items()):
            self.read(each, known.ledger, now)
        return step


class Unlooked(Settlement):
    """Lets a namespace in without a look at its pods."""

    def looked(self, namespace: str, pods: Iterable[tuple[str, int]], asked: float) -> None:  # noqa: ARG002 - it does not look
        super().looked(namespace, (), asked)


class Nominal(Settlement):
    """Lets a namespace in once it has seen all of its pods, however they were then."""

    def looked(self, namespace: str, pods: Iterable[tuple[str, int]], asked: float) -> None:
        super().looked(namespace, [(uid, 0) for uid, _ in pods], asked)


class _Calm(Settlement):
    """Takes every namespace for one where nothing was admitted before."""

    def roll(self, ledgers: Mapping[str, Ledger], now: float) -> None:
        for ledger in ledgers.values():
            self._calm |= ledger.joining.keys()
        super().roll({tenant: replace(ledger, pending={}) for tenant, ledger in ledgers.items()}, now)


class _Tokenless(Settlement):
    """Lets a namespace in that nobody else has, with no regard to who else is about to."""

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        step = super().step(tenant, hard, wanted, now)
        if step.ledger is None:
            return step
        held = {**{namespace: self.view.held(namespace) for namespace in step.ledger.joining}, **step.ledger.held}
        return step._replace(ledger=replace(step.ledger, held=held, joining={}))


class _Blind(Settlement):
    """Takes an advance away after the grace, whether or not it has seen the pods of it."""

    def _waits(self, unseen: Collection[tuple[str, int]] | None) -> bool:  # noqa: ARG002 - it does not look
        return False


class _Hoarding(Settlement):
    """Never takes an advance away."""

    def step(self, tenant: str, hard: Tally, wanted: Collection[str], now: float) -> Step:
        if tenant in self._tenants:
            self._tenants[tenant].unseen = {}
        return super().step(tenant, hard, wanted, now)


class _Lasting(Account):
    """Draws from an advance for as long as it likes."""

    def __init__(self, me: str, **options: Any) -> None:
        super().__init__(me, **{**options, "use": inf})


class _Greedy(Account):
    """Goes on drawing from an advance that is being closed."""

    def close(self, ledger: Ledger) -> Ledger:
        usable = self._usable
        closed = super().close(ledger)
        self._usable = usable
        return closed


class _Generous(Account):
    """Draws more from an advance than was set aside."""

    def draw(self, ask: Ask, now: float) -> bool:
        return super().draw(ask._replace(amount={}), now)


class _Careless(Account):
    """Forgets for whom it has drawn."""

    def _closed(self, ledger: Ledger) -> Ledger:
        return replace(super()._closed(ledger), pending=ledger.pending)


class _Unasked(Account):
    """Sets something aside while somebody waits for a count."""

    def open(self, ledger: Ledger, admitted: Iterable[Ask], now: float) -> Ledger:
        opened = super().open(replace(ledger, recounted=ledger.recount), admitted, now)
        return replace(opened, recounted=ledger.recounted)


class _Gullible(Account):
    """Sets aside as much as the ledger says there is."""

    def open(self, ledger: Ledger, admitted: Iterable[Ask], now: float) -> Ledger:
        self._recent = deque([(when, ask._replace(hard={})) for when, ask in self._recent], self._recent.maxlen)
        return super().open(ledger, [ask._replace(hard={}) for ask in admitted], now)

    def draw(self, ask: Ask, now: float) -> bool:
        return super().draw(ask._replace(hard={}), now)


def _hasty(me: str, _: float) -> Settlement:
    return Settlement(me, -1)


Making = Callable[[], World]

FAULTS: Final[Mapping[str, tuple[Making, type[AssertionError]]]] = {
    "no compare-and-swap": (partial(World, cas=False), OvershootError),
    "no fence of views": (partial(World, making=_Unfenced), OvershootError),
    "no read before a reservation is dropped": (partial(World, making=_Unread), OvershootError),
    "no grace before a reservation is dropped": (partial(World, making=_hasty), OvershootError),
    "a reservation is dropped as soon as another pod has the name": (partial(World, making=_Eager), OvershootError),
    "a reservation is dropped as soon as a later pod has the name": (partial(World, making=_Careful), OvershootError),
    "reservations of pods that never came are kept": (partial(World, making=_Forgetful), LeakError),
    "a lost answer is taken for a good one": (partial(World, trusting=True), OvershootError),
    "no look at the pods before a namespace comes in": (partial(World, making=Unlooked), OvershootError),
    "no grace before a namespace comes in": (partial(World, making=_Calm), OvershootError),
    "no look at the pods of an advance before it is taken away": (partial(World, making=_Blind), OvershootError),
    "advances of replicas that died are kept": (partial(World, making=_Hoarding), LeakError),
    "an advance is used for good": (partial(World, opening=_Lasting), OvershootError),
    "an advance is used while it is being closed": (partial(World, opening=_Greedy), OvershootError),
    "more is used of an advance than there is": (partial(World, opening=_Generous), OvershootError),
    "nobody is reserved for when an advance is closed": (partial(World, opening=_Careless), OvershootError),
    "something is set aside while somebody waits": (partial(World, opening=_Unasked), OvershootError),
    "limits are taken from the ledger": (partial(World, believing=True), OvershootError),
    "limits of an advance are taken from the ledger": (partial(World, opening=_Gullible), OvershootError),
    "no token before a namespace comes in": (partial(World, making=_Tokenless), OvershootError),
}
"""How to make such a world, and what it is caught by."""
