"""All that certificates go through: two API servers, replicas whose kubelets are late, the certificate program.

API servers call our Services at the addresses of EndpointSlices, by the names of the Services, as in a real cluster.
"""

import base64
import random
import re
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from certs.api import Site
from tests.cluster.accounts import BASE, NAMESPACE, kubeconfig_of
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.load import ASKING, rewritten
from tests.cluster.plane import ControlPlane, accepts, control_planes, free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM, ROOT, shipped

SITE = Site()
CERTS = Path(sys.executable).with_name("gpu-webhook-certs")
ACCOUNT = "gpu-webhook-certs"
SECRET: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE}}
SERVING: Object = {**SECRET, "metadata": {"namespace": NAMESPACE, "name": "gpu-webhook-tls"}}
AUTHORITIES: Object = {**SECRET, "metadata": {"namespace": NAMESPACE, "name": "gpu-webhook-ca"}}
LATE_SECONDS = 1.5
"""The longest that a kubelet takes here."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a container runs: the first words of a command, and its environment."""

    command: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)


ISSUING = Image([CERTS])


def here() -> str:
    """An address of this machine that is not of loopback, which no EndpointSlice may hold."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


def endpoints(service: str, namespace: str, number: int, port: int, **conditions: bool) -> Object:
    """An address of a Service, which is ready unless conditions tell something else."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-{number}",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [here()], "conditions": {"ready": True, **conditions}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }


@dataclass
class Replica:
    """An admission server with the Secret mounted as a kubelet does it: a link that changes both files at once."""

    port: int
    folder: Path
    process: Process
    mounted: str = ""
    due: float = 0.0

    def mount(self, secret: Object) -> None:
        """Change the files, some time after the Secret has changed."""
        version = secret["metadata"]["resourceVersion"]
        if version == self.mounted:
            self.due = 0.0
            return
        self.due = self.due or time.monotonic() + random.uniform(0, LATE_SECONDS)  # noqa: S311  not a secret
        if time.monotonic() >= self.due:
            write(self.folder, secret)
            self.mounted, self.due = version, 0.0

    def metric(self, name: str) -> float:
        """A value of the page that the replica shows."""
        return metric(f"https://127.0.0.1:{self.port}/metrics", name)


def write(folder: Path, secret: Object) -> None:
    """Make a volume of a Secret, or change it."""
    made = folder / secret["metadata"]["resourceVersion"]
    made.mkdir(parents=True, exist_ok=True)
    for key, value in secret["data"].items():
        (made / key).write_bytes(base64.b64decode(value))
    (folder / "next").symlink_to(made)
    (folder / "next").rename(folder / "data")


def page(url: str) -> str:
    """What a program shows, without a look at who signed its certificate."""
    import ssl  # noqa: PLC0415

    context = ssl._create_unverified_context() if url.startswith("https") else None  # noqa: S323, SLF001
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:  # noqa: S310
        return str(answer.read().decode())


def is_ready(process: Process, port: int) -> bool:
    """Whether an admission server says that it can be relied on; RuntimeError if it has ended."""
    process.assert_running()
    try:
        return bool(page(f"https://127.0.0.1:{port}/readyz"))
    except OSError:
        return False


def metric(url: str, name: str) -> float:
    """One value of a page, 0 if it is not there."""
    found = re.search(rf"^gpu_webhook_{re.escape(name)} (\S+)$", page(url), re.MULTILINE)
    return float(found[1]) if found else 0.0


@dataclass
class Issuer:
    """A running certificate program."""

    process: Process
    url: str

    def done(self, action: str) -> float:
        """How often it has done this."""
        return metric(self.url, f'certs_actions_total{{action="{action}",result="done"}}')

    def is_up(self) -> bool:
        """Whether it shows its page."""
        self.process.assert_running()
        try:
            return bool(page(self.url))
        except OSError:
            return False

    def age(self) -> float:
        """Seconds since its last turn."""
        return metric(self.url, "certs_turn_age_seconds")

    def problems(self) -> list[str]:
        """What it says is not as it should be."""
        return re.findall(r'^gpu_webhook_certs_problems{what="([a-z-]+)"}', page(self.url), re.MULTILINE)


def works(clients: Sequence[Client]) -> bool:
    """Whether a pod with a GPU comes back rewritten from each API server."""
    try:
        return all(rewritten(client.create(ASKING, dry_run=True)) for client in clients)
    except (RefusedError, OSError):
        return False


@dataclass
class Installation:
    """API servers and replicas; the certificate program comes and goes."""

    planes: list[ControlPlane]
    binaries: Binaries
    replicas: list[Replica] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def client(self) -> Client:
        """An administrator, at the first API server."""
        return self.planes[0].client

    @property
    def clients(self) -> list[Client]:
        """The same at each API server."""
        return [plane.client for plane in self.planes]

    def lay_out(self) -> None:
        """What the manifests have for the Services, and the addresses of the API servers."""
        self.client.in_namespace(NAMESPACE)
        for each in yaml.safe_load_all((BASE / "deployment.yaml").read_text()):
            if each["kind"] == "Service":
                self.client.apply(each)
        self.publish()

    def publish(self) -> None:
        """The addresses of the API servers."""
        for number, plane in enumerate(self.planes):
            self.slice("kubernetes", "default", number, int(plane.client.url.rpartition(":")[2]))

    def slice(self, service: str, namespace: str, number: int, port: int, **conditions: bool) -> None:
        """Write an address of a Service: see `endpoints`."""
        self.client.apply(endpoints(service, namespace, number, port, **conditions))

    @contextmanager
    def issuer(
        self,
        *options: str,
        mode: str = "rotate",
        number: int = 0,
        image: Image = ISSUING,
        rights: str | None = "certs.yaml",
    ) -> Iterator[Issuer]:
        """Run the certificate program, with the rights that a manifest gives it, or that it has already (None)."""
        port = free_port()
        process = self.planes[0].processes.start(
            f"certs-{number}-{port}",
            *image.command,
            mode,
            f"--metrics=127.0.0.1:{port}",
            *options,
            env={
                "KUBECONFIG": str(kubeconfig_of(self.planes[0], ACCOUNT, *([rights] if rights else []))),
                **image.env,
            },
        )
        made = Issuer(process, f"http://127.0.0.1:{port}/metrics")
        try:
            until(made.is_up, "the certificate program is up", within=60)
            yield made
        finally:
            process.stop()

    def start_replicas(self, count: int) -> None:
        """Start servers as soon as there is a Secret to mount, and keep their mounts."""
        until(lambda: self.stored(SERVING), "the serving Secret", within=60)
        secret = self.client.get(SERVING)
        for number in range(count):
            port = free_port()
            folder = self.planes[0].processes.folder / f"replica-{port}"
            write(folder, secret)
            process = self.planes[0].processes.start(
                f"replica-{port}",
                PROGRAM,
                "serve",
                f"--bind=0.0.0.0:{port}",
                f"--rules={ROOT / 'rules'}",
                f"--tls-cert={folder}/data/tls.crt",
                f"--tls-key={folder}/data/tls.key",
                farewell=signal.SIGINT,
            )
            self.replicas.append(Replica(port, folder, process, secret["metadata"]["resourceVersion"]))
            self.slice(SITE.service, NAMESPACE, number, port)
        threading.Thread(target=self._keep_mounts, daemon=True).start()

    def _keep_mounts(self) -> None:
        """All kubelets: each mounts a changed Secret in its own time, and leaves the files of a deleted one."""
        while not self._ended.wait(0.1):
            try:
                secret = self.client.get(SERVING)
            except (RefusedError, OSError):
                continue
            for replica in self.replicas:
                replica.mount(secret)

    def stored(self, obj: Object) -> dict[str, Any] | None:
        """An object if it is there."""
        try:
            return self.client.get(obj)
        except RefusedError as refusal:
            if refusal.code != 404:
                raise
            return None

    def works(self) -> bool:
        """Whether a pod with a GPU comes back rewritten from every API server."""
        return works(self.clients)

    def close(self) -> None:
        """Keep no mounts any more."""
        self._ended.set()


@contextmanager
def servers(binaries: Binaries, *options: str, count: int = 2, controllers: bool = False) -> Iterator[Installation]:
    """API servers with nothing of ours."""
    with control_planes(binaries, count, *options, controllers=controllers) as planes:
        made = Installation(planes, binaries)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def installation(binaries: Binaries, *options: str) -> Iterator[Installation]:
    """From nothing to a rewritten pod, with the certificate program for as long as that takes."""
    with servers(binaries) as made:
        made.lay_out()
        with made.issuer(*options):
            made.start_replicas(3)
            until(lambda: all(accepts(each.port) for each in made.replicas), "all replicas listen", within=90)
            for configuration in shipped():
                made.client.apply(configuration)
            until(made.works, "pods are rewritten through both API servers", within=60)
        yield made
