"""The commands that run until they are stopped: serve, console, settle, watch."""

from __future__ import annotations

import argparse
from pathlib import Path

from webhook.cli import options
from webhook.cli.options import UsageError
from webhook.server import settings


def serve_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook serve` takes."""
    command.add_argument("--bind", default="127.0.0.1:8443", metavar="HOST:PORT", help="default: %(default)s")
    command.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate; default: a self-signed pair, made once"
    )
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    command.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="answer only clients with a certificate of this CA"
    )
    options.rules_option(command)
    options.surroundings_option(command)
    tenants = command.add_mutually_exclusive_group()
    tenants.add_argument(
        "--cluster", action="store_true", help="policies and quotas of the current cluster; needs gpu-webhook settle"
    )
    tenants.add_argument("--tenants", type=Path, metavar="FILE", help="policies and usage, without a cluster")
    command.set_defaults(command=_serve)


def _serve(given: argparse.Namespace) -> int:
    # Imported here so that `explain` starts without the server, and the server without what `explain` needs.
    from webhook.server import serve

    options.address(given.bind)
    attach = None
    if given.cluster:
        from webhook.server import reservations

        attach = reservations.Quotas
    return serve.serve(
        settings.Settings(
            bind=given.bind,
            rules=given.rules,
            surroundings=given.surroundings,
            tenants=given.tenants,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            client_ca=given.client_ca,
        ),
        attach,
    )


def console_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook console` takes."""
    command.add_argument("--bind", default="127.0.0.1:8080", metavar="HOST:PORT", help="default: %(default)s")
    options.rules_option(command)
    options.surroundings_option(command)
    seen = command.add_mutually_exclusive_group()
    seen.add_argument("--inventory", type=Path, metavar="FILE", help="nodes and pods, for the page of the cluster")
    seen.add_argument("--cluster", action="store_true", help="read nodes, pods and tenants of the current cluster")
    command.add_argument("--tenants", type=Path, metavar="FILE", help="tenants and their usage, without --cluster")
    command.set_defaults(command=_console)


def _console(given: argparse.Namespace) -> int:
    from webhook import console

    seen = console.Source(given.inventory, given.surroundings, live=given.cluster)
    standings = console.Standings(given.tenants, live=given.cluster and given.tenants is None)
    return console.serve(*options.address(given.bind), given.rules, seen, standings)


def settle_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook settle` takes."""
    command.add_argument(
        "--bind", default="127.0.0.1:8082", metavar="HOST:PORT", help="address of /metrics (default: %(default)s)"
    )
    command.add_argument(
        "--grace",
        type=float,
        default=45.0,
        metavar="SECONDS",
        help="lifetime of a reservation without a pod; longer than any create (default: %(default)g)",
    )
    options.rules_option(command)
    command.set_defaults(command=_settle)


def _settle(given: argparse.Namespace) -> int:
    from webhook.cluster import client
    from webhook.settler import settler

    try:
        return settler.settle(given.rules, options.address(given.bind), given.grace)
    except client.ApiError as error:
        raise UsageError(str(error)) from None


def watch_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook watch` takes."""
    command.add_argument(
        "--write", type=Path, required=True, metavar="FILE", help="the file; replaced at each change"
    )
    options.rules_option(command)
    command.set_defaults(command=_watch)


def _watch(given: argparse.Namespace) -> int:
    from webhook.cluster import client
    from webhook.watcher import watcher

    if not given.write.parent.is_dir():
        raise UsageError(f"{given.write.parent} is not a directory")
    try:
        return watcher.watch(given.rules, given.write)
    except client.ApiError as error:
        raise UsageError(str(error)) from None
