"""Child processes and one folder that end with their owner, however it ends.

An orderly end stops each child by its id. For every other end (a crash, SIGKILL) there is `keeper.py`: it notices
that the owner is gone, kills the group the children are in, and removes the folder.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

KEEPER = Path(__file__).with_name("keeper.py")
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """One running program and the file that holds what it prints."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    command: Sequence[str]
    env: Mapping[str, str]
    farewell: signal.Signals = signal.SIGTERM

    def assert_running(self) -> None:
        """Raise RuntimeError with the end of the log when the program has ended."""
        code = self.popen.poll()
        if code is not None:
            raise RuntimeError(f"{self.name} ended with exit code {code}:\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        """The last lines the program printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def send(self, number: signal.Signals) -> None:
        """A signal for the program and, after it, for what it has started."""
        pid = self.popen.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, number)

    def kill(self) -> None:
        """End the program and what it has started, at once."""
        self.send(signal.SIGKILL)
        self.popen.wait()

    def stop(self) -> None:
        """End the program: politely, then not."""
        self.popen.send_signal(self.farewell)
        try:
            self.popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class Processes:
    """Starts programs, gives them a folder, and takes all of it away at the end of a `with` block."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", str(KEEPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as printed:
            group, folder = printed.readline().rstrip("\n").split(" ", 1)
        self._group = int(group)
        self.folder = Path(folder)
        self._running: list[Process] = []

    def start(
        self,
        name: str,
        *command: str | Path,
        env: Mapping[str, str] | None = None,
        farewell: signal.Signals = signal.SIGTERM,
    ) -> Process:
        """Start a program; its output goes to `<name>.log` in the folder, and so do its temporary files."""
        log = self.folder / f"{name}.log"
        words = [str(word) for word in command]
        with log.open("ab") as output:
            popen = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.folder), **(env or {})},
                process_group=self._group,
            )
        process = Process(name, popen, log, words, env or {}, farewell)
        self._running.append(process)
        return process

    def again(self, process: Process) -> Process:
        """Start a program that has ended once more, as it was started."""
        return self.start(process.name, *process.command, env=process.env, farewell=process.farewell)

    def close(self) -> None:
        """Stop every program, the last one first, and remove the folder."""
        try:
            while self._running:
                self._running.pop().stop()
        finally:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
