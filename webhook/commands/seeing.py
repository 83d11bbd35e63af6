"""The commands that show what a cluster has and who uses it: inventory, tenants, survey."""

from __future__ import annotations

import argparse
import time

from webhook.commands import options, streams
from webhook.commands.options import FINE, NOT_FINE, UsageError
from webhook.files import rulebook_cache


def inventory_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    _reads(command, "nodes, pods, and manifests of what makes pods (kubectl get nodes,pods -A -o json), or YAML")
    command.set_defaults(command=_inventory)


def _reads(command: argparse.ArgumentParser, objects: str) -> None:
    command.add_argument("file", nargs="*", metavar="FILE|-", help=f"{objects}; default: the current cluster's")
    options.rules(command)
    options.output(command)


def _inventory(given: argparse.Namespace) -> int:
    from webhook.cluster import current
    from webhook.files import documents, inventory_objects
    from webhook.views import inventory

    rulebook = rulebook_cache.load(given.rules)
    objects = inventory_objects.Objects()
    for file in given.file:
        objects.parse(*streams.content(file))
    try:
        objects = objects if given.file else current.inventory()
    except documents.UnreadableError as error:
        raise UsageError(f"{error}; or give files, from: kubectl get nodes,pods -A -o json") from None
    view = objects.view(rulebook)
    streams.dump(view.contract()) if given.output == "json" else print("\n".join(inventory.lines(view)))
    return NOT_FINE if view.unknown else FINE


def tenants_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    _reads(command, "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML")
    command.set_defaults(command=_tenants)


def _tenants(given: argparse.Namespace) -> int:
    from webhook.cluster import current
    from webhook.files import tenant_objects
    from webhook.views import tenants

    rulebook = rulebook_cache.load(given.rules)
    objects = tenant_objects.Objects()
    for file in given.file:
        objects.parse(*streams.content(file))
    objects = objects if given.file else current.tenants()
    view = objects.view(rulebook, time.time(), live=not given.file)
    streams.dump(tenants.contract(view)) if given.output == "json" else print("\n".join(tenants.lines(view)))
    return FINE


def survey_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook survey` takes."""
    from webhook.files import survey_objects

    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|DIR|-",
        help=f"what {survey_objects.KUBECTL} prints, or JSON; default: the current cluster",
    )
    options.rules(command)
    command.set_defaults(command=_survey)


def _survey(given: argparse.Namespace) -> int:
    from webhook.cluster import current
    from webhook.core.reports.survey import survey
    from webhook.files import documents, rule_files, survey_objects
    from webhook.views import survey as view

    rulebook = rule_files.load_systems(given.rules)
    try:
        files = map(streams.content, survey_objects.files(given.file))
        objects = survey_objects.by_kind(files, rulebook) if given.file else current.surveyed(rulebook)
    except documents.UnreadableError as error:
        raise UsageError(str(error)) from None
    found = survey(objects, rulebook)
    print(view.text(found), end="")
    return FINE if found.backends else NOT_FINE
