"""Starts the servers on one core, loads them in turns from another, and measures."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import tables
from tests.bench.figures import NOOP, OURS, WITH_QUOTA, Figures
from tests.bench.reviews import Measured
from tests.cluster.plane import accepts, free_port
from tests.cluster.processes import Process, Processes
from tests.cluster.waiting import until
from webhook.playground import imagined

LAUNCH = Path(__file__).parents[1] / "server" / "launch.py"
WARMUP = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One server under test."""

    name: str
    port: int
    process: Process

    def processes(self) -> list[int]:
        """Its processes: gunicorn's arbiter and worker, or the one of Go."""
        first = self.process.popen.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def memory(self) -> list[float]:
        """MiB of each process, what processes share divided among them."""
        rollups = (Path(f"/proc/{each}/smaps_rollup").read_text() for each in self.processes())
        return [float(rollup.split("\nPss:", 1)[1].split()[0]) / 1024 for rollup in rollups]

    def cpu_seconds(self) -> float:
        """User and system time since the start."""
        stats = (Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split() for each in self.processes())
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS


@dataclass(frozen=True, slots=True)
class Load:
    """How the servers are loaded."""

    program: Path
    roots: Path
    connections: int
    seconds: float
    core: int = max(os.sched_getaffinity(0))

    def run(self, contestant: Contestant, review: Measured, file: Path) -> Figures:
        """Load one server with one review; every answer is checked by the program, and the patches here."""
        options = {
            "address": f"127.0.0.1:{contestant.port}",
            "path": review.path,
            "review": file,
            "roots": self.roots,
            "connections": self.connections,
            "warmup": f"{WARMUP}s",
            "run": f"{self.seconds}s",
        }
        command = [str(self.program), *(f"-{name}={value}" for name, value in options.items())]
        before = contestant.cpu_seconds()
        with on(self.core):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + self.seconds)
        if done.returncode:
            raise RuntimeError(f"{contestant.name}: {done.stderr}")
        said = json.loads(done.stdout)
        expected = said["answered"] if review.patched and contestant.name != NOOP else 0
        assert said["patched"] == expected, f"{contestant.name} patched {said}"
        cpu = (contestant.cpu_seconds() - before) / said["answered"]
        return Figures(said["per_second"], said["p50_us"] / 1000, said["p99_us"] / 1000, cpu * 1e6)


QUOTA: str = tables.table(__file__, "quota")


def start(processes: Processes, noop: Path) -> Mapping[str, Contestant]:
    """The servers, with one certificate, on one core."""
    folder = processes.folder
    plain, limited = (imagined(folder / name) for name in ("rules", "rules-with-quota"))
    (limited / "tenants.yaml").write_text(QUOTA)
    pair = ("-certificate", str(folder / "tls.crt"), "-key", str(folder / "tls.key"))
    with on(server_core()):
        ours = [admission_server(OURS, processes, plain), admission_server(WITH_QUOTA, processes, limited)]
        port = free_port()
        process = processes.start("noop", noop, "-address", f"127.0.0.1:{port}", *pair)
        other = _listening(NOOP, port, process)
    return {each.name: each for each in (*ours, other)}


def admission_server(name: str, processes: Processes, rules: Path, **more: object) -> Contestant:
    """One of ours that listens, with these rules and `more` settings."""
    port = free_port()
    folder = str(processes.folder)
    settings = {"bind": f"127.0.0.1:{port}", "rules": str(rules), "state": folder, "drain_seconds": 0.1, **more}
    return _listening(name, port, processes.start(name, sys.executable, LAUNCH, json.dumps(settings)))


def _listening(name: str, port: int, process: Process) -> Contestant:
    def listens() -> bool:
        process.assert_running()
        return accepts(port)

    until(listens, name)
    return Contestant(name, port, process)


def server_core() -> int:
    """The core of the servers."""
    return min(os.sched_getaffinity(0))


def load_core() -> int:
    """The core of the load: another one, where there is one."""
    return max(os.sched_getaffinity(0))


@contextmanager
def on(core: int) -> Iterator[None]:
    """Start programs on one core: they inherit what this process is bound to meanwhile."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)
