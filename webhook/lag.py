"""Finds out that a settler waits for another one that has gone: it may not count, as he had seen more.

Where no pod comes or goes nobody tells a settler that it has missed nothing, and so it may not write over a ledger of
a later view. All pods have to be listed then.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Final, Protocol

from webhook.core.tenancy.ledger import Ledger
from webhook.core.tenancy.settlement import View

LOOK_SECONDS: Final = 0.5
"""Between two looks: who writes a ledger answers whoever waits for him within less."""


class Heard(Protocol):
    """Whoever follows pods; `as_of`: the time (monotonic) up to which everything was heard."""

    as_of: float


class Lag:
    """What was waited for at the last look, and when pods were last to be listed because of it."""

    def __init__(self, ledgers: Mapping[str, Ledger], view: View, pods: Heard) -> None:
        self._ledgers, self._view, self._pods = ledgers, view, pods
        self._waiting: set[tuple[str, int]] = set()
        self._listed_at = -inf

    def found(self) -> bool:
        """Whether somebody waits since the last look for a count that may not be made; not while pods are listed."""
        before = self._waiting
        self._waiting = {
            (tenant, ledger.recount)
            for tenant, ledger in self._ledgers.items()
            if ledger.recount > ledger.recounted and ledger.view > self._view.version
        }
        if self._pods.as_of < self._listed_at or before.isdisjoint(self._waiting):
            return False
        self._listed_at, self._waiting = monotonic(), set()
        return True
