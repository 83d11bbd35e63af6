"""Attaches an admission server to a cluster: policies, reservations in ledgers, stored pods, events on denials."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from webhook.cluster import client
from webhook.cluster.client import ApiError, Object
from webhook.cluster.ledgers import Events, Reservations, TenantUsages
from webhook.cluster.policies import Policies
from webhook.core.quota.ledger import Ledger
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy
from webhook.server.handler import Lane, UnreadError

LOOK_SECONDS: Final = 1.0
"""How often the age of the policies is checked; changes are taken over at once."""

PAUSE_SECONDS: Final = 0.05
"""From a change until it is taken over, so that changes that come together are read together."""

NOT_YET: Final = "the policies of this cluster are not known yet"

NO_MORE: Final = "this server is about to leave"

LEAVE_SECONDS: Final = 1.5
"""For closing the escrows; clients whose pods a quota counts get the answer to retry meanwhile."""

log = logging.getLogger(__name__)


class Quotas:
    """Keeps a lane in step with the policies of the cluster while it serves."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._changed = asyncio.Event()
        self._know_nothing(NOT_YET)
        lane.not_ready = NOT_YET

    async def run(self) -> None:
        """Follow the cluster; ends only when it is cancelled."""
        try:
            cluster = await client.connect()
        except ApiError as error:
            log.critical("no quota can be held, and nobody gets a GPU: %s", error)
            return
        policies = Policies(cluster, lambda *_: self._changed.set())
        usages = TenantUsages(cluster)
        reservations = Reservations(usages, self._lane.metrics)

        async def read_pod(namespace: str, name: str) -> Object | None:
            try:
                return await cluster.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
            except ApiError as error:
                raise UnreadError(str(error)) from None

        async def read_usage(tenant: str) -> Ledger:
            try:
                return (await usages.read(tenant)).ledger
            except ApiError as error:
                raise UnreadError(str(error)) from None

        self._lane.ledger = reservations
        self._lane.on_quota_decision = Events(cluster).record
        self._lane.read_pod, self._lane.read_usage = read_pod, read_usage
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(policies.run())
                tasks.create_task(self._keep(policies))
        finally:
            self._know_nothing(NO_MORE)  # clients whose pods would get a GPU get the answer to retry
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await reservations.close()
            await cluster.close()

    def _know_nothing(self, why: str) -> None:
        """Answer as long as nothing of the cluster is known, or no more."""

        async def unread(*_: str) -> Object | None:
            raise UnreadError(why)

        self._lane.read_pod, self._lane.read_usage = unread, None
        self._enforce(lambda rules: replace(rules.tenancy, unknown=why))

    def _enforce(self, tenancy: Callable[[Rulebook], Tenancy]) -> None:
        """Answer by these policies, whatever the rules are."""
        self._lane.tenancy = tenancy
        self._lane.use(self._lane.rules)

    async def _keep(self, policies: Policies) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
            if self._lane.rulebook is None:
                continue
            before = self._lane.rulebook.tenancy
            if self._changed.is_set() or before.unknown != policies.unknown:
                self._changed.clear()
                self._enforce(policies.tenancy)
                now = self._lane.rulebook.tenancy
                if now.unknown != before.unknown:
                    log.warning("policies: %s", now.unknown or f"{len(now.policies)} are known")
            self._lane.not_ready = self._lane.not_ready and policies.unknown
            self._lane.good_until = policies.good_until
