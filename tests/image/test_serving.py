"""The containers of the Deployment, run from the image's root: a real API server calls them and rewrites pods."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster import accounts
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import ControlPlane, accepts, control_plane, free_port
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, register
from tests.image import running
from tests.image.building import ROOT, Image

pytestmark = [pytest.mark.cluster, pytest.mark.image]

DEPLOYMENT = ROOT / "manifests" / "base" / "deployment.yaml"
TLS = "/etc/gpu-webhook/tls"


@dataclass(frozen=True, slots=True)
class Node:
    """Where containers of the Deployment run, as its manifest describes them, with volumes they share."""

    image: Image
    root: Path
    plane: ControlPlane
    volumes: dict[str, Path]

    def start(self, name: str, port: int = 0) -> Process:
        """Start a container; it listens on this port of loopback, if at all."""
        container = _container(name)
        arguments = [re.sub(r"^--bind=.*", f"--bind=127.0.0.1:{port}", word) for word in container["args"]]
        return self.plane.processes.start(
            f"image-{name}",
            *running.command(
                self.image,
                self.root,
                arguments,
                mounts={
                    each["mountPath"]: self.volumes[each["name"]]
                    for each in container["volumeMounts"]
                    if each["mountPath"] != "/tmp"  # noqa: S108 - the path inside, which is memory anyway
                },
                environment=_service(self.plane.client),
            ),
        )


def _container(name: str) -> dict[str, Any]:
    documents = yaml.safe_load_all(DEPLOYMENT.read_text())
    deployment = next(each for each in documents if each["kind"] == "Deployment")
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return next(each for each in containers if each["name"] == name)


def _service(client: Client) -> dict[str, str]:
    """What the kubelet tells every container of the API server."""
    address = urlsplit(client.url)
    return {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}


@pytest.fixture(scope="module")
def plane(programs: Binaries) -> Iterator[ControlPlane]:
    with control_plane(programs) as started:
        world.define(started.client)
        yield started


@pytest.fixture(scope="module")
def node(image: Image, root: Path, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Volumes as the kubelet makes them; the certificate program of the image makes the certificate."""
    folder = tmp_path_factory.mktemp("volumes")
    volumes = {name: folder / name for name in ("tls", "token", "surroundings")}
    for volume in volumes.values():
        volume.mkdir()
    account = accounts.kubeconfig_of(plane, accounts.WEBHOOK, "tenants.yaml", "watcher.yaml")
    (volumes["token"] / "token").write_text(json.loads(account.read_text())["users"][0]["user"]["token"])
    (volumes["token"] / "ca.crt").write_bytes((plane.processes.folder / "ca.crt").read_bytes())
    running.give(folder)
    issue = ("/opt/gpu-webhook/bin/gpu-webhook-certs", "self-signed", f"--directory={TLS}")
    subprocess.run(running.command(image, root, issue, mounts={TLS: volumes["tls"]}), check=True, capture_output=True)
    return Node(image, root, plane, {**volumes, "rules": ROOT / "rules"})


@pytest.fixture(scope="module")
def cluster(node: Node) -> Client:
    """The cluster with the container that serves registered."""
    port = free_port()
    process = node.start("webhook", port)

    def answers() -> bool:
        process.assert_running()
        return accepts(port)

    until(answers, "the container listens", within=60)
    authority = (node.volumes["tls"] / "tls.crt").read_bytes()
    register(node.plane.client, Webhook(f"https://127.0.0.1:{port}", authority, process))
    return node.plane.client.in_namespace("image")


def test_a_share_is_rewritten(cluster: Client) -> None:
    stored = cluster.create(pod("share", labels={"gpu": "0.3"}))

    assert stored["spec"]["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem-percentage": "30",
        "nvidia.com/gpucores": "30",
    }


def test_what_cannot_be_given_is_refused(cluster: Client) -> None:
    with pytest.raises(RefusedError, match="GPU"):
        cluster.create(pod("refused", labels={"gpu": "1.5"}))


def test_a_pod_without_gpus_is_left_alone(cluster: Client) -> None:
    stored = cluster.create(pod("ordinary"))

    assert "annotations" not in stored["metadata"]


def test_the_watcher_finds_the_cluster_and_writes_what_it_offers(node: Node) -> None:
    process = node.start("watcher")
    written = node.volumes["surroundings"] / "surroundings.json"

    def wrote() -> bool:
        process.assert_running()
        return written.exists()

    until(wrote, "the watcher writes its file", within=60)
    assert written.stat().st_uid == running.UID
