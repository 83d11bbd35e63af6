"""The accounts that our programs have in a cluster, with the rights that the manifests give them, and no others."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.plane import ControlPlane
from tests.cluster.webhook import ROOT

BASE = ROOT / "manifests" / "base"
NAMESPACE = "gpu-webhook-system"
WEBHOOK = "gpu-webhook"
SETTLER = "gpu-webhook-settler"
RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
DAY = 86_400


def kubeconfig_of(plane: ControlPlane, account: str, *manifests: str) -> Path:
    """A kubeconfig of a service account with a token such as its pods get; `manifests` say what it may do."""
    made = plane.processes.folder / f"{'-'.join((account, *manifests))}.kubeconfig"
    if made.exists():
        return made
    client = plane.client.in_namespace(NAMESPACE)
    bearer = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account, "namespace": NAMESPACE},
    }
    client.apply(bearer)
    for manifest in manifests:
        for document in yaml.safe_load_all((BASE / manifest).read_text()):
            if document["kind"] in RIGHTS:
                client.apply(document)
    asked: dict[str, Any] = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": DAY},
    }
    token = client.send("POST", f"{client.path(bearer)}/token", asked)["status"]["token"]
    config = json.loads(plane.client.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    made.touch(mode=0o600)
    made.write_text(json.dumps(config))
    return made
