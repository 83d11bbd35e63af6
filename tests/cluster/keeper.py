"""A small program that outlives its parent just long enough to clean up after it.

It makes a temporary folder and a process group, prints both, and waits for the end of its standard input, which
comes when the parent closes it or dies, even of SIGKILL. Then it kills the group and removes the folder.
It stands in no group that a Ctrl-C reaches and imports nothing but the standard library: `python -I keeper.py`.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

DEADLINE = 10.0


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(prefix="gpu-webhook-"))
    group = _hold_group()
    print(group, folder, flush=True)  # noqa: T201  the parent reads this line
    _await_end_of_input()
    _kill(group)
    _remove(folder)


def _hold_group() -> int:
    """A process group led by a child that does nothing: others may join it as long as the child is there."""
    group = os.fork()
    if group == 0:
        os.setpgid(0, 0)
        _await_end_of_input()
        os._exit(0)
    os.setpgid(group, group)
    return group


def _await_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 64):
        pass


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    os.waitpid(group, 0)
    deadline = time.monotonic() + DEADLINE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
