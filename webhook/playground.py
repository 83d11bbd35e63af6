"""`make run`: the webhook and the console on this machine, without a cluster, until Ctrl-C.

Two child processes, each started as on the command line. They end with this process, whatever ends it. If one of them
ends, this process ends the other, too.
"""

import argparse
import ctypes
import http.client
import json
import os
import select
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from webhook.cli import check
from webhook.cli.options import DEMO, FAILED, FINE, UsageError, address, listening, rules_option
from webhook.server import settings

START_SECONDS: Final = 60.0
ASK_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.1
TAIL: Final = 1 << 16

CLUSTER: Final = DEMO / "cluster.yaml"

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG: Final = 1

POD: Final = (
    r'kind: Pod\nmetadata: {name: demo, labels: {gpu: "0.3"}}\nspec: {containers: [{name: main, image: demo}]}\n'
)

Programs = dict[str, subprocess.Popen[bytes]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Start both programs, print their addresses, and wait; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m webhook.playground", description="What `make run` starts.")
    parser.add_argument("--bind", default="127.0.0.1:8443", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--console", default="127.0.0.1:8080", metavar="HOST:PORT", help="%(default)s")
    rules_option(parser)
    given = parser.parse_args(arguments)
    stops: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: stops.append(number))
    programs: Programs = {}
    try:
        # Complain before anything is started, in the words of `make run`.
        for bind, option in ((given.bind, "--bind"), (given.console, "--console")):
            _, port = address(bind, option)
            other = f"{bind.rpartition(':')[0]}:{port + 1000 if port < 64000 else 9000}"
            fix = f"choose another port: make run {option.removeprefix('--').upper()}={other}"
            listening(bind, option, fix).close()
        # The tenants and nodes of the imagined cluster, whose rules are taken; none beside others.
        given.demo = given.rules == settings.default_rules()
        tenants: list[str | Path] = ["--tenants", DEMO / "tenants.yaml"] if given.demo else []
        inventory: list[str | Path] = ["--inventory", DEMO / "inventory.yaml"] if given.demo else []
        if given.demo:
            given.rules = imagined(settings.state_directory() / "demo")
        webhook = ("serve", "--bind", given.bind, "--rules", given.rules, *tenants)
        console = ("console", "--bind", given.console, "--rules", given.rules, *tenants, *inventory)
        programs["webhook"] = _start(subprocess.PIPE, *webhook)
        programs["console"] = _start(subprocess.DEVNULL, *console)
        _show(given, _output(programs, stops))
    except UsageError as error:
        print(f"gpu-webhook: {error}", file=sys.stderr)  # noqa: T201 - this is a command line
        return FAILED
    except BrokenPipeError:  # the reader of the output has gone; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        for program in programs.values():
            # End a program and its children at once: a client of a playground needs no time to turn elsewhere.
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            with program:
                program.wait()
    return FINE


def imagined(folder: Path) -> Path:
    """Fill a folder with links: the shipped rules, with the Cluster document of the imagined cluster. Returns it."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in {file.name: file for file in (*settings.default_rules().glob("*.yaml"), CLUSTER)}.values():
            (folder / file.name).symlink_to(file)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
    return folder


def _start(output: int, *command: str | Path) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, so that Ctrl-C reaches only this process."""
    parent = os.getpid()

    def end_with_parent() -> None:
        """Have the kernel end this process when its parent is gone, even of SIGKILL. Linux only; elsewhere a wish."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` has it ignored, and then it would end nothing
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(FAILED)

    return subprocess.Popen(  # noqa: S603 - no shell, and our own program
        [sys.executable, "-P", "-m", "webhook.cli", *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        process_group=0,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - this process has no threads
    )


def _output(programs: Programs, stops: Sequence[int]) -> Iterator[bytes]:
    """What the webhook prints, nothing while it is silent, until a signal came; UsageError if a program ended."""
    pipe = programs["webhook"].stdout
    assert pipe is not None  # noqa: S101 - for the type
    tail = b""
    while not stops:
        ready, _, _ = select.select([pipe], [], [], PAUSE_SECONDS)
        chunk = os.read(pipe.fileno(), TAIL) if ready else b""
        tail = (tail + chunk)[-TAIL:]
        for name, program in programs.items():
            if chunk or (code := program.poll()) is None:
                continue
            how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            for line in reversed(tail.splitlines() if name == "webhook" else []):
                with suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and entry.get("level") in {"error", "critical"}:
                        how += f": {entry['message']}"
                        break
            raise UsageError(f"the {name} {how}")
        yield chunk


def _show(given: argparse.Namespace, output: Iterator[bytes]) -> None:
    """Print the welcome once both programs answer, then what the webhook prints; not what it said before."""
    deadline = time.monotonic() + START_SECONDS
    for _ in output:
        with suppress(OSError, http.client.HTTPException):
            context = ssl.create_default_context(cafile=settings.Settings().certificate[0])
            context.check_hostname = False  # --bind may be a name that the certificate does not have
            _ask(http.client.HTTPSConnection(given.bind, timeout=ASK_SECONDS, context=context), "/healthz")
            loaded = json.loads(_ask(http.client.HTTPConnection(given.console, timeout=ASK_SECONDS), "/api/rules"))
            break
        if time.monotonic() > deadline:
            raise UsageError(f"no answer from {given.bind} and {given.console} in {START_SECONDS:g} s")
    else:
        return
    print(_welcome(given, loaded), flush=True)  # noqa: T201 - this is a command line
    for chunk in output:
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def _ask(connection: http.client.HTTPConnection, path: str) -> bytes:
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read()


def _welcome(given: argparse.Namespace, loaded: dict[str, Any]) -> str:
    program = shlex.quote(os.path.relpath(Path(sys.executable).with_name("gpu-webhook")))
    whose = " of an imagined cluster" if given.demo else ""
    read = f"{_short(settings.default_rules())}, with {_short(CLUSTER)}" if given.demo else _short(given.rules)
    if loaded["fine"]:
        state = check.describe(loaded["counts"])
    else:
        first, number = loaded["problems"][0], len(loaded["problems"])
        wrong = "one problem" if number == 1 else f"{number} problems, the first"
        place = f"{first['file']}:{first['line']}:{first['column']}"
        state = f"not usable, and no review is answered until they are: {wrong} at {place}: {first['message']}"
    return f"""\
webhook      https://{given.bind}  POST /mutate, /validate, /templates, /policies; GET /healthz, /readyz, /metrics
console      http://{given.console}/  paste a pod and see what becomes of it; nodes and tenants{whose}
rules        {read}: {state}
certificate  {_short(settings.Settings().certificate[0])}

A pod before and after, to paste:

  printf '{POD}' | {program} explain - {"--demo" if given.demo else f"--rules {_short(given.rules)}"}

Below are the webhook's decisions, one JSON line each. Ctrl-C ends everything.
"""


def _short(path: Path) -> str:
    """The path as one would type it here: below this folder, or below the home directory."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{shlex.quote(str(path.relative_to(base)))}"
    return shlex.quote(str(path))


if __name__ == "__main__":
    sys.exit(main())
