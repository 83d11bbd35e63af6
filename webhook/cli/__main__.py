"""The command line, `gpu-webhook`.

Exit codes: 0 fine, 1 findings or a denial, 2 wrong usage or an error of the program or its surroundings.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from webhook.cli.options import FAILED, FINE, UsageError

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("running.serve_options", "answer admission reviews over HTTPS"),
    "console": ("running.console_options", "serve a page that shows the rules and tries pods"),
    "explain": ("explain.explain_options", "show what would become of a pod, and why"),
    "check": ("check.check_options", "check rule files and run their examples"),
    "schema": ("check.schema_options", "print the JSON Schema of rules, for editors"),
    "render": ("render.render_options", "print the webhook configurations for this cluster"),
    "doctor": ("doctor.doctor_options", "examine the installation in the current cluster"),
    "inventory": ("seeing.inventory_options", "show what nodes have and what pods ask for"),
    "survey": ("seeing.survey_options", "write the Cluster document that fits a cluster"),
    "tenants": ("seeing.tenants_options", "show the quota and the usage of each tenant"),
    "settle": ("running.settle_options", "count what tenants use, for serve --cluster"),
    "watch": ("running.watch_options", "write nodes and claims of the cluster into a file for serve"),
}
"""The subcommands: what declares the options of each, and what it is for. A module is imported if it is asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    grammar = parser(arguments)
    options = grammar.parse_args(arguments)
    if options.version:
        from importlib import metadata  # imports the packages for e-mail and ZIP files

        print(f"gpu-webhook {metadata.version('gpu-webhook')}")
        return FINE
    if "command" not in options:
        grammar.print_help(sys.stderr)
        return FAILED
    try:
        return int(options.command(options))
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        if "GPU_WEBHOOK_TRACE" in os.environ:
            raise
        print(f"gpu-webhook: {_message_of(error)}", file=sys.stderr)
        return FAILED


def _message_of(error: Exception) -> str:
    from webhook.files import documents, rule_files  # with everything that reads rules

    match error:
        case UsageError() | documents.UnreadableError():
            return str(error)
        case rule_files.RuleFilesError():
            return f"the rules cannot be used:\n{error}"
        case OSError():
            return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"an error of the program, not of yours: {error!r}; GPU_WEBHOOK_TRACE=1 shows where"


def parser(arguments: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The grammar of the command line, with the options of the commands that the arguments name."""
    whole = argparse.ArgumentParser(
        prog="gpu-webhook",
        description='Kubernetes admission for clusters that share GPUs: gpu: "0.3" in, a vendor\'s request out.',
        epilog="exit codes: 0 fine, 1 findings or a denial, 2 usage or internal error",
    )
    whole.add_argument("--version", action="store_true", help="print the version and exit")
    commands = whole.add_subparsers(metavar="COMMAND", prog="gpu-webhook")
    for name, (declared, what) in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name in arguments:
            module, _, fill = declared.partition(".")
            getattr(importlib.import_module(f"webhook.cli.{module}"), fill)(command)
    return whole


if __name__ == "__main__":
    sys.exit(main())
