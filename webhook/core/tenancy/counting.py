"""What a pod holds, read from the resources on its containers: who skips the shorthand counts the same.

A pure function of what cannot change once the pod exists (`webhook.core.guard`), and of the rules: not of the nodes
there are now, nor of claims that are only named. What cannot be read is counted, as whole devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial, reduce
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.core import measures, native, places, pod, standing
from webhook.core.amounts import PERCENT, CannotExpressError
from webhook.core.asked import EPHEMERAL, Asked
from webhook.core.backend import Amount, Backend, Output
from webhook.core.device import Device
from webhook.core.interpret import asks_nothing, interpret, marks_of
from webhook.core.measures import Measure
from webhook.core.pod import Container, Pod
from webhook.core.recognition import served
from webhook.core.request import GpuRequest
from webhook.core.rulebook import Rulebook, Surroundings
from webhook.core.shorthand import MAX_DEVICES
from webhook.core.standing import Found, Standing
from webhook.core.tenancy import tally
from webhook.core.tenancy.tally import Tally
from webhook.core.violations import Refusal

_OVER: Final = frozenset({"Succeeded", "Failed"})

REMEMBERED: Final = 20_000
"""How many kinds of pods a Counter remembers; most pods of a cluster are copies of a few."""


LONGEST: Final = 2048
"""Letters of a kind that is remembered: annotations may be a quarter of a megabyte, and different on every pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds.

    asked    its words, and the numbers that stand there
    backend  whose it is: the first that can have meant it
    card     which, None where nothing that lasts says so; `models` are all that it may be, none: any
    request  what stands there, in neutral form
    unread   why that cannot be read, and whole devices are counted
    """

    asked: Asked
    backend: Backend
    card: Device | None
    models: tuple[str, ...]
    request: GpuRequest
    measure: Measure
    unread: str = ""

    @property
    def container(self) -> Container:
        """Which container it is."""
        return self.asked.container

    @property
    def vendor(self) -> str | None:
        """Who makes it; None where the back end serves cards of several."""
        if self.card is not None:
            return self.card.vendor
        return next(iter(self.backend.vendors)) if len(self.backend.vendors) == 1 else None


class Count(NamedTuple):
    """What a pod counts.

    `unsized`: some of its memory is not in it, as nobody knows the card. `unknown`: some of its devices are in no
    model's amounts, as they may be of any.
    """

    tally: Tally
    unsized: bool
    unknown: bool = False


_NONE: Final[Mapping[str, Any]] = {}
NOTHING: Final = Count(tally.NOTHING, unsized=False)


def holdings(seen: Pod, rulebook: Rulebook) -> list[Holding]:
    """What each container holds, those that hold nothing left out. Nothing is refused here."""
    if asks_nothing(seen, rulebook):
        return []
    known = _lasting(seen, rulebook)
    understood = {asked.container.name: asked for asked in interpret(seen, known).asked}
    found: list[Holding] = []
    for container in seen.containers:
        if container.kind != EPHEMERAL:
            asked = understood.get(container.name) or _bare(container, seen, known)
            found += _held(asked, seen, known)
    return found


def _lasting(seen: Pod, rulebook: Rulebook) -> Rulebook:
    """The rulebook, with nothing known around it but the card that was noted on the pod when it was made."""
    card = rulebook.devices.get(str(seen.annotations.get(places.CARD, "")).lower())
    serving = [backend for backend in rulebook.enabled if backend.serves(card)] if card else ()
    cards = {backend.name: card for backend in serving if card}
    return replace(rulebook, surroundings=Surroundings(cards=cards), sources=())


def _bare(container: Container, seen: Pod, rulebook: Rulebook) -> Asked:
    """A container whose shorthand cannot be understood, or does not fit what stands there: only the latter counts."""
    spoken = native.spoken(seen, rulebook) if rulebook.spoken else {}
    return Asked(
        container=container,
        request=None,
        native=native.read(container, rulebook, spoken.get(container.name, {})),
        stated={},
        persist={},
        marks=marks_of(seen, rulebook),
    )


def _held(asked: Asked, seen: Pod, rulebook: Rulebook) -> Iterator[Holding]:
    if not asked.native.amounts and not asked.native.violations:
        there = _claimed(asked, seen, rulebook)
        if there is not None:
            yield _holding(asked, there, rulebook)
        return
    if asked.native.violations:
        yield _unread(asked, asked.native.violations[0].message, rulebook)
        return
    try:
        yield _holding(asked, _standing(asked, rulebook), rulebook)
    except CannotExpressError as reason:
        yield _unread(asked, reason.message, rulebook)


def _claimed(asked: Asked, seen: Pod, rulebook: Rulebook) -> Standing | None:
    if "resourceClaims" not in seen.spec:
        return None
    with suppress(Refusal):
        return standing.claimed(asked, seen, rulebook)
    return None


def _standing(asked: Asked, rulebook: Rulebook) -> Standing:
    """What stands on a container, as its shorthand means it; else as the resources alone are read."""
    owners = _owners(asked, rulebook)
    written = _first([(rank, standing.written(asked, [owner], rulebook)) for rank, owner in owners])
    if written is not None:
        return written
    found: list[tuple[int, Standing | None]] = []
    failed = CannotExpressError("GPU405", "no back end owns all of it", "use two containers")
    for rank, owner in reversed(owners):
        try:
            found.append((rank, standing.read(asked, [owner], partial(_found, asked, rulebook))))
        except CannotExpressError as reason:
            failed = reason
    there = _first(found)
    if there is None:
        raise failed
    return there


def _first(found: Sequence[tuple[int, Standing | None]]) -> Standing | None:
    """What the preferred back end makes of it; of several that the cluster prefers alike, the most."""
    there = [(-rank, each.measure.devices, each) for rank, each in found if each is not None]
    return max(there, key=lambda one: one[:2])[2] if there else None


def _found(asked: Asked, rulebook: Rulebook, backend: Backend) -> Found:
    return Found(standing.card(asked, backend, rulebook))


def _owners(asked: Asked, rulebook: Rulebook) -> Sequence[tuple[int, Backend]]:
    """The back ends that own all of a container's resources, in the cluster's order; else those it lacks."""
    owners = standing.owners(asked, rulebook)
    named = asked.stated.get("gpu-backend")
    chosen = [owner for owner in owners if named is not None and owner.name == named.value]
    if not owners:
        groups = [rulebook.resources[name].known for name in asked.native.amounts]
        return [(0, owner) for owner in groups[0] if all(owner in group for group in groups)][:1]
    ranks = rulebook.ranks["whole" if asked.request is None else asked.request.devices]
    return sorted(((ranks[owner.name], owner) for owner in chosen or owners), key=lambda ranked: ranked[0])


def _holding(asked: Asked, there: Standing, rulebook: Rulebook) -> Holding:
    said = asked.stated.get("gpu-model")
    named: tuple[str, ...] = said.value if said else ()
    return Holding(
        asked=asked,
        backend=there.backend,
        card=there.card,
        models=named or ((there.card.model,) if there.card else ()),
        request=there.request,
        measure=there.measure if there.card else _of_any(there, named, rulebook),
    )


def _of_any(there: Standing, named: Sequence[str], rulebook: Rulebook) -> Measure:
    """The measure where it depends on a card that is not known: of those it may be, the largest."""
    profile = there.request.profile
    if profile is not None:
        having = [card for card in served(there.backend, rulebook) if profile in card.profiles]
        could_be = [card for card in having if not named or card.model in named] or having
        each = [measures.asked(there.request, card) for card in could_be]
        return reduce(Measure.at_least, each) if each else there.measure
    sizes = [measures.asked(there.request, rulebook.devices[model.lower()]).memory for model in named]
    return replace(there.measure, memory=max(sizes), unsized=Fraction(0)) if sizes else there.measure


def _unread(asked: Asked, why: str, rulebook: Rulebook) -> Holding:
    """What nobody can read: as many whole devices as any of it may stand for, at least one."""
    container = asked.container
    names = [*asked.native.amounts, *asked.native.texts, *container.limits, *container.requests, *rulebook.spoken]
    resource = next(rulebook.resources[name] for name in names if name in rulebook.resources)
    backend = (resource.owners or resource.known)[0]
    card = standing.card(asked, backend, rulebook)
    devices = sum(_most(group, asked, rulebook) for group in _systems(asked, rulebook)) or 1
    request = GpuRequest(count=min(devices, MAX_DEVICES))
    there = Standing(backend=backend, card=card, request=request, measure=measures.asked(request, card))
    return replace(_holding(asked, there, rulebook), unread=why)


def _systems(asked: Asked, rulebook: Rulebook) -> Iterator[set[str]]:
    """The resources on a container, by the back end that owns most of them: each system has devices of its own."""
    left = set(asked.native.amounts)
    while left:
        known = [owner for name in sorted(left) for owner in rulebook.resources[name].known]
        group = max((left & owner.owns for owner in known), key=len)
        yield group
        left -= group


def _most(names: Iterable[str], asked: Asked, rulebook: Rulebook) -> int:
    """The most whole devices that any of these resources may stand for, at least one."""
    most = 1
    for name in names:
        for owner in rulebook.resources[name].known:
            card = standing.card(asked, owner, rulebook)
            outputs = [mode.amounts[name] for mode in owner.modes if name in mode.amounts]
            most = max([most, *(_devices(output, asked.native.amounts[name], card) for output in outputs)])
    return most


def _devices(output: Output, value: int, card: Device | None) -> int:
    """How many devices a number may stand for, rounded up."""
    if not isinstance(output, Amount):
        return 1
    amount = value * output.unit
    if output.what == "count":
        return value
    if output.unit_name == PERCENT:
        return ceil(amount / 100)
    return ceil(amount / card.memory) if card is not None and output.what == "memory" else 1


def count(held: Iterable[Holding]) -> Count:
    """What the containers of a pod hold together: as Kubernetes counts, each kind of amount by itself.

    Sidecars and containers add up, and each plain init container runs before the latter, beside the sidecars that
    were started before it.
    """
    most: Tally = tally.NOTHING
    staying: Tally = tally.NOTHING
    unsized = unknown = False
    for holding in held:
        unsized = unsized or holding.measure.unsized > 0
        unknown = unknown or not holding.models
        amount = _amount(holding)
        if holding.container.kind == "init container":
            most = tally.at_least(most, tally.plus(staying, amount))
        else:
            staying = tally.plus(staying, amount)
    return Count(tally.at_least(most, staying), unsized, unknown)


def _amount(holding: Holding) -> Tally:
    """By model, too: under each that it may be, as whichever it gets has to be within its limit."""
    amounts = {tally.DEVICES: holding.measure.devices, tally.MEMORY: Fraction(holding.measure.memory)}
    by_model = {tally.of_model(what, model): amount for model in holding.models for what, amount in amounts.items()}
    return {key: amount for key, amount in (amounts | by_model).items() if amount}


def live(raw: Mapping[str, Any]) -> bool:
    """Whether a stored pod counts at all: one that is over holds nothing, one that is being deleted still does."""
    return (raw.get("status") or {}).get("phase") not in _OVER


def held(raw: Mapping[str, Any], rulebook: Rulebook) -> Count:
    """What a stored pod counts, live or not."""
    return count(holdings(pod.read(raw), rulebook))


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts stored pods by one rulebook; most are copies of a few, and each kind of them is read once."""

    rulebook: Rulebook
    _counted: dict[Hashable, Count] = field(default_factory=dict)

    def held(self, raw: Mapping[str, Any]) -> Count:
        """What a stored pod counts, live or not."""
        kind = _kind(raw, self.rulebook)
        if kind is None:
            return NOTHING
        known = self._counted.get(kind)
        if known is None:
            known = count(holdings(pod.read(raw), self.rulebook))
            if _letters(kind) <= LONGEST:
                if len(self._counted) >= REMEMBERED:
                    self._counted.clear()
                self._counted[kind] = known
        return known


def _letters(kind: Hashable) -> int:
    """How much a kind takes up, more or less."""
    if isinstance(kind, tuple):
        return 8 + sum(map(_letters, kind))
    return len(kind) if isinstance(kind, str) else 8


def _kind(raw: Mapping[str, Any], rulebook: Rulebook) -> Hashable:
    """Everything that what a pod counts is read from; None for one that has nothing to do with devices."""
    spec, metadata = raw["spec"], raw["metadata"]
    known = rulebook.resources
    asking = False
    containers: list[object] = []
    for section in ("initContainers", "containers"):
        for container in spec.get(section) or ():
            there: list[object] = []
            resources = container.get("resources")
            for part in ("limits", "requests") if resources else ():
                for name, value in (resources.get(part) or _NONE).items():
                    if name in known:
                        there += (part, name, value)
            asking = asking or bool(there)
            containers.append((section, container.get("name"), container.get("restartPolicy"), *there))
    said = tuple(_said(metadata, rulebook)) if asking or rulebook.spoken else ()
    claims = spec.get("resourceClaims")
    if not asking and not said and not claims:
        return None
    return tuple(containers), said, repr(claims) if claims else ""


def _said(metadata: Mapping[str, Any], rulebook: Rulebook) -> Iterator[object]:
    """The labels and annotations that amounts depend on."""
    for section, kind in (("labels", "label"), ("annotations", "annotation")):
        for key, value in (metadata.get(section) or _NONE).items():
            if key == places.DEFAULT_CONTAINER or standing.depends(kind, key, rulebook):
                yield key
                yield value
