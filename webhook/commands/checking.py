"""The commands about rule files: check, schema."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from webhook.commands import options, streams
from webhook.commands.options import FINE, NOT_FINE, UsageError
from webhook.core.forms.document import nearest
from webhook.core.rules.rulebook import Rulebook
from webhook.server import settings


def check_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook check` takes."""
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=settings.default_rules(),
        metavar="DIR",
        help="rule files (default: %(default)s)",
    )
    command.add_argument(
        "--losses", action="store_true", help="list requests that cannot be recovered from a pod's resources"
    )
    options.output(command)
    command.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> int:
    if not given.directory.is_dir():
        raise UsageError(f"{given.directory} is not a directory")
    from webhook.core.policy import status, unknown_devices
    from webhook.core.reports import applied, doubts
    from webhook.core.reports.checkup import number
    from webhook.core.rules import cluster
    from webhook.files import rule_files
    from webhook.views import rules

    try:
        rulebook = rule_files.load(given.directory)
        rule_files.check_installable(given.directory, rulebook.cluster)
    except rule_files.RuleFilesError as error:
        if given.output == "json":
            streams.dump(rules.broken(error.problems))
        else:
            print(error)
        return NOT_FINE
    lost = _losses(rulebook) if given.losses else None
    own = rulebook.cluster.unlisted(cluster.OWN, fix="add it if the webhook is installed there")
    warnings = [*map(str, own), *doubts.doubts(rulebook), *applied.every(rulebook, time.time())]
    if given.output == "json":
        found = {} if lost is None else {"losses": lost}
        streams.dump({"fine": True, "problems": [], "warnings": warnings, **found, **rules.counts(rulebook)})
        return FINE
    fine = f"fine, but {number(len(warnings), 'warning')}" if warnings else "all fine"
    print("\n".join([f"{given.directory}: {rules.describe(rules.counts(rulebook))}: {fine}", *warnings]))
    if strict := unknown_devices.refused_by_default(rulebook.tenancy, rulebook.cluster):
        print(f"{', '.join(strict)}: {status.STRICT}")
    if lost:
        print("cannot be recovered from a pod's resources (a pod that states them itself counts as a whole device):")
        print(*(f"  {each}" for each in lost), sep="\n")
    return FINE


def _losses(rulebook: Rulebook) -> list[str]:
    from webhook.core.reports import losses
    from webhook.core.rules import index

    backends = rulebook.backends.items()
    return [str(loss) for name, backend in backends for loss in losses.losses(backend, index.only(name, rulebook))]


def schema_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook schema` takes."""
    command.add_argument("kind", nargs="?", metavar="KIND", help="a kind of document, such as Backend (default: all)")
    command.set_defaults(command=_schema)


def _schema(given: argparse.Namespace) -> int:
    from webhook.core.rules import schema as schemas
    from webhook.core.rules.schema import KINDS

    if given.kind not in {None, *KINDS}:
        raise UsageError(
            f'no kind of rule is called "{given.kind}"{nearest(given.kind, KINDS)}; there are {", ".join(KINDS)}'
        )
    print(schemas.text(schemas.schema(given.kind)))
    return FINE
