"""What our accounts may do, by the roles that are bound to them, and what they did, by the API server's audit log."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.accounts import NAMESPACE
from tests.cluster.client import Client

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""
GROUP = "rbac.authorization.k8s.io/v1"
ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"


class Grant(NamedTuple):
    """One verb on one resource; "" is any namespace, any name. A request is that of one namespace and name."""

    account: str
    namespace: str
    group: str
    resource: str
    verb: str
    name: str

    def allows(self, request: "Grant") -> bool:
        """Whether a request needs no other right."""
        there = self.namespace in {"", request.namespace} and self.name in {"", request.name}
        return there and self._replace(namespace="", name="") == request._replace(namespace="", name="")


def audited(folder: Path) -> tuple[list[str], Path]:
    """Options of an API server that writes an audit log, and the log."""
    policy, log = folder / "audit-policy.yaml", folder / "audit.log"
    policy.write_text(POLICY)
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"], log


def granted(client: Client) -> set[Grant]:
    """All rights of accounts of our namespace."""
    return {each for binding in _bindings(client) for each in _given(client, binding)}


def roles(client: Client) -> set[str]:
    """Names of the roles that are bound to accounts of our namespace."""
    return {binding["roleRef"]["name"] for binding in _bindings(client)}


def _bindings(client: Client) -> list[dict[str, Any]]:
    names = [each["metadata"]["name"] for each in client.list({"apiVersion": "v1", "kind": "Namespace"})]
    found = client.list({"apiVersion": GROUP, "kind": "ClusterRoleBinding"})
    for name in names:
        found += client.list({"apiVersion": GROUP, "kind": "RoleBinding", "metadata": {"namespace": name}})
    return [binding for binding in found if list(_accounts(binding))]


def _accounts(binding: dict[str, Any]) -> Iterator[str]:
    for subject in binding.get("subjects", ()):
        if subject["kind"] == "ServiceAccount" and subject["namespace"] == NAMESPACE:
            yield subject["name"]


def _given(client: Client, binding: dict[str, Any]) -> Iterator[Grant]:
    reference, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
    metadata = {"name": reference["name"], "namespace": namespace}
    for rule in client.get({"apiVersion": GROUP, "kind": reference["kind"], "metadata": metadata})["rules"]:
        names = rule.get("resourceNames", [""])
        for values in product(_accounts(binding), rule["apiGroups"], rule["resources"], rule["verbs"], names):
            account, *rest = values
            yield Grant(account, namespace, *rest)


class Asked(NamedTuple):
    """A request that is in an audit log, and whether the API server let it pass."""

    request: Grant
    is_allowed: bool


def asked(log: Path) -> list[Asked]:
    """All requests of our accounts for resources."""
    entries = [json.loads(line) for line in log.read_text().splitlines() if ACCOUNTS in line and line.endswith("}")]
    return [_asked(each) for each in entries if "objectRef" in each and each["user"]["username"].startswith(ACCOUNTS)]


def _asked(entry: dict[str, Any]) -> Asked:
    about = entry["objectRef"]
    request = Grant(
        account=entry["user"]["username"].removeprefix(ACCOUNTS),
        namespace=about.get("namespace", ""),
        group=about.get("apiGroup", ""),
        resource="/".join(filter(None, [about["resource"], about.get("subresource")])),
        verb=entry["verb"],
        name=about.get("name", ""),
    )
    return Asked(request, entry["annotations"]["authorization.k8s.io/decision"] == "allow")
