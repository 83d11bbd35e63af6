"""Our own watcher, started as its container starts it: with the account and the role of the manifests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.plane import ControlPlane
from tests.cluster.processes import Process
from tests.cluster.webhook import PROGRAM, ROOT

MANIFEST = ROOT / "manifests" / "base" / "watcher.yaml"
NAMESPACE = "gpu-webhook-system"
ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "gpu-webhook", "namespace": NAMESPACE},
}

Object = dict[str, Any]


def kubeconfig_of(plane: ControlPlane) -> Path:
    """A kubeconfig of the service account of the manifests, with the role they give it."""
    client = plane.client.in_namespace(NAMESPACE)
    client.create(ACCOUNT)
    for manifest in yaml.safe_load_all(MANIFEST.read_text()):
        client.apply(manifest)
    spec: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = client.send("POST", f"{client.path(ACCOUNT)}/token", spec)["status"]["token"]
    config = json.loads(plane.client.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    made = plane.processes.folder / "watcher.kubeconfig"
    made.write_text(json.dumps(config))
    return made


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
