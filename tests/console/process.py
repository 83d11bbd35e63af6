"""One running console: its address, what it prints, how it ends."""

import contextlib
import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

COMMAND = (sys.executable, "-m", "webhook.cli", "console")


class Answer(NamedTuple):
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Console:
    """Started on a port that the system chose."""

    def __init__(self, rules: Path, *options: str) -> None:
        command = [*COMMAND, "--bind", "127.0.0.1:0", "--rules", str(rules), *options]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        first = self.popen.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", first)
        assert found, f"{first!r}, ended with {self.popen.poll()}"
        self.port = int(found[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request over a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it, and say with which code it did."""
        self.popen.send_signal(by)
        return self.popen.wait(30)

    def printed(self) -> str:
        """Everything else it printed, once it has ended."""
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        return self.popen.stdout.read() + self.popen.stderr.read()


@contextlib.contextmanager
def running(rules: Path, *options: str) -> Iterator[Console]:
    """A console for the length of a block; it has to end well and complain of nothing."""
    console = Console(rules, *options)
    with console.popen:
        try:
            yield console
            if console.popen.poll() is None:
                assert console.stop() == 0
            printed = console.printed()
            assert not printed, printed
        finally:
            if console.popen.poll() is None:
                console.popen.kill()
