"""`make run`: the webhook and the console on this machine, without a cluster, until Ctrl-C.

Two child processes, each started as on the command line. They end with this process, whatever ends it. If one of them
ends, this process ends the other, too.
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from errno import EADDRINUSE
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from webhook.commands import options
from webhook.commands.outcome import FAILED, FINE, UsageError
from webhook.files import summary
from webhook.server import settings

START_SECONDS: Final = 30.0
ASK_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.1

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG: Final = 1

POD: Final = (
    r'kind: Pod\nmetadata: {name: demo, labels: {gpu: "0.3"}}\nspec: {containers: [{name: main, image: demo}]}\n'
)


class CannotRunError(Exception):
    """Why the playground cannot start, or has ended, in a sentence."""


class Program:
    """One program of the playground, in a process group of its own, so that Ctrl-C reaches only its parent.

    `reader` is a thread, to be started, that hands every line the program prints to `told`.
    """

    def __init__(self, told: Callable[[str], object], name: str, *command: str) -> None:
        self._told, self._name, self._complaint = told, name, ""
        parent = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and our own program
            [sys.executable, "-P", "-m", "webhook.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509 - threads are started after both programs
        )
        self.reader = Thread(target=self._read)

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for the type: stdout is a pipe
        with self._process.stdout as output:
            for line in output:
                self._complaint = _complaint(line) or self._complaint
                self._told(line)

    def check(self) -> None:
        """Raise CannotRunError when it has ended, with the last thing it complained of."""
        code = self._process.poll()
        if code is None:
            return
        self.end()
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        raise CannotRunError(f"the {self._name} {how}" + (f": {self._complaint}" if self._complaint else ""))

    def end(self) -> None:
        """End it and its own children at once: a client of a playground needs no time to turn elsewhere."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.reader.join()


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone, even of SIGKILL. Linux only; elsewhere a wish."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` has it ignored, and then it would end nothing
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os._exit(FAILED)


def _complaint(line: str) -> str:
    """The message of a log line that says what is wrong, empty for every other line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    wrong = isinstance(entry, dict) and entry.get("level") in {"error", "critical"}
    return str(entry["message"]) if wrong else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start both programs, print their addresses, and wait; returns the exit code."""
    given = _parser().parse_args(arguments)
    news: SimpleQueue[str | None] = SimpleQueue()
    for number in SIGNALS:
        signal.signal(number, lambda *_: news.put(None))
    programs: list[Program] = []
    try:
        _check_free(given.bind, "--bind", "BIND")
        _check_free(given.console, "--console", "CONSOLE")
        rules = ("--rules", str(given.rules))
        programs.append(Program(news.put, "webhook", "serve", "--bind", given.bind, *rules))
        programs.append(Program(lambda _: None, "console", "console", "--bind", given.console, *rules))
        for program in programs:
            program.reader.start()
        _show(given, _lines(programs, news))
    except (CannotRunError, UsageError) as error:
        print(f"gpu-webhook: {error}", file=sys.stderr)  # noqa: T201 - this is a command line
        return FAILED
    except BrokenPipeError:  # the reader of the output has gone; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        for program in programs:
            program.end()
    return FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m webhook.playground", description="What `make run` starts.")
    parser.add_argument("--bind", default="127.0.0.1:8443", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--console", default="127.0.0.1:8080", metavar="HOST:PORT", help="%(default)s")
    options.rules(parser)
    return parser


def _check_free(bind: str, option: str, variable: str) -> None:
    """Complain before anything is started, in the words of `make run`."""
    host, port = options.address(bind, option)
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        if error.errno != EADDRINUSE:
            reason = str(error.strerror).partition(" (while ")[0]
            raise CannotRunError(f"cannot listen on {bind}: {reason}") from None
        other = f"{bind.rpartition(':')[0]}:{port + 1000 if port < 64000 else 9000}"
        advice = f"end what listens there, or choose another port: make run {variable}={other}"
        raise CannotRunError(f"{bind} is in use; {advice}") from None


def _lines(programs: Sequence[Program], news: SimpleQueue[str | None]) -> Iterator[str]:
    """The lines of the webhook, empty ones while it prints nothing, until `news` has None: the end was asked for.

    Raises CannotRunError when a program has ended.
    """
    while True:
        line: str | None = ""
        with suppress(Empty):
            line = news.get(timeout=PAUSE_SECONDS)
        if line is None:
            return
        for program in programs:
            program.check()
        yield line


def _show(given: argparse.Namespace, lines: Iterator[str]) -> None:
    """Print the welcome once both programs answer, then the webhook's lines."""
    loaded = _await_answers(given, lines)
    if loaded is not None:
        print(_welcome(given, loaded), flush=True)  # noqa: T201 - this is a command line
    for line in lines:
        print(line, end="", flush=True)  # noqa: T201 - as above


def _await_answers(given: argparse.Namespace, lines: Iterator[str]) -> dict[str, Any] | None:
    """Wait until both programs answer; what the console says is loaded. None when the end is asked for before."""
    deadline = time.monotonic() + START_SECONDS
    for line in lines:
        if line:
            continue  # what the webhook says while it starts
        with suppress(OSError, http.client.HTTPException):
            context = ssl.create_default_context(cafile=settings.Settings().certificate[0])
            context.check_hostname = False  # --bind may be a name that the certificate does not have
            _ask(http.client.HTTPSConnection(given.bind, timeout=ASK_SECONDS, context=context), "/healthz")
            loaded: dict[str, Any] = json.loads(
                _ask(http.client.HTTPConnection(given.console, timeout=ASK_SECONDS), "/api/rules")
            )
            return loaded
        if time.monotonic() > deadline:
            raise CannotRunError(f"no answer from {given.bind} and {given.console} in {START_SECONDS:g} s")
    return None


def _ask(connection: http.client.HTTPConnection, path: str) -> bytes:
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read()


def _welcome(given: argparse.Namespace, loaded: dict[str, Any]) -> str:
    program = shlex.quote(os.path.relpath(Path(sys.executable).with_name("gpu-webhook")))
    rules = "" if given.rules == settings.default_rules() else f" --rules {shlex.quote(str(given.rules))}"
    return f"""\
webhook      https://{given.bind}  POST /mutate, /validate, /templates; GET /healthz, /readyz, /metrics
console      http://{given.console}/  what is loaded; paste a pod and see what becomes of it
rules        {_short(given.rules)}: {_describe(loaded)}
certificate  {_short(settings.Settings().certificate[0])}

A pod before and after, to paste:

  printf '{POD}' | {program} explain -{rules}

Below are the webhook's decisions, one JSON line each. Ctrl-C ends everything.
"""


def _describe(loaded: dict[str, Any]) -> str:
    if loaded["fine"]:
        return summary.describe(loaded["counts"])
    first, number = loaded["problems"][0], len(loaded["problems"])
    wrong = "one problem" if number == 1 else f"{number} problems, the first"
    place = f"{first['file']}:{first['line']}:{first['column']}"
    return f"not usable, and no review is answered until they are: {wrong} at {place}: {first['message']}"


def _short(path: Path) -> str:
    """The path as one would type it here: below this folder, or below the home directory."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
