"""One of several copies works at a time: the holder of a Lease.

Two at once would do no harm (`rotation.State`), they would only make each other's writes fail. So nothing is cut off
when the Lease is lost in the middle of a turn.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import ClientError
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

LEASE_SECONDS: Final = 15
RENEW_SECONDS: Final = 10
RETRY_SECONDS: Final = 2

log = logging.getLogger(__name__)


class Lock(LeaseLock):
    """The Lease. The library's own `create` asks for `pretty=True`, which its client refuses (kubernetes 37.0.2)."""

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create it; False if somebody else has."""
        made = client.V1Lease(metadata=client.V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            await self.api_instance.create_namespaced_lease(namespace, made)
        except ApiException as error:
            log.warning("the Lease %s cannot be created: %s", name, error.reason)
            return False
        return True


async def campaign(lock: Lock, leading: asyncio.Event) -> None:
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
