"""All documents together: their heads and names, and the references between them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, Final, Generic, NamedTuple, TypeVar

from webhook.core.forms import forms, inheritance
from webhook.core.forms.document import (
    API_VERSION,
    DocumentError,
    Location,
    Node,
    Parameters,
    Problem,
    nearest,
    of_json,
)
from webhook.core.forms.labels import MAX_NAME, is_subdomain
from webhook.core.rules.backend import BACKEND, Backend
from webhook.core.rules.catalog import DEVICE_CATALOG, Card, Cards, DeviceCatalog, Known, Profile
from webhook.core.rules.claims import CLAIM_SOURCE, ClaimSource
from webhook.core.rules.cluster import CLUSTER, PROTECTION, Protected
from webhook.core.rules.modes import Mode, Output
from webhook.core.rules.objects import BUILT_IN, WORKLOAD, Kinds, Workload
from webhook.core.rules.rulebook import Rulebook, asking, index, with_backend_alone
from webhook.core.rules.tenant_policy import EXEMPTION, TENANT_POLICY, Exemption, Tenancy, TenantPolicy
from webhook.core.rules.verbs import Amount, Slot

# Every kind of document

KINDS: Final = (
    "Backend", "ClaimSource", "Cluster", "DeviceCatalog", "Exemption", "Protection", "TenantPolicy", "Workload",
)  # fmt: skip
POLICY_KINDS: Final = {"tenantpolicies": "TenantPolicy", "exemptions": "Exemption"}
"""Our own kinds of objects in a cluster that people write, by their resources."""


def document(kind: forms.Shape[str], meaning: str, spec: forms.Schema, name: forms.Schema) -> forms.Form[Any]:
    """The form of a document, whose spec is read by another one."""
    metadata = {
        "name": forms.required(
            replace(forms.FILLED, schema=name), "The name that other rules and `gpu-backend` use."
        ),
        "annotations": forms.optional(forms.ANYTHING, "Notes of yours; they mean nothing here."),
        "labels": forms.optional(forms.ANYTHING, "Marks of yours; they mean nothing here."),
    }
    keys = {
        "apiVersion": forms.required(forms.word((API_VERSION,)), "The version of the rule language."),
        "kind": forms.required(kind, meaning),
        "metadata": forms.required(forms.mapping(metadata), "The document's name."),
        "spec": forms.required(forms.Shape(lambda node, _: node, spec), "What the document says."),
    }
    return forms.mapping(keys)


HEAD: Final = document(forms.word(KINDS), "Which kind of rule this is.", {}, {})

# A back end beside the catalogues: its cards, and its modes with what they inherit, some of them many times over


def _complete(backend: Backend, devices: Mapping[str, Card]) -> Backend:
    """The back end with its cards and all of its modes."""
    own = [devices[model] for model in sorted(backend.models)]
    alike = {(card.memory, card.tflops, tuple(card.profiles)) for card in own}
    modes: Sequence[Mode] = [
        _inheriting(sized, backend)
        for mode in backend.modes
        for sized in [_named(mode, "{memory}", str(number), size=size) for number, size in mode.sizes] or [mode]
    ]
    backend = replace(backend, card=own[0] if len(alike) == 1 else None)
    profiles: dict[str, Profile] = {}
    if backend.partitions is not None:
        cards = [card for card in {card.model: card for card in devices.values()}.values() if backend.serves(card)]
        profiles = {
            name: profile
            for card in cards
            for name, profile in card.profiles.items()
            if any(fnmatchcase(name, glob) for glob in backend.partitions.only)
        }
        modes = [*_of_profiles(modes, profiles, backend.partitions.spelling, one_card=len(cards) == 1)]
    owns = frozenset(name for mode in modes for name in mode.amounts)
    return replace(backend, modes=modes, profiles=frozenset(profiles), owns=owns)


def _inheriting(mode: Mode, backend: Backend) -> Mode:
    """The mode with what its back end injects and demands whatever the mode, and what is known of its numbers."""
    outputs = mode.outputs.over(backend.inject.outputs)
    affinity = outputs.node_affinity
    numbers = {key: output for key, output in affinity.items() if output.is_number}
    computed = [output for output in (*mode.amounts.values(), *numbers.values()) if output.what]
    of_pod = [*outputs.annotations.values(), *outputs.labels.values()]
    words = {word for output in (*of_pod, *affinity.values(), *mode.claims) for word in output.words}
    loose = (output.what for output in of_pod if isinstance(output, Amount) and output.substring)
    return replace(
        mode,
        outputs=outputs,
        companions=mode.companions.over(backend.companions) if mode.companions else backend.companions,
        selects=next((word for word in ("product", "model") if word in words), "model" if mode.when.models else None),
        node_numbers=numbers,
        pool={
            key: output
            for key, output in affinity.items()
            if not output.words or {*output.words} - {"product", "model"}
        },
        verbs=frozenset(output.what for output in computed),
        loosely=None if any("lookalikes" in output.words for output in of_pod) else next(loose, None),
        all_cores=any((output.what, output.absent) == ("cores", "whole") for output in computed),
    )


def _named(mode: Mode, hole: str, text: str, **changes: Any) -> Mode:
    """The mode with a text in the place of a hole in the names of its resources."""
    limits = {name.replace(hole, text): output for name, output in mode.limits.items()}
    slots: dict[str, Output] = {name: output for name, output in mode.amounts.items() if isinstance(name, Slot)}
    return replace(mode, sizes=(), limits=limits, amounts={**limits, **slots}, **changes)


def _of_profiles(
    modes: Iterable[Mode], profiles: Mapping[str, Profile], spelling: Mapping[str, str], *, one_card: bool
) -> Iterator[Mode]:
    """The modes, each that differs from profile to profile once for every profile.

    That is one whose resources or claims are named after it, or, where the back end has only one kind of card,
    whose amounts are the profile's.
    """
    for mode in modes:
        sized = any(output.what == "memory" for output in mode.amounts.values())
        if any("{profile}" in name for name in (*mode.limits, *(str(claim.value) for claim in mode.claims))):
            for name in profiles:
                # A resource name holds no plus sign: 1g.10gb+me is 1g.10gb.me there
                # [NVIDIA/k8s-device-plugin internal/rm/rm.go].
                written = spelling.get(name, name).replace("+", ".")
                named = [(claim, str(claim.value).replace("{profile}", written)) for claim in mode.claims]
                claims = [replace(claim, value=value) for claim, value in named]
                yield _named(mode, "{profile}", written, profile=name, claims=claims)
        elif mode.when.devices == "profile" and one_card and sized:
            for name, profile in profiles.items():
                limits, amounts = (_of_size(outputs, profile.memory) for outputs in (mode.limits, mode.amounts))
                yield replace(mode, profile=name, limits=limits, amounts=amounts)
        else:
            yield mode


def _of_size(outputs: Mapping[str, Output], memory: int) -> dict[str, Output]:
    """The outputs with just this amount of memory, which a profile's template has."""
    return {
        name: replace(output, fit=(ceil(memory / output.unit),), step=1, minimum=None, maximum=None)
        if isinstance(output, Amount) and output.what == "memory"
        else output
        for name, output in outputs.items()
    }


# From documents to a rulebook

T = TypeVar("T")

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

    def all_of(kind: str, form: forms.Form[T], context: Known | None = None) -> list[T]:
        """All documents of a kind, which may use the `context` names."""
        values = []
        for name, spec in specs[kind].items():
            value, wrong = memory.recall(_read, form, name, spec, context)
            (causes if form is DEVICE_CATALOG else problems).extend(wrong)
            values.append(value)
        return values

    def resolved(
        kind: str, make: Callable[..., tuple[T, Sequence[Problem]]], set_here: Mapping[str, Parameters]
    ) -> list[T]:
        """All back ends or sources with these parameters, without those that cannot be read at all."""
        values = []
        for name, spec in specs[kind].items():
            try:
                inputs = (devices, *inheritance.lineage(name, specs[kind])) if kind == "Backend" else (spec,)
                value, wrong = memory.recall(make, name, set_here.get(name, _NOTHING_SET), *inputs)
            except DocumentError as error:
                problems.extend(error.problems)
            else:
                problems.extend(wrong)
                values.append(value)
        return values

    catalogs = all_of("DeviceCatalog", DEVICE_CATALOG)
    devices, twice = memory.recall(_devices, *catalogs)
    causes += twice
    names = tuple(specs["Backend"])
    context = memory.recall(Known, names, devices, (), (*names, *specs["ClaimSource"]))
    cluster = next(iter(all_of("Cluster", CLUSTER, context)), None)
    set_here = cluster.parameters if cluster else {}
    backends = resolved("Backend", _backend, set_here)
    sources = resolved("ClaimSource", _source, set_here)
    tenants = memory.recall(Known, names, devices, cluster.backends if cluster else (), (), asking(backends))
    policies = all_of("TenantPolicy", TENANT_POLICY, tenants)
    exemptions = all_of("Exemption", EXEMPTION)

    # Workloads by group and kind, Kubernetes' own first; claims and their classes hold no pods.
    workloads = all_of("Workload", WORKLOAD)
    kinds = {**BUILT_IN}
    for workload in workloads:
        for kind in workload.objects.kinds:
            holder = kinds.setdefault((workload.objects.group, kind), workload)
            if holder is not workload:
                message = f"{kind} of {workload.objects.group} is defined already, by {holder.rule}"
                problems.append(Problem(workload.at, "spec.objects", message))
    for claims in (kind for source in sources for kind in source.kinds):
        objects = Kinds(group=claims.group, kinds=(claims.kind,))
        kinds.setdefault((claims.group, claims.kind), Workload(objects=objects, pods=()))

    protections = all_of("Protection", PROTECTION, context)
    protected_by: dict[tuple[str, str], Protected] = {}
    for section, protected in (entry for protection in protections for entry in protection.protected()):
        other = protected_by.setdefault((section, protected.name), protected)
        if other is not protected:
            message = f'"{protected.name}" is protected already, by {other.rule}'
            problems.append(Problem(protected.at, f"spec.{section}", message))
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
    return Loaded(rulebook, resolved("Backend", _backend, {}), resolved("ClaimSource", _source, {}), workloads)


def _by_kind(documents: Iterable[Node], problems: list[Problem]) -> dict[str, dict[str, Node]]:
    """The specs of documents by kind and name."""
    specs: dict[str, dict[str, Node]] = {kind: {} for kind in KINDS}
    named: dict[tuple[str, str], Location] = {}
    for document in documents:
        head = HEAD.read(document, forms.Scope(problems))
        kind, name = head["kind"], head.get("metadata", {}).get("name")
        if not head["apiVersion"] or not kind or not name:
            continue
        at = document.value["metadata"].value["name"].at
        if kind in {"Backend", *POLICY_KINDS.values()} and not is_subdomain(name, MAX_NAME):
            hint = f"write a-z, 0-9 and -, at most {MAX_NAME} characters, as vision-team"
            problems.append(Problem(at, "metadata.name", f'"{name}" is no name of an object; {hint}'))
        first = named.setdefault((kind, name), at)
        if first is not at:
            problems.append(Problem(at, "metadata.name", f'{kind} "{name}" is defined already, at {first.line_only}'))
        specs[kind][name] = document.value.get("spec", document)
    return specs


# What documents become, and what is wrong with them: of these inputs alone, so that it can be remembered


def _read(form: forms.Form[T], name: str, spec: Node, context: Known | None) -> tuple[T, Sequence[Problem]]:
    problems: list[Problem] = []
    return form.read_spec(name, spec, problems, context), problems


def _devices(*catalogs: DeviceCatalog) -> tuple[Cards, Sequence[Problem]]:
    """The cards of all catalogues by name, and a problem for each that two of them have."""
    devices = Cards()
    problems: list[Problem] = []
    for catalog in catalogs:
        cards = [replace(card, vendor=catalog.vendor, virtual=catalog.virtual) for card in catalog.devices]
        by_name = {name.lower(): card for card in cards for name in (card.model, *card.aliases, *card.names)}
        for name, device in by_name.items():
            if name in devices:
                first = devices[name].at.line_only
                problems.append(Problem(device.at, "spec.devices", f'"{name}" is a device already, at {first}'))
            devices[name] = device
    return devices, problems


def _backend(name: str, set_here: Parameters, devices: Cards, *lineage: Node) -> tuple[Backend, Sequence[Problem]]:
    spec, problems = _resolved(name, lineage[0], inheritance.merged(lineage), set_here)
    backend = BACKEND.read_spec(name, spec, problems, Known(backends=(), devices=devices))
    return _complete(replace(backend, parametrised=bool(set_here)), devices), problems


def _source(name: str, set_here: Parameters, spec: Node) -> tuple[ClaimSource, Sequence[Problem]]:
    resolved, problems = _resolved(name, spec, spec, set_here)
    source = CLAIM_SOURCE.read_spec(name, resolved, problems)
    return replace(source, words=with_backend_alone(source.reader, Cards())), problems


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


# Policies and exemptions as they are read from a cluster: objects, each of which may be broken by itself


class Broken(NamedTuple, Generic[T]):
    """An object that cannot be used, and what stands in for it: for a policy one that denies all devices.

    The stand-in selects the same namespaces with the same priority, as far as these can be read, so that
    a broken policy sets no tenant free. A broken exemption has no stand-in, None.
    """

    problems: tuple[Problem, ...]
    instead: T | None = None


class FromCluster(NamedTuple, Generic[T]):
    """What objects say, by name: those that can be used, and those that cannot."""

    read: dict[str, T]
    broken: dict[str, Broken[T]]


def policies_from(objects: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> FromCluster[TenantPolicy]:
    """Decoded TenantPolicy objects; of each, only its name and spec are looked at."""
    return _from_cluster("TenantPolicy", TENANT_POLICY, objects, rulebook)


def exemptions_from(objects: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> FromCluster[Exemption]:
    """Decoded Exemption objects, as `policies_from`."""
    return _from_cluster("Exemption", EXEMPTION, objects, rulebook)


def _from_cluster(
    kind: str, form: forms.Form[T], objects: Iterable[Mapping[str, Any]], rulebook: Rulebook
) -> FromCluster[T]:
    backends, enabled = rulebook.backends, rulebook.cluster.backends
    context = Known(backends.keys(), rulebook.devices, enabled, asking=asking(backends.values()))
    result: FromCluster[T] = FromCluster({}, {})
    for raw in objects:
        name = raw["metadata"]["name"]
        spec = of_json(raw.get("spec") or {}, Location(f"{kind}/{name}", 0))
        value, problems = _read(form, name, spec, context)
        if not problems:
            result.read[name] = value
            continue
        instead: Any = None
        if isinstance(value, TenantPolicy):
            first = min(problems)
            kept = {key: getattr(value, key) for key in ("name", "rule", "namespaces", "priority")}
            instead = TenantPolicy(**kept, broken=f"{first.path}: {first.message}")
        result.broken[name] = Broken(tuple(sorted(set(problems))), instead)
    return result
