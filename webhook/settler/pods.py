"""Follows the pods of the cluster into the settler's view: what each of them holds."""

from __future__ import annotations

from collections.abc import Callable

from webhook.cluster.client import Object
from webhook.cluster.follower import Handler
from webhook.core.kube import pod
from webhook.core.policy import holdings
from webhook.core.quota import tally
from webhook.core.quota.tally import Tally
from webhook.core.quota.view import Pod, View
from webhook.files.reload import Rules


class Pods(Handler[Pod]):
    """Handles what a follower tells of pods.

    `touched` is told the namespace in which other amounts are held now; None: maybe in all of them.
    """

    def __init__(self, view: View, rules: Rules, touched: Callable[[str | None], None]) -> None:
        self._view, self._rules, self._touched = view, rules, touched
        self._counter: holdings.Counter | None = None

    def keep(self, found: Object) -> Pod:
        """What the settlement has to know of a pod."""
        metadata = found["metadata"]
        return Pod(metadata["uid"], metadata["namespace"], metadata["name"], self._amount(found))

    def _amount(self, found: Object) -> Tally:
        rulebook = self._rules.rulebook
        if rulebook is None or not pod.live(found):
            return tally.NOTHING
        if self._counter is None or self._counter.rulebook is not rulebook:
            self._counter = holdings.Counter(rulebook)
        return self._counter.held(found).tally

    def listed(self, kept: list[Pod], version: int) -> None:
        """All pods there are."""
        self._view.listed(kept, version)
        self._touched(None)

    def updated(self, kept: Pod, version: int) -> None:
        """A pod was added or changed."""
        before = self._view.held(kept.namespace)
        self._view.saw(kept, version)
        self._compare(before, kept.namespace)

    def deleted(self, kept: Pod, version: int) -> None:
        """A pod was deleted."""
        before = self._view.held(kept.namespace)
        self._view.lost(kept.uid, version)
        self._compare(before, kept.namespace)

    def _compare(self, before: Tally, namespace: str) -> None:
        if before != self._view.held(namespace):
            self._touched(namespace)

    def bookmarked(self, version: int) -> None:
        """Nothing more happened up to a version."""
        self._view.reached(version)
