"""The policies of a cluster as they are now: TenantPolicies, Exemptions, labels of namespaces, RuntimeClasses.

A policy that cannot be read leaves the last good one of its name in force. One that was never good denies every GPU
pod of the namespaces it selects. Where the API server was silent for too long the policies count as unknown, and
`Tenancy.unknown` says so: the ledger's proof needs that no replica admits by a policy that is older than the grace
after which a namespace moves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final, Generic, TypeVar

from webhook.cluster.client import GROUP, Api, Collection, Follower, Object
from webhook.core.rules.load import FromCluster, exemptions_from, policies_from
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import UNREADABLE, Tenancy

T = TypeVar("T")

RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
ADMISSION_POLICIES: Final = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS: Final = f"{REGISTRATION}/validatingadmissionpolicybindings"
WATCH_SECONDS: Final = 2.0
"""A watch tells when it began, and that only when it has ended: what is known is up to twice as old as this."""

STALE_SECONDS: Final = 10.0
"""How old the policies may be by which a pod is admitted: less than `settlement.GRACE`, with the 34 seconds that its
create may take after that."""

log = logging.getLogger(__name__)


class _Known(Collection, Generic[T]):
    """The objects of one kind, also as values: the last good one of each name, or what holds where none was.

    `changed` is told the kind and the name of each that changes.
    """

    def __init__(
        self,
        kind: str,
        read: Callable[[Iterable[Object], Rulebook], FromCluster[T]],
        changed: Callable[[str, str], None],
    ) -> None:
        super().__init__(self._outdate)
        self.good: dict[str, T] = {}
        self.instead: dict[str, T] = {}
        self.problems: dict[str, Sequence[str]] = {}
        self._kind, self._read, self._changed = kind, read, changed
        self._stale: set[str] = set()
        self._versions: dict[str, tuple[str | None, int | None]] = {}
        self._digest = ""

    def _outdate(self, name: str) -> None:
        """Take note of a change. What is written into an object's status alone is no other generation of it."""
        metadata = self.objects.get(name, {}).get("metadata", {})
        version = (metadata.get("uid"), metadata.get("generation"))
        before = self._versions.pop(name, (None, None))
        if version != (None, None):
            self._versions[name] = version
        if version == before:
            self._changed(f"{self._kind}/status", name)
        else:
            self._stale.add(name)
            self._changed(self._kind, name)

    def values(self, rulebook: Rulebook) -> dict[str, T]:
        """All of them, by name; what has changed is read, or everything where the rulebook has."""
        stale = self._stale if rulebook.digest == self._digest else self._stale | self.objects.keys()
        self._stale, self._digest = set(), rulebook.digest
        reading = self._read([self.objects[name] for name in stale if name in self.objects], rulebook)
        for name in stale:
            self.instead.pop(name, None)
            self.problems.pop(name, None)
            if name not in self.objects:
                self.good.pop(name, None)
        self.good |= reading.read
        for name, broken in reading.broken.items():
            self.problems[name] = [str(problem) for problem in broken.problems]
            log.error("%s", "; ".join(self.problems[name]))
            if name not in self.good and broken.instead is not None:
                self.instead[name] = broken.instead
        return {**self.instead, **self.good}


class Policies:
    """Follows policies, exemptions, namespaces and runtime classes.

    `changed` is told the kind and the name of each object that changes: `TenantPolicy/status` where the policy says
    the same as before.
    """

    def __init__(self, api: Api, changed: Callable[[str, str], None]) -> None:
        self.taken: set[str] = set()
        """Policies of the cluster that are ignored, as the rule files have one of the name."""
        self.policies = _Known("TenantPolicy", policies_from, changed)
        self.namespaces = Collection(lambda name: changed("Namespace", name))
        self.runtime_classes = Collection(lambda name: changed("RuntimeClass", name))
        self._exemptions = _Known("Exemption", exemptions_from, changed)
        self._followers = [
            Follower(api, [f"{GROUP}/tenantpolicies"], self.policies, WATCH_SECONDS),
            Follower(api, [f"{GROUP}/exemptions"], self._exemptions, WATCH_SECONDS),
            Follower(api, ["/api/v1/namespaces"], self.namespaces, WATCH_SECONDS),
            Follower(api, [RUNTIME_CLASSES], self.runtime_classes, WATCH_SECONDS),
        ]

    async def run(self) -> None:
        """Follow all of it."""
        await asyncio.gather(*(follower.run() for follower in self._followers))

    @property
    def good_until(self) -> float:
        """The last moment (monotonic) at which they can be relied on, if the API server stays silent."""
        return min(follower.as_of for follower in self._followers) + STALE_SECONDS

    @property
    def unknown(self) -> str:
        """Why they cannot be relied on; empty while they can."""
        return "" if monotonic() <= self.good_until else UNREADABLE

    def tenancy(self, rulebook: Rulebook) -> Tenancy:
        """All of it as values, beside what the rulebook has from its files."""
        offline = rulebook.tenancy
        policies, exemptions = self.policies.values(rulebook), self._exemptions.values(rulebook)
        named = {policy.name for policy in offline.policies}
        self.taken = named & policies.keys()
        if self.taken:
            names = ", ".join(sorted(self.taken))
            log.error("in the rule files and in the cluster, where they are ignored: %s", names)
        namespaces = self.namespaces.objects
        return replace(
            offline,
            policies=[*offline.policies, *(policy for name, policy in policies.items() if name not in named)],
            exemptions=[*offline.exemptions, *exemptions.values()],
            labels={name: raw["metadata"].get("labels") or {} for name, raw in namespaces.items()},
            handlers={name: raw["handler"] for name, raw in self.runtime_classes.objects.items()},
            watched=True,
            unknown=self.unknown,
        )
