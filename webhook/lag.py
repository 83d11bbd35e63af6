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
from webhook.core.tenancy.view import View

LOOK_SECONDS: Final = 0.5
"""Between two looks; for so long a settler may be behind while somebody waits to be told that he is over."""

CALM_SECONDS: Final = 5.0
"""For so long it may be where nobody does, but reservations of nobody may be left, or a limit to be changed."""


class Heard(Protocol):
    """Whoever follows pods; `as_of`: the time (monotonic) up to which everything was heard."""

    as_of: float


class Lag:
    """Since when which ledgers are ahead of the view, and when pods were last to be listed because of it."""

    def __init__(self, ledgers: Mapping[str, Ledger], view: View, pods: Heard) -> None:
        self._ledgers, self._view, self._pods = ledgers, view, pods
        self._since: dict[tuple[str, int], float] = {}
        self._listed_at = -inf

    def found(self) -> bool:
        """Whether one and the same view of a ledger has been ahead for too long; not while pods are listed."""
        now = monotonic()
        ahead = {
            (tenant, ledger.view): LOOK_SECONDS if ledger.recount > ledger.recounted else CALM_SECONDS
            for tenant, ledger in self._ledgers.items()
            if ledger.view > self._view.version
        }
        self._since = {each: self._since.get(each, now) for each in ahead}
        waited = any(now - self._since[each] >= patience for each, patience in ahead.items())
        if not waited or self._pods.as_of < self._listed_at:
            return False
        self._listed_at, self._since = now, {}
        return True
