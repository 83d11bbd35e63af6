"""A total that connections share. When it is used up, the connection that holds most gives way.

What counts is first the address: one that holds much cannot keep the others out, and one that is alone may use
everything. A known address, one that API servers have come from, may hold a hundred times as much as another. A
managed control plane needs all of this: it reaches a webhook through the one address of a proxy.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Generic, Protocol, TypeVar

KNOWN_TIMES: Final = 100
"""How much more than another address a known one may hold."""


class Holder(Protocol):
    """Whoever holds a part."""

    @property
    def address(self) -> object:
        """Where it comes from."""


H = TypeVar("H", bound=Holder)


class Shares(Generic[H]):
    """Who holds how much of a total."""

    def __init__(self, total: int, known: Container[object] = ()) -> None:
        self.total = total
        self.used = 0
        self._known = known
        self._held: dict[object, dict[H, int]] = {}
        self._sums: dict[object, int] = {}

    def hold(self, holder: H, amount: int) -> None:
        """Let a holder have this amount, instead of what it had."""
        held = self._held.setdefault(holder.address, {})
        more = amount - held.get(holder, 0)
        held[holder] = amount
        self.used += more
        self._sums[holder.address] = self._sums.get(holder.address, 0) + more

    def release(self, holder: H) -> None:
        """Let a holder have nothing; it may have had nothing before."""
        held = self._held.get(holder.address, {})
        if holder not in held:
            return
        amount = held.pop(holder)
        self.used -= amount
        self._sums[holder.address] -= amount
        if not held:
            del self._held[holder.address], self._sums[holder.address]

    def giving_way(self) -> H | None:
        """Who has to release what it holds; None unless more is held than there is.

        It is, of the address that holds most, the one that holds most; among equals the one that came first.
        """
        if self.used <= self.total:
            return None
        held = self._held[max(self._sums, key=self._weight)]
        return max(held, key=held.__getitem__)

    def _weight(self, address: object) -> float:
        return self._sums[address] / (KNOWN_TIMES if address in self._known else 1)
