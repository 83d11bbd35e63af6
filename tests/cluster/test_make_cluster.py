"""`make cluster` as a stranger uses it: paste what it prints, then press Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT

pytestmark = pytest.mark.cluster


@pytest.fixture
def started(programs: Binaries, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Its folder is the only one in `tmp_path`."""
    assert programs.folder.is_dir()
    command, env = [sys.executable, "-m", "tests.cluster"], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        yield process
        process.kill()


def test_what_it_prints_works_when_pasted_and_an_interrupt_leaves_nothing(
    started: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))  # or kubectl keeps what it learns in ~/.kube
    printed = _read_until(started, "takes all of it down")
    example = re.search(r"^\S+ --kubeconfig .* create -f .*^EOF\n.*?$", printed, re.MULTILINE | re.DOTALL)
    refused = re.search(r"^\S+ --kubeconfig .* run odd .*$", printed, re.MULTILINE)
    tenant = re.search(r"^Tenants .*?\n\n(.*? get tenantusage)$", printed, re.MULTILINE | re.DOTALL)
    kubeconfig = re.search(r"^kubeconfig +(\S+)$", printed, re.MULTILINE)
    assert example
    assert refused
    assert tenant
    assert kubeconfig

    shown = _paste(example[0])
    assert "pod/third created" in shown.stdout
    assert 'nvidia.com/gpu: "1"' in shown.stdout
    assert "denied the request" in _paste(refused[0]).stderr
    counted = _paste(tenant[1])
    assert "uses 0.3, asks 3, limit 2 devices" in counted.stderr
    assert re.search(r"^vision +15 +0.3 +2 ", counted.stdout, re.MULTILINE)

    started.send_signal(signal.SIGINT)
    assert "Taken down." in _read_until(started, "Taken down.")
    assert started.wait(20) == 0
    assert not Path(kubeconfig[1]).parent.exists()


def test_it_can_be_ended_while_it_starts(started: subprocess.Popen[str], tmp_path: Path) -> None:
    _read_until(started, "Starting")
    until(lambda: [*tmp_path.glob("*/etcd.log")], "etcd has been started")

    started.send_signal(signal.SIGTERM)

    assert "Taken down." in _read_until(started, "Taken down.")
    assert started.wait(20) == 0
    assert [*tmp_path.iterdir()] == []


def _read_until(process: subprocess.Popen[str], last: str) -> str:
    """What the program prints, up to and with the line that holds `last`."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            break
    return "".join(lines)


def _paste(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
