"""One running admission server: its port, what it logs, how it ends."""

import contextlib
import json
import re
import resource
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import builders
from tests.cluster.waiting import until
from tests.development import DEVELOPMENT
from tests.server.peer import Peer

LAUNCH = Path(__file__).with_name("launch.py")
ROOT = Path(__file__).parents[2]

ENABLED = ("cluster", "catalog-nvidia", "catalog-amd", "nvidia-gpu", "hami-vgpu", "amd-gpu", "tencent-qgpu")
"""The shipped rules that are enabled: the others are loaded, which takes a second of each start, and never used."""


class Server:
    """Started with settings that make waiting short; `folder` holds its certificate and its output."""

    def __init__(
        self, folder: Path, *, python: tuple[str, ...] = DEVELOPMENT, pipe: int | None = None, **settings: Any
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        short = {"drain_seconds": 0.2, "linger_seconds": 0.5, "tick_seconds": 0.05}
        chosen = {"bind": "127.0.0.1:0", "state": str(folder), "rules": _enabled(folder), **short, **settings}
        self._output = folder / "stdout"
        self._errors = folder / "stderr"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, *python, str(LAUNCH), json.dumps(chosen)],
                stdout=output if pipe is None else pipe,
                stderr=errors,
                cwd=ROOT,
            )

    def await_serving(self) -> "Server":
        """Wait until it listens."""
        until(lambda: self.port or self.popen.poll() is not None, "the server serving")
        assert self.popen.poll() is None, f"ended with {self.popen.returncode}: {self.lines()} {self.errors}"
        return self

    def record(self, output: bytes) -> None:
        """Take what a test has read from the `pipe` it gave."""
        with self._output.open("ab") as file:
            file.write(output)

    @property
    def port(self) -> int:
        """Where it listens, 0 before it does."""
        found = re.search(rb"serving on https://127\.0\.0\.1:(\d+)", self._output.read_bytes())
        return int(found[1]) if found else 0

    @property
    def errors(self) -> str:
        """What it wrote to standard error, where nothing belongs."""
        return self._errors.read_text()

    @property
    def worker(self) -> int:
        """The process that serves."""
        return int(self.lines("serving on")[-1]["pid"])

    def lines(self, message: str = "") -> list[dict[str, Any]]:
        """The log so far, or the lines whose message contains `message`."""
        lines = [json.loads(line) for line in self._output.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        return [line for line in lines if message in line["message"]]

    def await_line(self, message: str) -> dict[str, Any]:
        """The first line whose message contains `message`, once it is there."""
        return until(lambda: self.lines(message), f'the log saying "{message}"')[0]

    @contextlib.contextmanager
    def short_of_descriptors(self) -> Iterator[None]:
        """For the length of a block the process that serves can open nothing."""
        limits = resource.prlimit(self.worker, resource.RLIMIT_NOFILE)
        resource.prlimit(self.worker, resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            yield
        finally:
            resource.prlimit(self.worker, resource.RLIMIT_NOFILE, limits)

    def connect(self, source: str = "127.0.0.1") -> Peer:
        """A new TLS connection that trusts the certificate now on disk."""
        context = ssl.create_default_context(cafile=str(self.folder / "tls.crt"))
        return Peer.connect(self.port, context, source)

    def get(self, path: str) -> str:
        """The body of a page, over a connection of its own."""
        with contextlib.closing(self.connect()) as peer:
            return peer.ask("GET", path).body.decode()

    def metric(self, name: str) -> float:
        """The value of one sample, 0 when there is none."""
        found = re.search(rf"^gpu_webhook_{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it, and say with which code it did."""
        self.popen.send_signal(by)
        return self.popen.wait(30)


def own_memory(process: int) -> int:
    """KiB of memory, what is shared divided among those who share it."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")))


def _enabled(folder: Path) -> str:
    rules, files = folder / "enabled", builders.shipped_files()
    rules.mkdir(exist_ok=True)
    for name in ENABLED:
        (rules / f"{name}.yaml").write_text(files[f"{name}.yaml"])
    return str(rules)


@contextlib.contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Server]:
    """A server for the length of a block; it has to end well and say nothing on standard error."""
    server = Server(folder, **settings)
    try:
        yield server.await_serving()
        if server.popen.poll() is None:
            assert server.stop() == 0
        assert server.errors == "", server.errors
    finally:
        if server.popen.poll() is None:
            server.popen.kill()
            server.popen.wait()
