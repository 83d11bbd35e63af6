"""All loaded rules as frozen values, with the indexes that keep a review's cost independent of their number.

Nothing here is computed per review, and `webhook.core.rules.load` makes all of it from documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

from webhook.core.forms.document import closest
from webhook.core.kube.quantity import Fraction
from webhook.core.quota.tally import Tally
from webhook.core.request import DEVICES
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Cards
from webhook.core.rules.claims import ClaimSource
from webhook.core.rules.cluster import Cluster, Protection
from webhook.core.rules.modes import Mode
from webhook.core.rules.tenant_policy import Tenancy
from webhook.core.rules.verbs import PERCENT, QUANTITY, Amount, Slot, SlotKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An extended resource that some rule knows, or a number it reads from `annotation KEY` or `label KEY`.

    `owners` are the enabled back ends in the cluster's order; `known` are all of them, enabled or not. `rule` is the
    line that knows it. `counts`: it is a number of devices in some mode, `only_counts` in all. `memory_unit`: bytes
    of one, if it is memory; `in_bytes`: it takes `8Gi`; `digits`: decimals that count. `shared`: on some nodes
    another enabled back end may own it; if every enabled owner says which nodes are its own, a disabled one, too.
    `alone`: an annotation or label that asks without any resource beside it, and `addresses` the annotations that
    may name the container it is for.
    """

    name: str
    owners: tuple[Backend, ...]
    known: tuple[Backend, ...]
    rule: str
    counts: bool
    only_counts: bool
    memory_unit: Fraction | None
    in_bytes: bool
    digits: int
    refuse_request_only: bool
    shared: bool
    alone: bool = False
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of the cluster beside its rules; empty where no watcher runs.

    cards      by back end, the cards that its nodes have; no entry where one is unknown or there are none
    present    the back ends that some node belongs to; None if no node is known at all
    most       devices of the node that has most; 0 if that is not known of one
    exists     what all nodes have together; what is not known of one of them has no key
    objects    claims and their classes, as they are in the API: by the name of their kind, then by namespace and
               name. A kind that is not watched has no entry
    """

    cards: Mapping[str, Sequence[Card]] = field(default_factory=dict)
    present: frozenset[str] | None = None
    most: int = 0
    exists: Tally = field(default_factory=dict)
    objects: Mapping[str, Mapping[tuple[str, str], Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Everything a review is judged by.

    `orders`: the enabled back ends by name, in the order in which a `whole`, `part`, `profile` or `claim` request
    tries them, and `ranks` the place of each there, which back ends that are as good as each other share.
    `devices` is by lower-case model, alias and product name. `slots` are the numbers in annotations and in labels by
    which an enabled back end is asked, by key. `annotations` are those that its modes depend on, by key: as `key` or
    as `key=value`. `all_slots` and `all_annotations` are the same of every back end, enabled or not. `per_container`
    are the annotations of `all_slots` that name a container in their keys. `uncounted` are globs of resources that
    are cards by names which no back end is asked in. `workloads` are Kubernetes' own and those of documents. `trial`:
    one back end is tried by itself, in no cluster that there is.
    """

    cluster: Cluster
    backends: Mapping[str, Backend]
    enabled: Sequence[Backend]
    orders: Mapping[str, Mapping[str, Backend]]
    ranks: Mapping[str, Mapping[str, int]]
    devices: Cards
    profiles: frozenset[str]
    resources: Mapping[str, Resource]
    slots: Mapping[SlotKind, Mapping[str, Resource]]
    annotations: Mapping[str, frozenset[str]]
    all_slots: Mapping[SlotKind, Mapping[str, Resource]]
    all_annotations: Mapping[str, frozenset[str]]
    per_container: Sequence[Slot] = ()
    sources: Sequence[ClaimSource] = ()
    uncounted: Sequence[str] = ()
    protections: Sequence[Protection] = ()
    workloads: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    digest: str
    trial: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)
    tenancy: Tenancy = field(default_factory=Tenancy)
    cache: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was derived from it, for as long as it is in force; another rulebook made by `replace` begins anew."""

    def as_ruled(self, key: str) -> str:
        """The key of an annotation as rules have it, with `{container}` for the name of a container."""
        return next((slot.key for slot in self.per_container if slot.container(key) is not None), key)


def kept(make: Callable[[Rulebook], T]) -> Callable[[Rulebook], T]:
    """The same function, whose result for a rulebook is made once and stays in the rulebook's cache."""

    @wraps(make)
    def recall(rulebook: Rulebook) -> T:
        made: T | None = rulebook.cache.get(make)
        if made is None:
            made = rulebook.cache[make] = make(rulebook)
        return made

    return recall


def nearest_backend(name: str, rulebook: Rulebook) -> str:
    """The back end that a name is nearly, or is nearest to, then rather an enabled one; empty if it is near none."""
    known, enabled = rulebook.backends, [backend.name for backend in rulebook.enabled]
    return closest(name, known, 0.85) or closest(name, enabled) or closest(name, known)


def index(
    cluster: Cluster,
    loaded: Mapping[str, Backend],
    devices: Cards,
    digest: str = "",
    sources: Sequence[ClaimSource] = (),
) -> Rulebook:
    """The rulebook of these values."""
    enabled = [loaded[name] for name in cluster.backends]
    defaults = {kind: cluster.whole if kind == "whole" else cluster.part for kind in DEVICES}
    tiers = cluster.tiers or {name: rank for rank, name in enumerate(cluster.backends)}
    served: dict[str, list[tuple[Backend, Mode]]] = {}
    for backend in {**{backend.name: backend for backend in enabled}, **loaded}.values():
        for mode in backend.modes:
            for name in mode.amounts:
                served.setdefault(name, []).append((backend, mode))
    resources = {name: _resource(name, modes, cluster.backends) for name, modes in sorted(served.items())}
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


def with_backend_alone(backend: Backend, devices: Cards) -> Rulebook:
    """The rulebook of one back end and nothing else."""
    name = backend.name
    return index(Cluster(name=name, at=backend.at, backends=(name,), whole=name, part=name), {name: backend}, devices)


def with_only(name: str, rulebook: Rulebook) -> Rulebook:
    """The rulebook of a cluster that has just one back end; raises KeyError if nothing is called so."""
    if name not in rulebook.backends:
        raise KeyError(name)
    cluster = replace(rulebook.cluster, backends=(name,), whole=name, part=name, provisioners={})
    return replace(of_cluster(cluster, rulebook), trial=True)


def with_every_backend(rulebook: Rulebook) -> Rulebook:
    """The rulebook of a cluster that has every back end there is a rule for, its own first."""
    names = tuple(dict.fromkeys([*rulebook.cluster.backends, *rulebook.backends]))
    return of_cluster(replace(rulebook.cluster, backends=names, tiers={}), rulebook)


def of_cluster(cluster: Cluster, rulebook: Rulebook) -> Rulebook:
    """The rulebook of another cluster with the same rules, of whose nodes nothing is known."""
    made = index(cluster, rulebook.backends, rulebook.devices, rulebook.digest, rulebook.sources)
    surroundings = Surroundings(objects=rulebook.surroundings.objects)
    kept = {name: getattr(rulebook, name) for name in ("uncounted", "protections", "workloads")}
    return replace(made, surroundings=surroundings, **kept)


def _resource(name: str, served: Sequence[tuple[Backend, Mode]], enabled: Sequence[str]) -> Resource:
    """A resource of these modes, those of enabled back ends first; if there are any, only these tell what it is."""
    known = {backend.name: backend for backend, _ in served}
    owners = {owner: backend for owner, backend in known.items() if owner in enabled}
    telling = owners or known
    modes = [mode for backend, mode in served if backend.name in telling]
    outputs = [mode.amounts[name] for mode in modes]
    annotations = [line for mode in modes for line in mode.outputs.annotations.items()]
    numbers = [output for output in outputs if isinstance(output, Amount)]
    units = {output.unit for output in numbers if output.what == "memory" and output.unit_name != PERCENT}
    pooled = {backend.name for backend, mode in served if mode.pool}
    return Resource(
        name=name,
        rule=outputs[0].at.of(next(iter(telling))),
        owners=tuple(owners.values()),
        known=tuple(known.values()),
        counts=any(output.what == "count" for output in numbers) and any(mode.profile is None for mode in modes),
        only_counts=bool(numbers) and all(output.what == "count" for output in numbers),
        memory_unit=units.pop() if len(units) == 1 else None,
        in_bytes=any(output.unit_name == QUANTITY for output in numbers),
        digits=max((output.digits for output in numbers), default=0),
        alone=any(not mode.limits for mode in modes),
        addresses=tuple({key for key, output in annotations if output.what == "container"}),
        refuse_request_only=any(owner.request_only == "refuse" for owner in owners.values()),
        shared=len(known if owners.keys() <= pooled else owners) > 1,
    )


def _by_kind(resources: Iterable[Resource]) -> Mapping[SlotKind, Mapping[str, Resource]]:
    """The numbers in annotations and labels, by what they stand in and its key."""
    grouped: dict[SlotKind, dict[str, Resource]] = {"annotation": {}, "label": {}}
    for resource in resources:
        if isinstance(resource.name, Slot):
            grouped[resource.name.kind][resource.name.key] = resource
    return grouped


def _annotations(backends: Iterable[Backend]) -> Mapping[str, frozenset[str]]:
    """The annotations, or their keys alone, that some mode depends on; by key."""
    modes = [mode for backend in backends for mode in backend.modes]
    by_key: dict[str, frozenset[str]] = {}
    for mark in {mark for mode in modes for mark in mode.when.annotated | mode.when.unannotated | mode.enforced}:
        key = mark.partition("=")[0]
        by_key[key] = by_key.get(key, frozenset()) | {mark}
    return by_key


def asking(backends: Iterable[Backend]) -> frozenset[str]:
    """The annotations and labels, by key, in which any of the back ends is asked, or that its modes depend on."""
    modes = [mode for backend in backends for mode in backend.modes]
    slots = frozenset(name.key for mode in modes for name in mode.amounts if isinstance(name, Slot))
    return slots.union(_annotations(backends))
