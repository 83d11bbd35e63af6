"""Who answers whether a pod is within its quota, once it was judged and before it is admitted.

    Reserving   what `lane` asks
    Offline     without a cluster: ledgers in memory, and nobody tells them when a pod is gone

In a cluster it is `webhook.desk`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from webhook.core.tenancy import ledger as ledgers
from webhook.core.tenancy.ledger import Ask, Ledger, Outcome
from webhook.core.tenancy.tally import Tally


class Answered(NamedTuple):
    """What becomes of an ask, and the ledger that says so."""

    outcome: Outcome
    ledger: Ledger


class Reserving(Protocol):
    """Whoever answers asks."""

    def draw(self, tenant: str, ask: Ask) -> Answered | None:
        """Answer an ask of a tenant at once, if that can be; not an ask that is a dry run."""

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer an ask of a tenant before `deadline` (of the monotonic clock)."""

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer what would become of an ask, and write nothing."""

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that are known here, by tenant."""


class Offline:
    """Reserves in memory, for whoever tries the server without a cluster: what was admitted once counts for good."""

    def __init__(self, limits: Callable[[str], Tally]) -> None:
        self._limits = limits
        self._ledgers: dict[str, Ledger] = {}

    def draw(self, tenant: str, ask: Ask) -> Answered | None:  # noqa: ARG002 - what has no price needs no advance
        """Answer an ask of a tenant by `reserve` only."""
        return None

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Answer an ask of a tenant."""
        answered = await self.look(tenant, ask, deadline)
        self._ledgers[tenant] = answered.ledger
        return answered

    async def look(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - nobody has to wait
        """Answer what would become of an ask, by the ledger as it would be then."""
        before = self._ledgers.get(tenant, Ledger(view=1))
        known = replace(before, hard=self._limits(tenant), held={ask.namespace: {}, **before.held})
        after, [outcome] = ledgers.reserve(known, [ask])
        return Answered(outcome, after)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers, by tenant."""
        return iter(self._ledgers.items())
