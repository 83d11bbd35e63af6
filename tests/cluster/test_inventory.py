"""The watcher and the global view on a real API server: the file follows the nodes, with few rights."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.cli.program import run
from tests.cluster.client import Client
from tests.cluster.nodes import node
from tests.cluster.plane import ControlPlane
from tests.cluster.pods import container, limits, pod
from tests.cluster.processes import Process
from tests.cluster.waiting import until
from tests.cluster.watcher import kubeconfig_of, running_watcher
from tests.cluster.webhook import ROOT
from tests.console.process import running

pytestmark = pytest.mark.cluster

QGPU = {"tke.cloud.tencent.com/qgpu-core": "400", "tke.cloud.tencent.com/qgpu-memory": "60"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4", "qgpu-device-enable": "enable"}
RULES = {
    "cluster.yaml": builders.cluster("backends: [tencent-qgpu]"),
    **{name: (ROOT / "rules" / name).read_text() for name in ("catalog-nvidia.yaml", "tencent-qgpu.yaml")},
}

Object = dict[str, Any]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for name, text in RULES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> Path:
    return kubeconfig_of(plane)


@pytest.fixture
def watcher(plane: ControlPlane, kubeconfig: Path, rules: Path, tmp_path: Path) -> Iterator[tuple[Process, Path]]:
    """A watcher, and the file it writes."""
    file = tmp_path / "surroundings.json"
    with running_watcher(plane, kubeconfig, rules, file) as process:
        yield process, file


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[Client]:
    """An administrator whose nodes go with the test."""
    yield plane.client
    for found in plane.client.list({"apiVersion": "v1", "kind": "Node"}):
        plane.client.delete({"apiVersion": "v1", "kind": "Node", **found})


def written(watcher: tuple[Process, Path]) -> dict[str, Object]:
    """The nodes in the file, by name; nothing while there is none."""
    process, file = watcher
    process.assert_running()
    if not file.exists():
        return {}
    return {found["metadata"]["name"]: found for found in json.loads(file.read_text())["nodes"]}


def test_the_file_follows_nodes_as_they_come_change_and_go(nodes: Client, watcher: tuple[Process, Path]) -> None:
    first, second = node("qgpu-1", labels=T4, capacity=QGPU), node("qgpu-2", labels=T4, capacity=QGPU)
    nodes.create(first)
    nodes.create(node("plain"))
    until(lambda: written(watcher).keys() == {"qgpu-1"}, "the first node is in the file")
    nodes.create(second)
    until(lambda: written(watcher).keys() == {"qgpu-1", "qgpu-2"}, "the second node is in the file")
    assert written(watcher)["qgpu-1"] == {
        "metadata": {"name": "qgpu-1", "labels": T4},
        "status": {"allocatable": QGPU},
    }

    more = {"tke.cloud.tencent.com/qgpu-core": "800"}
    nodes.patch(second, {"status": {"allocatable": more, "capacity": more}}, subresource="status")
    until(lambda: more.items() <= written(watcher)["qgpu-2"]["status"]["allocatable"].items(), "more cards")
    nodes.patch(second, {"spec": {"unschedulable": True}})
    until(lambda: written(watcher)["qgpu-2"].get("spec") == {"unschedulable": True}, "it is cordoned")

    nodes.delete(first)
    until(lambda: written(watcher).keys() == {"qgpu-2"}, "the first node is gone")


def test_the_file_is_there_where_no_node_has_devices(watcher: tuple[Process, Path]) -> None:
    _, file = watcher

    until(file.exists, "the file")
    assert json.loads(file.read_text()) == {"nodes": []}


def test_rules_that_change_are_asked_anew_of_the_same_nodes(
    nodes: Client, watcher: tuple[Process, Path], rules: Path
) -> None:
    nodes.create(node("qgpu-1", labels={**T4, "pool": "a"}, capacity=QGPU))
    until(lambda: written(watcher).keys() == {"qgpu-1"}, "the node is in the file")
    file, before = rules / "tencent-qgpu.yaml", RULES["tencent-qgpu.yaml"]
    try:
        file.write_text("kind: [")
        until(
            lambda: "the changed rules are not usable" in watcher[0].tail(),
            "the mistake is logged",
        )
        file.write_text(before.replace("qgpu-device-enable: enable}", "qgpu-device-enable: enable, pool: a}"))
        until(lambda: "pool" in written(watcher)["qgpu-1"]["metadata"]["labels"], "the new label is in the file")
    finally:
        file.write_text(before)


def test_the_watcher_may_read_nodes_and_nothing_else(plane: ControlPlane, kubeconfig: Path) -> None:
    allowed = [
        (verb, kind)
        for verb in ("get", "list", "watch", "create", "update", "delete")
        for kind in ("nodes", "pods", "secrets", "configmaps")
        if plane.client.kubectl("--kubeconfig", str(kubeconfig), "auth", "can-i", verb, kind, "-A").returncode == 0
    ]

    assert allowed == [("list", "nodes"), ("watch", "nodes")]


@pytest.fixture
def asking(nodes: Client) -> Iterator[None]:
    """A pod on a node that has four cards, and asks two of them."""
    client = nodes.in_namespace("kube-system")
    nodes.create(node("qgpu-1", labels=T4, capacity=QGPU))
    made = pod(
        "asking",
        containers=[container("main", resources=limits(**{"tke.cloud.tencent.com/qgpu-core": "200"}))],
        nodeName="qgpu-1",
    )
    client.create(made)
    yield
    client.delete(made)


@pytest.mark.usefixtures("asking")
def test_the_global_view_asks_the_cluster_where_no_file_is_given(nodes: Client, rules: Path) -> None:
    ran = run("inventory", "-o", "json", "--rules", rules, kubeconfig=nodes.kubeconfig)

    assert (ran.code, ran.err) == (0, "")
    contract = ran.json
    assert (contract["total"]["exists"]["devices"], contract["total"]["asked"]["devices"]) == (4, 2)
    assert [(row["kind"], row["name"]) for row in contract["applications"]] == [("Pod", "asking")]


@pytest.mark.usefixtures("asking")
def test_the_page_asks_the_cluster_where_it_is_told_to(
    nodes: Client, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(nodes.kubeconfig))

    with running(rules, "--cluster") as console:
        view = json.loads(console.ask("GET", "/api/inventory").body)

    assert (view["total"]["exists"]["devices"], view["total"]["asked"]["devices"]) == (4, 2)
