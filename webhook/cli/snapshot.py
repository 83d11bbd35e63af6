"""Nodes, pods and what makes pods, from files as `kubectl get -o json` or `gpu-webhook watch` write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from webhook.cli import tenants
from webhook.cli.inventory import Demand, Overview, demand, overview, planned
from webhook.cli.tenants import Problem, Tenants
from webhook.core import inventory
from webhook.core.forms.document import API_VERSION
from webhook.core.kube import fields
from webhook.core.kube.quantity import shown
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.quota import stored
from webhook.core.quota.ledger import Ledger
from webhook.core.rules import load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Tenancy, TenantPolicy
from webhook.files import documents
from webhook.files.documents import UnreadableError

# Nodes, pods and what makes pods, from files as `kubectl get -o json` or `gpu-webhook watch` write them.

MOST_VALUES: Final = 20_000_000
"""Values of one YAML file: a cluster of some thousand nodes. That takes minutes to read; JSON takes seconds."""

Object = Mapping[str, Any]


@dataclass(slots=True)
class ClusterObjects:
    """Nodes and pods of one cluster, and the other objects beside them."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    others: list[Object] = field(default_factory=list)

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML or JSON, or as `gpu-webhook watch` writes them."""
        for document in contents_of(content, name):
            if "kind" not in document and isinstance(document.get("nodes"), list):
                self.nodes += [node for node in document["nodes"] if isinstance(node, Mapping)]
                continue
            for kind, raw in members(document):
                if kind == "Node":
                    self.nodes.append(raw)
                elif kind == "Pod":
                    self.pods.append(raw)
                else:
                    self.others.append({**raw, "kind": kind})

    def view(self, rulebook: Rulebook) -> Overview:
        """The overview of these nodes and pods, and of the pods that manifests among the others would make."""
        offers = inventory.read(self.nodes, rulebook)
        there = demand(self.pods, offers, rulebook)
        more, unknown = planned(self.others, offers, rulebook)
        whole = Demand([*there.uses, *more.uses], [*there.unread, *more.unread])
        return overview(offers, whole, rulebook, unknown)


def contents_of(content: bytes, name: str) -> list[Object]:
    """The objects of a file, in YAML or JSON; raises UnreadableError."""
    if content.lstrip()[:1] == b"{":
        with suppress(orjson.JSONDecodeError):  # several documents, or YAML in flow style
            return [orjson.loads(content)]
    return documents.objects(content, name, MOST_VALUES)


def members(document: Object, kind: str = "") -> Iterator[tuple[str, Object]]:
    """An object with its kind, or each of a list with its own: that of the list, where it says none."""
    kind = str(document.get("kind") or kind)
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, Mapping):
                yield from members(item, kind.removesuffix("List"))
    else:
        yield kind, document


# Policies, ledgers, exemptions and namespaces, from files as `kubectl get -o json` writes them.

_OURS = f"{API_VERSION.partition('/')[0]}/"
T = TypeVar("T", bound=TenantPolicy | Exemption)


@dataclass(slots=True)
class TenantObjects:
    """Objects that describe tenants, as they are in the Kubernetes API; `whole`: all that there are in a cluster."""

    policies: list[Object] = field(default_factory=list)
    exemptions: list[Object] = field(default_factory=list)
    usages: list[Object] = field(default_factory=list)
    namespaces: list[Object] = field(default_factory=list)
    whole: bool = False

    def add(self, document: Object) -> None:
        """Add an object, or those of a list; objects of other kinds are ignored.

        Raises UnreadableError for one without a name, and for one of ours of another version.
        """
        kinds = {
            "TenantPolicy": self.policies,
            "Exemption": self.exemptions,
            "TenantUsage": self.usages,
            "Namespace": self.namespaces,
        }
        for kind, raw in members(document):
            if kind in kinds:
                if not _name(raw):
                    raise UnreadableError(f"there is a {kind} without a name")
                version = str(raw.get("apiVersion", API_VERSION))
                if version != API_VERSION and version.startswith(_OURS):
                    raise UnreadableError(
                        f"{kind}/{_name(raw)}: there is no apiVersion {version}; write {API_VERSION}"
                    )
                kinds[kind].append(raw)

    @property
    def written(self) -> list[str]:
        """The policies and exemptions, as messages name them: `TenantPolicy/vision`."""
        kinds = {"TenantPolicy": self.policies, "Exemption": self.exemptions}
        return [f"{kind}/{_name(raw)}" for kind, objects in kinds.items() for raw in objects]

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML or JSON; raises UnreadableError."""
        for document in contents_of(content, name):
            self.add(document)

    def tenancy(self, rulebook: Rulebook, *, tried: bool = False) -> tuple[Tenancy, list[Problem]]:
        """The policies and exemptions of the rulebook and of these objects, and the problems of the objects.

        Of two of a name that of the rulebook counts, as on the server; or these, if they are `tried` instead.
        """
        policies = load.policies_from(self.policies, rulebook)
        exemptions = load.exemptions_from(self.exemptions, rulebook)
        problems = [
            Problem(name, f"its policy cannot be used: {problem}")
            for name, broken in policies.broken.items()
            for problem in broken.problems
        ]
        problems += [
            Problem("", f"the exemption {name} cannot be used: {problem}")
            for name, broken in exemptions.broken.items()
            for problem in broken.problems
        ]
        # The cluster may have namespaces that are not among these: the policies' status tells their conflicts.
        problems += [
            Problem(_name(policy), str(condition.get("message", "")))
            for policy in (() if self.namespaces else self.policies)
            for condition in fields.objects(fields.at(policy, "status", "conditions"))
            if condition.get("type") == "Ambiguous" and condition.get("status") == "True"
        ]
        offline = rulebook.tenancy
        replaced = {name: broken.instead for name, broken in policies.broken.items() if broken.instead is not None}
        labels = {
            _name(namespace): {NAME_LABEL: _name(namespace), **fields.mapping(namespace, "metadata", "labels")}
            for namespace in self.namespaces
        }
        tenancy = replace(
            offline,
            policies=_beside(offline.policies, {**policies.read, **replaced}, tried=tried),
            exemptions=_beside(offline.exemptions, exemptions.read, tried=tried),
            labels={**offline.labels, **labels},
        )
        return tenancy, problems

    def ledgers(self) -> tuple[dict[str, Ledger], list[Problem]]:
        """The ledger of each tenant, and a problem for each that cannot be read."""
        ledgers = {_name(raw): stored.read(raw.get("status") or {}) for raw in self.usages}
        unread = {name: (*ledger.problems, *map(shown, ledger.unread)) for name, ledger in ledgers.items()}
        problems = [
            Problem(name, f"its TenantUsage holds what nobody can read: {'; '.join(wrong)}")
            for name, wrong in unread.items()
            if wrong
        ]
        return {name: ledger for name, ledger in ledgers.items() if not unread[name]}, problems

    def view(self, rulebook: Rulebook, at: float, *, live: bool) -> Tenants:
        """The overview at a time; `live`: these are all ledgers of the cluster."""
        tenancy, broken = self.tenancy(rulebook)
        ledgers, unread = self.ledgers()
        counted = {name: {NAME_LABEL: name} for ledger in ledgers.values() for name in ledger.held}
        tenancy = replace(tenancy, labels={**counted, **tenancy.labels})
        return tenants.overview(tenancy, ledgers, at, [*broken, *unread], live=live or bool(self.usages))


def _beside(ruled: Sequence[T], others: Mapping[str, T], *, tried: bool) -> Sequence[T]:
    """Both together, without those of the one side that have a name of the other."""
    by_name = {document.name: document for document in ruled}
    return [*({**by_name, **others} if tried else {**by_name, **others, **by_name}).values()]


def _name(raw: Object) -> str:
    return str(fields.mapping(raw, "metadata").get("name", ""))


# What `gpu-webhook survey` reads from files: the objects of a cluster, by kind.

PATHS: Final[Mapping[str, str]] = {
    "Node": "/api/v1/nodes",
    "Deployment": "/apis/apps/v1/deployments",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
}
"""The kinds that a survey looks at, and where the API server has them."""

KUBECTL: Final = f"kubectl get {','.join(path.rpartition('/')[2] for path in PATHS.values())} -A -o yaml"


def paths(rulebook: Rulebook) -> Sequence[tuple[str, str]]:
    """The same with the classes of claims, in each version that there may be."""
    classes = [source.classes for source in rulebook.sources if source.classes]
    return [
        *PATHS.items(),
        *(
            (claim_class.kind, f"/apis/{claim_class.group}/{version}/{claim_class.plural}")
            for claim_class in classes
            for version in claim_class.versions
        ),
    ]


def by_kind(contents: Iterable[tuple[bytes, str]], rulebook: Rulebook) -> dict[str, list[Mapping[str, Any]]]:
    """The objects of files, each with its name; raises UnreadableError."""
    wanted = dict(paths(rulebook))
    objects: dict[str, list[Mapping[str, Any]]] = {}
    for content, name in contents:
        for document in contents_of(content, name):
            for kind, raw in members(document):
                if kind in wanted:
                    objects.setdefault(kind, []).append(raw)
    return objects


def files(named: Iterable[str]) -> Iterator[str]:
    """The files, and those in directories among them."""
    for name in named:
        folder = Path(name)
        yield from (
            map(str, sorted(path for path in folder.rglob("*") if path.is_file())) if folder.is_dir() else [name]
        )


# What commands and the console show of the current cluster, read once; they could also read it from files.

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"
TENANTS: Final = (
    *(f"/apis/{API_VERSION}/{plural}" for plural in ("tenantpolicies", "exemptions", "tenantusages")),
    "/api/v1/namespaces",
)


def read_inventory() -> ClusterObjects:
    """The nodes, and the pods that are not over; raises UnreadableError."""
    from webhook.cluster import client
    from webhook.cluster.client import ask

    async def read(api: client.Api) -> ClusterObjects:
        return ClusterObjects(await api.list("/api/v1/nodes"), await api.list("/api/v1/pods", NOT_OVER))

    try:
        return ask(read)
    except client.ApiError as error:
        raise UnreadableError(str(error)) from None


def read_surveyed(rulebook: Rulebook) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """What a survey looks at, by kind, without kinds that may not be read; raises UnreadableError without nodes."""
    from webhook.cluster import client
    from webhook.cluster.client import ask

    async def read(api: client.Api) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        objects: dict[str, Sequence[Mapping[str, Any]]] = {}
        for kind, path in paths(rulebook):
            try:
                objects[kind] = objects.get(kind) or await api.list(path)
            except client.MissingError:
                objects[kind] = []
            except client.ApiError:
                if kind == "Node":
                    raise
        return objects

    try:
        return ask(read)
    except client.ApiError as error:
        raise UnreadableError(f"{error}; or give files, from: {KUBECTL}") from None


def read_tenants() -> TenantObjects:
    """The policies, exemptions, ledgers and namespaces of the current cluster; raises UnreadableError."""
    from webhook.cluster import client
    from webhook.cluster.client import ask

    async def read(api: client.Api) -> TenantObjects:
        policies, exemptions, usages, namespaces = [await api.list(path) for path in TENANTS]
        return TenantObjects(policies, exemptions, usages, namespaces, whole=True)

    try:
        return ask(read)
    except client.MissingError:
        reason = "the cluster knows no tenants: its custom resources (manifests/base/crds) are not installed"
        raise UnreadableError(reason) from None
    except client.ApiError as error:
        files = "kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json"
        raise UnreadableError(f"{error}; or give files, from: {files}") from None
