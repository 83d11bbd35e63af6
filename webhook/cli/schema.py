"""`gpu-webhook schema`: print the JSON Schema of rules, for editors."""

import argparse

from webhook.cli.options import FINE, UsageError
from webhook.core.forms.document import nearest
from webhook.core.rules import load


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook schema` takes."""
    command.add_argument("kind", nargs="?", metavar="KIND", help="a kind of document, such as Backend (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema of one kind, or of all."""
    kind = arguments.kind
    if kind not in {None, *load.KINDS}:
        raise UsageError(
            f'no kind of rule is called "{kind}"{nearest(kind, load.KINDS)}; there are {", ".join(load.KINDS)}'
        )
    print(load.schema_text(load.schema(kind)))
    return FINE
