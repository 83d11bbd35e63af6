"""The containers of the Deployment, run from the image's root: a real API server calls them and rewrites pods."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster import accounts
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.installation import ACCOUNT, SERVING
from tests.cluster.plane import ControlPlane, accepts, control_plane, free_port
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, register
from tests.image import running
from tests.image.building import ROOT, Image

pytestmark = [pytest.mark.cluster, pytest.mark.image]

MANIFESTS = [
    *(accounts.BASE / name for name in ("deployment.yaml", "settler.yaml", "certs.yaml")),
    ROOT / "manifests" / "components" / "console" / "console.yaml",
]
ACCOUNTS = {
    accounts.WEBHOOK: ["tenants.yaml", "watcher.yaml"],
    accounts.SETTLER: ["settler.yaml"],
    ACCOUNT: ["certs.yaml"],
}
PROGRAMS = "/opt/gpu-webhook/bin"
TLS = "/etc/gpu-webhook/tls"


class Started(NamedTuple):
    """A container that runs, and the ports of loopback that its arguments name, in their order."""

    process: Process
    ports: list[int]

    def answers(self, path: str) -> bool:
        """Whether it answers over HTTP, on its last port; raises AssertionError if it has ended."""
        self.process.assert_running()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[-1]}{path}", timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Node:
    """Where containers of our Deployments run, as the manifests describe them, with volumes they share."""

    image: Image
    root: Path
    plane: ControlPlane
    volumes: dict[str, Path]

    def start(self, name: str, *more: str) -> Started:
        """Start a container, with more arguments; it listens on free ports of loopback, if at all."""
        account, container = _container(name)
        ports: list[int] = []

        def bound(found: re.Match[str]) -> str:
            ports.append(free_port())
            return f"{found[1]}127.0.0.1:{ports[-1]}"

        words = [re.sub(r"^(--\w+=)[\d.]+:\d+$", bound, word) for word in container["args"]]
        program = [f"{PROGRAMS}/{word}" for word in container.get("command", [])]
        volumes = {**self.volumes, "token": self.volumes.get(f"token-{account}", self.root)}
        # What the kubelet tells every container of the API server.
        client = self.plane.client
        address = urlsplit(client.url)
        process = self.plane.processes.start(
            f"image-{name}",
            *running.command(
                self.image,
                self.root,
                [*program, *words, *more],
                mounts={
                    each["mountPath"]: volumes[each["name"]]
                    for each in container["volumeMounts"]
                    if each["mountPath"] != "/tmp"  # noqa: S108 - the path inside, which is memory anyway
                },
                environment={
                    "KUBERNETES_SERVICE_HOST": str(address.hostname),
                    "KUBERNETES_SERVICE_PORT": str(address.port),
                },
            ),
        )
        return Started(process, ports)


def _container(name: str) -> tuple[str, dict[str, Any]]:
    """The account and the container of a Deployment."""
    for manifest in MANIFESTS:
        for each in yaml.safe_load_all(manifest.read_text()):
            if each["kind"] == "Deployment":
                spec = each["spec"]["template"]["spec"]
                found = [container for container in spec["containers"] if container["name"] == name]
                if found:
                    return spec.get("serviceAccountName", ""), found[0]
    raise AssertionError(f"no Deployment has a container {name}")


@pytest.fixture(scope="module")
def plane(programs: Binaries) -> Iterator[ControlPlane]:
    with control_plane(programs) as started:
        world.define(started.client)
        yield started


@pytest.fixture(scope="module")
def node(image: Image, root: Path, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Volumes as the kubelet makes them; the certificate program of the image makes the certificate."""
    folder = tmp_path_factory.mktemp("volumes")
    volumes = {name: folder / name for name in ("tls", "surroundings", *(f"token-{each}" for each in ACCOUNTS))}
    for volume in volumes.values():
        volume.mkdir()
    for account, manifests in ACCOUNTS.items():
        kubeconfig = json.loads(accounts.kubeconfig_of(plane, account, *manifests).read_text())
        (volumes[f"token-{account}"] / "token").write_text(kubeconfig["users"][0]["user"]["token"])
        (volumes[f"token-{account}"] / "ca.crt").write_bytes((plane.processes.folder / "ca.crt").read_bytes())
    running.give(folder)
    issue = (f"{PROGRAMS}/gpu-webhook-certs", "self-signed", f"--directory={TLS}")
    subprocess.run(running.command(image, root, issue, mounts={TLS: volumes["tls"]}), check=True, capture_output=True)
    return Node(image, root, plane, {**volumes, "rules": ROOT / "rules"})


@pytest.fixture(scope="module")
def cluster(node: Node) -> Client:
    """The cluster with the container that serves registered."""
    process, ports = node.start("webhook")

    def answers() -> bool:
        process.assert_running()
        return accepts(ports[0])

    until(answers, "the container listens", within=60)
    authority = (node.volumes["tls"] / "tls.crt").read_bytes()
    register(node.plane.client, Webhook(f"https://127.0.0.1:{ports[0]}", authority, process))
    return node.plane.client.in_namespace("image")


def test_a_request_is_rewritten(cluster: Client) -> None:
    stored = cluster.create(pod("asking", labels={"gpu": "2"}))

    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_what_cannot_be_given_is_refused(cluster: Client) -> None:
    with pytest.raises(RefusedError, match="GPU"):
        cluster.create(pod("refused", labels={"gpu": "1.5"}))


def test_a_pod_without_gpus_is_left_alone(cluster: Client) -> None:
    stored = cluster.create(pod("ordinary"))

    assert "annotations" not in stored["metadata"]


def test_the_watcher_finds_the_cluster_and_writes_what_it_offers(node: Node) -> None:
    process, _ = node.start("watcher")
    written = node.volumes["surroundings"] / "surroundings.json"

    def wrote() -> bool:
        process.assert_running()
        return written.exists()

    until(wrote, "the watcher writes its file", within=60)
    assert written.stat().st_uid == running.UID


@pytest.mark.parametrize(("name", "path"), [("settler", "/healthz"), ("console", "/")])
def test_each_of_the_other_containers_answers(node: Node, name: str, path: str) -> None:
    started = node.start(name)

    until(lambda: started.answers(path), f"{name} answers", within=60)


def test_the_certificate_program_issues_and_answers(node: Node) -> None:
    # Where another test has registered the webhook, its CA is trusted, and a leaf of a new one waits for this.
    started = node.start("certs", "--overlap=0s")

    until(lambda: started.answers("/healthz"), "it answers", within=60)
    until(lambda: node.plane.client.exists(SERVING), "the serving Secret", within=60)
