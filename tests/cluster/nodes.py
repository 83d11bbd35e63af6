"""Nodes on paper, KWOK that keeps them Ready, and the real scheduler that binds pods to them.

A node offers what the test says: labels, taints and resources, as the components of a GPU system would have written
them. kube-controller-manager takes the taint off that every new node has, once KWOK has made the node Ready.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.cluster import devices
from tests.cluster.binaries import KWOK, SCHEDULER, Binaries
from tests.cluster.client import Client, Object
from tests.cluster.plane import ControlPlane
from tests.cluster.waiting import until

STAGES = Path(__file__).with_name("controlplane") / "stages.yaml"
ORDINARY = {"cpu": "64", "memory": "512Gi", "pods": "110"}
NOT_READY = "node.kubernetes.io/not-ready"

_CLEARED = [("v1", "Pod"), ("v1", "Node"), (devices.API, "ResourceSlice"), (devices.API, "DeviceClass")]


def start_scheduling(plane: ControlPlane, binaries: Binaries, stages: Path = STAGES) -> None:
    """Start the scheduler and KWOK, which makes of pods what `stages` say; both end with the control plane."""
    folder = plane.processes.folder
    configuration = folder / "scheduler.json"
    configuration.write_text(json.dumps(_scheduler(plane.client.kubeconfig)))
    plane.processes.start(SCHEDULER, binaries.path(SCHEDULER), f"--config={configuration}", "--secure-port=0")
    plane.processes.start(
        KWOK,
        binaries.path(KWOK),
        f"--kubeconfig={plane.client.kubeconfig}",
        f"--config={stages}",
        "--manage-all-nodes",
        "--node-lease-duration-seconds=40",
        env={"KWOK_WORKDIR": str(folder / KWOK)},
    )


def _scheduler(kubeconfig: Path) -> Object:
    """The scheduler as released, but it tries a pod again after a second at the latest."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
    }


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Object] = (),
    capacity: Mapping[str, Any] | None = None,
) -> Object:
    """A node that offers this beside the ordinary resources."""
    offered = {key: str(value) for key, value in {**ORDINARY, **(capacity or {})}.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": offered, "allocatable": offered},
    }


def add(client: Client, nodes: Iterable[Object]) -> None:
    """Create the nodes and await that pods may be bound to them."""
    created = [client.create(made) for made in nodes]
    for made in created:
        until(lambda: _takes_pods(client.get(made)), f"node {made['metadata']['name']} takes pods")  # noqa: B023  called at once


def _takes_pods(stored: Object) -> bool:
    conditions = stored["status"].get("conditions", [])
    ready = any((found["type"], found["status"]) == ("Ready", "True") for found in conditions)
    return ready and all(taint["key"] != NOT_READY for taint in stored["spec"].get("taints", []))


def clear(client: Client) -> None:
    """Take away the pods of the client's namespace, all nodes, and what describes their devices.

    A pod that waits goes before those that run: the room they leave would be bound to it while it is deleted, and
    devices that were being bound to a pod as it went stay taken for two minutes (kube-scheduler 1.36, measured:
    `waitForExtendedClaimInAssumeCache` awaits the claim although it is gone).
    """
    for version, kind in _CLEARED:
        of_kind = {"apiVersion": version, "kind": kind}
        for found in sorted(client.list(of_kind), key=lambda found: "nodeName" in found.get("spec", {})):
            client.delete({**found, **of_kind})
