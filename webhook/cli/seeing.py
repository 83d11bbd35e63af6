"""The commands that show what a cluster has and who uses it: inventory, tenants, survey."""

from __future__ import annotations

import argparse
import time

from webhook.cli import options
from webhook.cli.options import FINE, NOT_FINE, UsageError
from webhook.files import rule_files


def inventory_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    _reads(command, "nodes, pods, and manifests of what makes pods (kubectl get nodes,pods -A -o json), or YAML")
    command.set_defaults(command=_inventory)


def _reads(command: argparse.ArgumentParser, objects: str) -> None:
    command.add_argument("file", nargs="*", metavar="FILE|-", help=f"{objects}; default: the current cluster's")
    options.rules_option(command)
    options.output_option(command)


def _inventory(given: argparse.Namespace) -> int:
    from webhook.cli import inventory, snapshot
    from webhook.files import documents

    rulebook = rule_files.load_cached(given.rules)
    objects = snapshot.ClusterObjects()
    for file in given.file:
        objects.parse(*options.read_content(file))
    try:
        objects = objects if given.file else snapshot.read_inventory()
    except documents.UnreadableError as error:
        raise UsageError(f"{error}; or give files, from: kubectl get nodes,pods -A -o json") from None
    view = objects.view(rulebook)
    options.print_json(view.contract()) if given.output == "json" else print("\n".join(inventory.lines(view)))
    return NOT_FINE if view.unknown else FINE


def tenants_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    _reads(command, "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML")
    command.set_defaults(command=_tenants)


def _tenants(given: argparse.Namespace) -> int:
    from webhook.cli import snapshot, tenants

    rulebook = rule_files.load_cached(given.rules)
    objects = snapshot.TenantObjects()
    for file in given.file:
        objects.parse(*options.read_content(file))
    objects = objects if given.file else snapshot.read_tenants()
    view = objects.view(rulebook, time.time(), live=not given.file)
    options.print_json(tenants.contract(view)) if given.output == "json" else print("\n".join(tenants.lines(view)))
    return FINE


def survey_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook survey` takes."""
    from webhook.cli import snapshot

    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|DIR|-",
        help=f"what {snapshot.KUBECTL} prints, or JSON; default: the current cluster",
    )
    options.rules_option(command)
    command.set_defaults(command=_survey)


def _survey(given: argparse.Namespace) -> int:
    from webhook.cli import snapshot
    from webhook.cli import survey as view
    from webhook.cli.survey import survey
    from webhook.files import documents, rule_files

    rulebook = rule_files.load_systems(given.rules)
    try:
        files = map(options.read_content, snapshot.files(given.file))
        objects = snapshot.by_kind(files, rulebook) if given.file else snapshot.read_surveyed(rulebook)
    except documents.UnreadableError as error:
        raise UsageError(str(error)) from None
    found = survey(objects, rulebook)
    print(view.survey_text(found), end="")
    return FINE if found.backends else NOT_FINE
