"""`gpu-webhook-certs`, or `python -m certs`: the certificate program's command line.

`rotate` and `activate` run in a cluster. `self-signed` keeps a good pair in a directory: it leaves a good one alone,
and replaces one that is missing, broken, mismatched, for other names or about to expire.
"""

import argparse
import asyncio
import fcntl
import json
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from certs import issue

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

log = logging.getLogger("certs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 1 with a line that says what could not be done."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] in (["rotate"], ["activate"]):
        return in_cluster(words)
    parser = argparse.ArgumentParser(prog="gpu-webhook-certs", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("rotate", help="keep the CA, the CA bundles and the serving certificate of an installation")
    commands.add_parser("activate", help="only let pods be brought to replicas once they answer; others issue")
    command = commands.add_parser("self-signed", help="keep a good self-signed pair in a directory")
    command.add_argument("--directory", type=Path, required=True, help=f"where {CERTIFICATE} and {KEY} are kept")
    besides = "a DNS name or IP address, besides those of loopback"
    command.add_argument("--name", action="append", default=[], help=besides)
    options = parser.parse_args(words)
    try:
        options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(options.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Two starts at once must not leave the key of one beside the certificate of the other.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            reason = keep(options.directory, [*issue.LOOPBACK, *options.name], datetime.now(UTC))
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"certs: no certificate could be written to {options.directory}: {error}\n")
        return 1
    if reason is not None:
        sys.stderr.write(f"certs: made a new certificate in {options.directory}: {reason}\n")
    return 0


def keep(directory: Path, names: Sequence[str], now: datetime) -> str | None:
    """Make sure that `directory` holds a good pair; says why it had to make one, or None."""
    try:
        present = issue.Pair((directory / CERTIFICATE).read_bytes(), (directory / KEY).read_bytes())
    except FileNotFoundError:
        reason: str | None = "there was none"
    else:
        reason = issue.check(present, now, names)
        if reason is None and issue.elapsed(present.certificate, now) >= issue.RENEW_AT:
            reason = f"it expires on {issue.expires(present.certificate):%Y-%m-%d}"
    if reason is not None:
        pair = issue.self_signed(names, now)
        replace(directory / KEY, pair.key, mode=0o600)
        replace(directory / CERTIFICATE, pair.certificate, mode=0o644)
    return reason


def replace(path: Path, content: bytes, *, mode: int) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one, never a part."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # mkstemp made it 0600, so a key is at no time readable by others
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def in_cluster(words: Sequence[str]) -> int:
    """`gpu-webhook-certs rotate` and `activate`: duties and a page, until SIGTERM.

    `rotate` issues and renews certificates, and activates the webhooks. `activate` does only the latter:
    cert-manager, or an operator, issues the certificates and writes the bundles.

    Several copies at once do no harm (`rotation.State`): they only make each other's writes fail. So a rollout leaves
    no gap, and no Lease is needed.
    """
    from certs import api, turns  # noqa: PLC0415 - the client costs 0.5 s, which `make run` must not pay
    from certs.activation import Activator  # noqa: PLC0415 - the same
    from certs.rotation import Rotator, Terms  # noqa: PLC0415 - the same

    def address(text: str) -> api.Address:
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit():
            raise argparse.ArgumentTypeError(f"{text} is not an address and a port, such as 0.0.0.0:8443")
        return api.Address(host.strip("[]"), int(port))

    default = Terms()
    parser = argparse.ArgumentParser(prog="gpu-webhook-certs", description=in_cluster.__doc__)
    parser.add_argument("command", choices=("rotate", "activate"))
    parser.add_argument("--namespace", default=api.Site().namespace, help="of the Secrets and Services")
    listen = api.Address("127.0.0.1", 8082)
    parser.add_argument("--metrics", type=address, default=listen, help="/metrics and /healthz")
    parser.add_argument("--ca-lifetime", type=_duration, default=default.authority, help="of a new CA")
    parser.add_argument("--leaf-lifetime", type=_duration, default=default.leaf, help="of a new serving certificate")
    trusted = "how long a CA is trusted before it is used"
    parser.add_argument("--overlap", type=_duration, default=default.overlap, help=trusted)
    parser.add_argument("--renew-at", type=float, default=default.renew_at, help="the part of a lifetime")
    idle = timedelta(seconds=turns.IDLE_SECONDS)
    parser.add_argument("--idle", type=_duration, default=idle, help="between two looks")
    options = parser.parse_args(words)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)

    async def program() -> None:
        this, loop = asyncio.current_task(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: this and this.cancel())
        cluster = await api.connect()
        try:
            site, status = api.Site(options.namespace), turns.Status()
            duties: list[turns.Duty] = [Activator(cluster, site, status).turn]
            if options.command == "rotate":  # first, as in a first installation
                lifetimes = {"authority": options.ca_lifetime, "leaf": options.leaf_lifetime}
                terms = Terms(**lifetimes, overlap=options.overlap, renew_at=options.renew_at)
                duties.insert(0, Rotator(cluster, site, terms, status).turn)
            await turns.work(status, duties, options.metrics, options.idle.total_seconds())
        finally:
            await cluster.close()

    try:
        asyncio.run(program())
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
    return timedelta(seconds=float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]])


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


if __name__ == "__main__":
    sys.exit(main())
