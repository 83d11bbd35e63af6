"""The command line, `gpu-webhook`.

Exit codes: 0 fine, 1 findings or a denial, 2 wrong usage or an error of the program or its surroundings.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from webhook.cli.options import FAILED, FINE, UsageError

COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "serve": ("answer admission reviews over HTTPS", "", "--bind 127.0.0.1:9443 --metrics 127.0.0.1:9444"),
    "console": ("serve a page that shows the rules and tries pods", "", "--bind 127.0.0.1:9090 --cluster"),
    "explain": ("show what would become of a pod, and why", "pod.yaml", "-k overlays/production --cluster --quiet"),
    "check": ("check rule files and run their examples", "rules", "--losses -o json"),
    "diff": (
        "show what a change of rules or policies means for pods",
        "rules changed-rules --pods pods.yaml",
        "policies.yaml changed.yaml --pods pods.yaml -o markdown",
    ),
    "test": ("try suites: what has to become of pods", "suite.yaml", "suite.yaml --rules rules -o junit"),
    "schema": ("print the JSON Schema of rules, for editors", "> rules.json", "Backend"),
    "render": ("print objects for the API server", "webhooks > webhooks.yaml", "policies --with policies.yaml"),
    "doctor": ("examine the installation in the current cluster", "", "--rules rules -o json"),
    "inventory": ("show what nodes have and what pods ask for", "", "nodes.json pods.yaml -o json"),
    "survey": ("write the Cluster document that fits a cluster", "> cluster.yaml", "nodes.json"),
    "tenants": ("show the quota and the usage of each tenant", "", "vision-dev --user ada"),
    "settle": ("count what tenants use, for serve --cluster", "", "--rules rules --grace 60"),
    "watch": ("write nodes and claims into a file for serve", "--write a.json", "--write a.json --rules rules"),
    "completion": ("print what completes the command line in a shell", "bash > completions", "zsh"),
}
"""The subcommands, what each is for, and two examples of what follows its name.

Each is the module of its name: `add_options` declares its options, and `run` gives the exit code. It is imported only
if the command line names it: `explain` starts without the server, and the server without what `explain` needs.
"""


def called() -> str:
    """The name by which the program was started: as a plugin of kubectl it has another."""
    return "kubectl-gpu" if Path(sys.argv[0]).name == "kubectl-gpu" else "gpu-webhook"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    program = called().replace("kubectl-gpu", "kubectl gpu")
    arguments = sys.argv[1:] if arguments is None else arguments
    grammar = parser(arguments, program)
    options = grammar.parse_args(arguments)
    if options.version:
        from importlib import metadata  # imports the packages for e-mail and ZIP files

        print(f"gpu-webhook {metadata.version('gpu-webhook')}")
        return FINE
    if "run" not in options:
        grammar.print_help(sys.stderr)
        return FAILED
    try:
        return int(options.run(options))
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        if "GPU_WEBHOOK_TRACE" in os.environ:
            raise
        from webhook.core.forms.document import UnreadableError
        from webhook.files import rule_files  # with everything that reads rules

        message = f"an error of the program, not of yours: {error!r}; GPU_WEBHOOK_TRACE=1 shows where"
        match error:
            case rule_files.RuleFilesError():
                message = f"the rules cannot be used:\n{error}"
            case UsageError() | UnreadableError():
                message = str(error)
            case OSError():
                message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"{program}: {message}", file=sys.stderr)
        return FAILED


def parser(arguments: Sequence[str] = tuple(COMMANDS), program: str = "gpu-webhook") -> argparse.ArgumentParser:
    """The grammar of the command line, with the options of the commands that the arguments name."""
    whole = argparse.ArgumentParser(
        prog=program,
        description='Kubernetes admission for clusters that share GPUs: gpu: "0.3" in, a vendor\'s request out.',
        epilog="exit codes: 0 fine, 1 findings or a denial, 2 usage or internal error",
    )
    whole.add_argument("--version", action="store_true", help="print the version and exit")
    commands = whole.add_subparsers(metavar="COMMAND", prog=program)
    for name, (purpose, *examples) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            epilog="\n  ".join(["examples:", *(f"{program} {name} {example}".strip() for example in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in arguments:
            module = importlib.import_module(f"webhook.cli.{name}")
            module.add_options(command)
            command.set_defaults(run=module.run)
    return whole


if __name__ == "__main__":
    sys.exit(main())
