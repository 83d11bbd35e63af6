"""The pods of a cluster as one settler has seen them: maybe late, and never going back in time."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.quota.tally import NOTHING, Tally

MOST_GONE: Final = 20_000
"""How many deleted pods are remembered. The reservation of a forgotten one is dropped after the grace."""

_ZERO: Final = Fraction(0)


class Pod(NamedTuple):
    """A stored pod. One that has ended (Succeeded, Failed) has an empty amount."""

    uid: str
    namespace: str
    name: str
    amount: Tally


class View:
    """All pods up to one version, and their sums by namespace."""

    def __init__(self) -> None:
        self.version = 0
        self._live: dict[str, Pod] = {}
        self._gone: dict[str, None] = {}
        self._sums: dict[str, dict[str, Fraction]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: object) -> bool:
        """Whether the pod was seen, deleted since or not."""
        return uid in self._live or uid in self._gone

    def listed(self, pods: Iterable[Pod], version: int) -> None:
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

    def saw(self, pod: Pod, version: int) -> None:
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

    def _put(self, pod: Pod) -> None:
        before = self._live.get(pod.uid)
        self._live[pod.uid] = pod
        if before is not None and before.amount == pod.amount:
            return
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

    def _add(self, pod: Pod, times: int) -> None:
        if not pod.amount:
            return
        sums = self._sums.setdefault(pod.namespace, {})
        for key, amount in pod.amount.items():
            before = sums.get(key, _ZERO)
            sums[key] = before + amount if times > 0 else before - amount
            if not sums[key]:
                del sums[key]
        if not sums:
            del self._sums[pod.namespace]
