"""`gpu-webhook-certs`, or `python -m certs`: the certificate program's command line.

`rotate` and `activate` run in a cluster (`program`). `self-signed` keeps a good pair in a directory: it
leaves a good one alone, and replaces one that is missing, broken, mismatched, for other names or about to expire.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from certs import issue
from certs.issue import LOOPBACK, Pair

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 1 with a line that says what could not be done."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] in (["rotate"], ["activate"]):
        from certs import program  # noqa: PLC0415 - the client costs 0.5 s, which `make run` must not pay

        return program.main(words)
    parser = argparse.ArgumentParser(prog="gpu-webhook-certs", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("rotate", help="keep the CA, the CA bundles and the serving certificate of an installation")
    commands.add_parser("activate", help="only let pods be brought to replicas once they answer; others issue")
    command = commands.add_parser("self-signed", help="keep a good self-signed pair in a directory")
    command.add_argument("--directory", type=Path, required=True, help=f"where {CERTIFICATE} and {KEY} are kept")
    command.add_argument(
        "--name", action="append", default=[], help="a DNS name or IP address, besides those of loopback"
    )
    options = parser.parse_args(words)
    try:
        options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(options.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Two starts at once must not leave the key of one beside the certificate of the other.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            reason = keep(options.directory, [*LOOPBACK, *options.name], datetime.now(UTC))
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
        present = Pair((directory / CERTIFICATE).read_bytes(), (directory / KEY).read_bytes())
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


if __name__ == "__main__":
    sys.exit(main())
