"""What a cluster has, in few words: nodes and pods of the made-up back ends, policies, exemptions and usage."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

Object = dict[str, Any]


def node(name: str = "n1", **resources: str) -> Object:
    advertised = {f"acme.example/{key}": value for key, value in resources.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": advertised}}


def pod(name: str = "p1", on: str = "n1", **resources: str) -> Object:
    limits = {f"acme.example/{key}": value for key, value in resources.items()}
    owner = {"kind": "ReplicaSet", "name": "web-6d4cf56db6", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "vision", "ownerReferences": [owner]},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


NODES_AND_PODS = (
    node("n1", card="4"),
    node("n2", share="200"),
    node("n3"),
    pod("p1", "n1", card="1"),
    pod("p2", "n2", share="50", compute="30"),
)


def resource(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "gpu-webhook.io/v1alpha1", "kind": kind, "metadata": {"name": name}, **fields}


def policy(name: str, *namespaces: str, **spec: Any) -> Object:
    return resource("TenantPolicy", name, spec={"namespaces": {"names": list(namespaces)}, **spec})


def usage(name: str, **status: Any) -> Object:
    return resource("TenantUsage", name, status={"view": "77", **status})


def exemption(name: str, ends: timedelta) -> Object:
    spec = {
        "namespaces": ["vision-dev"],
        "lifts": ["quota"],
        "owner": "ada@example.com",
        "reason": "a deadline",
        "expires": (datetime.now(UTC) + ends).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return resource("Exemption", name, spec=spec)


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def listed(*objects: Object) -> str:
    """As `kubectl get -o json` prints several kinds."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
