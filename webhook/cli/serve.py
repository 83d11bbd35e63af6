"""`gpu-webhook serve`: answer admission reviews over HTTPS."""

from __future__ import annotations

import argparse
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cli import options
from webhook.core.forms.document import UnreadableError
from webhook.server import settings

if TYPE_CHECKING:
    from webhook.server.handler import Lane


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook serve` takes."""
    command.add_argument("--bind", default="127.0.0.1:8443", metavar="HOST:PORT", help="default: %(default)s")
    command.add_argument("--metrics", metavar="HOST:PORT", help="another port, only there /metrics names tenants")
    command.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate; default: a self-signed pair, made once"
    )
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    command.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="answer only clients with a certificate of this CA"
    )
    options.rules_option(command)
    options.surroundings_option(command)
    options.log_level_option(command)
    tenants = command.add_mutually_exclusive_group()
    tenants.add_argument(
        "--cluster", action="store_true", help="policies and quotas of the current cluster; needs gpu-webhook settle"
    )
    tenants.add_argument("--tenants", type=Path, metavar="FILE", help="policies and usage, without a cluster")


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    options.address(arguments.bind)
    if arguments.metrics is not None:
        options.address(arguments.metrics, "--metrics")
    from webhook.server import serve  # after the options: a wrong one is told without the server's imports

    attach = prepare = None
    if arguments.cluster:
        from webhook.server import attachment

        attach = attachment.follow
    if arguments.tenants is not None:
        prepare = partial(judge_by, arguments.tenants)
    names = {field.name for field in fields(settings.Settings)}
    chosen = {name: value for name, value in vars(arguments).items() if name in names}
    return serve.serve(settings.Settings(**chosen), attach, prepare)


def judge_by(file: Path, lane: Lane) -> None:
    """Judge by the tenants of a file, beginning with what they hold there; raises OSError and UnreadableError."""
    from webhook.cli import snapshot
    from webhook.server import handler

    objects = snapshot.read_files(snapshot.TENANTS, [str(file)])
    ledgers, unread = objects.ledgers()
    if unread:
        raise UnreadableError("; ".join(map(str, unread)))
    lane.tenancy = lambda rules: objects.tenancy(rules)[0]
    lane.reservations = handler.OfflineReservations(ledgers)
    lane.use(lane.rules)
