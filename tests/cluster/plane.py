"""A control plane: etcd, kube-apiserver and, where Deployments must make pods, kube-controller-manager.

There are no nodes, unless `nodes` adds some: pods are stored, admitted, updated and deleted, and never run. Every
feature is as the release has it; the one admission plugin switched off is ServiceAccount, which adds a token volume
to every pod and refuses pods until somebody made the account.
"""

import random
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster.binaries import CONTROLLERS, Binaries
from tests.cluster.client import Client
from tests.cluster.credentials import Credentials, issue
from tests.cluster.processes import Process, Processes
from tests.cluster.waiting import until

LOOPS = (
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "statefulset-controller",
)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane."""

    client: Client
    processes: Processes
    apiserver: Process


@contextmanager
def control_plane(binaries: Binaries, *, controllers: bool = False) -> Iterator[ControlPlane]:
    """Start one on free loopback ports, await its readiness, and leave nothing of it behind."""
    with Processes() as processes:
        made = issue(processes.folder)
        _start_etcd(processes, binaries)
        plane = _with_apiserver(processes, binaries, made)
        if controllers:
            _start_controllers(processes, binaries, made, plane.client.kubeconfig)
        yield plane
        plane.client.close()


@contextmanager
def control_planes(
    binaries: Binaries, count: int, *options: str, controllers: bool = False
) -> Iterator[list[ControlPlane]]:
    """Several API servers on one etcd, each seen as a control plane; with more options if some are named.

    They listen on every address of this machine, and call a Service at the addresses of its EndpointSlices.
    """
    outward = ("--bind-address=0.0.0.0", "--enable-aggregator-routing=true")
    with Processes() as processes:
        made = issue(processes.folder)
        _start_etcd(processes, binaries)
        planes = [_with_apiserver(processes, binaries, made, *outward, *options) for _ in range(count)]
        if controllers:
            _start_controllers(processes, binaries, made, planes[0].client.kubeconfig)
        yield planes
        for plane in planes:
            plane.client.close()


def _with_apiserver(processes: Processes, binaries: Binaries, made: Credentials, *options: str) -> ControlPlane:
    port = free_port()
    kubeconfig = processes.folder / f"kubeconfig-{port}"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(made.kubeconfig(f"https://127.0.0.1:{port}"))
    apiserver = _start_apiserver(processes, binaries, made, port, options)
    client = Client(
        url=f"https://127.0.0.1:{port}",
        tls=_tls(made),
        kubectl_path=binaries.path("kubectl"),
        kubeconfig=kubeconfig,
    )
    _await_ready(client, apiserver)
    return ControlPlane(client, processes, apiserver)


def restarted(plane: ControlPlane) -> ControlPlane:
    """The same one after its API server was killed, and started again; what etcd stores stays."""
    plane.apiserver.kill()
    return revived(plane)


def revived(plane: ControlPlane) -> ControlPlane:
    """The same one with its API server, which has ended, started again."""
    apiserver = plane.processes.again(plane.apiserver)
    _await_ready(plane.client, apiserver)
    return replace(plane, apiserver=apiserver)


def free_port() -> int:
    """A loopback port nobody listens on, below those the kernel gives to clients: it stays free for a moment."""
    while True:
        port = random.randrange(20000, 32000)  # noqa: S311  not a secret
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def accepts(port: int) -> bool:
    """Whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _start_etcd(processes: Processes, binaries: Binaries) -> None:
    """Etcd on Unix sockets, which nobody else can reach; the addresses it advertises are never used."""
    client, peer = (_socket(processes, name) for name in ("client", "peer"))
    processes.start(
        "etcd",
        binaries.path("etcd"),
        f"--data-dir={processes.folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--name=test",
        f"--listen-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--advertise-client-urls=http://localhost:1",
        "--initial-advertise-peer-urls=http://localhost:1",
        "--initial-cluster=test=http://localhost:1",
        "--log-level=warn",
    )


def _socket(processes: Processes, name: str) -> str:
    return f"unix://{processes.folder / name}.sock"


def _start_apiserver(
    processes: Processes, binaries: Binaries, made: Credentials, port: int, options: Sequence[str]
) -> Process:
    return processes.start(
        f"kube-apiserver-{port}",
        binaries.path("kube-apiserver"),
        f"--etcd-servers={_socket(processes, 'client')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={made.server}",
        f"--tls-private-key-file={made.server_key}",
        f"--client-ca-file={made.authority}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={made.service_account_key}",
        f"--service-account-signing-key-file={made.service_account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        *options,
    )


def _start_controllers(processes: Processes, binaries: Binaries, made: Credentials, kubeconfig: Path) -> None:
    processes.start(
        "kube-controller-manager",
        binaries.path(CONTROLLERS),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(LOOPS)}",
        f"--root-ca-file={made.authority}",
        "--leader-elect=false",
        "--secure-port=0",
    )


def _tls(made: Credentials) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.authority))
    context.load_cert_chain(made.admin, made.admin_key)
    return context


def _await_ready(client: Client, apiserver: Process) -> None:
    def ready() -> bool:
        apiserver.assert_running()
        return client.text("/readyz") == "ok"

    until(ready, "kube-apiserver is ready", within=60)
