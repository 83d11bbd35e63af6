"""Writes into every TenantPolicy of a cluster whether it is in force: who applies one looks there first."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from webhook.api import GROUP, Api, ApiError, ConflictError, MissingError, Object, timestamp
from webhook.core.document import API_VERSION
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy import conditions
from webhook.core.tenancy.conditions import Condition
from webhook.core.tenancy.policy import Tenancy
from webhook.policywatch import Policies

PAUSE_SECONDS: Final = 1.0
"""Between two looks: settlers of two versions, who may not agree, take turns no faster than that."""

log = logging.getLogger(__name__)


class Conditions:
    """Keeps the conditions of all policies right, as one settler sees them."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster
        self._said: list[tuple[Object, list[Condition]]] = []
        self._changed = asyncio.Event()

    def changed(self, policies: Policies, rulebook: Rulebook, tenancy: Tenancy) -> None:
        """Hear of policies as they are, and of what they came to."""
        ties = conditions.ties(tenancy, rulebook.cluster.system_namespaces)
        problems = policies.problems
        self._said = [
            (found, conditions.of(problems.get(name, ()), ties.get(name), taken=name in policies.taken))
            for name, found in policies.objects("TenantPolicy").items()
        ]
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for found, said in self._said:
                try:
                    await self._tell(found, said)
                except (MissingError, ConflictError):
                    continue  # it is another one now, of which we shall hear
                except ApiError as error:
                    log.warning("conditions are written later: %s", error)
                    self._changed.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _tell(self, found: Object, said: list[Condition]) -> None:
        """Write the conditions of one policy, if it has others."""
        now = timestamp(datetime.now(UTC))
        status = conditions.status(said, found["metadata"]["generation"], found.get("status") or {}, now)
        if status is None:
            return
        metadata = {key: found["metadata"][key] for key in ("name", "resourceVersion")}
        written = {"apiVersion": API_VERSION, "kind": "TenantPolicy", "metadata": metadata, "status": status}
        await self._api.put(f"{GROUP}/tenantpolicies/{metadata['name']}/status", written)
