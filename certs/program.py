"""`gpu-webhook-certs rotate` and `activate`: duties, leader election and a page, until SIGTERM.

`rotate` issues and renews certificates, and activates the webhooks. `activate` does only the latter: cert-manager, or
an operator, issues the certificates and writes the bundles.
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
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Final

from certs import api, leader, page
from certs.activator import Activator
from certs.endpoints import Address
from certs.rotation import Terms
from certs.rotator import Rotator
from certs.stored import Site
from certs.turns import IDLE_SECONDS, Duty, Status, Turns
from certs.witness import Network

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
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    try:
        asyncio.run(_stoppable(options))
    except asyncio.CancelledError:
        log.info("stopped")
    except api.ApiError as error:
        log.critical("%s", error)
        return 1
    return 0


async def _stoppable(options: argparse.Namespace) -> None:
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: me and me.cancel())
    cluster = await api.connect()
    try:
        await _run(cluster, options)
    finally:
        await cluster.close()


async def _run(cluster: api.Api, options: argparse.Namespace) -> None:
    site, status = Site(options.namespace), Status()
    turns = Turns(status, list(_duties(cluster, site, status, options)))
    leading = asyncio.Event()
    lock = leader.Lock(site.own_service, site.namespace, f"{socket.gethostname()}-{token_hex(4)}", cluster.connected)
    told = await page.serve(status, options.metrics)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leader.campaign(lock, leading))
            tasks.create_task(turns.run(leading, options.idle.total_seconds()))
    finally:
        await told.cleanup()


def _duties(cluster: api.Api, site: Site, status: Status, options: argparse.Namespace) -> Iterator[Duty]:
    """What the command keeps as it should be, in the order of a first installation."""
    network = Network(cluster, site, options.bind)
    if options.command == "rotate":
        terms = Terms(
            authority=options.ca_lifetime,
            leaf=options.leaf_lifetime,
            overlap=options.overlap,
            renew_at=options.renew_at,
        )
        yield Rotator(cluster, network, site, terms, status)
    yield Activator(cluster, network, site, status)


def _parser() -> argparse.ArgumentParser:
    default, loopback = Terms(), "127.0.0.1"
    parser = argparse.ArgumentParser(prog="gpu-webhook-certs", description=__doc__)
    parser.add_argument("command", choices=("rotate", "activate"))
    parser.add_argument("--namespace", default=Site().namespace, help="of the Secrets and Services")
    parser.add_argument("--metrics", type=_address, default=Address(loopback, 8082), help="/metrics and /healthz")
    parser.add_argument("--bind", type=_address, default=Address(loopback, 8443), help="where a leaf is tried")
    parser.add_argument("--ca-lifetime", type=_duration, default=default.authority, help="of a new CA")
    parser.add_argument("--leaf-lifetime", type=_duration, default=default.leaf, help="of a new serving certificate")
    parser.add_argument("--overlap", type=_duration, default=default.overlap, help="how long two CAs are trusted")
    parser.add_argument("--renew-at", type=float, default=default.renew_at, help="the part of a lifetime")
    parser.add_argument("--idle", type=_duration, default=timedelta(seconds=IDLE_SECONDS), help="between two looks")
    return parser


def _duration(text: str) -> timedelta:
    """`90s`, `10m`, `1h` or `30d`, also `0.5s`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not a duration such as 90s, 10m, 1h or 30d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _address(text: str) -> Address:
    """`0.0.0.0:8443`, or `[::]:8443`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is not an address and a port, such as 0.0.0.0:8443")
    return Address(host.strip("[]"), int(port))
