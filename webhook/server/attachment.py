"""Attaches an admission server to a cluster: policies, reservations in ledgers, stored pods, events on denials."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final

from webhook.cluster import client
from webhook.cluster.client import ApiError, Object
from webhook.cluster.ledgers import Events, Reservations, TenantUsages
from webhook.cluster.policies import Policies
from webhook.core.forms.document import UnreadableError
from webhook.core.quota.ledger import Ledger
from webhook.server.handler import Lane

LOOK_SECONDS: Final = 1.0
"""How often the age of the policies is checked; changes are taken over at once."""

PAUSE_SECONDS: Final = 0.05
"""From a change until it is taken over, so that changes that come together are read together."""

LEAVE_SECONDS: Final = 1.5
"""For closing the escrows; clients whose pods a quota counts get the answer to retry meanwhile."""

NOT_YET: Final = "the policies of this cluster are not known yet"

log = logging.getLogger(__name__)


def follow(lane: Lane) -> Coroutine[Any, Any, None]:
    """Keep a lane in step with the policies of the cluster while it serves; ends only when it is cancelled."""
    _know_nothing(lane, NOT_YET)
    lane.not_ready = NOT_YET
    return _follow(lane)


def _know_nothing(lane: Lane, why: str) -> None:
    """Answer as long as nothing of the cluster is known, or no more."""

    async def unread(*_: str) -> Object | None:
        raise UnreadableError(why)

    lane.read_pod, lane.read_usage = unread, None
    lane.tenancy = lambda rules: replace(rules.tenancy, unknown=why)
    lane.use(lane.rules)


async def _follow(lane: Lane) -> None:
    try:
        cluster = await client.connect()
    except ApiError as error:
        log.critical("no quota can be held, and nobody gets a GPU: %s", error)
        return
    changed = asyncio.Event()
    policies = Policies(cluster, lambda *_: changed.set())
    usages = TenantUsages(cluster)
    reservations = Reservations(usages, lane.metrics)

    async def read_usage(tenant: str) -> Ledger:
        return (await usages.read(tenant)).ledger

    lane.reservations = reservations
    lane.on_quota_decision = Events(cluster).record
    lane.read_pod = lambda namespace, name: cluster.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
    lane.read_usage = read_usage
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(policies.run())
            tasks.create_task(_keep(lane, policies, changed))
    finally:
        _know_nothing(lane, "this server is about to leave")  # whose pods would get a GPU gets the answer to retry
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await reservations.close()
        await cluster.close()


async def _keep(lane: Lane, policies: Policies, changed: asyncio.Event) -> None:
    """Take over the policies when they change, and how long they may be used."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), LOOK_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)
        if lane.rulebook is None:
            continue
        before = lane.rulebook.tenancy
        if changed.is_set() or before.unknown != policies.unknown:
            changed.clear()
            lane.tenancy = policies.tenancy
            lane.use(lane.rules)
            now = lane.rulebook.tenancy
            if now.unknown != before.unknown:
                log.warning("policies: %s", now.unknown or f"{len(now.policies)} are known")
        lane.not_ready = lane.not_ready and policies.unknown
        lane.good_until = policies.good_until
