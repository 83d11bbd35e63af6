"""The commands that show what a cluster has and who uses it: inventory, tenants."""

from __future__ import annotations

import argparse
import time

from webhook import rulefiles
from webhook.commands import options, streams
from webhook.commands.outcome import FINE, UsageError


def inventory_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|-",
        help="nodes and pods as YAML or JSON (kubectl get nodes,pods -A -o json); default: the current cluster's",
    )
    options.rules(command)
    options.output(command)
    command.set_defaults(command=_inventory)


def _inventory(given: argparse.Namespace) -> int:
    from webhook import inventory

    rulebook = rulefiles.load(given.rules)
    objects = inventory.Objects()
    try:
        for file in given.file:
            inventory.parse(*streams.whole(file), objects)
        if not given.file:
            objects = inventory.live()
    except inventory.UnreadableError as error:
        instead = "" if given.file else "; or give files, from: kubectl get nodes,pods -A -o json"
        raise UsageError(f"{error}{instead}") from None
    view = objects.view(rulebook)
    streams.dump(view.contract()) if given.output == "json" else print("\n".join(inventory.lines(view)))
    return FINE


def tenants_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|-",
        help="what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML; "
        "default: the current cluster's",
    )
    options.rules(command)
    options.output(command)
    command.set_defaults(command=_tenants)


def _tenants(given: argparse.Namespace) -> int:
    from webhook import tenants

    rulebook = rulefiles.load(given.rules)
    objects = tenants.Objects()
    try:
        for file in given.file:
            objects.parse(*streams.whole(file))
        if not given.file:
            objects = tenants.live()
    except tenants.UnreadableError as error:
        raise UsageError(str(error)) from None
    view = objects.view(rulebook, time.time(), live=not given.file)
    streams.dump(tenants.contract(view)) if given.output == "json" else print("\n".join(tenants.lines(view)))
    return FINE
