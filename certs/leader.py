"""One of several copies works at a time: the holder of a Lease.

Two at once would do no harm (`rotation.State`), they would only make each other's writes fail. So nothing is cut off
when the Lease is lost in the middle of a turn.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import ClientError
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


async def campaign(lock: LeaseLock, leading: asyncio.Event) -> None:
    """Keep `leading` set while the Lease is ours; never returns."""

    async def lead() -> None:
        log.info("this copy works: %s holds the Lease %s", lock.identity, lock.name)
        leading.set()

    async def stop() -> None:
        log.warning("the Lease %s was lost", lock.name)

    while True:
        try:
            await LeaderElection(Config(lock, LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, lead, stop)).run()
        except (ApiException, ClientError, OSError, TimeoutError) as error:
            log.warning("the Lease %s cannot be held: %s", lock.name, str(error) or repr(error))
        leading.clear()
        await asyncio.sleep(RETRY_SECONDS)
