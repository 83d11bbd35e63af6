"""A cluster with tenants: the definitions, a settler, and admission servers that reserve in its ledgers."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.accounts import SETTLER, WEBHOOK, kubeconfig_of
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.installation import is_ready
from tests.cluster.plane import ControlPlane, free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM, ROOT, Webhook
from webhook.playground import imagined

API_VERSION = "gpu-webhook.io/v1alpha1"
DEFINITIONS = ROOT / "manifests" / "base" / "crds"
NET = ROOT / "manifests" / "base" / "net.yaml"
GRACE = 3.0
"""Seconds; long enough for creates that end within a second, as all do here that end well."""


def define(client: Client) -> None:
    """Make the API server know TenantPolicy, Exemption and TenantUsage; and what the settler fills in."""
    for policy_or_binding in yaml.safe_load_all(NET.read_text()):
        client.apply(policy_or_binding)
    for file in sorted(DEFINITIONS.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document["kind"] == "CustomResourceDefinition":
                client.apply(document)
    kinds = ("tenantpolicies", "exemptions", "tenantusages")
    until(lambda: all(client.text(f"/apis/{API_VERSION}/{kind}") for kind in kinds), "the kinds are served")


def policy(name: str, *namespaces: str, **spec: Any) -> Object:
    """A TenantPolicy of namespaces by name."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": name},
        "spec": {"namespaces": {"names": list(namespaces)}, **spec},
    }


def label(client: Client, namespace: str, labels: Mapping[str, str]) -> None:
    """Label a namespace."""
    there: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    client.patch(there, {"metadata": {"labels": labels}})


def usage(client: Client, tenant: str) -> Mapping[str, Any]:
    """The status of a TenantUsage; empty while there is none."""
    try:
        found = client.get({"apiVersion": API_VERSION, "kind": "TenantUsage", "metadata": {"name": tenant}})
    except RefusedError:
        return {}
    return dict(found.get("status") or {})


def await_counted(client: Client, tenant: str, *namespaces: str, within: float = 30) -> None:
    """Await that pods of these namespaces can be admitted: before that they are told to come again."""
    until(
        lambda: set(namespaces) <= set(usage(client, tenant).get("held", {})), f"{tenant} is counted", within=within
    )


def start_settler(
    plane: ControlPlane,
    name: str = "settler",
    *,
    rules: Path | None = None,
    grace: float = GRACE,
    kubeconfig: Path | None = None,
) -> Process:
    """Start a settler with its account's rights; it ends with the control plane, or by its `stop`.

    Without `rules` it has those of `make run`, and so has a server.
    """
    kubeconfig = kubeconfig or kubeconfig_of(plane, SETTLER, "settler.yaml")
    return plane.processes.start(
        name,
        PROGRAM,
        "settle",
        f"--grace={grace}",
        f"--rules={rules or imagined(plane.processes.folder / f'{name}-rules')}",
        f"--bind=127.0.0.1:{free_port()}",
        env={"KUBECONFIG": str(kubeconfig)},
    )


@contextmanager
def attached_webhook(
    plane: ControlPlane, name: str, *, rules: Path | None = None, state: Path | None = None
) -> Iterator[Webhook]:
    """An admission server that follows policies of the cluster, with its account's rights; it ends with the block.

    Those of one `state` have one certificate; the first has to be there before the next is started.
    """
    port = free_port()
    state = state or plane.processes.folder / name
    kubeconfig = kubeconfig_of(plane, WEBHOOK, "tenants.yaml")
    process = plane.processes.start(
        name,
        PROGRAM,
        "serve",
        "--cluster",
        f"--bind=127.0.0.1:{port}",
        f"--rules={rules or imagined(plane.processes.folder / f'{name}-rules')}",
        env={"XDG_STATE_HOME": str(state), "KUBECONFIG": str(kubeconfig)},
        farewell=signal.SIGINT,
    )
    certificate = state / "gpu-webhook" / "tls.crt"
    try:
        until(lambda: is_ready(process, port), f"{name} knows its rules and policies", within=60)
        yield Webhook(f"https://127.0.0.1:{port}", certificate.read_bytes(), process)
    finally:
        process.stop()
