"""The indexes of a rulebook, which keep the cost of a review independent of the number of rules.

Made once, when rules are loaded; and for reports on a cluster that has just one back end, or every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from webhook.core.request.request import DEVICES
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.modes import Mode
from webhook.core.rules.rulebook import ClaimSource, Resource, Rulebook, Surroundings
from webhook.core.rules.verbs import Amount
from webhook.core.rules.vocabulary import PERCENT, QUANTITY, Slot, SlotKind


def index(
    cluster: Cluster,
    loaded: Mapping[str, Backend],
    devices: Mapping[str, Card],
    digest: str = "",
    sources: Sequence[ClaimSource] = (),
) -> Rulebook:
    """The rulebook of these values."""
    enabled = [loaded[name] for name in cluster.backends]
    defaults = {kind: cluster.whole if kind == "whole" else cluster.part for kind in DEVICES}
    tiers = cluster.tiers or {name: rank for rank, name in enumerate(cluster.backends)}
    resources = _resources(cluster, loaded, enabled)
    return Rulebook(
        cluster=cluster,
        backends=loaded,
        enabled=enabled,
        orders={
            kind: {name: loaded[name] for name in (default, *cluster.backends) if name is not None}
            for kind, default in defaults.items()
        },
        ranks={kind: {**tiers, **({default: -1} if default else {})} for kind, default in defaults.items()},
        devices=devices,
        profiles=frozenset(profile for device in devices.values() for profile in device.profiles),
        resources=resources,
        slots=_by_kind(resource for resource in resources.values() if resource.owners),
        annotations=_annotations(enabled),
        all_slots=_by_kind(resources.values()),
        all_annotations=_annotations(loaded.values()),
        per_container=[name for name in resources if isinstance(name, Slot) and name.per_container],
        sources=sources,
        digest=digest,
    )


def alone(backend: Backend, devices: Mapping[str, Card]) -> Rulebook:
    """The rulebook of one back end and nothing else."""
    name = backend.name
    return index(Cluster(name=name, at=backend.at, backends=(name,), whole=name, part=name), {name: backend}, devices)


def only(name: str, rulebook: Rulebook) -> Rulebook:
    """The rulebook of a cluster that has just one back end; raises KeyError if nothing is called so."""
    if name not in rulebook.backends:
        raise KeyError(name)
    cluster = replace(rulebook.cluster, backends=(name,), whole=name, part=name, provisioners={})
    return replace(of_cluster(cluster, rulebook), trial=True)


def every(rulebook: Rulebook) -> Rulebook:
    """The rulebook of a cluster that has every back end there is a rule for, its own first."""
    names = tuple(dict.fromkeys([*rulebook.cluster.backends, *rulebook.backends]))
    return of_cluster(replace(rulebook.cluster, backends=names, tiers={}), rulebook)


def of_cluster(cluster: Cluster, rulebook: Rulebook) -> Rulebook:
    """The rulebook of another cluster with the same rules, of whose nodes nothing is known."""
    made = index(cluster, rulebook.backends, rulebook.devices, rulebook.digest, rulebook.sources)
    surroundings = Surroundings(objects=rulebook.surroundings.objects)
    kept = {name: getattr(rulebook, name) for name in ("uncounted", "protections", "workloads")}
    return replace(made, surroundings=surroundings, **kept)


def _resources(cluster: Cluster, loaded: Mapping[str, Backend], enabled: Sequence[Backend]) -> dict[str, Resource]:
    """Every resource by name, with the modes that write it: the enabled back ends' before the others'."""
    served: dict[str, list[tuple[Backend, Mode]]] = {}
    for backend in {**{one.name: one for one in enabled}, **loaded}.values():
        for mode in backend.modes:
            for name in mode.amounts:
                served.setdefault(name, []).append((backend, mode))
    on = set(cluster.backends)
    return {name: _resource(name, found, on) for name, found in sorted(served.items())}


def _resource(name: str, served: Sequence[tuple[Backend, Mode]], enabled: set[str]) -> Resource:
    known = {backend.name: backend for backend, _ in served}
    owners = {owner: backend for owner, backend in known.items() if owner in enabled}
    modes = [mode for backend, mode in served if backend.name in (owners or known)]
    outputs = [mode.amounts[name] for mode in modes]
    annotations = [line for mode in modes for line in mode.outputs.annotations.items()]
    numbers = [output for output in outputs if isinstance(output, Amount)]
    memory = [output for output in numbers if output.what == "memory" and output.unit_name != PERCENT]
    units = {output.unit for output in memory}
    unit = units.pop() if len(units) == 1 else None
    first = next(iter((owners or known).values()))
    pooled = {backend.name for backend, mode in served if mode.pool}
    return Resource(
        name=name,
        rule=outputs[0].at.of(first.name),
        owners=tuple(owners.values()),
        known=tuple(known.values()),
        counts=any(output.what == "count" for output in numbers) and any(mode.profile is None for mode in modes),
        only_counts=bool(numbers) and all(output.what == "count" for output in numbers),
        memory_unit=unit,
        in_bytes=any(output.unit_name == QUANTITY for output in numbers),
        digits=max((output.digits for output in numbers), default=0),
        alone=any(not mode.limits for mode in modes),
        addresses=tuple({key for key, output in annotations if output.what == "container"}),
        refuse_request_only=any(owner.request_only == "refuse" for owner in owners.values()),
        shared=len(known if owners.keys() <= pooled else owners) > 1,
    )


def _by_kind(resources: Iterable[Resource]) -> Mapping[SlotKind, Mapping[str, Resource]]:
    """The numbers in annotations and labels, by what they stand in and its key."""
    found: dict[SlotKind, dict[str, Resource]] = {"annotation": {}, "label": {}}
    for resource in resources:
        if isinstance(resource.name, Slot):
            found[resource.name.kind][resource.name.key] = resource
    return found


def _annotations(backends: Iterable[Backend]) -> Mapping[str, frozenset[str]]:
    """The annotations, or their keys alone, that some mode depends on; by key."""
    modes = [mode for backend in backends for mode in backend.modes]
    found: dict[str, frozenset[str]] = {}
    for each in {each for mode in modes for each in mode.when.annotated | mode.when.unannotated | mode.enforced}:
        key = each.partition("=")[0]
        found[key] = found.get(key, frozenset()) | {each}
    return found


def asking(backends: Iterable[Backend]) -> frozenset[str]:
    """The annotations and labels, by key, in which any of the back ends is asked, or that its modes depend on."""
    modes = [mode for backend in backends for mode in backend.modes]
    slots = frozenset(name.key for mode in modes for name in mode.amounts if isinstance(name, Slot))
    return slots.union(_annotations(backends))
