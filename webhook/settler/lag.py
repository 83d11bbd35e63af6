"""Finds ledgers whose view is later than this settler's, written by one that has seen more and is gone.

A settler may not write over a later view. Where no pod comes or goes the API server does not tell it that it has
missed nothing: then all pods have to be listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Any, Final

from webhook.cluster.follower import Follower
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.view import View

LOOK_SECONDS: Final = 0.5
"""Between two looks; a settler may be behind for so long while a request waits for its refusal."""

CALM_SECONDS: Final = 5.0
"""The same where no request waits, but reservations without a pod may be left, or a limit to be changed."""


class Lag:
    """Since when which ledgers are ahead of the view, and when pods were last to be listed because of it."""

    def __init__(self, ledgers: Mapping[str, Ledger], view: View, pods: Follower[Any]) -> None:
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
