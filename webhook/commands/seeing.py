"""The commands that show what a cluster has and who uses it: inventory, tenants."""

from __future__ import annotations

import argparse
import time

from webhook.commands import options, streams
from webhook.commands.outcome import FINE, UsageError
from webhook.files import rulebook_cache


def inventory_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    _reads(command, "nodes and pods as YAML or JSON (kubectl get nodes,pods -A -o json)")
    command.set_defaults(command=_inventory)


def _reads(command: argparse.ArgumentParser, objects: str) -> None:
    command.add_argument("file", nargs="*", metavar="FILE|-", help=f"{objects}; default: the current cluster's")
    options.rules(command)
    options.output(command)


def _inventory(given: argparse.Namespace) -> int:
    from webhook.cluster import current
    from webhook.files import inventory_objects
    from webhook.views import inventory

    rulebook = rulebook_cache.load(given.rules)
    objects = inventory_objects.Objects()
    try:
        for file in given.file:
            objects.parse(*streams.whole(file))
        if not given.file:
            objects = current.inventory()
    except inventory_objects.UnreadableError as error:
        instead = "" if given.file else "; or give files, from: kubectl get nodes,pods -A -o json"
        raise UsageError(f"{error}{instead}") from None
    view = objects.view(rulebook)
    streams.dump(view.contract()) if given.output == "json" else print("\n".join(inventory.lines(view)))
    return FINE


def tenants_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    _reads(command, "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML")
    command.set_defaults(command=_tenants)


def _tenants(given: argparse.Namespace) -> int:
    from webhook.cluster import current
    from webhook.files import tenant_objects
    from webhook.files.inventory_objects import UnreadableError
    from webhook.views import tenants, tenants_contract

    rulebook = rulebook_cache.load(given.rules)
    objects = tenant_objects.Objects()
    try:
        for file in given.file:
            objects.parse(*streams.whole(file))
        if not given.file:
            objects = current.tenants()
    except UnreadableError as error:
        raise UsageError(str(error)) from None
    view = objects.view(rulebook, time.time(), live=not given.file)
    streams.dump(tenants_contract.contract(view)) if given.output == "json" else print("\n".join(tenants.lines(view)))
    return FINE
