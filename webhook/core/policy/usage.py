"""What a pod holds, read from the resources on its containers, with or without shorthand.

The result depends on the rules, and on what cannot change while the pod exists (`webhook.core.policy.updates`). It
depends neither on the present nodes nor on claims that the pod names. Resources that cannot be read count as whole
devices.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from webhook.core.backends import charge, translate
from webhook.core.interpret import extended_resources, interpret, locations
from webhook.core.kube import pod
from webhook.core.kube.pod import EPHEMERAL, REQUIRED, Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import allocation, choose
from webhook.core.quota import tally
from webhook.core.request import MAX_DEVICES, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import CONTAINER, METADATA, PERCENT
from webhook.core.violations import Refusal

REMEMBERED: Final = 20_000
"""How many different pods a Counter remembers; most pods of a cluster are copies of a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds.

    demand   its request and its resources
    backend  the back end that the resources are of
    card     its card; None if nothing on the pod or in the rules tells. `models` are those it may be; none: any
    request  what the resources mean, in neutral form
    unread   why they cannot be read, so that whole devices count
    """

    demand: interpret.ContainerRequest
    backend: Backend
    card: Card | None
    models: tuple[str, ...]
    request: GpuRequest
    measure: charge.Measure
    unread: str = ""

    @property
    def container(self) -> Container:
        """The container."""
        return self.demand.container

    def path(self, *keys: str) -> str:
        """The field path of the first of these keys that the container's request has, of any key, or of its resource.

        An annotation for one container may come from the container's resources, so then the resource is named.
        """
        demand = self.demand
        paths = [demand.stated[key].path for key in keys if key in demand.stated]
        paths += [demand.request.path()] if demand.request is not None else []
        if paths and locations.SUFFIX not in paths[0]:
            return paths[0]
        if demand.extended.amounts:
            return extended_resources.where(self.container, next(iter(demand.extended.amounts)))
        return paths[0] if paths else "spec.containers"

    @property
    def instead(self) -> str:
        """The end of a fix in shorthand: which resources of the pod's author have to go, ` instead of a.b/c`."""
        names = [name.replace(CONTAINER, self.container.name) for name in self.demand.extended.amounts]
        return f" instead of {' and '.join(names)}" if names and self.demand.request is None else ""

    @property
    def is_unlimited(self) -> bool:
        """Whether it is a part of a device, and nothing limits its compute."""
        return self.request.devices == "part" and self.request.cores is None

    @property
    def gaps(self) -> Mapping[str, str]:
        """The keys without which each part counts as a whole device, and what nobody knows without them."""
        gaps = {"gpu-model": "nothing says of which card it is"} if self.measure.presumed else {}
        if self.is_unlimited and self.backend.limits_compute:
            gaps['gpu-cores, as "30"'] = "nothing limits its compute"
        return gaps

    @property
    def compute(self) -> Fraction:
        """Percent of a device's compute; a part that nothing limits may take all of it."""
        return Fraction(100 * self.request.count) if self.is_unlimited else self.measure.compute

    @property
    def vendor(self) -> str | None:
        """The vendor of the card; None if the back end serves cards of several vendors."""
        if self.card is not None:
            return self.card.vendor
        return next(iter(self.backend.vendors)) if len(self.backend.vendors) == 1 else None


class PodUsage(NamedTuple):
    """What a pod counts.

    `unsized`: the tally lacks some memory, because a card is unknown. `unknown`: some devices are in no model's
    amounts, because their model is unknown.
    """

    tally: tally.Tally
    unsized: bool
    unknown: bool = False


NOTHING: Final = PodUsage(tally.NOTHING, unsized=False)


def holdings(
    pod: Pod,
    rulebook: Rulebook,
    interpretation: interpret.Interpretation | None = None,
    already: Mapping[str, allocation.Allocation] = MappingProxyType({}),
) -> list[Holding]:
    """What each container holds; containers without GPUs are left out. Nothing is refused here.

    `interpretation` is that of the pod by the same rulebook, if there is one; it is not used if the pod names claims.
    `already` are allocations that were read before, by container.
    """
    if interpret.asks_nothing(pod, rulebook):
        return []
    lasting = allocation.lasting_rulebook(pod, rulebook)
    if interpretation is None or interpretation.claims:
        interpretation = interpret.interpret(pod, lasting)
    understood = {demand.container.name: demand for demand in interpretation.asked}
    able = [container for container in pod.containers if container.kind != EPHEMERAL]
    wrong = any(container.name not in understood for container in able)
    slot_values = extended_resources.slot_values(pod, lasting) if wrong else {}
    nodes = choose.NodeSelection(pod, lasting)
    held: list[Holding] = []
    for container in able:
        demand = understood.get(container.name)
        if demand is None:
            # Its shorthand is wrong, or contradicts its resources: only these count.
            extended = extended_resources.read(container, lasting, slot_values.get(container.name, {}))
            annotations = interpret.read_annotations(pod, lasting)
            demand = interpret.ContainerRequest(
                container=container, request=None, extended=extended, stated={}, persist={}, annotations=annotations
            )
        there: allocation.Allocation | None = None
        if demand.extended.violations:
            held.append(_unread(demand, demand.extended.violations[0].message, lasting))
        elif demand.extended.amounts:
            try:
                there = allocation.largest_possible(demand, nodes, already.get(container.name))
            except translate.CannotExpressError as reason:
                held.append(_unread(demand, reason.message, lasting))
        elif "resourceClaims" in pod.spec:
            with suppress(Refusal):
                there = allocation.from_claims(demand, pod, lasting)
        if there is not None:
            served = there.assignment
            models = allocation.possible_models(demand, served.backend, served.card, [served.mode], lasting)
            held.append(
                Holding(
                    demand=demand,
                    backend=served.backend,
                    card=served.card,
                    models=models,
                    request=served.request,
                    measure=there.measure,
                )
            )
    return held


def _unread(demand: interpret.ContainerRequest, why: str, rulebook: Rulebook) -> Holding:
    """A holding of resources that cannot be read: as many whole devices as they may stand for, at least one."""
    container, amounts = demand.container, demand.extended.amounts
    slots = [resource.name for by_key in rulebook.slots.values() for resource in by_key.values()]
    names = [*amounts, *demand.extended.texts, *container.limits, *container.requests, *slots]
    resource = next(rulebook.resources[name] for name in names if name in rulebook.resources)
    backend = (resource.owners or resource.known)[0]
    card = translate.find_card(demand.models, rulebook, backend)

    devices, left = 0, set(amounts)
    while left:
        # The resources of the back end that owns most of them, of which the one that stands for most counts.
        owners = [owner for name in sorted(left) for owner in rulebook.resources[name].known]
        group = max((left & owner.owns for owner in owners), key=len)
        left -= group
        most = 1
        for name in group:
            for owner in rulebook.resources[name].known:
                owners_card = translate.find_card(demand.models, rulebook, owner)
                outputs = [mode.amounts[name] for mode in owner.modes if name in mode.amounts]
                most = max([most, *(_devices(output, amounts[name], owners_card) for output in outputs)])
        devices += most

    request = GpuRequest(count=min(devices or 1, MAX_DEVICES))
    return Holding(
        demand=demand,
        backend=backend,
        card=card,
        models=allocation.possible_models(demand, backend, card, backend.modes, rulebook),
        request=request,
        measure=allocation.measure(demand, request, backend, card, backend.modes, rulebook),
        unread=why,
    )


def _devices(output: Output, value: int, card: Card | None) -> int:
    """How many devices a number may stand for, rounded up."""
    if isinstance(output, Constant):
        return 1
    if output.what == "count":
        return value
    if output.unit_name == PERCENT:
        return ceil(value * output.unit / 100)
    return ceil(value * output.unit / card.memory) if card is not None and output.what == "memory" else 1


def pod_usage(held: Sequence[Holding]) -> PodUsage:
    """What the containers of a pod hold together, each kind of amount by itself.

    The amounts of a holding count also by model: under each model that it may be.
    """
    amounts: list[tuple[Container, tally.Tally]] = []
    for holding in held:
        measure = holding.measure
        kinds = {tally.DEVICES: measure.devices, tally.MEMORY: Fraction(measure.memory)}
        by_model = {tally.key(what, model): amount for model in holding.models for what, amount in kinds.items()}
        amounts.append((holding.container, {key: amount for key, amount in (kinds | by_model).items() if amount}))
    return PodUsage(
        pod.effective(amounts, tally.plus, tally.at_least, tally.NOTHING),
        unsized=any(holding.measure.unsized > 0 for holding in held),
        unknown=not all(holding.models for holding in held),
    )


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts stored pods by one rulebook. Copies of a pod are read once, and a pod that changes is not read again."""

    rulebook: Rulebook
    _counted: dict[bytes, PodUsage] = field(default_factory=dict)

    def held(self, raw: Mapping[str, Any]) -> PodUsage:
        """What a stored pod counts, live or not."""
        kind = self._kind(raw["spec"], raw["metadata"])
        if kind is None:
            return NOTHING
        key = blake2b(repr(kind).encode(), digest_size=32).digest()
        counted = self._counted.get(key)
        if counted is None:
            counted = pod_usage(holdings(pod.read(raw), self.rulebook))
            if len(self._counted) >= REMEMBERED:
                self._counted.clear()
            self._counted[key] = counted
        return counted

    def _kind(self, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[object, ...] | None:
        """Everything that the count of a pod depends on, of any length. None for a pod without devices."""
        rulebook, names = self.rulebook, self.rulebook.resources
        asking = shared = False
        containers: list[object] = []
        for section in ("initContainers", "containers"):
            for container in spec.get(section) or ():
                there: list[object] = []
                resources = container.get("resources")
                for part in ("limits", "requests") if resources else ():
                    for name, value in (resources.get(part) or {}).items():
                        if name in names:
                            there += (part, name, value)
                            shared = shared or names[name].shared
                asking = asking or bool(there)
                containers.append((section, container.get("name"), container.get("restartPolicy"), *there))
        entries: list[object] = []  # the labels and annotations that the count may depend on
        for section, kind in METADATA if asking or any(rulebook.slots.values()) else ():
            for key, value in (metadata.get(section) or {}).items():
                if key == locations.DEFAULT_CONTAINER or allocation.depends(kind, key, rulebook):
                    entries += (key, value)
        claims = spec.get("resourceClaims")
        if not asking and not entries and not claims:
            return None
        selection = ""
        if shared:
            node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
            selection = repr((spec.get("nodeSelector"), node.get(REQUIRED)))
        return tuple(containers), tuple(entries), repr(claims) if claims else "", selection
