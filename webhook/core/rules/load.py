"""All documents together: heads, names, and the references between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple, TypeVar

from webhook.core.forms import inheritance
from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, Problem, Section, nearest
from webhook.core.forms.inheritance import Parameters
from webhook.core.forms.labels import MAX_NAME, is_subdomain
from webhook.core.forms.shape import Scope
from webhook.core.rules import catalog, expand, index
from webhook.core.rules.backend import BACKEND, Backend
from webhook.core.rules.built_in_workloads import BUILT_IN, by_kind
from webhook.core.rules.catalog import DEVICE_CATALOG, Card, DeviceCatalog
from webhook.core.rules.claim_source import CLAIM_SOURCE
from webhook.core.rules.cluster import CLUSTER, Cluster
from webhook.core.rules.exemption import EXEMPTION
from webhook.core.rules.names import Known
from webhook.core.rules.protection import PROTECTION, Protected, Protection
from webhook.core.rules.rulebook import ClaimSource, Rulebook
from webhook.core.rules.schema import KINDS
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import TENANT_POLICY
from webhook.core.rules.workload import WORKLOAD, Kinds, Workload, Workloads

T = TypeVar("T")

_NAMED = f"write a-z, 0-9 and -, at most {MAX_NAME} characters, as vision-team"


class Loaded(NamedTuple):
    """What documents say, and what their examples are about: rules as they are written.

    `backends` and `sources` have the parameters that they declare, not those that this cluster sets. `workloads` are
    those of documents.
    """

    rulebook: Rulebook
    backends: Sequence[Backend]
    sources: Sequence[ClaimSource]
    workloads: Sequence[Workload]


def read(documents: Iterable[Node], digest: str) -> Loaded:
    """Everything the documents say; raises DocumentError with all that is wrong with them, in order."""
    problems: list[Problem] = []
    causes: list[Problem] = []  # what others name and cannot be found stands before those that name it
    specs = _by_kind(documents, causes)
    _exactly_one_cluster(specs["Cluster"], causes)
    catalogs = [DEVICE_CATALOG.of(*one, causes) for one in specs["DeviceCatalog"].items()]
    here = _Documents(specs, _devices(catalogs, causes), problems)
    cluster = here.cluster()
    set_here = cluster.parameters if cluster else {}
    backends, sources = here.backends(set_here), here.sources(set_here)
    tenancy = here.tenancy(cluster, backends) if cluster else Tenancy()
    workloads, protections = here.workloads(), here.protections()
    kinds = _kinds(workloads, sources, problems)
    if causes or problems or cluster is None:
        raise DocumentError(*sorted(set(causes)), *sorted(set(problems)))
    rulebook = index.index(cluster, {one.name: one for one in backends}, here.devices, digest, sources)
    uncounted = tuple(dict.fromkeys(glob for one in catalogs for glob in one.resources))
    written = _Documents(specs, here.devices, [])
    return Loaded(
        replace(rulebook, tenancy=tenancy, uncounted=uncounted, workloads=kinds, protections=protections),
        [written.backend(one.name, {}) if one.parametrised else one for one in backends],
        written.sources({}),
        workloads,
    )


def _by_kind(documents: Iterable[Node], problems: list[Problem]) -> dict[str, dict[str, Node]]:
    specs: dict[str, dict[str, Node]] = {kind: {} for kind in KINDS}
    named: dict[tuple[str, str], Location] = {}
    for document in documents:
        section = Section(document, problems)
        version = section.need("apiVersion", lambda node: node.word((API_VERSION,)), "")
        kind = section.need("kind", lambda node: node.word(KINDS), "")
        name = section.need("metadata", lambda node: _name(node, problems), "")
        spec = section.need("spec", lambda node: node, document)
        section.done()
        if not version or not kind or not name:
            continue
        at = document.value["metadata"].value["name"].at
        if (KINDS[kind].is_object or kind == "Backend") and not is_subdomain(name, MAX_NAME):
            problems.append(Problem(at, "metadata.name", f'"{name}" is no name of an object; {_NAMED}'))
        first = named.setdefault((kind, name), at)
        if first is not at:
            message = f'{kind} "{name}" is defined already, at {first.line_only}'
            problems.append(Problem(at, "metadata.name", message))
        specs[kind][name] = spec
    return specs


def _name(node: Node, problems: list[Problem]) -> str:
    section = Section(node, problems)
    name = section.need("name", lambda node: node.filled(), "")
    for notes in ("annotations", "labels"):
        section.take(notes, lambda node: node, node)
    section.done()
    return name


def _exactly_one_cluster(found: Mapping[str, Node], problems: list[Problem]) -> None:
    if not found:
        missing = "no Cluster document: nothing says which back ends this cluster has; gpu-webhook survey prints one"
        raise DocumentError(*(problems or [Problem(Location("rules", 1), "", missing)]))
    for spec in list(found.values())[1:]:
        first = next(iter(found.values())).at.line_only
        problems.append(Problem(spec.at, "", f"a second Cluster document; the first is at {first}"))


def _devices(catalogs: Iterable[DeviceCatalog], problems: list[Problem]) -> dict[str, Card]:
    found: dict[str, Card] = {}
    for each in catalogs:
        for name, device in catalog.by_name(each).items():
            if name in found:
                first = found[name].at.line_only
                problems.append(Problem(device.at, "spec.devices", f'"{name}" is a device already, at {first}'))
            found[name] = device
    return found


def _kinds(workloads: Iterable[Workload], sources: Iterable[ClaimSource], problems: list[Problem]) -> Workloads:
    """All workloads by group and kind, Kubernetes' own first; claims and their classes hold no pods."""
    found: dict[tuple[str, str], Workload] = {**BUILT_IN}
    for workload in workloads:
        for key, each in by_kind(workload):
            first = found.setdefault(key, each)
            if first is not each:
                message = f"{key[1]} of {key[0]} is defined already, by {first.rule}"
                problems.append(Problem(workload.at, "spec.objects", message))
    for claims in (kind for source in sources for kind in source.kinds):
        kinds = Kinds(group=claims.group, kinds=(claims.kind,))
        found.setdefault((claims.group, claims.kind), Workload(objects=kinds, pods=()))
    return found


@dataclass(frozen=True, slots=True)
class _Documents:
    """The specs of all documents by kind and name, the cards they are read with, and what is wrong with them."""

    specs: Mapping[str, Mapping[str, Node]]
    devices: Mapping[str, Card]
    problems: list[Problem]

    def cluster(self) -> Cluster | None:
        parametrised = self.specs["Backend"].keys() | self.specs["ClaimSource"].keys()
        names = Known(backends=self.specs["Backend"].keys(), parametrised=parametrised, devices=self.devices)
        return next((CLUSTER.of(*one, self.problems, names) for one in self.specs["Cluster"].items()), None)

    def backends(self, set_here: Mapping[str, Parameters]) -> list[Backend]:
        return self._each("Backend", lambda name: self.backend(name, set_here.get(name, {})))

    def backend(self, name: str, set_here: Parameters) -> Backend:
        own, whole = self.specs["Backend"][name], inheritance.merged(name, self.specs["Backend"])
        self.problems.extend(inheritance.unused(own, whole))
        spec = self._resolved(name, whole, set_here)
        known = Known(backends=self.specs["Backend"].keys(), devices=self.devices)
        backend = replace(BACKEND.of(name, spec, self.problems, known), parametrised=bool(set_here))
        return expand.complete(backend, self.devices)

    def sources(self, set_here: Mapping[str, Parameters]) -> list[ClaimSource]:
        return self._each("ClaimSource", lambda name: self._source(name, set_here.get(name, {})))

    def _source(self, name: str, set_here: Parameters) -> ClaimSource:
        own = self.specs["ClaimSource"][name]
        self.problems.extend(inheritance.unused(own, own))
        spec = self._resolved(name, own, set_here)
        source = CLAIM_SOURCE.of(name, spec, self.problems)
        known = {each.name: getattr(source, each.name) for each in fields(source)}
        return ClaimSource(**known, words=index.alone(source.reader, {}))

    def workloads(self) -> list[Workload]:
        return [WORKLOAD.of(*one, self.problems) for one in self.specs["Workload"].items()]

    def protections(self) -> list[Protection]:
        known = Known(backends=self.specs["Backend"].keys(), devices=self.devices)
        found = [PROTECTION.of(*one, self.problems, known) for one in self.specs["Protection"].items()]
        first: dict[tuple[str, str], Protected] = {}
        for section, one in ((section, one) for each in found for section, one in each.protected()):
            other = first.setdefault((section, one.name), one)
            if other is not one:
                message = f'"{one.name}" is protected already, by {other.rule}'
                self.problems.append(Problem(one.at, f"spec.{section}", message))
        return found

    def tenancy(self, cluster: Cluster, backends: Iterable[Backend]) -> Tenancy:
        known = Known(
            backends=self.specs["Backend"].keys(),
            enabled=cluster.backends,
            devices=self.devices,
            asking=index.asking(backends),
        )
        return Tenancy(
            policies=tuple(
                TENANT_POLICY.of(*one, self.problems, known) for one in self.specs["TenantPolicy"].items()
            ),
            exemptions=tuple(EXEMPTION.of(*one, self.problems) for one in self.specs["Exemption"].items()),
            without_policy=cluster.without_policy,
            observing=cluster.observe,
        )

    def _each(self, kind: str, read: Callable[[str], T]) -> list[T]:
        """All documents of a kind, without those that cannot be read at all."""
        found = (Scope(self.problems).attempt(partial(read, name), None) for name in self.specs[kind])
        return [one for one in found if one is not None]

    def _resolved(self, name: str, spec: Node, set_here: Parameters) -> Node:
        defaults = inheritance.declared(spec)
        for parameter, node in set_here.items():
            if parameter not in defaults:
                message = f'{name} has no parameter "{parameter}"{nearest(parameter, defaults)}'
                self.problems.append(Problem(node.at, node.path, message))
        return inheritance.substituted(spec, {**defaults, **set_here})
