"""`gpu-webhook completion`: print what completes commands, options, files and folders in a shell."""

import argparse

import shtab

from webhook.cli import options


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook completion` takes."""
    command.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell that reads it")


def run(arguments: argparse.Namespace) -> int:
    """Print it, for the name by which the program was called."""
    from webhook.cli import __main__

    grammar = __main__.parser(program=__main__.called())
    todo = [grammar]
    while todo:
        for action in todo.pop()._actions:  # noqa: SLF001 - argparse tells its arguments to nobody
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
                todo += action.choices.values()
            elif str(action.metavar).startswith(("FILE", "DIR")):
                completed = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
                action.complete = completed  # type: ignore[attr-defined] # where shtab looks for it
    print(shtab.complete(grammar, arguments.shell))
    return options.FINE
