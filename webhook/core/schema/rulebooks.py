"""All documents together: heads, names, references between them, and the indexes of the rulebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.core import amounts, examples, partitions
from webhook.core.backend import Amount, Backend, Mode
from webhook.core.device import Device
from webhook.core.document import DocumentError, Location, Node, Problem, Section, nearest
from webhook.core.rulebook import ClaimSource, Cluster, Resource, Rulebook
from webhook.core.schema import backends, catalogs, claimsources, clusters, inheritance
from webhook.core.schema.inheritance import Parameters
from webhook.core.schema.modes import DEVICES
from webhook.core.sources import failing

API_VERSION = "gpu-webhook.io/v1alpha1"
KINDS = ("Backend", "ClaimSource", "Cluster", "DeviceCatalog")


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
    if not problems and not tried:
        problems += _failing_examples(specs["Backend"], loaded, devices)
        problems += [problem for source in _sources(specs["ClaimSource"], {}, []) for problem in failing(source)]
    if problems or cluster is None:
        raise DocumentError(*sorted(set(problems)))
    return replace(index(cluster, loaded, devices, digest), sources=claims)


def index(cluster: Cluster, loaded: Mapping[str, Backend], devices: Mapping[str, Device], digest: str) -> Rulebook:
    """The rulebook of these values, with its resources indexed."""
    enabled = [loaded[name] for name in cluster.backends]
    orders = {kind: _order(cluster, loaded, kind) for kind in DEVICES}
    resources = _resources(cluster, loaded, enabled)
    marks, all_marks = _marks(enabled), _marks(loaded.values())
    return Rulebook(
        cluster=cluster,
        backends=loaded,
        enabled=enabled,
        orders=orders,
        ranks={kind: _ranks(cluster, kind) for kind in DEVICES},
        devices=devices,
        profiles=frozenset(profile for device in devices.values() for profile in device.profiles),
        resources=resources,
        spoken={name: resource for name, resource in resources.items() if " " in name and resource.owners},
        marks=marks,
        marked=_keys(marks),
        heard={name: resource for name, resource in resources.items() if " " in name},
        all_marks=all_marks,
        all_marked=_keys(all_marks),
        digest=digest,
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
        first = named.setdefault((kind, name), at)
        if first is not at:
            message = f'{kind} "{name}" is defined already, at {first.line_only}'
            problems.append(Problem(at, "metadata.name", message))
        specs[kind][name] = spec
    return specs


def _name(node: Node, problems: list[Problem]) -> str:
    section = Section(node, problems)
    name = section.need("name", lambda node: node.filled(), "")
    section.take("annotations", lambda node: node, node)
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
            found.append(claimsources.source(name, resolved, _alone, problems))
        except DocumentError as error:
            problems += error.problems
    return found


def _alone(backend: Backend) -> Rulebook:
    """A rulebook of one back end and no cards."""
    name = backend.name
    return index(Cluster(name=name, at=backend.at, backends=(name,), whole=name, part=name), {name: backend}, {}, "")


def _failing_examples(
    specs: Mapping[str, Node], loaded: Mapping[str, Backend], devices: Mapping[str, Device]
) -> Iterator[Problem]:
    """Examples hold for a rule as it is written; parameters that this cluster sets are not part of that."""
    for name, backend in loaded.items():
        as_written = _backend(name, specs, {}, devices, []) if backend.parametrised else backend
        alone = Cluster(name="example", at=backend.at, backends=(name,), whole=name, part=name)
        yield from examples.failing(as_written, index(alone, {name: as_written}, devices, ""))


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


def _order(cluster: Cluster, loaded: Mapping[str, Backend], devices: str) -> dict[str, Backend]:
    default = _default(cluster, devices)
    return {name: loaded[name] for name in ((default,) if default else ()) + cluster.backends}


def _ranks(cluster: Cluster, devices: str) -> dict[str, int]:
    """The place of each back end: its tier's, but the default's is before all."""
    tiers = cluster.tiers or {name: rank for rank, name in enumerate(cluster.backends)}
    return {**tiers, **({default: -1} if (default := _default(cluster, devices)) else {})}


def _default(cluster: Cluster, devices: str) -> str | None:
    return cluster.whole if devices == "whole" else cluster.part


def _resources(cluster: Cluster, loaded: Mapping[str, Backend], enabled: Sequence[Backend]) -> dict[str, Resource]:
    known: dict[str, list[Backend]] = {}
    for backend in dict.fromkeys([backend.name for backend in enabled] + list(loaded)):
        for resource in loaded[backend].owns:
            known.setdefault(resource, []).append(loaded[backend])
    on = set(cluster.backends)
    return {name: _resource(name, owners, on) for name, owners in sorted(known.items())}


def _resource(name: str, known: Sequence[Backend], enabled: set[str]) -> Resource:
    owners = [backend for backend in known if backend.name in enabled]
    modes = [mode for owner in owners or known for mode in owner.modes if name in mode.amounts]
    outputs = [mode.amounts[name] for mode in modes]
    numbers = [output for output in outputs if isinstance(output, Amount)]
    memory = [output for output in numbers if output.what == "memory" and output.unit_name != amounts.PERCENT]
    units = {output.unit for output in memory}
    unit = units.pop() if len(units) == 1 else None
    first = owners[0] if owners else known[0]
    return Resource(
        name=name,
        rule=outputs[0].at.of(first.name),
        owners=tuple(owners),
        known=tuple(known),
        counts=any(output.what == "count" for output in numbers) and any(mode.profile is None for mode in modes),
        only_counts=bool(numbers) and all(output.what == "count" for output in numbers),
        memory_unit=unit,
        in_bytes=any(output.unit_name == amounts.QUANTITY for output in numbers),
        digits=max((output.digits for output in numbers), default=0),
        alone=any(not mode.limits for mode in modes),
        addresses=tuple({key for mode in modes for key in _addresses(mode)}),
        refuse_request_only=any(owner.request_only == "refuse" for owner in owners),
    )


def _marks(backends: Iterable[Backend]) -> frozenset[str]:
    """The annotations, or their keys alone, that some mode depends on."""
    modes = [mode for backend in backends for mode in backend.modes]
    return frozenset(mark for mode in modes for mark in mode.when.marks | mode.when.unmarked | mode.marks)


def _keys(marks: Iterable[str]) -> frozenset[str]:
    return frozenset(mark.partition("=")[0] for mark in marks)


def _addresses(mode: Mode) -> Iterator[str]:
    """The annotations in which a mode names the container."""
    for key, output in mode.outputs.annotations.items():
        if isinstance(output, Amount) and output.what == "container":
            yield key
