"""All documents together: heads, names, and the references between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from webhook.core.forms import inheritance
from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, Problem, Section, nearest, of_json
from webhook.core.forms.form import Form
from webhook.core.forms.inheritance import PARAMETER, Parameters, inheriting, parametrised
from webhook.core.forms.labels import MAX_NAME, SUBDOMAIN, is_subdomain
from webhook.core.forms.shape import ANYTHING, FILLED, Schema, Scope, reference, says, word
from webhook.core.rules import catalog
from webhook.core.rules.backend import BACKEND, SHARED, Backend, complete
from webhook.core.rules.catalog import DEVICE_CATALOG, Card, DeviceCatalog, Known
from webhook.core.rules.claim_source import CLAIM_SOURCE
from webhook.core.rules.cluster import CLUSTER, Cluster
from webhook.core.rules.protection import PROTECTION, Protected, Protection
from webhook.core.rules.rulebook import ClaimSource, Rulebook, asking, index, with_backend_alone
from webhook.core.rules.tenant_policy import EXEMPTION, TENANT_POLICY, Exemption, Tenancy, TenantPolicy
from webhook.core.rules.workload import BUILT_IN, WORKLOAD, Kinds, Workload, Workloads, by_kind

# Every kind of document, and the JSON Schema of them that `gpu-webhook schema` prints for editors.

WIDTH: Final = 120
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


class Kind(NamedTuple):
    """A kind of document: what it is for, the schema of its spec, and whether it is an object in a cluster, too."""

    meaning: str
    spec: Schema
    is_object: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "Backend": Kind(
        "One way a vendor exposes GPUs: what a request becomes, and what else a pod needs.",
        {"if": {"required": ["extends"]}, "then": reference("extendingBackend"), "else": reference("backend")},
    ),
    "ClaimSource": Kind(
        "Objects that pods name instead of asking themselves, and what stands in them.", reference("claimSource")
    ),
    "Cluster": Kind(
        "Which back ends this cluster has, in what order, and the defaults. There is exactly one.", CLUSTER.schema
    ),
    "DeviceCatalog": Kind("Card models of one vendor: names, memory, compute, partitions.", DEVICE_CATALOG.schema),
    "Exemption": Kind(
        "Who is spared some rules of policies, until when, and who answers for it.", EXEMPTION.schema, is_object=True
    ),
    "Protection": Kind(
        "What of a pod gives devices that it does not ask for, or lifts a limit on those that it has.",
        PROTECTION.schema,
    ),
    "TenantPolicy": Kind(
        "What one tenant may ask of GPUs, and how much it may hold. Its name is the tenant's.",
        TENANT_POLICY.schema,
        is_object=True,
    ),
    "Workload": Kind(
        "Where objects of a kind keep the templates of their pods, and how many pods each makes.", WORKLOAD.schema
    ),
}
_PARTS: Final[Mapping[str, Schema]] = {
    **SHARED,
    "backend": BACKEND.schema,
    "extendingBackend": inheriting(BACKEND.schema),
    "claimSource": CLAIM_SOURCE.schema,
}
_OBJECT_NAME: Final = FILLED.schema | {"pattern": f"^{SUBDOMAIN}$", "maxLength": MAX_NAME}
_VERSION: Final = says("The version of the rule language.", word((API_VERSION,)).schema)
_HEAD: Final = ("apiVersion", "kind", "metadata", "spec")


def schema(kind: str | None = None) -> dict[str, Any]:
    """The schema of documents of one kind, or of any document by its `kind`."""
    if kind is not None:
        return _complete({"$schema": DRAFT, "title": kind, **_document(kind)})
    whole = {
        "$schema": DRAFT,
        "title": "Rules of gpu-webhook",
        "type": "object",
        "properties": {
            "apiVersion": _VERSION,
            "kind": says("Which kind of rule this is.", word(KINDS).schema),
            "metadata": {},
            "spec": {},
        },
        "required": [*_HEAD],
        "allOf": [
            {"if": {"required": ["kind"], "properties": {"kind": {"const": name}}}, "then": _document(name)}
            for name in KINDS
        ],
    }
    return _complete(whole)


def _complete(schema: Schema) -> Schema:
    """The schema with the parts that it refers to, and those that these refer to."""
    parts = {name: parametrised(part) for name, part in _PARTS.items()} | {"parameter": PARAMETER}
    found: dict[str, Schema] = {}
    missing = _references(schema)
    while missing:
        found |= {name: parts[name] for name in missing}
        missing = _references(found) - found.keys()
    return {**schema, "$defs": {name: found[name] for name in parts if name in found}} if found else schema


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for element in schema for name in _references(element)}
    if not isinstance(schema, dict):
        return set()
    own = {str(schema["$ref"]).removeprefix(reference("")["$ref"])} if "$ref" in schema else set()
    return own | {name for value in schema.values() for name in _references(value)}


def schema_text(value: Any, indent: str = "") -> str:
    """A schema as JSON, whatever fits on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) < WIDTH or not isinstance(value, dict | list):
        return flat
    inner = f"{indent}  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"{inner}{schema_text(entry, inner)}" for entry in value) + f"\n{indent}]"
    entries = (f"{inner}{json.dumps(key)}: {schema_text(entry, inner)}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def _document(name: str) -> Schema:
    kind = KINDS[name]
    metadata = {
        "name": says(
            "The name that other rules and `gpu-backend` use.", _OBJECT_NAME if kind.is_object else FILLED.schema
        ),
        "annotations": says("Notes of yours; they mean nothing here.", ANYTHING.schema),
        "labels": says("Marks of yours; they mean nothing here.", ANYTHING.schema),
    }
    whole = {
        "apiVersion": _VERSION,
        "kind": says(kind.meaning, word((name,)).schema),
        "metadata": says("The document's name.", _mapping(metadata, "name")),
        "spec": says("What the document says.", kind.spec),
    }
    return says(kind.meaning, _mapping(whole, *_HEAD))


def _mapping(properties: Mapping[str, Schema], *needs: str) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": [*needs]}


# All documents together: heads, names, and the references between them.

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
    rulebook = index(cluster, {one.name: one for one in backends}, here.devices, digest, sources)
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
        return complete(backend, self.devices)

    def sources(self, set_here: Mapping[str, Parameters]) -> list[ClaimSource]:
        return self._each("ClaimSource", lambda name: self._source(name, set_here.get(name, {})))

    def _source(self, name: str, set_here: Parameters) -> ClaimSource:
        own = self.specs["ClaimSource"][name]
        self.problems.extend(inheritance.unused(own, own))
        spec = self._resolved(name, own, set_here)
        source = CLAIM_SOURCE.of(name, spec, self.problems)
        known = {each.name: getattr(source, each.name) for each in fields(source)}
        return ClaimSource(**known, words=with_backend_alone(source.reader, {}))

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
            asking=asking(backends),
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


# Policies and exemptions as they are read from a cluster: objects, each of which may be broken by itself.

POLICY_KINDS: Final = {"tenantpolicies": "TenantPolicy", "exemptions": "Exemption"}
"""Our own kinds of objects that people write, by their resources."""


@dataclass(frozen=True, slots=True)
class Broken(Generic[T]):
    """An object that cannot be used, and what stands in for it: for a policy one that denies all devices.

    The stand-in selects the same namespaces with the same priority, as far as these can be read, so that
    a broken policy sets no tenant free. A broken exemption has no stand-in, None.
    """

    problems: tuple[Problem, ...]
    instead: T | None = None


@dataclass(frozen=True, slots=True)
class FromCluster(Generic[T]):
    """What objects say, by name: those that can be used, and those that cannot."""

    read: Mapping[str, T] = field(default_factory=dict)
    broken: Mapping[str, Broken[T]] = field(default_factory=dict)


def policies_from(objects: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> FromCluster[TenantPolicy]:
    """Decoded TenantPolicy objects; of each, only its name and spec are looked at."""
    known = Known(
        backends=rulebook.backends.keys(),
        enabled=rulebook.cluster.backends,
        devices=rulebook.devices,
        asking=asking(rulebook.backends.values()),
    )
    return _each(objects, "TenantPolicy", TENANT_POLICY, denying, known)


def exemptions_from(objects: Iterable[Mapping[str, Any]], _: Rulebook) -> FromCluster[Exemption]:
    """Decoded Exemption objects; they name nothing that rules define, and are asked for like policies."""
    return _each(objects, "Exemption", EXEMPTION, lambda *_: None)


def _each(
    objects: Iterable[Mapping[str, Any]],
    kind: str,
    form: Form[T],
    instead: Callable[[T, tuple[Problem, ...]], T | None],
    known: Known | None = None,
) -> FromCluster[T]:
    fine: dict[str, T] = {}
    broken: dict[str, Broken[T]] = {}
    for one in objects:
        name = one["metadata"]["name"]
        problems: list[Problem] = []
        made = form.of(name, of_json(one.get("spec") or {}, Location(f"{kind}/{name}", 0)), problems, known)
        if problems:
            said = tuple(sorted(set(problems)))
            broken[name] = Broken(said, instead(made, said))
        else:
            fine[name] = made
    return FromCluster(fine, broken)


def denying(policy: TenantPolicy, problems: tuple[Problem, ...]) -> TenantPolicy:
    """A policy for the same namespaces that admits no device, and says what is wrong with the one it stands for.

    A key that is misspelt is often why another is missing.
    """
    first = min(problems, key=lambda problem: "unknown key" not in problem.message)
    return TenantPolicy(
        name=policy.name,
        rule=policy.rule,
        namespaces=policy.namespaces,
        priority=policy.priority,
        broken=f"{first.path}: {first.message}",
    )
