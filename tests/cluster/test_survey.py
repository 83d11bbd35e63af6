"""The step between a checkout and an install, on a real API server: which back ends the cluster has."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import readme, tables
from tests.cli.program import run
from tests.cluster.client import Client
from tests.cluster.devices import device_class
from tests.cluster.nodes import node
from tests.cluster.plane import ControlPlane
from tests.cluster.webhook import PROGRAM, ROOT

pytestmark = pytest.mark.cluster

STEP = readme.block("survey", (ROOT / "manifests" / "README.md").read_text())
T4 = {"gpu": "on", "nvidia.com/gpu.product": "Tesla-T4"}

WORKLOADS = ("deployments", "daemonsets", "statefulsets")
WRITTEN: str = tables.table(__file__, "written")


def workload(kind: str, name: str, argument: str, folder: str) -> dict[str, Any]:
    volumes = [{"name": "folder", "hostPath": {"path": folder}}]
    containers = [{"name": "main", "image": "none", "args": [argument]}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, "volumes": volumes}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def hami(plane: ControlPlane) -> Iterator[Client]:
    """A cluster with HAMi on one of two nodes, and a device class that no rule knows."""
    client = plane.client.in_namespace("survey")
    bare = node("t4-1", labels=T4, capacity={"nvidia.com/gpu": 40})
    made = [
        {**bare, "metadata": {**bare["metadata"], "annotations": {"hami.io/node-nvidia-register": "[]"}}},
        node("cpu-1"),
        workload("Deployment", "hami-scheduler", "--scheduler-name=hami-scheduler", "/etc"),
        workload("DaemonSet", "hami-device-plugin", "-v=4", "/var/lib/kubelet/device-plugins"),
        device_class("gpu.example.com"),
    ]
    for each in made:
        client.create(each)
    yield client
    for each in made:
        client.delete(each)


def test_the_step_before_an_install_writes_the_document_of_the_cluster(hami: Client, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    everywhere = sum(len(hami.send("GET", f"/apis/apps/v1/{plural}")["items"]) for plural in WORKLOADS)
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    here = {"KUBECONFIG": str(hami.kubeconfig), "PATH": path}

    ran = subprocess.run(
        ["/bin/sh", "-ec", STEP.replace("gpu-webhook survey", "gpu-webhook survey --rules rules")],
        cwd=tmp_path,
        env={**os.environ, **here},
        capture_output=True,
        check=False,
    )
    checked = run("check", tmp_path / "rules")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    written, _, left = (tmp_path / "rules" / "cluster.yaml").read_text().partition("# Not decided:\n")
    assert written == WRITTEN.format(workloads=everywhere)
    assert left.startswith("# - no TenantPolicy is for default, kube-node-lease, ")
    assert left.endswith("# - DeviceClass gpu.example.com is served by nothing: no rule knows it\n")
    assert (checked.code, checked.err) == (0, "")
