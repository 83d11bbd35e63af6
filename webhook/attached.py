"""What an admission server that is attached to a cluster knows of tenants, and the ledgers in which it reserves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Final

from webhook import api
from webhook.api import ApiError
from webhook.desk import Desk
from webhook.events import Events
from webhook.lane import Lane
from webhook.policywatch import Policies
from webhook.tenantusages import UsageObjects

LOOK_SECONDS: Final = 1.0
"""How often it is asked whether what is known is too old; changes are taken over at once."""

PAUSE_SECONDS: Final = 0.05
"""Between a change and taking it over: what changes together is read together."""

NOT_YET: Final = "the policies of this cluster are not known yet"

NO_MORE: Final = "this server is about to leave"

LEAVE_SECONDS: Final = 1.5
"""For giving back what was set aside; whoever asks meanwhile has to come again."""

log = logging.getLogger(__name__)


class Quotas:
    """Keeps a lane in step with the policies of the cluster, for as long as it serves."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._changed = asyncio.Event()
        rulebook = lane.rulebook
        if rulebook is not None:
            self._offline = rulebook.tenancy
            lane.rulebook = replace(rulebook, tenancy=replace(rulebook.tenancy, unknown=NOT_YET))
            lane.waiting = NOT_YET

    async def run(self) -> None:
        """Follow the cluster; ends only when it is cancelled."""
        try:
            cluster = await api.connect()
        except ApiError as error:
            log.critical("no quota can be held, and nobody gets a GPU: %s", error)
            return
        policies = Policies(cluster, lambda *_: self._changed.set())
        desk = Desk(UsageObjects(cluster), self._lane.metrics)
        self._lane.ledger = desk
        self._lane.told = Events(cluster).told
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(policies.run())
                tasks.create_task(self._keep(policies))
        finally:
            self._let_nobody_in()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await desk.leave()
            await cluster.close()

    def _let_nobody_in(self) -> None:
        """Nobody follows the policies from now on: who would get a GPU by them has to come again."""
        rulebook = self._lane.rulebook
        if rulebook is not None:
            self._lane.rulebook = replace(rulebook, tenancy=replace(rulebook.tenancy, unknown=NO_MORE))

    async def _keep(self, policies: Policies) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
            rulebook = self._lane.rulebook
            if rulebook is None:
                continue
            if self._changed.is_set() or rulebook.tenancy.unknown != policies.unknown:
                self._changed.clear()
                tenancy = policies.tenancy(rulebook, self._offline)
                self._lane.rulebook = replace(rulebook, tenancy=tenancy)
                self._lane.waiting = self._lane.waiting and tenancy.unknown
                if tenancy.unknown != rulebook.tenancy.unknown:
                    log.warning("policies: %s", tenancy.unknown or f"{len(tenancy.policies)} are known")
            self._lane.good_until = policies.good_until
