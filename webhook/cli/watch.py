"""`gpu-webhook watch`: write nodes and claims of the cluster into a file for `serve`."""

import argparse
from pathlib import Path

from webhook import watcher
from webhook.cli import options


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook watch` takes."""
    command.add_argument(
        "--write", type=Path, required=True, metavar="FILE", help="the file; replaced at each change"
    )
    options.rules_option(command)
    options.log_level_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Watch until told to stop."""
    if not arguments.write.parent.is_dir():
        raise options.UsageError(f"{arguments.write.parent} is not a directory")
    return watcher.watch(arguments.rules, arguments.write, arguments.log_level)
