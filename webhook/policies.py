"""The policies of a cluster as they are now, for a program with an event loop: policies, exemptions, namespaces.

A policy that cannot be read leaves the last good one of its name in force; one that was never good denies whatever it
selects. Where nothing was heard for too long nobody can say who may ask for what, and `Tenancy.unknown` says so: the
ledger's proof rests on nobody admitting by a policy that is older than the grace after which a namespace moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from webhook.api import GROUP, Api, Object
from webhook.core.rulebook import Rulebook
from webhook.core.schema import tenants
from webhook.core.tenancy.policy import Exemption, Tenancy, TenantPolicy
from webhook.follower import Collection, Follower

WATCH_SECONDS: Final = 10.0
STALE_SECONDS: Final = 30.0
NAMESPACES: Final = "/api/v1/namespaces"

log = logging.getLogger(__name__)


class Policies:
    """Follows what decides who may ask for what. `changed` is told the kind and the name of whatever changes."""

    def __init__(self, api: Api, changed: Callable[[str, str], None]) -> None:
        self._changed = changed
        self._digest = ""
        self._stale: dict[str, set[str]] = {"TenantPolicy": set(), "Exemption": set()}
        self._policies: dict[str, TenantPolicy] = {}
        self._exemptions: dict[str, Exemption] = {}
        self._collections = {
            "TenantPolicy": Collection(lambda name: self._outdate("TenantPolicy", name)),
            "Exemption": Collection(lambda name: self._outdate("Exemption", name)),
            "Namespace": Collection(lambda name: changed("Namespace", name)),
        }
        paths = (f"{GROUP}/tenantpolicies", f"{GROUP}/exemptions", NAMESPACES)
        self._followers = [
            Follower(api, path, collection, seconds=WATCH_SECONDS)
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
    def unknown(self) -> str:
        """Why none of it can be relied on, if so."""
        if monotonic() - self.as_of < STALE_SECONDS:
            return ""
        return "the policies of this cluster cannot be read now"

    @property
    def namespaces(self) -> Mapping[str, Object]:
        """All namespaces, by name."""
        return self._collections["Namespace"].objects

    def objects(self, kind: str) -> Mapping[str, Object]:
        """The objects of a kind as they are in the cluster, by name."""
        return self._collections[kind].objects

    def tenancy(self, rulebook: Rulebook, offline: Tenancy) -> Tenancy:
        """All of it as values, beside what stands in the rule files."""
        if rulebook.digest != self._digest:
            self._digest = rulebook.digest
            self._stale = {kind: {*self.objects(kind)} for kind in self._stale}
        self._read("TenantPolicy", self._policies, tenants.policies_from, rulebook)
        self._read("Exemption", self._exemptions, tenants.exemptions_from, rulebook)
        return replace(
            offline,
            policies=[*offline.policies, *self._policies.values()],
            exemptions=[*offline.exemptions, *self._exemptions.values()],
            labels={name: found["metadata"].get("labels") or {} for name, found in self.namespaces.items()},
            watched=True,
            unknown=self.unknown,
        )

    def _outdate(self, kind: str, name: str) -> None:
        self._stale[kind].add(name)
        self._changed(kind, name)

    def _read(
        self, kind: str, known: dict[str, Any], read: Callable[[Iterable[Object], Rulebook], Any], rulebook: Rulebook
    ) -> None:
        """Read what has changed into `known`."""
        stale, self._stale[kind] = self._stale[kind], set()
        objects = self.objects(kind)
        found = read([objects[name] for name in stale if name in objects], rulebook)
        for name in stale - objects.keys():
            known.pop(name, None)
        known |= found.read
        for name, broken in found.broken.items():
            log.error("%s", "; ".join(map(str, broken.problems)))
            if name not in known and broken.instead is not None:
                known[name] = broken.instead
