"""The objects of a cluster, from files as kubectl or `gpu-webhook watch` write them, or from the cluster itself."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from webhook.cli import options
from webhook.core.forms.document import API_VERSION, UnreadableError
from webhook.core.kube import fields
from webhook.core.kube.quantity import shown
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.quota import stored
from webhook.core.quota.ledger import Ledger
from webhook.core.rules import load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Tenancy, TenantPolicy
from webhook.files import documents

MOST_VALUES: Final = 20_000_000
"""Values of one YAML file: a cluster of some thousand nodes. That takes minutes to read; JSON takes seconds."""

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"

Object = Mapping[str, Any]
Kinds = Mapping[str, Sequence[str]]
"""Kinds that a command asks about, with the path of each in the API, in every version that there may be."""

INVENTORY: Final[Kinds] = {"Node": ["/api/v1/nodes"], "Pod": ["/api/v1/pods"]}
TENANTS: Final[Kinds] = {
    "TenantPolicy": [f"/apis/{API_VERSION}/tenantpolicies"],
    "Exemption": [f"/apis/{API_VERSION}/exemptions"],
    "TenantUsage": [f"/apis/{API_VERSION}/tenantusages"],
    "Namespace": ["/api/v1/namespaces"],
}
SURVEYED: Final[Kinds] = {
    "Node": ["/api/v1/nodes"],
    "Deployment": ["/apis/apps/v1/deployments"],
    "DaemonSet": ["/apis/apps/v1/daemonsets"],
    "StatefulSet": ["/apis/apps/v1/statefulsets"],
    "RuntimeClass": ["/apis/node.k8s.io/v1/runtimeclasses"],
    "DeviceClass": ["/apis/resource.k8s.io/v1/deviceclasses"],
    "ResourceClaimTemplate": ["/apis/resource.k8s.io/v1/resourceclaimtemplates"],
    "ResourceSlice": ["/apis/resource.k8s.io/v1/resourceslices"],
}
KUBECTL: Final = f"kubectl get {','.join(path.rpartition('/')[2] for [path] in SURVEYED.values())} -A -o yaml"


def surveyed(rulebook: Rulebook) -> Kinds:
    """What `gpu-webhook survey` looks at: SURVEYED, the classes of claims, and where they are known, policies."""
    kinds = {kind: [*paths] for kind, paths in SURVEYED.items()}
    kinds |= {kind: [*TENANTS[kind]] for kind in ("TenantPolicy", "Namespace")}
    for classes in (source.classes for source in rulebook.sources if source.classes):
        paths = [f"/apis/{classes.group}/{version}/{classes.plural}" for version in classes.versions]
        kinds.setdefault(classes.kind, []).extend(paths)
    return kinds


class Problem(NamedTuple):
    """Something that has to be done; `tenant` is empty where it concerns no tenant."""

    tenant: str
    message: str

    def __str__(self) -> str:
        """The text for people."""
        return f"{self.tenant}: {self.message}" if self.tenant else self.message


T = TypeVar("T", bound=TenantPolicy | Exemption)


@dataclass(slots=True)
class Snapshot:
    """Objects of a cluster, by kind: those of `kinds`, and under "" all others in their order.

    A kind that could not be read has no entry. `whole`: these are all that there are in a cluster.
    """

    kinds: Collection[str]
    objects: dict[str, list[Object]] = field(default_factory=dict)
    whole: bool = False

    def of(self, kind: str) -> Sequence[Object]:
        """The objects of a kind."""
        return self.objects.get(kind, ())

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML, JSON, or as `gpu-webhook watch` writes them; raises UnreadableError."""
        parsed: list[Object] = []
        if content.lstrip()[:1] == b"{":
            with suppress(orjson.JSONDecodeError):  # several documents, or YAML in flow style
                parsed = [orjson.loads(content)]
        for document in parsed or documents.objects(content, name, MOST_VALUES):
            if "kind" not in document and isinstance(document.get("nodes"), list):
                self.add({"kind": "NodeList", "items": document["nodes"]})
            else:
                self.add(document)

    def add(self, document: Object) -> None:
        """Add an object, or those of a list.

        Raises UnreadableError for one of TENANTS without a name, and for one of ours of another version.
        """
        for kind, raw in members(document):
            if kind not in self.kinds:
                self.objects.setdefault("", []).append({**raw, "kind": kind})
                continue
            if kind in TENANTS:
                if not _name(raw):
                    raise UnreadableError(f"there is a {kind} without a name")
                version = str(raw.get("apiVersion", API_VERSION))
                if version != API_VERSION and version.startswith(f"{API_VERSION.partition('/')[0]}/"):
                    wrong = f"there is no apiVersion {version}; write {API_VERSION}"
                    raise UnreadableError(f"{kind}/{_name(raw)}: {wrong}")
            self.objects.setdefault(kind, []).append(raw)

    @property
    def written(self) -> list[str]:
        """The policies and exemptions, as messages name them: `TenantPolicy/vision`."""
        return [f"{kind}/{_name(raw)}" for kind in ("TenantPolicy", "Exemption") for raw in self.of(kind)]

    def tenancy(self, rulebook: Rulebook, *, tried: bool = False) -> tuple[Tenancy, list[Problem]]:
        """The policies and exemptions of the rulebook and of these objects, and the problems of the objects.

        Of two of a name that of the rulebook counts, as on the server; or these, if they are `tried` instead.
        """
        policies = load.policies_from(self.of("TenantPolicy"), rulebook)
        exemptions = load.exemptions_from(self.of("Exemption"), rulebook)
        problems: list[Problem] = []
        for name, policy in policies.broken.items():
            problems += (Problem(name, f"its policy cannot be used: {problem}") for problem in policy.problems)
        for name, exemption in exemptions.broken.items():
            unusable = f"the exemption {name} cannot be used"
            problems += (Problem("", f"{unusable}: {problem}") for problem in exemption.problems)
        # The cluster may have namespaces that are not among these: the policies' status tells their conflicts.
        problems += [
            Problem(_name(policy), str(condition.get("message", "")))
            for policy in (() if self.of("Namespace") else self.of("TenantPolicy"))
            for condition in fields.objects(fields.at(policy, "status", "conditions"))
            if condition.get("type") == "Ambiguous" and condition.get("status") == "True"
        ]

        def beside(ruled: Sequence[T], others: Mapping[str, T]) -> Sequence[T]:
            by_name = {document.name: document for document in ruled}
            return [*({**by_name, **others} if tried else {**by_name, **others, **by_name}).values()]

        offline = rulebook.tenancy
        replaced = {name: broken.instead for name, broken in policies.broken.items() if broken.instead is not None}
        labels = {
            _name(namespace): {NAME_LABEL: _name(namespace), **fields.mapping(namespace, "metadata", "labels")}
            for namespace in self.of("Namespace")
        }
        tenancy = replace(
            offline,
            policies=beside(offline.policies, {**policies.read, **replaced}),
            exemptions=beside(offline.exemptions, exemptions.read),
            labels={**offline.labels, **labels},
        )
        return tenancy, problems

    def ledgers(self) -> tuple[dict[str, Ledger], list[Problem]]:
        """The ledger of each tenant, and a problem for each that cannot be read."""
        ledgers = {_name(raw): stored.read(raw.get("status") or {}) for raw in self.of("TenantUsage")}
        unread = {name: (*ledger.problems, *map(shown, ledger.unread)) for name, ledger in ledgers.items()}
        problems = [
            Problem(name, f"its TenantUsage holds what nobody can read: {'; '.join(wrong)}")
            for name, wrong in unread.items()
            if wrong
        ]
        return {name: ledger for name, ledger in ledgers.items() if not unread[name]}, problems


def _name(raw: Object) -> str:
    return str(fields.mapping(raw, "metadata").get("name", ""))


def members(document: Object, kind: str = "") -> Iterator[tuple[str, Object]]:
    """An object with its kind, or each of a list with its own: that of the list, where it says none."""
    kind = str(document.get("kind") or kind)
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, Mapping):
                yield from members(item, kind.removesuffix("List"))
    else:
        yield kind, document


def read_files(kinds: Collection[str], named: Iterable[str]) -> Snapshot:
    """The objects of files, and of standard input where one is `-`; raises OSError and UnreadableError."""
    objects = Snapshot(kinds)
    for name in named:
        objects.parse(*options.read_content(name))
    return objects


def files(named: Iterable[str], wanted: Callable[[Path], bool] = Path.is_file) -> Iterator[str]:
    """The files, and those in directories among them that are `wanted`."""
    for name in named:
        folder = Path(name)
        yield from (
            map(str, sorted(path for path in folder.rglob("*") if wanted(path))) if folder.is_dir() else [name]
        )


def read_cluster(kinds: Kinds, instead: str = "", needed: Collection[str] | None = None) -> Snapshot:
    """The objects of the current cluster, of pods those that are not over; raises UnreadableError.

    `instead`: what prints files with them. Kinds that are not `needed` may be missing or forbidden; default: none.
    """
    from webhook.cluster import client

    async def read(api: client.Api) -> Snapshot:
        objects: dict[str, list[Object]] = {}
        for kind, path in ((kind, path) for kind, paths in kinds.items() for path in paths):
            try:
                objects[kind] = objects.get(kind) or await api.list(path, NOT_OVER if kind == "Pod" else "")
            except client.ApiError as error:
                if needed is None or kind in needed:
                    raise
                if isinstance(error, client.MissingError):
                    objects[kind] = []
        return Snapshot(kinds, objects, whole=objects.keys() == kinds.keys())

    try:
        with options.progress("reading the cluster"):
            return client.ask(read)
    except client.ApiError as error:
        if kinds is TENANTS and isinstance(error, client.MissingError):
            reason = "the cluster knows no tenants: its custom resources (manifests/base/crds) are not installed"
            raise UnreadableError(reason) from None
        raise UnreadableError(f"{error}; or give files, from: {instead}" if instead else str(error)) from None


def read_tenants() -> Snapshot:
    """The policies, exemptions, ledgers and namespaces of the current cluster; raises UnreadableError."""
    return read_cluster(TENANTS, "kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json")
