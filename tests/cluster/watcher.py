"""Our own watcher, started as its container starts it: with the account and the role of the manifests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import accounts
from tests.cluster.plane import ControlPlane
from tests.cluster.processes import Process
from tests.cluster.webhook import PROGRAM


def kubeconfig_of(plane: ControlPlane) -> Path:
    """A kubeconfig of the service account of the manifests, with the role they give it for this."""
    return accounts.kubeconfig_of(plane, accounts.WEBHOOK, "watcher.yaml")


@contextmanager
def running_watcher(plane: ControlPlane, kubeconfig: Path, rules: Path, file: Path) -> Iterator[Process]:
    """A watcher that writes the file, and has to end well."""
    process = plane.processes.start(
        f"watcher-{file.parent.name}",
        PROGRAM,
        "watch",
        f"--write={file}",
        f"--rules={rules}",
        env={"KUBECONFIG": str(kubeconfig)},
    )
    yield process
    process.stop()
    assert process.popen.returncode == 0
