"""`gpu-webhook serve`: answer admission reviews over HTTPS."""

from __future__ import annotations

import argparse
from pathlib import Path

from webhook.cli import options
from webhook.server import settings


def add_options(command: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from webhook.server import serve  # after the options: a wrong one is told without the server's imports

    options.address(arguments.bind)
    attach = None
    if arguments.cluster:
        from webhook.server import reservations

        attach = reservations.Quotas
    return serve.serve(
        settings.Settings(
            bind=arguments.bind,
            rules=arguments.rules,
            surroundings=arguments.surroundings,
            tenants=arguments.tenants,
            tls_cert=arguments.tls_cert,
            tls_key=arguments.tls_key,
            client_ca=arguments.client_ca,
        ),
        attach,
    )
