"""`gpu-webhook-certs rotate` and `activate`: duties, leader election and a page, until SIGTERM.

`rotate` issues and renews certificates, and activates the webhooks. `activate` does only the latter: cert-manager, or
an operator, issues the certificates and writes the bundles.

One of several copies works at a time: the holder of a Lease. Two at once would do no harm (`rotation.State`), they
would only make each other's writes fail. So nothing is cut off when the Lease is lost in the middle of a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import signal
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import Final

from aiohttp import ClientError, web
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from certs import activation, api
from certs.api import Address, Site
from certs.rotation import Terms
from certs.rotator import Rotator
from certs.turns import IDLE_SECONDS, Duty, Status, Turns

LEASE_SECONDS: Final = 15
RENEW_SECONDS: Final = 10
RETRY_SECONDS: Final = 2

STALLED_SECONDS: Final = 120.0
"""Without a turn for so long the program hangs; a restart does no harm."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

log = logging.getLogger(__name__)


class _Lines(logging.Formatter):
    """Messages as JSON lines, as the other programs write them."""

    def format(self, record: logging.LogRecord) -> str:
        """One message, with its traceback if it has one."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; 1 with a line of the log where there is no cluster."""
    default = Terms()
    parser = argparse.ArgumentParser(prog="gpu-webhook-certs", description=__doc__)
    parser.add_argument("command", choices=("rotate", "activate"))
    parser.add_argument("--namespace", default=Site().namespace, help="of the Secrets and Services")
    parser.add_argument("--metrics", type=_address, default=Address("127.0.0.1", 8082), help="/metrics and /healthz")
    parser.add_argument("--ca-lifetime", type=_duration, default=default.authority, help="of a new CA")
    parser.add_argument("--leaf-lifetime", type=_duration, default=default.leaf, help="of a new serving certificate")
    parser.add_argument(
        "--overlap", type=_duration, default=default.overlap, help="how long a CA is trusted before it is used"
    )
    parser.add_argument("--renew-at", type=float, default=default.renew_at, help="the part of a lifetime")
    parser.add_argument("--idle", type=_duration, default=timedelta(seconds=IDLE_SECONDS), help="between two looks")
    options = parser.parse_args(arguments)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    try:
        asyncio.run(_run(options))
    except asyncio.CancelledError:
        log.info("stopped")
    except api.ApiError as error:
        log.critical("%s", error)
        return 1
    return 0


def _duration(text: str) -> timedelta:
    """`90s`, `10m`, `1h` or `30d`, also `0.5s`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a duration such as 90s, 10m, 1h or 30d")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _address(text: str) -> Address:
    """`0.0.0.0:8443`, or `[::]:8443`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is not an address and a port, such as 0.0.0.0:8443")
    return Address(host.strip("[]"), int(port))


async def _run(options: argparse.Namespace) -> None:
    """Lead, take turns and show the page until SIGTERM or SIGINT."""
    this, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: this and this.cancel())
    cluster = await api.connect()
    site, status, leading = Site(options.namespace), Status(), asyncio.Event()
    # In the order of a first installation.
    duties: list[Duty] = []
    if options.command == "rotate":
        terms = Terms(
            authority=options.ca_lifetime,
            leaf=options.leaf_lifetime,
            overlap=options.overlap,
            renew_at=options.renew_at,
        )
        duties.append(Rotator(cluster, site, terms, status))
    ask = partial(activation.unanswered, cluster, site.namespace)
    duties.append(activation.Activator(cluster, ask, site, status))
    lock = Lock(site.program, site.namespace, f"{socket.gethostname()}-{token_hex(4)}", cluster.connected)
    try:
        runner = await serve(status, options.metrics)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(campaign(lock, leading))
                tasks.create_task(Turns(status, duties).run(leading, options.idle.total_seconds()))
        finally:
            await runner.cleanup()
    finally:
        await cluster.close()


class Lock(LeaseLock):
    """The Lease. The library's own `create` asks for `pretty=True`, which its client refuses (kubernetes 37.0.2)."""

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create it; False if somebody else has."""
        lease = client.V1Lease(metadata=client.V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
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


async def serve(status: Status, bind: Address) -> web.AppRunner:
    """Answer `/metrics` for Prometheus and `/healthz` for the kubelet, until the runner is cleaned up."""

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return web.Response(text="\n".join(status.metrics()) + "\n", headers=headers)

    async def healthz(_: web.Request) -> web.Response:
        if monotonic() - status.turned > STALLED_SECONDS:
            return web.Response(status=503, text="no turn was taken for too long\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, *bind).start()
    return runner
