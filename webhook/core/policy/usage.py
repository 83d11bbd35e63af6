"""What a pod holds, read from the resources on its containers, with or without shorthand.

The result depends on the rules, and on what cannot change while the pod exists (`webhook.core.policy.immutable`). It
depends neither on the present nodes nor on claims that the pod names. Resources that cannot be read count as whole
devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.core.backends.charge import Measure, counted
from webhook.core.backends.translate import CannotExpressError
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.interpret import (
    ContainerRequest,
    Interpretation,
    asks_nothing,
    interpret,
    read_annotations,
)
from webhook.core.kube import pod
from webhook.core.kube.pod import EPHEMERAL, Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import allocation
from webhook.core.plan.allocation import Allocation
from webhook.core.plan.choose import NodeSelection
from webhook.core.quota import tally
from webhook.core.quota.tally import Tally
from webhook.core.request import MAX_DEVICES, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import CONTAINER, METADATA, PERCENT
from webhook.core.violations import Refusal, Violation

REMEMBERED: Final = 20_000
"""How many different pods a Counter remembers; most pods of a cluster are copies of a few."""


LONGEST: Final = 2048
"""The longest key of a Counter, in characters: annotations may be long, and different on every pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds.

    asked    its request and its resources
    backend  the back end that the resources are of
    card     its card; None if nothing on the pod or in the rules tells. `models` are those it may be; none: any
    request  what the resources mean, in neutral form
    unread   why they cannot be read, so that whole devices count
    """

    asked: ContainerRequest
    backend: Backend
    card: Card | None
    models: tuple[str, ...]
    request: GpuRequest
    measure: Measure
    unread: str = ""

    @property
    def container(self) -> Container:
        """The container."""
        return self.asked.container

    def path(self, *keys: str) -> str:
        """The field path of the first of these keys that the container's request has, of any key, or of its resource.

        An annotation for one container may come from the container's resources, so then the resource is named.
        """
        request = self.asked
        paths = [request.stated[key].path for key in keys if key in request.stated]
        paths += [request.request.path()] if request.request is not None else []
        if paths and locations.SUFFIX not in paths[0]:
            return paths[0]
        if request.extended.amounts:
            return extended_resources.where(self.container, next(iter(request.extended.amounts)))
        return paths[0] if paths else "spec.containers"

    @property
    def instead(self) -> str:
        """The end of a fix in shorthand: which resources of the pod's author have to go, ` instead of a.b/c`."""
        names = [name.replace(CONTAINER, self.container.name) for name in self.asked.extended.amounts]
        return f" instead of {' and '.join(names)}" if names and self.asked.request is None else ""

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

    tally: Tally
    unsized: bool
    unknown: bool = False


_NONE: Final[Mapping[str, Any]] = {}
NO_ALLOCATIONS: Final[Mapping[str, Allocation]] = {}
NOTHING: Final = PodUsage(tally.NOTHING, unsized=False)


def holdings(
    pod: Pod,
    rulebook: Rulebook,
    interpretation: Interpretation | None = None,
    already: Mapping[str, Allocation] = NO_ALLOCATIONS,
) -> list[Holding]:
    """What each container holds; containers without GPUs are left out. Nothing is refused here.

    `interpretation` is that of the pod by the same rulebook, if there is one; it is not used if the pod names claims.
    `already` are allocations that were read before, by container.
    """
    if asks_nothing(pod, rulebook):
        return []
    lasting = allocation.lasting_rulebook(pod, rulebook)
    if interpretation is None or interpretation.claims:
        interpretation = interpret(pod, lasting)
    understood = {request.container.name: request for request in interpretation.asked}
    able = [container for container in pod.containers if container.kind != EPHEMERAL]
    wrong = any(container.name not in understood for container in able)
    slot_values = extended_resources.slot_values(pod, lasting) if wrong else {}
    reach = NodeSelection(pod, lasting)
    holdings: list[Holding] = []
    for container in able:
        request = understood.get(container.name) or _bare(
            container, slot_values.get(container.name, {}), pod, lasting
        )
        holdings += _held(request, already.get(container.name), reach)
    return holdings


def _bare(container: Container, slot_values: Mapping[str, str], pod: Pod, rulebook: Rulebook) -> ContainerRequest:
    """A container whose shorthand is wrong, or contradicts its resources: only the resources count."""
    return ContainerRequest(
        container=container,
        request=None,
        extended=extended_resources.read(container, rulebook, slot_values),
        stated={},
        persist={},
        annotations=read_annotations(pod, rulebook),
    )


def _held(
    container_request: ContainerRequest, allocated: Allocation | None, reach: NodeSelection
) -> Iterator[Holding]:
    rulebook = reach.rulebook
    if not container_request.extended.amounts and not container_request.extended.violations:
        there = _claimed(container_request, reach.pod, rulebook)
        if there is not None:
            yield _holding(container_request, there, rulebook)
        return
    if container_request.extended.violations:
        yield _unread(container_request, container_request.extended.violations[0].message, rulebook)
        return
    try:
        yield _holding(container_request, allocation.largest_possible(container_request, reach, allocated), rulebook)
    except CannotExpressError as reason:
        yield _unread(container_request, reason.message, rulebook)


def _claimed(container_request: ContainerRequest, pod: Pod, rulebook: Rulebook) -> Allocation | None:
    if "resourceClaims" not in pod.spec:
        return None
    with suppress(Refusal):
        return allocation.from_claims(container_request, pod, rulebook)
    return None


def _holding(container_request: ContainerRequest, there: Allocation, rulebook: Rulebook) -> Holding:
    served = there.assignment
    return Holding(
        asked=container_request,
        backend=served.backend,
        card=served.card,
        models=allocation.possible_models(container_request, served.card, [served.mode], rulebook),
        request=served.request,
        measure=there.measure,
    )


def _unread(container_request: ContainerRequest, why: str, rulebook: Rulebook) -> Holding:
    """A holding of resources that cannot be read: as many whole devices as they may stand for, at least one."""
    container = container_request.container
    slot_values = [resource.name for by_key in rulebook.slots.values() for resource in by_key.values()]
    names = [
        *container_request.extended.amounts,
        *container_request.extended.texts,
        *container.limits,
        *container.requests,
        *slot_values,
    ]
    resource = next(rulebook.resources[name] for name in names if name in rulebook.resources)
    backend = (resource.owners or resource.known)[0]
    card = allocation.expected_card(container_request, backend, rulebook)
    devices = sum(_most(group, container_request, rulebook) for group in _systems(container_request, rulebook)) or 1
    request = GpuRequest(count=min(devices, MAX_DEVICES))
    return Holding(
        asked=container_request,
        backend=backend,
        card=card,
        models=allocation.possible_models(container_request, card, backend.modes, rulebook),
        request=request,
        measure=allocation.measure(container_request, request, backend, card, backend.modes, rulebook),
        unread=why,
    )


def _systems(container_request: ContainerRequest, rulebook: Rulebook) -> Iterator[set[str]]:
    """The resources on a container, grouped by the back end that owns most of them."""
    left = set(container_request.extended.amounts)
    while left:
        owners = [owner for name in sorted(left) for owner in rulebook.resources[name].known]
        group = max((left & owner.owns for owner in owners), key=len)
        yield group
        left -= group


def _most(names: Iterable[str], container_request: ContainerRequest, rulebook: Rulebook) -> int:
    """The most whole devices that any of these resources may stand for, at least one."""
    most = 1
    for name in names:
        for owner in rulebook.resources[name].known:
            card = allocation.expected_card(container_request, owner, rulebook)
            outputs = [mode.amounts[name] for mode in owner.modes if name in mode.amounts]
            most = max(
                [most, *(_devices(output, container_request.extended.amounts[name], card) for output in outputs)]
            )
    return most


def _devices(output: Output, value: int, card: Card | None) -> int:
    """How many devices a number may stand for, rounded up."""
    if isinstance(output, Constant):
        return 1
    amount = value * output.unit
    if output.what == "count":
        return value
    if output.unit_name == PERCENT:
        return ceil(amount / 100)
    return ceil(amount / card.memory) if card is not None and output.what == "memory" else 1


def pod_usage(held: Sequence[Holding]) -> PodUsage:
    """What the containers of a pod hold together, each kind of amount by itself."""
    amounts = ((holding.container, _amount(holding)) for holding in held)
    return PodUsage(
        pod.effective(amounts, tally.plus, tally.at_least, tally.NOTHING),
        unsized=any(holding.measure.unsized > 0 for holding in held),
        unknown=not all(holding.models for holding in held),
    )


def _amount(holding: Holding) -> Tally:
    """The amounts of one holding, also by model: under each model that it may be."""
    amounts = {tally.DEVICES: holding.measure.devices, tally.MEMORY: Fraction(holding.measure.memory)}
    by_model = {tally.key(what, model): amount for model in holding.models for what, amount in amounts.items()}
    return {key: amount for key, amount in (amounts | by_model).items() if amount}


UNSAID: Final = "and neither the pod nor the cluster says which"


def unknown_size(holding: Holding, limit: str, rule: str) -> Violation:
    """The violation (GPU107) where a limit depends on the memory of an unknown card; `limit` says which limit."""
    text = f'the container "{holding.container.name}" asks for {counted(holding.measure.devices)}'
    return Violation(
        code="GPU107",
        path=holding.path("gpu-memory", "gpu"),
        message=f"{limit}, and {text} of an unknown card",
        fix=f"add gpu-model with the name of the card, or ask for gpu-memory: 8Gi{holding.instead}",
        rule=rule,
    )


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts stored pods by one rulebook. Copies of a pod are read once."""

    rulebook: Rulebook
    _counted: dict[Hashable, PodUsage] = field(default_factory=dict)

    def held(self, raw: Mapping[str, Any]) -> PodUsage:
        """What a stored pod counts, live or not."""
        kind = _kind(raw, self.rulebook)
        if kind is None:
            return NOTHING
        counted = self._counted.get(kind)
        if counted is None:
            counted = pod_usage(holdings(pod.read(raw), self.rulebook))
            if _letters(kind) <= LONGEST:
                if len(self._counted) >= REMEMBERED:
                    self._counted.clear()
                self._counted[kind] = counted
        return counted


def _letters(kind: Hashable) -> int:
    """About how long a key is."""
    if isinstance(kind, tuple):
        return 8 + sum(map(_letters, kind))
    return len(kind) if isinstance(kind, str) else 8


def _kind(raw: Mapping[str, Any], rulebook: Rulebook) -> Hashable:
    """The key of a pod: everything that its count depends on. None for a pod without devices."""
    spec, metadata = raw["spec"], raw["metadata"]
    names = rulebook.resources
    asking = shared = False
    containers: list[object] = []
    for section in ("initContainers", "containers"):
        for container in spec.get(section) or ():
            there: list[object] = []
            resources = container.get("resources")
            for part in ("limits", "requests") if resources else ():
                for name, value in (resources.get(part) or _NONE).items():
                    if name in names:
                        there += (part, name, value)
                        shared = shared or names[name].shared
            asking = asking or bool(there)
            containers.append((section, container.get("name"), container.get("restartPolicy"), *there))
    counted = tuple(_counted_metadata(metadata, rulebook)) if asking or any(rulebook.slots.values()) else ()
    claims = spec.get("resourceClaims")
    if not asking and not counted and not claims:
        return None
    return tuple(containers), counted, repr(claims) if claims else "", repr(_selection(spec)) if shared else ""


def _selection(spec: Mapping[str, Any]) -> object:
    """The fields by which a pod selects its nodes."""
    node = (spec.get("affinity") or _NONE).get("nodeAffinity") or _NONE
    return spec.get("nodeSelector"), node.get("requiredDuringSchedulingIgnoredDuringExecution")


def _counted_metadata(metadata: Mapping[str, Any], rulebook: Rulebook) -> Iterator[object]:
    """The labels and annotations that a count may depend on."""
    for section, kind in METADATA:
        for key, value in (metadata.get(section) or _NONE).items():
            if key == locations.DEFAULT_CONTAINER or allocation.depends(kind, key, rulebook):
                yield key
                yield value
