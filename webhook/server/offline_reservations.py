"""Reservations of a server that is not attached to a cluster, and what the server needs of either kind.

Imports nothing of `kubernetes`: every admission server loads this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from webhook.core.quota import ledger as ledgers
from webhook.core.quota.ledger import Answered, Ask, Ledger
from webhook.core.quota.tally import Tally


class Reserves(Protocol):
    """Says whether a pod is within its tenant's quota, and reserves for it.

    `OfflineReservations`, or `webhook.cluster.reservations.Reservations` in a cluster.
    """

    def draw(self, tenant: str, ask: Ask) -> Answered | None:
        """Admit from the replica's escrow, without a write; None where it does not suffice. Not for a dry run."""

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Reserve in the ledger, before `deadline` (of the monotonic clock)."""

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """What would become of an ask; writes nothing."""

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that were used of late, by tenant."""


_NEW: Final = Ledger(view=1)


class OfflineReservations:
    """Reserves in memory, to try the server without a cluster: an admitted pod counts for good."""

    def __init__(self, limits: Callable[[str], Tally], ledgers: Mapping[str, Ledger] = MappingProxyType({})) -> None:
        self._limits = limits
        self._ledgers = dict(ledgers)

    def draw(self, tenant: str, ask: Ask) -> Answered:
        """Reserve, at once."""
        answered = self._answered(tenant, ask)
        self._ledgers[tenant] = answered.ledger
        return answered

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - it never waits
        """Reserve, at once."""
        return self.draw(tenant, ask)

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - it never waits
        """What would become of an ask, and the ledger as it would be then."""
        return self._answered(tenant, ask)

    def _answered(self, tenant: str, ask: Ask) -> Answered:
        known, hard = self._ledgers.get(tenant, _NEW), self._limits(tenant)
        if known.hard is not hard or ask.namespace not in known.held:
            known = replace(known, hard=hard, held={ask.namespace: {}, **known.held})
        after, [outcome] = ledgers.reserve(known, [ask])
        return Answered(outcome, after)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers, by tenant."""
        return iter(self._ledgers.items())
