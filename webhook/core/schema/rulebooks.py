"""All documents together: heads, names, and the references between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from webhook.core import examples, indexes, partitions
from webhook.core.backend import Backend, Mode
from webhook.core.device import Device
from webhook.core.document import API_VERSION, DocumentError, Location, Node, Problem, Section, nearest
from webhook.core.rulebook import ClaimSource, Cluster, Rulebook
from webhook.core.schema import (
    backends,
    catalogs,
    claimsources,
    clusters,
    exemptions,
    inheritance,
    tenantpolicies,
)
from webhook.core.schema.inheritance import Parameters
from webhook.core.schema.labels import MAX_NAME, is_subdomain
from webhook.core.sources import failing
from webhook.core.tenancy.policy import Tenancy

KINDS = ("Backend", "ClaimSource", "Cluster", "DeviceCatalog", "Exemption", "TenantPolicy")


_OBJECTS = ("Exemption", "TenantPolicy")
"""What stands in a cluster as an object, and has the name of one."""

_NAMED = f"write a-z, 0-9 and -, at most {MAX_NAME} characters, as vision-team"


def rulebook(documents: Iterable[Node], digest: str, *, tried: bool = False) -> Rulebook:
    """Everything the documents say; raises DocumentError with all that is wrong with them, in order.

    `tried`: their examples have been run already, and are not run again.
    """
    problems: list[Problem] = []
    specs = _by_kind(documents, problems)
    _exactly_one_cluster(specs["Cluster"], problems)
    devices = _devices(specs["DeviceCatalog"], problems)
    cluster, parameters = _cluster(specs["Cluster"], specs, devices, problems)
    loaded = _backends(specs["Backend"], parameters, devices, problems)
    claims = _sources(specs["ClaimSource"], parameters, problems)
    tenancy = _tenancy(specs, cluster, loaded, devices, problems)
    if not problems and not tried:
        problems += _failing_examples(specs["Backend"], loaded, devices)
        problems += [problem for source in _sources(specs["ClaimSource"], {}, []) for problem in failing(source)]
    if problems or cluster is None:
        raise DocumentError(*sorted(set(problems)))
    return replace(indexes.index(cluster, loaded, devices, digest, claims), tenancy=tenancy)


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
        if kind in _OBJECTS and not is_subdomain(name, MAX_NAME):
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
        raise DocumentError(*problems, *([] if problems else [_no_cluster()]))
    for spec in list(found.values())[1:]:
        first = next(iter(found.values())).at.line_only
        problems.append(Problem(spec.at, "", f"a second Cluster document; the first is at {first}"))


def _no_cluster() -> Problem:
    return Problem(Location("rules", 1), "", "no Cluster document: nothing says which back ends this cluster has")


def _devices(specs: Mapping[str, Node], problems: list[Problem]) -> dict[str, Device]:
    found: dict[str, Device] = {}
    for spec in specs.values():
        for name, device in catalogs.catalog(spec, problems).items():
            if name in found:
                first = found[name].at.line_only
                problems.append(Problem(device.at, "spec.devices", f'"{name}" is a device already, at {first}'))
            found[name] = device
    return found


def _cluster(
    found: Mapping[str, Node],
    known: Mapping[str, Mapping[str, Node]],
    devices: Mapping[str, Device],
    problems: list[Problem],
) -> tuple[Cluster | None, Mapping[str, Parameters]]:
    if not found:
        return None, {}
    name, spec = next(iter(found.items()))
    cluster, parameters = clusters.cluster(name, spec, problems)
    parametrised = known["Backend"].keys() | known["ClaimSource"].keys()
    clusters.check_names(spec, known["Backend"], parametrised, cluster, devices, problems)
    return cluster, parameters


def _backends(
    specs: Mapping[str, Node],
    parameters: Mapping[str, Parameters],
    devices: Mapping[str, Device],
    problems: list[Problem],
) -> dict[str, Backend]:
    found: dict[str, Backend] = {}
    for name in specs:
        try:
            found[name] = _backend(name, specs, parameters.get(name, {}), devices, problems)
        except DocumentError as error:
            problems += error.problems
    return found


def _sources(
    specs: Mapping[str, Node], parameters: Mapping[str, Parameters], problems: list[Problem]
) -> list[ClaimSource]:
    found: list[ClaimSource] = []
    for name, spec in specs.items():
        try:
            resolved = _resolved(name, spec, parameters.get(name, {}), problems)
            found.append(claimsources.source(name, resolved, lambda backend: indexes.alone(backend, {}), problems))
        except DocumentError as error:
            problems += error.problems
    return found


def _tenancy(
    specs: Mapping[str, Mapping[str, Node]],
    cluster: Cluster | None,
    loaded: Mapping[str, Backend],
    devices: Mapping[str, Device],
    problems: list[Problem],
) -> Tenancy:
    if cluster is None:
        return Tenancy()
    known = tenantpolicies.Known(
        backends=specs["Backend"].keys(),
        enabled=cluster.backends,
        devices=devices,
        asking=indexes.asking(loaded.values()),
    )
    policies = specs["TenantPolicy"].items()
    exempt = specs["Exemption"].items()
    return Tenancy(
        policies=tuple(tenantpolicies.policy(name, spec, known, problems) for name, spec in policies),
        exemptions=tuple(exemptions.exemption(name, spec, problems) for name, spec in exempt),
        without_policy=cluster.without_policy,
        observing=cluster.observe,
    )


def _failing_examples(
    specs: Mapping[str, Node], loaded: Mapping[str, Backend], devices: Mapping[str, Device]
) -> Iterator[Problem]:
    """Examples hold for a rule as it is written; parameters that this cluster sets are not part of that."""
    for name, backend in loaded.items():
        as_written = _backend(name, specs, {}, devices, []) if backend.parametrised else backend
        yield from examples.failing(as_written, indexes.alone(as_written, devices))


def _backend(
    name: str,
    specs: Mapping[str, Node],
    set_here: Parameters,
    devices: Mapping[str, Device],
    problems: list[Problem],
) -> Backend:
    resolved = _resolved(name, inheritance.merged(name, specs), set_here, problems)
    backend = replace(backends.backend(name, resolved, problems), parametrised=bool(set_here))
    backend = replace(backend, modes=[_with_models(mode, devices, problems) for mode in backend.modes])
    vendors = {device.vendor for device in devices.values()}
    for vendor in sorted(backend.vendors - vendors):
        message = f'no catalogue is of the vendor "{vendor}"{nearest(vendor, vendors)}'
        problems.append(Problem(backend.at, "spec.vendors", message))
    backend = _with_cards(backend, devices, problems)
    if backend.partitions is None:
        return backend
    cards = [card for card in {card.model: card for card in devices.values()}.values() if backend.serves(card)]
    modes = list(partitions.expanded(backend.modes, cards, backend.partitions))
    names = {name for card in cards for name in card.profiles if partitions.among(backend.partitions, name)}
    return replace(
        backend,
        modes=modes,
        profiles=frozenset(names),
        owns=frozenset(name for mode in modes for name in mode.amounts),
    )


def _resolved(name: str, spec: Node, set_here: Parameters, problems: list[Problem]) -> Node:
    """A spec with its parameters as the cluster sets them."""
    defaults = inheritance.declared(spec)
    for parameter, node in set_here.items():
        if parameter not in defaults:
            hint = nearest(parameter, defaults)
            problems.append(Problem(node.at, node.path, f'{name} has no parameter "{parameter}"{hint}'))
    return inheritance.substituted(spec, {**defaults, **set_here})


def _with_cards(backend: Backend, devices: Mapping[str, Device], problems: list[Problem]) -> Backend:
    """The back end with its models by the names of the catalogue, and the card they have in common."""
    models = {device.model for device in devices.values()}
    for model in sorted(backend.models - devices.keys()):
        message = f'no catalogue knows the model "{model}"{nearest(model, models)}'
        problems.append(Problem(backend.at, "spec.models", message))
    cards = [devices[model] for model in sorted(backend.models & devices.keys())]
    alike = {(card.memory, card.tflops, tuple(card.profiles)) for card in cards}
    card = cards[0] if len(alike) == 1 else None
    return replace(backend, models=frozenset(card.model.lower() for card in cards), card=card)


def _with_models(mode: Mode, devices: Mapping[str, Device], problems: list[Problem]) -> Mode:
    """The mode with the models of its `when` by the names of the catalogue."""
    if not mode.when.models:
        return mode
    models = {device.model for device in devices.values()}
    for model in sorted(mode.when.models - devices.keys()):
        message = f'no catalogue knows the model "{model}"{nearest(model, models)}'
        problems.append(Problem(mode.at, "when.models", message))
    known = frozenset(devices[model].model.lower() for model in mode.when.models if model in devices)
    return replace(mode, when=replace(mode.when, models=known))
