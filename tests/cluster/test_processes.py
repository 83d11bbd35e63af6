"""What the tests start ends with them, however they end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tables
from tests.cluster.processes import Processes
from tests.cluster.waiting import until

OWNER: str = tables.table(__file__, "owner")


def test_a_closed_block_leaves_no_process_and_no_folder() -> None:
    with Processes() as processes:
        child = processes.start("child", "sleep", "600")
        assert processes.folder.is_dir()

    assert not processes.folder.exists()
    assert child.popen.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_owner_leaves_no_process_and_no_folder(number: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        folder, child = owner.stdout.readline().split()
        owner.send_signal(number)
        owner.wait()
        until(lambda: not Path(folder).exists(), "the folder is gone", within=10)

    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)


def test_a_program_that_ends_shows_what_it_printed() -> None:
    with Processes() as processes:
        child = processes.start("child", "sh", "-c", "echo no such option; exit 3")
        child.popen.wait()

        with pytest.raises(RuntimeError, match="child ended with exit code 3:\nno such option"):
            child.assert_running()
