"""What commands have in common: exit codes, the error of wrong usage, and options with what their values mean."""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EADDRINUSE
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.server import settings

if TYPE_CHECKING:
    from webhook.core.rules.rulebook import Rulebook

FINE: Final = 0
NOT_FINE: Final = 1
FAILED: Final = 2


DEMO: Final = Path(__file__).parents[1] / "console" / "demo"
"""The cluster, the nodes and the tenants that `make run` imagines."""


class UsageError(Exception):
    """What was asked cannot be done; the message is for the person who typed it."""


def rules_option(command: argparse.ArgumentParser) -> None:
    """Where the rule files are."""
    default, what = settings.default_rules(), "rule files (default: %(default)s)"
    command.add_argument("--rules", type=Path, default=default, metavar="DIR", help=what)


AS_SHIPPED: Final = "368121a2ceb92213e81858943eaa3f799a8bc10abf108ffe327e046d82aa22de"
"""SHA-256 of the shipped rules/cluster.yaml without its lines of comments: it says nothing of anybody's cluster."""

JUDGED_BY_DEMO: Final = (
    "note: judged by an imagined cluster (--demo), as rules/cluster.yaml is as shipped;"
    " for the cluster of your kubeconfig: --cluster"
)


def judging_options(command: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """By what rules, for `judged_by`; what stands in the group is given instead of the imagined cluster."""
    rules = f"rule files (default: {settings.default_rules()})"
    command.add_argument("--rules", type=Path, metavar="DIR", help=rules)
    judges = command.add_mutually_exclusive_group()
    demo = "judge by the imagined cluster of make run; default where rules/cluster.yaml is as shipped"
    judges.add_argument("--demo", action="store_true", help=demo)
    return judges


def judged_by(arguments: argparse.Namespace, *, quiet: bool = False) -> Rulebook:
    """The rules that are named, or those of the imagined cluster; if nobody has said so it is told."""
    from webhook.files import rule_files

    rules = arguments.rules or settings.default_rules()
    assumed = arguments.rules is None and is_as_shipped(rules)
    demo = arguments.demo or assumed
    with progress("running the examples of the rules, as something has changed"):
        rulebook = rule_files.load_cached(rules, (DEMO / "cluster.yaml").read_text() if demo else "")
    if assumed and not arguments.demo and not quiet:
        print(JUDGED_BY_DEMO, file=sys.stderr)
    return rulebook


def is_as_shipped(rules: Path) -> bool:
    """Whether the Cluster document of these rules is the shipped one."""
    try:
        lines = (rules / "cluster.yaml").read_bytes().splitlines(keepends=True)
    except OSError:
        return False
    uncommented = b"".join(line for line in lines if not line.lstrip().startswith(b"#"))
    return hashlib.sha256(uncommented).hexdigest() == AS_SHIPPED


def log_level_option(command: argparse.ArgumentParser) -> None:
    """Which of the messages of a program are written."""
    levels = ("debug", "info", "warning", "error")
    command.add_argument("--log-level", choices=levels, default="info", help="of its messages (default: %(default)s)")


def namespace_option(command: argparse.ArgumentParser) -> None:
    """Where the admission server runs."""
    from webhook.core.rules import cluster  # only for the commands that take it: it comes with all forms of rules

    command.add_argument(
        "--namespace", default=cluster.OWN, metavar="NAME", help="where the server runs (default: %(default)s)"
    )


def objects_option(command: argparse.ArgumentParser, objects: str) -> None:
    """Files with objects, as text or JSON; without them those of the current cluster."""
    command.add_argument("file", nargs="*", metavar="FILE|-", help=f"{objects}; default: the current cluster's")
    rules_option(command)
    output_option(command)


def around_option(command: argparse.ArgumentParser, what: str) -> None:
    """Files with objects beside those that are asked about; `what` these may be."""
    command.add_argument("--with", dest="around", action="append", default=[], metavar="FILE", help=what)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on a terminal what takes longer than a second, until it is done."""
    terminal = sys.stderr.isatty()
    timer = threading.Timer(1.0, print, [f"{what} ..."], {"end": "", "file": sys.stderr, "flush": True})
    timer.daemon = True
    if terminal:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        print("\r\x1b[K" if terminal else "", end="", file=sys.stderr, flush=True)


def output_option(command: argparse.ArgumentParser) -> None:
    """For people or for scripts."""
    command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def surroundings_option(command: argparse.ArgumentParser) -> None:
    """Where the watcher leaves what the cluster has."""
    command.add_argument("--surroundings", type=Path, metavar="FILE", help="the file that gpu-webhook watch writes")


def address(bind: str, option: str = "--bind") -> tuple[str, int]:
    """The host and port that an option gives; raises UsageError."""
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {bind}: write HOST:PORT, as 127.0.0.1:8443")
    return host.strip("[]"), int(port)


def listening(bind: str, option: str, fix: str) -> socket.socket:
    """The socket of a server, on the address that an option gives; raises UsageError, with a fix for one in use."""
    host, port = address(bind, option)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise UsageError(f"{bind} is in use; end what listens there, or {fix}") from None
        reason = str(error.strerror).partition(" (while ")[0]  # Python adds the address, which is said already
        raise UsageError(f"cannot listen on {bind}: {reason}") from None


def read_content(file: str, most: int = -1) -> tuple[bytes, str]:
    """The content of a file, and its name; `-` is standard input, of which at most so many bytes are read."""
    return (sys.stdin.buffer.read(most), "standard input") if file == "-" else (Path(file).read_bytes(), file)


def output_of(command: Sequence[str], failed: str) -> bytes:
    """What a program of the user's prints; raises UsageError with what it says is wrong."""
    import subprocess

    ran = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - no shell, and what the user asks for
    if ran.returncode:
        raise UsageError(f"{failed}: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout


def time_of(text: str) -> float:
    """The value of an option that is a time, in seconds since 1970."""
    from webhook.core.kube import quantity

    try:
        return quantity.parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))
