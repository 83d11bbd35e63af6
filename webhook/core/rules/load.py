"""All documents together: heads, names, and the references between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from webhook.core.forms import inheritance
from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, Problem, Section, nearest, of_json
from webhook.core.forms.forms import ANYTHING, FILLED, Form, Schema, described, reference, word
from webhook.core.forms.inheritance import PARAMETER, Parameters, inheriting, parametrised
from webhook.core.forms.labels import MAX_NAME, SUBDOMAIN, is_subdomain
from webhook.core.rules import catalog
from webhook.core.rules.backend import BACKEND, SHARED, Backend, complete
from webhook.core.rules.catalog import DEVICE_CATALOG, Card, DeviceCatalog, Known
from webhook.core.rules.cluster import CLUSTER, PROTECTION, Protected, Protection
from webhook.core.rules.objects import BUILT_IN, CLAIM_SOURCE, WORKLOAD, Kinds, Workload, Workloads, by_kind
from webhook.core.rules.rulebook import ClaimSource, Rulebook, asking, index, with_backend_alone
from webhook.core.rules.tenant_policy import EXEMPTION, TENANT_POLICY, Exemption, Tenancy, TenantPolicy

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
_VERSION: Final = described("The version of the rule language.", word((API_VERSION,)).schema)
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
            "kind": described("Which kind of rule this is.", word(KINDS).schema),
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
    schemas: dict[str, Schema] = {}
    missing = _references(schema)
    while missing:
        schemas |= {name: parts[name] for name in missing}
        missing = _references(schemas) - schemas.keys()
    return {**schema, "$defs": {name: schemas[name] for name in parts if name in schemas}} if schemas else schema


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
        "name": described(
            "The name that other rules and `gpu-backend` use.", _OBJECT_NAME if kind.is_object else FILLED.schema
        ),
        "annotations": described("Notes of yours; they mean nothing here.", ANYTHING.schema),
        "labels": described("Marks of yours; they mean nothing here.", ANYTHING.schema),
    }
    whole = {
        "apiVersion": _VERSION,
        "kind": described(kind.meaning, word((name,)).schema),
        "metadata": described("The document's name.", _mapping(metadata, "name")),
        "spec": described("What the document says.", kind.spec),
    }
    return described(kind.meaning, _mapping(whole, *_HEAD))


def _mapping(properties: Mapping[str, Schema], *needs: str) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": [*needs]}


# All documents together: heads, names, and the references between them.

T = TypeVar("T")

_NAMED = f"write a-z, 0-9 and -, at most {MAX_NAME} characters, as vision-team"
_NOTHING_SET: Final[Parameters] = {}


class Memory:
    """What was made of documents before, for as long as they and everything it depends on are the same objects.

    Values are found by the identity of what they were made of (names by their text), which is kept alive with them.
    Nothing changes a document after it was parsed. At most `size` values are kept, those that were used last.
    """

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self._values: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}

    def recall(self, make: Callable[..., T], *inputs: object) -> T:
        """What `make(*inputs)` returns; `make` is a pure function. What it raises is not kept."""
        key = (make, *((value if isinstance(value, str | tuple | frozenset) else id(value)) for value in inputs))
        _, value = self._values.pop(key, None) or (inputs, make(*inputs))
        self._values[key] = inputs, value
        if len(self._values) > self.size:
            del self._values[next(iter(self._values))]
        return value


class Loaded(NamedTuple):
    """What documents say, and what their examples are about: rules as they are written.

    `backends` and `sources` have the parameters that they declare, not those that this cluster sets. `workloads` are
    those of documents.
    """

    rulebook: Rulebook
    backends: Sequence[Backend]
    sources: Sequence[ClaimSource]
    workloads: Sequence[Workload]


def read(documents: Iterable[Node], digest: str, memory: Memory) -> Loaded:
    """Everything the documents say; raises DocumentError with all that is wrong with them, in order.

    A document is not read again if `memory` has what was made of it.
    """
    problems: list[Problem] = []
    causes: list[Problem] = []  # what others name and cannot be found stands before those that name it
    specs = _by_kind(documents, causes)
    # Complain of none, and of all but the first, which are not read.
    clusters = specs["Cluster"]
    if not clusters:
        missing = "no Cluster document: nothing says which back ends this cluster has; gpu-webhook survey prints one"
        raise DocumentError(*(causes or [Problem(Location("rules", 1), "", missing)]))
    first, *others = clusters
    for name in others:
        message = f"a second Cluster document; the first is at {clusters[first].at.line_only}"
        causes.append(Problem(clusters.pop(name).at, "", message))
    reader = _Reader(specs, problems, memory)

    catalogs = reader.all_of("DeviceCatalog", DEVICE_CATALOG, problems=causes)
    devices, twice = memory.recall(_devices, *catalogs)
    causes += twice
    names = tuple(specs["Backend"])
    context = memory.recall(_known, names, (), (*names, *specs["ClaimSource"]), frozenset(), devices)
    cluster = next(iter(reader.all_of("Cluster", CLUSTER, context)), None)
    set_here = cluster.parameters if cluster else {}
    backends = reader.backends(set_here, devices)
    sources = reader.sources(set_here)
    enabled = cluster.backends if cluster else ()
    tenants = memory.recall(_known, names, enabled, (), asking(backends), devices)
    policies = reader.all_of("TenantPolicy", TENANT_POLICY, tenants)
    exemptions = reader.all_of("Exemption", EXEMPTION)
    workloads = reader.all_of("Workload", WORKLOAD)
    protections = reader.all_of("Protection", PROTECTION, context)
    problems += _protected_twice(protections)
    kinds = _kinds(workloads, sources, problems)
    if causes or problems or cluster is None:
        raise DocumentError(*sorted(set(causes)), *sorted(set(problems)))

    rulebook = replace(
        index(cluster, {backend.name: backend for backend in backends}, devices, digest, sources),
        tenancy=Tenancy(
            policies=tuple(policies),
            exemptions=tuple(exemptions),
            without_policy=cluster.without_policy,
            observing=cluster.observe,
        ),
        uncounted=tuple(dict.fromkeys(glob for catalog in catalogs for glob in catalog.resources)),
        workloads=kinds,
        protections=protections,
    )
    return Loaded(rulebook, reader.backends({}, devices), reader.sources({}), workloads)


def _by_kind(documents: Iterable[Node], problems: list[Problem]) -> dict[str, dict[str, Node]]:
    specs: dict[str, dict[str, Node]] = {kind: {} for kind in KINDS}
    named: dict[tuple[str, str], Location] = {}
    for document in documents:
        section = Section(document, problems)
        version = section.required("apiVersion", lambda node: node.word((API_VERSION,)), "")
        kind = section.required("kind", lambda node: node.word(KINDS), "")
        name = section.required("metadata", lambda node: _name(node, problems), "")
        section.required("spec", lambda node: node, document)
        section.refuse_other_keys()
        if not version or not kind or not name:
            continue
        at = document.value["metadata"].value["name"].at
        if (KINDS[kind].is_object or kind == "Backend") and not is_subdomain(name, MAX_NAME):
            problems.append(Problem(at, "metadata.name", f'"{name}" is no name of an object; {_NAMED}'))
        first = named.setdefault((kind, name), at)
        if first is not at:
            message = f'{kind} "{name}" is defined already, at {first.line_only}'
            problems.append(Problem(at, "metadata.name", message))
        specs[kind][name] = document.value.get("spec", document)
    return specs


def _name(node: Node, problems: list[Problem]) -> str:
    section = Section(node, problems)
    name = section.required("name", lambda node: node.filled(), "")
    for notes in ("annotations", "labels"):
        section.optional(notes, lambda node: node, node)
    section.refuse_other_keys()
    return name


def _devices(*catalogs: DeviceCatalog) -> tuple[Mapping[str, Card], Sequence[Problem]]:
    """The cards of all catalogues by name, and a problem for each that two of them have."""
    devices: dict[str, Card] = {}
    problems: list[Problem] = []
    for document in catalogs:
        for name, device in catalog.by_name(document).items():
            if name in devices:
                first = devices[name].at.line_only
                problems.append(Problem(device.at, "spec.devices", f'"{name}" is a device already, at {first}'))
            devices[name] = device
    return devices, problems


def _known(
    backends: tuple[str, ...],
    enabled: tuple[str, ...],
    parametrised: tuple[str, ...],
    asking: frozenset[str],
    devices: Mapping[str, Card],
) -> Known:
    return Known(backends=backends, enabled=enabled, parametrised=parametrised, asking=asking, devices=devices)


def _protected_twice(protections: Iterable[Protection]) -> Iterator[Problem]:
    first: dict[tuple[str, str], Protected] = {}
    for protection in protections:
        for section, protected in protection.protected():
            other = first.setdefault((section, protected.name), protected)
            if other is not protected:
                message = f'"{protected.name}" is protected already, by {other.rule}'
                yield Problem(protected.at, f"spec.{section}", message)


def _kinds(workloads: Iterable[Workload], sources: Iterable[ClaimSource], problems: list[Problem]) -> Workloads:
    """All workloads by group and kind, Kubernetes' own first; claims and their classes hold no pods."""
    by_kind_and_group: dict[tuple[str, str], Workload] = {**BUILT_IN}
    for workload in workloads:
        for key, workload_kind in by_kind(workload):
            first = by_kind_and_group.setdefault(key, workload_kind)
            if first is not workload_kind:
                message = f"{key[1]} of {key[0]} is defined already, by {first.rule}"
                problems.append(Problem(workload.at, "spec.objects", message))
    for claims in (kind for source in sources for kind in source.kinds):
        kinds = Kinds(group=claims.group, kinds=(claims.kind,))
        by_kind_and_group.setdefault((claims.group, claims.kind), Workload(objects=kinds, pods=()))
    return by_kind_and_group


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads documents, whose specs it has by kind and name, and collects what is wrong with them."""

    specs: Mapping[str, Mapping[str, Node]]
    problems: list[Problem]
    memory: Memory

    def all_of(
        self, kind: str, form: Form[T], context: Known | None = None, problems: list[Problem] | None = None
    ) -> list[T]:
        """All documents of a kind, which may use the `context` names."""
        made = [self.memory.recall(_made, form, name, spec, context) for name, spec in self.specs[kind].items()]
        (self.problems if problems is None else problems).extend(
            wrong for _, documents in made for wrong in documents
        )
        return [value for value, _ in made]

    def backends(self, set_here: Mapping[str, Parameters], devices: Mapping[str, Card]) -> list[Backend]:
        """The back ends with these parameters, without those that cannot be read at all."""
        backends = []
        for name in self.specs["Backend"]:
            try:
                lineage = inheritance.lineage(name, self.specs["Backend"])
                parameters = set_here.get(name, _NOTHING_SET)
                backend, wrong = self.memory.recall(_backend, name, devices, parameters, *lineage)
            except DocumentError as error:
                self.problems.extend(error.problems)
            else:
                self.problems.extend(wrong)
                backends.append(backend)
        return backends

    def sources(self, set_here: Mapping[str, Parameters]) -> list[ClaimSource]:
        """The sources of claims likewise."""
        sources = []
        for name, spec in self.specs["ClaimSource"].items():
            try:
                source, wrong = self.memory.recall(_source, name, set_here.get(name, _NOTHING_SET), spec)
            except DocumentError as error:
                self.problems.extend(error.problems)
            else:
                self.problems.extend(wrong)
                sources.append(source)
        return sources


# What a document becomes, and what is wrong with it: of these inputs alone, so that it can be remembered.


def _made(form: Form[T], name: str, spec: Node, context: Known | None) -> tuple[T, Sequence[Problem]]:
    problems: list[Problem] = []
    return form.read_spec(name, spec, problems, context), problems


def _backend(
    name: str, devices: Mapping[str, Card], set_here: Parameters, *lineage: Node
) -> tuple[Backend, Sequence[Problem]]:
    spec, problems = _resolved(name, lineage[0], inheritance.merged(lineage), set_here)
    backend = BACKEND.read_spec(name, spec, problems, Known(backends=(), devices=devices))
    return complete(replace(backend, parametrised=bool(set_here)), devices), problems


def _source(name: str, set_here: Parameters, spec: Node) -> tuple[ClaimSource, Sequence[Problem]]:
    resolved, problems = _resolved(name, spec, spec, set_here)
    source = CLAIM_SOURCE.read_spec(name, resolved, problems)
    values = {field.name: getattr(source, field.name) for field in fields(source)}
    return ClaimSource(**values, words=with_backend_alone(source.reader, {})), problems


def _resolved(name: str, own: Node, whole: Node, set_here: Parameters) -> tuple[Node, list[Problem]]:
    """The whole spec with its parameters put in, and what is wrong with these; raises DocumentError."""
    problems = [*inheritance.unused(own, whole)]
    try:
        defaults = inheritance.declared(whole)
        for parameter, node in set_here.items():
            if parameter not in defaults:
                message = f'{name} has no parameter "{parameter}"{nearest(parameter, defaults)}'
                problems.append(Problem(node.at, node.path, message))
        return inheritance.substituted(whole, {**defaults, **set_here}), problems
    except DocumentError as error:
        raise DocumentError(*problems, *error.problems) from None


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
    context = Known(
        backends=rulebook.backends.keys(),
        enabled=rulebook.cluster.backends,
        devices=rulebook.devices,
        asking=asking(rulebook.backends.values()),
    )
    return _each(objects, "TenantPolicy", TENANT_POLICY, denying, context)


def exemptions_from(objects: Iterable[Mapping[str, Any]], _: Rulebook) -> FromCluster[Exemption]:
    """Decoded Exemption objects; they name nothing that rules define, and are asked for like policies."""
    return _each(objects, "Exemption", EXEMPTION, lambda *_: None)


def _each(
    objects: Iterable[Mapping[str, Any]],
    kind: str,
    form: Form[T],
    instead: Callable[[T, tuple[Problem, ...]], T | None],
    context: Known | None = None,
) -> FromCluster[T]:
    fine: dict[str, T] = {}
    broken: dict[str, Broken[T]] = {}
    for raw in objects:
        name = raw["metadata"]["name"]
        problems: list[Problem] = []
        made = form.read_spec(name, of_json(raw.get("spec") or {}, Location(f"{kind}/{name}", 0)), problems, context)
        if problems:
            messages = tuple(sorted(set(problems)))
            broken[name] = Broken(messages, instead(made, messages))
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
