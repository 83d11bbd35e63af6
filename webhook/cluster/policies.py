"""The policies of a cluster as they are now: TenantPolicies, Exemptions and the labels of namespaces.

A policy that cannot be read leaves the last good one of its name in force. One that was never good denies every GPU
pod of the namespaces it selects. Where the API server was silent for too long the policies count as unknown, and
`Tenancy.unknown` says so: the ledger's proof needs that no replica admits by a policy that is older than the grace
after which a namespace moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from webhook.cluster.client import GROUP, Api, ApiError, ConflictError, MissingError, Object, timestamp
from webhook.cluster.follower import Collection, Follower
from webhook.core.forms.document import API_VERSION
from webhook.core.policy import membership as statuses
from webhook.core.policy import unknown_devices
from webhook.core.policy.membership import Condition
from webhook.core.rules import load
from webhook.core.rules.load import FromCluster
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import UNREADABLE, Tenancy

# The policies of a cluster as they are now: TenantPolicies, Exemptions and the labels of namespaces.

T = TypeVar("T")

WATCH_SECONDS: Final = 2.0
"""A watch tells when it began, and that only when it has ended: what is known is up to twice as old as this."""

STALE_SECONDS: Final = 10.0
"""How old the policies may be by which a pod is admitted: less than `settlement.GRACE`, with the 34 seconds that its
create may take after that."""

NAMESPACES: Final = "/api/v1/namespaces"

log = logging.getLogger(__name__)


class Policies:
    """Follows policies, exemptions and namespaces.

    `changed` is told the kind and the name of each object that changes: `TenantPolicy/status` where the policy says
    the same as before.
    """

    def __init__(self, api: Api, changed: Callable[[str, str], None]) -> None:
        self._changed = changed
        self._digest = ""
        self.taken: set[str] = set()
        """Policies of the cluster that are ignored, as the rule files have one of the name."""
        self._policies = _Known("TenantPolicy", load.policies_from)
        self._exemptions = _Known("Exemption", load.exemptions_from)
        self._collections = {
            "TenantPolicy": Collection(partial(self._outdate, self._policies)),
            "Exemption": Collection(partial(self._outdate, self._exemptions)),
            "Namespace": Collection(lambda name: changed("Namespace", name)),
        }
        paths = (f"{GROUP}/tenantpolicies", f"{GROUP}/exemptions", NAMESPACES)
        self._followers = [
            Follower(api, [path], collection, seconds=WATCH_SECONDS)
            for path, collection in zip(paths, self._collections.values(), strict=True)
        ]

    async def run(self) -> None:
        """Follow all of it."""
        await asyncio.gather(*(follower.run() for follower in self._followers))

    @property
    def as_of(self) -> float:
        """The time (monotonic) up to which all of it is known."""
        return min(follower.as_of for follower in self._followers)

    @property
    def good_until(self) -> float:
        """The last moment (monotonic) at which they can be relied on, if the API server stays silent."""
        return self.as_of + STALE_SECONDS

    @property
    def unknown(self) -> str:
        """Why they cannot be relied on; empty while they can."""
        return "" if monotonic() <= self.good_until else UNREADABLE

    @property
    def namespaces(self) -> Collection:
        """All namespaces."""
        return self._collections["Namespace"]

    def objects(self, kind: str) -> Mapping[str, Object]:
        """The objects of a kind as they are in the cluster, by name."""
        return self._collections[kind].objects

    def tenancy(self, rulebook: Rulebook) -> Tenancy:
        """All of it as values, beside what the rulebook has from its files."""
        offline = rulebook.tenancy
        for known in (self._policies, self._exemptions):
            if rulebook.digest != self._digest:
                known.stale = {*self.objects(known.kind)}
            known.refresh(self.objects(known.kind), rulebook)
        self._digest = rulebook.digest
        policies = self._policies.values
        named = {policy.name for policy in offline.policies}
        self.taken = named & policies.keys()
        if self.taken:
            log.error(
                "in the rule files and in the cluster, where they are ignored: %s", ", ".join(sorted(self.taken))
            )
        return replace(
            offline,
            policies=[*offline.policies, *(each for name, each in policies.items() if name not in named)],
            exemptions=[*offline.exemptions, *self._exemptions.values.values()],
            labels={name: found["metadata"].get("labels") or {} for name, found in self.namespaces.objects.items()},
            watched=True,
            unknown=self.unknown,
        )

    @property
    def broken(self) -> KeysView[str]:
        """The tenants of which no readable policy was ever seen."""
        return self._policies.instead.keys()

    @property
    def problems(self) -> Mapping[str, Sequence[str]]:
        """What is wrong with policies as they stand now, by name."""
        return self._policies.problems

    def _outdate(self, known: _Known[Any], name: str) -> None:
        found = self.objects(known.kind).get(name, {}).get("metadata", {})
        if known.is_another(name, (found.get("uid"), found.get("generation"))):
            known.stale.add(name)
            self._changed(known.kind, name)
        else:
            self._changed(f"{known.kind}/status", name)


class _Known(Generic[T]):
    """The objects of one kind as values: the last good one of each name, or what holds where none was."""

    def __init__(self, kind: str, read: Callable[[Iterable[Object], Rulebook], FromCluster[T]]) -> None:
        self.kind = kind
        self.stale: set[str] = set()
        self.good: dict[str, T] = {}
        self.instead: dict[str, T] = {}
        self.problems: dict[str, Sequence[str]] = {}
        self._read = read
        self._versions: dict[str, tuple[str | None, int | None]] = {}

    def is_another(self, name: str, version: tuple[str | None, int | None]) -> bool:
        """Whether an object has another UID or generation than it had; those of one that is gone are None."""
        before = self._versions.pop(name, (None, None))
        if version != (None, None):
            self._versions[name] = version
        return before != version

    @property
    def values(self) -> Mapping[str, T]:
        """All of them, by name."""
        return {**self.instead, **self.good}

    def refresh(self, objects: Mapping[str, Object], rulebook: Rulebook) -> None:
        """Read what has changed."""
        stale, self.stale = self.stale, set()
        found = self._read([objects[name] for name in stale if name in objects], rulebook)
        for name in stale:
            self.instead.pop(name, None)
            self.problems.pop(name, None)
            if name not in objects:
                self.good.pop(name, None)
        self.good |= found.read
        for name, broken in found.broken.items():
            self.problems[name] = [str(problem) for problem in broken.problems]
            log.error("%s", "; ".join(self.problems[name]))
            if name not in self.good and broken.instead is not None:
                self.instead[name] = broken.instead


# Writes into the status of every TenantPolicy whether it is in force, where its author looks first.

PAUSE_SECONDS: Final = 1.0
"""Between two rounds of writes: settlers of two versions may disagree, and overwrite each other no faster."""


class PolicyStatus:
    """Keeps the conditions of all policies right, as one settler sees them."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster
        self._conditions: list[tuple[Object, list[Condition]]] = []
        self._changed = asyncio.Event()

    def changed(self, policies: Policies, rulebook: Rulebook, tenancy: Tenancy) -> None:
        """Take over what the policies came to; `run` writes it."""
        ties = statuses.ties(tenancy, rulebook.cluster.system_namespaces)
        problems, strict = policies.problems, unknown_devices.refused_by_default(tenancy, rulebook.cluster)
        self._conditions = [
            (
                found,
                statuses.conditions_of(
                    problems.get(name, ()), ties.get(name), taken=name in policies.taken, strict=name in strict
                ),
            )
            for name, found in policies.objects("TenantPolicy").items()
        ]
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for found, conditions in self._conditions:
                try:
                    await self._write(found, conditions)
                except (MissingError, ConflictError):
                    continue  # it has changed, and the follower will tell
                except ApiError as error:
                    log.warning("conditions are written later: %s", error)
                    self._changed.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, found: Object, conditions: list[Condition]) -> None:
        """Write the conditions of one policy, if it has others."""
        now = timestamp(datetime.now(UTC))
        status = statuses.status(conditions, found["metadata"]["generation"], found.get("status") or {}, now)
        if status is None:
            return
        metadata = {key: found["metadata"][key] for key in ("name", "resourceVersion")}
        written = {"apiVersion": API_VERSION, "kind": "TenantPolicy", "metadata": metadata, "status": status}
        await self._api.replace(f"{GROUP}/tenantpolicies/{metadata['name']}/status", written)
