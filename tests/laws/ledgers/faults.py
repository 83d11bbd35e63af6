"""Protocols from which one thing is taken away: the world has to notice each."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tests.laws.ledgers import LeakError, OvershootError
from tests.laws.ledgers.world import World
from webhook.core.tenancy.ledger import Ledger
from webhook.core.tenancy.settlement import Settlement, Step
from webhook.core.tenancy.tally import Tally


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


class _Unlooked(Settlement):
    """Lets a namespace in without a look at its pods."""

    def looked(self, namespace: str, uids: Iterable[str], asked: float) -> None:  # noqa: ARG002 - it does not look
        super().looked(namespace, (), asked)


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


def _hasty(me: str, _: float) -> Settlement:
    return Settlement(me, -1)


Making = Callable[[], World]

FAULTS: Final[Mapping[str, tuple[Making, type[AssertionError]]]] = {
    "no compare-and-swap": (partial(World, cas=False), OvershootError),
    "no fence of views": (partial(World, making=_Unfenced), OvershootError),
    "no read before a reservation is dropped": (partial(World, making=_Unread), OvershootError),
    "no grace before a reservation is dropped": (partial(World, making=_hasty), OvershootError),
    "reservations of pods that never came are kept": (partial(World, making=_Forgetful), LeakError),
    "a lost answer is taken for a good one": (partial(World, trusting=True), OvershootError),
    "no look at the pods before a namespace comes in": (partial(World, making=_Unlooked), OvershootError),
    "no grace before a namespace comes in": (partial(World, making=_Calm), OvershootError),
    "no token before a namespace comes in": (partial(World, making=_Tokenless), OvershootError),
}
"""How to make such a world, and what it is caught by."""
