"""`make run`: the webhook and the console on this machine, without a cluster, until Ctrl-C.

Two child processes, each as the command line would start it. They end with this one, whatever ends it, and this one
ends with the first of them: half a playground would only puzzle.
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import selectors
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from errno import EADDRINUSE
from pathlib import Path
from typing import Any, Final, NamedTuple

from webhook import settings

FINE: Final = 0
FAILED: Final = 2

START_SECONDS: Final = 30.0
ASK_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.1
END_SECONDS: Final = 5.0

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG: Final = 1

POD: Final = (
    r'kind: Pod\nmetadata: {name: demo, labels: {gpu: "0.3"}}\nspec: {containers: [{name: main, image: demo}]}\n'
)


class CannotStartError(Exception):
    """Why there is no playground, in a sentence."""


class Stop:
    """Whether somebody asked for the end: Ctrl-C, SIGTERM, or a closed terminal."""

    def __init__(self) -> None:
        self.asked = False
        for number in SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked = True


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def near(self) -> tuple[str, int]:
        """Where to ask: who listens everywhere listens on loopback."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
        return everywhere.get(self.host, self.host), self.port


class Child:
    """One program of the playground, in a process group of its own, so that Ctrl-C reaches only its parent."""

    def __init__(self, name: str, *command: str) -> None:
        self.name = name
        self.said: list[str] = []
        parent = os.getpid()
        self.popen = subprocess.Popen(  # noqa: S603 - no shell, and our own program
            [sys.executable, "-P", "-m", "webhook.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            process_group=0,
            preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509 - this process has no threads
        )
        assert self.popen.stdout is not None  # noqa: S101 - for the type: stdout is a pipe
        self._output = self.popen.stdout
        os.set_blocking(self._output.fileno(), False)
        self._rest = b""
        self.serving = False

    def fileno(self) -> int:
        """What to wait for when its output is awaited."""
        return self._output.fileno()

    def lines(self) -> Iterator[str]:
        """The whole lines it has printed since the last time; never waits."""
        *whole, self._rest = (self._rest + (self._output.read() or b"")).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)

    def check(self) -> None:
        """Raise CannotStartError when it has ended, with the last thing it complained of."""
        code = self.popen.poll()
        if code is None:
            return
        self.said += self.lines()
        reasons = [message for line in self.said if (message := _complaint(line))]
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        raise CannotStartError(f"the {self.name} {how}" + (f": {reasons[-1]}" if reasons else ""))

    def end(self) -> None:
        """End it at once, and if that takes too long, without asking.

        A webhook that serves and gets SIGTERM waits for an API server to turn elsewhere, which SIGINT spares us;
        one that still starts would answer SIGINT with a traceback.
        """
        self.popen.send_signal(signal.SIGINT if self.serving else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)  # its own children, if it left some behind
        self.popen.wait()
        self._output.close()


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
    """Start both, say what there is, and wait; the exit code."""
    options = _parser().parse_args(arguments)
    stop = Stop()
    children: list[Child] = []
    try:
        _check_free(options.bind, "BIND")
        _check_free(options.console, "CONSOLE")
        rules = str(options.rules)
        children.append(Child("webhook", "serve", "--bind", str(options.bind), "--rules", rules))
        children.append(Child("console", "console", "--bind", str(options.console), "--rules", rules))
        loaded = _await_answers(options, children, stop)
        if not stop.asked:
            _say(_welcome(options, loaded))
            _pass_on(children, stop)
    except CannotStartError as error:
        print(f"gpu-webhook: {error}", file=sys.stderr)  # noqa: T201 - this is a command line
        return FAILED
    except BrokenPipeError:  # whoever read along has seen enough; Python would complain once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        for child in children:
            child.end()
    return FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m webhook.playground", description="What `make run` starts.")
    parser.add_argument("--bind", type=_address, default="127.0.0.1:8443", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--console", type=_address, default="127.0.0.1:8080", metavar="HOST:PORT", help="%(default)s")
    parser.add_argument("--rules", type=Path, default=settings.default_rules(), metavar="DIR", help="%(default)s")
    return parser


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: write HOST:PORT, as 127.0.0.1:8443")
    return Address(host.strip("[]"), int(port))


def _check_free(address: Address, variable: str) -> None:
    """Complain before anything is started, in the words of `make run`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        socket.create_server(address, family=family).close()
    except OSError as error:
        if error.errno != EADDRINUSE:
            reason = str(error.strerror).partition(" (while ")[0]
            raise CannotStartError(f"cannot listen on {address}: {reason}") from None
        other = address._replace(port=address.port + 1000 if address.port < 64000 else 9000)
        advice = f"end what listens there, or choose another port: make run {variable}={other}"
        raise CannotStartError(f"{address} is in use; {advice}") from None


def _await_answers(options: argparse.Namespace, children: Sequence[Child], stop: Stop) -> dict[str, Any]:
    """Wait until both answer; what the console says is loaded. Returns early when the end is asked for."""
    deadline = time.monotonic() + START_SECONDS
    while not stop.asked:
        for child in children:
            child.said += child.lines()
            child.check()
        with suppress(OSError, http.client.HTTPException):
            _webhook_answers(options.bind)
            loaded = _rules(options.console)
            for child in children:
                child.serving = True
            return loaded
        if time.monotonic() > deadline:
            raise CannotStartError(f"no answer from {options.bind} and {options.console} in {START_SECONDS:g} s")
        time.sleep(PAUSE_SECONDS)
    return {}


def _webhook_answers(address: Address) -> None:
    context = ssl.create_default_context(cafile=settings.Settings().certificate[0])
    context.check_hostname = False  # --bind may be a name that the certificate does not have
    connection = http.client.HTTPSConnection(*address.near, timeout=ASK_SECONDS, context=context)
    with closing(connection):
        connection.request("GET", "/healthz")
        connection.getresponse().read()


def _rules(address: Address) -> dict[str, Any]:
    connection = http.client.HTTPConnection(*address.near, timeout=ASK_SECONDS)
    with closing(connection):
        connection.request("GET", "/api/rules")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def _welcome(options: argparse.Namespace, loaded: dict[str, Any]) -> str:
    return f"""\
webhook      https://{options.bind}  POST /mutate, /validate, /templates; GET /healthz, /readyz, /metrics
console      http://{options.console}/  what is loaded; paste a pod and see what becomes of it
rules        {_short(options.rules)}: {_describe(loaded)}
certificate  {_short(settings.Settings().certificate[0])}

A pod before and after, to paste:

  printf '{POD}' | {_program()} explain -{_rules_option(options)}

Below are the webhook's decisions, one JSON line each. Ctrl-C ends everything.
"""


def _describe(loaded: dict[str, Any]) -> str:
    if loaded["fine"]:
        counts = loaded["counts"]
        return f"{counts['backends']} back ends, {counts['devices']} card models, {counts['examples']} examples"
    first, number = loaded["problems"][0], len(loaded["problems"])
    wrong = "one problem" if number == 1 else f"{number} problems, the first"
    place = f"{first['file']}:{first['line']}:{first['column']}"
    return f"not usable, and no review is answered until they are: {wrong} at {place}: {first['message']}"


def _program() -> str:
    """The command `gpu-webhook` of this environment, as short as it can be typed here."""
    program = Path(sys.executable).with_name("gpu-webhook")
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


def _short(path: Path) -> str:
    """The path as one would type it here: below this folder, or below the home directory."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)


def _rules_option(options: argparse.Namespace) -> str:
    return "" if options.rules == settings.default_rules() else f" --rules {shlex.quote(str(options.rules))}"


def _pass_on(children: Sequence[Child], stop: Stop) -> None:
    """Print what the webhook prints until the end is asked for, or a child has ended."""
    webhook = children[0]
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child, selectors.EVENT_READ)
        while not stop.asked:
            for key, _ in selector.select(PAUSE_SECONDS):
                lines = list(key.fileobj.lines())  # type: ignore[union-attr] # a child, which has a descriptor
                if key.fileobj is webhook and lines:
                    _say("\n".join(lines))
            for child in children:
                child.check()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a command line


if __name__ == "__main__":
    sys.exit(main())
