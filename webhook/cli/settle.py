"""`gpu-webhook settle`: count what tenants use, for `serve --cluster`."""

import argparse

from webhook import settler
from webhook.cli import options


def add_options(command: argparse.ArgumentParser) -> None:
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
    command.add_argument("--registers", action="store_true", help="write match conditions of webhooks by the rules")
    options.rules_option(command)
    options.log_level_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Count until told to stop."""
    address, grace = options.address(arguments.bind), arguments.grace
    return settler.settle(
        arguments.rules, address, grace, registers=arguments.registers, log_level=arguments.log_level
    )
