"""`gpu-webhook console`: serve a page that shows the rules and tries pods."""

import argparse
from pathlib import Path

from webhook import console
from webhook.cli import options


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook console` takes."""
    command.add_argument("--bind", default="127.0.0.1:8080", metavar="HOST:PORT", help="default: %(default)s")
    options.rules_option(command)
    options.surroundings_option(command)
    objects = command.add_mutually_exclusive_group()
    objects.add_argument("--inventory", type=Path, metavar="FILE", help="nodes and pods, for the page of the cluster")
    objects.add_argument("--cluster", action="store_true", help="read nodes, pods and tenants of the current cluster")
    command.add_argument("--tenants", type=Path, metavar="FILE", help="tenants and their usage, without --cluster")


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until told to stop."""
    inventory = console.Source(arguments.inventory, arguments.surroundings, live=arguments.cluster)
    tenants = console.Standings(arguments.tenants, live=arguments.cluster and arguments.tenants is None)
    return console.serve(arguments.bind, arguments.rules, inventory, tenants)
