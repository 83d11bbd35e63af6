"""The commands about rule files: check, schema."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from webhook import rulefiles, settings, summary
from webhook.commands import options, streams
from webhook.commands.outcome import FINDINGS, FINE, UsageError
from webhook.core import indexes, losses
from webhook.core.losses import Loss
from webhook.core.schema.rulebooks import KINDS


def check_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook check` takes."""
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=settings.default_rules(),
        metavar="DIR",
        help="default: %(default)s",
    )
    options.output(command)
    command.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> int:
    if not given.directory.is_dir():
        raise UsageError(f"{given.directory} is not a directory")
    try:
        rulebook = rulefiles.load(given.directory)
    except rulefiles.RuleFilesError as error:
        if given.output == "json":
            streams.dump({"fine": False, "problems": [summary.located(problem) for problem in error.problems]})
        else:
            print(error)
        return FINDINGS
    one_way = [
        loss
        for name, backend in rulebook.backends.items()
        for loss in losses.losses(backend, indexes.only(name, rulebook))
    ]
    if given.output == "json":
        streams.dump({"fine": True, "problems": [], "oneWay": [*map(str, one_way)], **summary.counts(rulebook)})
    else:
        print(f"{given.directory}: {summary.describe(rulebook)}: all fine")
        print(*_told(one_way), sep="\n", end="\n" if one_way else "")
    return FINE


def _told(one_way: Sequence[Loss]) -> Iterator[str]:
    """What cannot be read back, with what that means."""
    if one_way:
        yield "written one way only (a pod in the system's own words counts as the whole device there):"
        yield from (f"  {loss}" for loss in one_way)


def schema_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook schema` takes."""
    command.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND", help=f"{', '.join(KINDS)}; default: any")
    command.set_defaults(command=_schema)


def _schema(given: argparse.Namespace) -> int:
    from webhook.core.editor import documents

    print(documents.text(documents.schema(given.kind)))
    return FINE
