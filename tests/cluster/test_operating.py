"""The commands of manifests/README.md, one after the other, from an empty cluster to one that is empty again.

Nodes and running pods are KWOK's, which starts no program: a server of this machine stands in for the replicas.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import readme
from tests.cluster import nodes
from tests.cluster.accounts import NAMESPACE
from tests.cluster.binaries import ROOT, Binaries
from tests.cluster.client import RefusedError
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.pods import pod
from tests.cluster.waiting import until
from tests.cluster.webhook import activate, register, running_webhook, unregister
from tests.release.kustomized import MANIFESTS
from tests.release.test_monitoring import RULES

pytestmark = pytest.mark.cluster

TEXT = (MANIFESTS / "README.md").read_text()
POLICY = {
    "apiVersion": "gpu-webhook.io/v1alpha1",
    "kind": "TenantPolicy",
    "metadata": {"name": "vision"},
    "spec": {"namespaces": {"names": ["vision"]}},
}
COMMANDS = dict(re.findall(r"<!-- run (\w+) -->\n```sh\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture(scope="module")
def empty(programs: Binaries) -> Iterator[ControlPlane]:
    with control_plane(programs, controllers=True) as plane:
        nodes.start_scheduling(plane, programs, nodes.STAGES.with_name("kubelets.yaml"))
        zones = [("one", "a"), ("two", "b"), ("three", "c")]
        made = [nodes.node(name, labels={"topology.kubernetes.io/zone": zone}) for name, zone in zones]
        nodes.add(plane.client, made)
        yield plane


def executed(plane: ControlPlane, commands: str, folder: Path) -> str:
    """Run a block as a person does, in a copy of this project; returns what it printed."""
    environment = {
        "PATH": f"{plane.client.kubectl_path.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "KUBECONFIG": str(plane.client.kubeconfig),
        "KUBECACHEDIR": str(plane.processes.folder / "cache"),
        "HOME": str(plane.processes.folder),
    }
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A checkout in which a command may write."""
    command = f"git ls-files -co --exclude-standard manifests rules | tar -c -T - | tar -x -C {tmp_path}"
    subprocess.run(["bash", "-euc", command], cwd=ROOT, check=True, env=dict(os.environ))
    return tmp_path


def test_all_commands_do_what_is_said_of_them(empty: ControlPlane, here: Path) -> None:
    shipped = (MANIFESTS / "base" / "webhook-configurations.yaml").read_text()
    assert "all fine" in executed(empty, COMMANDS["render"], here)
    assert (here / "manifests" / "base" / "webhook-configurations.yaml").read_text() == shipped

    apply, ready, attempt = COMMANDS["install"].splitlines()
    assert "serverside-applied" in executed(empty, apply, here)
    _admits(empty)
    activate(empty.client)
    assert "condition met" in executed(empty, ready, here)
    with running_webhook(empty) as webhook:
        unregister(empty.client)
        register(empty.client, webhook)
        assert executed(empty, attempt, here) == '{"nvidia.com/gpu":"1"}'
        unregister(empty.client)
    executed(empty, COMMANDS["on"], here)
    _admits(empty)
    assert "mutate.gpu-webhook.io: \n" in executed(empty, COMMANDS["activation"], here)
    activate(empty.client)
    assert "pod/ordinary" in executed(empty, COMMANDS["verify"], here)
    assert "successfully rolled out" in executed(empty, COMMANDS["upgrade"], here)
    assert "gpu-webhook" in executed(empty, COMMANDS["replicas"], here)
    empty.client.create(POLICY)
    assert "vision" in executed(empty, COMMANDS["ledgers"], here)
    assert "gpu-webhook-shorthand serverside-applied" in executed(empty, COMMANDS["net"], here)
    assert '"gpu-webhook-shorthand" deleted' in executed(empty, COMMANDS["without"], here)

    _refuses(empty)
    assert "patched" in executed(empty, COMMANDS["ignore"], here)
    _admits(empty)
    assert "deleted" in executed(empty, COMMANDS["off"], here)
    _admits(empty)
    executed(empty, COMMANDS["on"], here)
    activate(empty.client)
    _refuses(empty)

    assert "deleted" in executed(empty, COMMANDS["uninstall"], here)
    _admits(empty)
    assert empty.client.exists(POLICY)
    assert not empty.client.exists({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


def _admitted(plane: ControlPlane) -> bool:
    try:
        plane.client.create(pod("asking", labels={"gpu": "1"}), dry_run=True)
    except RefusedError as refused:
        if "gpu-webhook" not in str(refused):
            raise
        return False
    return True


def _refuses(plane: ControlPlane) -> None:
    until(lambda: not _admitted(plane), "pods that ask for a GPU are refused while nobody answers", within=20)


def _admits(plane: ControlPlane) -> None:
    until(lambda: _admitted(plane), "pods that ask for a GPU are admitted as they are", within=20)


def test_the_readme_at_the_top_installs_by_the_same_three_lines() -> None:
    section = (ROOT / "README.md").read_text().partition("## Installing\n")[2].partition("\n## ")[0]

    assert f"\n```sh\n{COMMANDS['install']}```\n" in section
    assert len(COMMANDS["install"].splitlines()) == 3


def test_each_alert_has_a_section() -> None:
    section = TEXT.partition("## Troubleshooting\n")[2].partition("\n## ")[0]

    named = {rule["annotations"]["runbook"] for rule in RULES}
    assert named == {f"manifests/README.md#{anchor}" for anchor in readme.anchors(section)}


def test_each_component_is_in_the_table() -> None:
    there = {path.name for path in (MANIFESTS / "components").iterdir()}

    table = TEXT.partition("| component | what it does |\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == there
