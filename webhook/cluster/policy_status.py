"""Writes into the status of every TenantPolicy whether it is in force, where its author looks first."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from webhook.cluster.client import GROUP, Api, ApiError, ConflictError, MissingError, Object, timestamp
from webhook.cluster.policies import Policies
from webhook.core.forms.document import API_VERSION
from webhook.core.policy import status as statuses
from webhook.core.policy import unknown_devices
from webhook.core.policy.status import Condition
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy

PAUSE_SECONDS: Final = 1.0
"""Between two rounds of writes: settlers of two versions may disagree, and overwrite each other no faster."""

log = logging.getLogger(__name__)


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
                statuses.of(
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
