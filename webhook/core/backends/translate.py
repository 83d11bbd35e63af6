"""Translation: one request in the resources of one back end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import Any, Final

from webhook.core.backends import amounts, cards
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.kube.quantity import GIB, Fraction, show, show_size
from webhook.core.request import WHOLE, GpuRequest, ask_for, pasteable
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Constant, Mode, When
from webhook.core.rules.rulebook import Rulebook

# Hardware partitions (MIG slices, vNPU templates): the smallest one that has what a request asks for.


def cut_partition(request: GpuRequest, card: Card | None, backend: Backend) -> GpuRequest:
    """The request for the smallest partition of the card that has the memory and the compute asked for."""
    if card is None:
        message = f"which partition has {request} depends on the card, and nothing says which card it is"
        example = {"gpu-profile": min(backend.profiles, default="NAME").replace("+", ".")}
        raise CannotExpressError("GPU304", message, f"add gpu-model, or {ask_for(example, request)}", "gpu-model")
    known = [profile for name, profile in card.profiles.items() if name in backend.profiles]
    enough = [profile for profile in known if has_partition(profile, request, card)]
    if not enough:
        raise _too_much(request, card, known, backend)
    best = min(enough, key=lambda profile: (profile.memory_slices, profile.compute_slices, "+" in profile.name))
    return replace(request, profile=best.name, share=None, memory=None, memory_share=None, cores=None)


def _too_much(request: GpuRequest, card: Card, known: Sequence[Profile], backend: Backend) -> CannotExpressError:
    if not known:
        return CannotExpressError(
            "GPU305", f"{card.model} cannot be partitioned", "ask for another model", "gpu-model"
        )
    message = f"no partition of {card.model} has {request}"
    most = max(profile.memory for profile in known)
    if request.memory is not None and request.memory > most:
        message = f"{message}: the largest has {show_size(most)}, less than {show_size(request.memory)}"
        return CannotExpressError("GPU305", message, f"ask for {show_size(most)} or less", "gpu-memory")
    largest = {"gpu-profile": known[-1].name.replace("+", ".")}
    fix = f"ask for less, or {ask_for(largest, request)}"
    if any(mode.when.devices == "whole" for mode in backend.modes):
        fix = f"{fix}, or {ask_for(WHOLE, request)}"
    return CannotExpressError("GPU305", message, fix)


def has_partition(profile: Profile, request: GpuRequest, card: Card) -> bool:
    """Whether a partition of the card has the memory and the compute of a request."""
    memory = ceil((request.memory_share or Fraction(0)) * card.memory_slices)
    compute = ceil((request.cores or Fraction(0)) / 100 * card.compute_slices)
    return (
        profile.memory_slices >= memory
        and profile.compute_slices >= compute
        and profile.memory >= (request.memory or 0)
    )


def partition_warning(request: GpuRequest, cut_to: GpuRequest, card: Card) -> str | None:
    """A warning with both amounts, if the partition gives more than the share; None if it gives exactly that."""
    profile = card.profiles[cut_to.profile or ""]
    exact = request.memory_share == Fraction(profile.memory_slices, card.memory_slices)
    if exact and request.cores == Fraction(100 * profile.compute_slices, card.compute_slices):
        return None
    slices = f"{profile.memory_slices}/{card.memory_slices} of the memory"
    compute = f"{profile.compute_slices}/{card.compute_slices} of the compute"
    return f"{request} becomes {profile.name}: {show_size(profile.memory)}, {slices}, {compute} of {card.model}"


def check_partition(name: str, card: Card | None, backend: Backend) -> None:
    """Raise CannotExpressError if the card (if it is unknown: each card of the back end) lacks the partition."""
    if name not in backend.profiles:
        there = sorted(backend.profiles if card is None else backend.profiles & card.profiles.keys())
        has = f"one of: {', '.join(there)}".replace("+", ".") if there else "another model"
        message = f"none of its cards has a partition {name}"
        raise CannotExpressError("GPU305", message, f"ask for {has}", "gpu-profile")
    if card is not None:
        amounts.partition(name, card)


# Translation: one request in the resources of one back end.

LEAVE_OUT: Final = (
    "leave gpu-model out; where the size of the card counts, the Cluster document can name it (device:)"
)

MENTIONED: Final = 12
"""How many models a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A request as one back end gives it: the mode, and its `amounts`, in bytes if the rule writes quantities.

    Amounts are by the names of resources, and by the slots of numbers in annotations and labels. `card` is the one
    whose size counts, None if it is unknown. `request` is what is given, after rounding, with compute in percent.
    """

    request: GpuRequest
    mode: Mode
    card: Card | None
    amounts: Mapping[str, int]
    warnings: Sequence[str] = ()


def translate(request: GpuRequest, backend: Backend, rulebook: Rulebook) -> Translation:
    """Translate a request for a back end; raises CannotExpressError with a fix."""
    check_cards(request, backend, rulebook)
    card = find_card(request, rulebook, backend)
    warnings: list[str] = []
    if card is None and request.tflops is not None and backend.partitions is not None:
        _partition(request, card, backend, warnings)  # which says that it has to know the card
    request = with_cores(request, card)
    if backend.partitions is not None:
        request = _partition(request, card, backend, warnings)
    mode = _mode_for(request, backend, card, rulebook)
    check_size(request, card, rulebook)
    check_selects(request, mode, backend, rulebook)
    warnings += _unsaid(request, mode, backend)
    request = _with_all_cores(request, mode, backend, warnings)
    size = card.memory if card is not None and request.models and mode.node_numbers else mode.size
    if size is not None:  # that of its resource's name, or of every node with the card
        request = _sized(request, size, backend, card, warnings)
    written: dict[str, int] = {}
    given: dict[str, Any] = {}
    for name, output in chain(mode.amounts.items(), mode.node_numbers.items()):
        if isinstance(output, Constant):
            written[name] = output.number
            continue
        value, warning = amounts.express(output, request, card)
        if value is None:
            continue
        if name in mode.amounts:
            written[name] = value
        if warning:
            warnings.append(f"{name}: {warning}, rounded up by {backend.name}")
            given |= {"count": value} if output.what == "count" else amounts.given(output, value, request.count)
    request = replace(request, **given) if given else request
    return Translation(request=request, mode=mode, card=card, amounts=written, warnings=warnings)


def _unsaid(request: GpuRequest, mode: Mode, backend: Backend) -> Iterator[str]:
    """A warning for compute that a back end does not limit; raises CannotExpressError for memory it cannot give."""
    if request.devices != "part":
        return
    if backend.unenforced:
        counted = " and ".join(backend.unenforced)
        yield f"{backend.name} only counts {counted}: nothing stops a container that takes more than it asked for"
    said = mode.verbs
    if "share" in said:
        return
    sized = request.memory is not None or request.memory_share not in {None, 1}
    if sized and "memory" not in said and mode.size is None:
        message = "it has no way to give a part of a device's memory"
        raise CannotExpressError("GPU301", message, ask_for(WHOLE, request))
    if request.cores is not None and "cores" not in said:
        yield f"{backend.name} shares memory only: it does not limit compute to {show(request.cores)}%"


def _with_all_cores(request: GpuRequest, mode: Mode, backend: Backend, warnings: list[str]) -> GpuRequest:
    """A part without an amount of compute, with all of it if the back end gives that."""
    if request.devices != "part" or request.cores is not None or not mode.all_cores:
        return request
    warnings.append(f"{backend.name} gives all of a device's compute where none is asked; add gpu-cores to share it")
    return replace(request, cores=Fraction(100))


def _sized(request: GpuRequest, size: int, backend: Backend, card: Card | None, warnings: list[str]) -> GpuRequest:
    """The request with the size that all devices have which it may get."""
    asked = amounts.in_bytes(request, card)
    if asked is not None and asked != size:
        warnings.append(f"{show_size(ceil(asked))} becomes {show_size(size)}, rounded up by {backend.name}")
    return replace(request, memory=size, memory_share=None)


def _partition(request: GpuRequest, card: Card | None, backend: Backend, warnings: list[str]) -> GpuRequest:
    """A share as the partition that has it, unless a mode serves it as a share."""
    if request.profile is not None:
        check_partition(request.profile, card, backend)
    served = any(mode.when.devices != "profile" and matches(mode.when, request) for mode in backend.modes)
    if request.devices != "part" or served:
        return request
    cut = cut_partition(request, card, backend)
    said = partition_warning(request, cut, card) if card else None
    warnings += [said] if said else []
    return cut


def find_card(request: GpuRequest, rulebook: Rulebook, backend: Backend) -> Card | None:
    """The card whose size counts: the requested model, else the cluster's, else the one that all its nodes have.

    The cluster's card counts if the back end serves cards of its vendor. None if the card is unknown, or several
    sizes are possible.
    """
    if not request.models:
        if backend.card is not None:
            return backend.card
        named = rulebook.cluster.device
        card = None if named is None else rulebook.devices[named.lower()]
        # A vGPU of the cluster's card is a model of its own, so only the vendor has to be the same.
        foreign = card is not None and backend.vendors and card.vendor not in backend.vendors
        return rulebook.surroundings.cards.get(backend.name) if foreign or card is None else card
    asked = [rulebook.devices[model.lower()] for model in request.models]
    first = asked[0]
    alike = (first.memory, first.tflops, first.profiles)
    return first if all((card.memory, card.tflops, card.profiles) == alike for card in asked) else None


def check_cards(request: GpuRequest, backend: Backend, rulebook: Rulebook) -> None:
    """Raise CannotExpressError if the back end does not serve a requested model."""
    for card in (rulebook.devices[model.lower()] for model in request.models):
        if backend.vendors and card.vendor not in backend.vendors:
            message = f"{card.model} is made by {card.vendor}; it serves {', '.join(sorted(backend.vendors))}"
            raise CannotExpressError("GPU303", message, _others(request, backend, rulebook), "gpu-model")
        if backend.models and card.model.lower() not in backend.models:
            served = sorted(rulebook.devices[model].model for model in backend.models)
            message = f"{card.model} is not one of its cards; it serves {_some(card.model, served)}"
            raise CannotExpressError("GPU303", message, _others(request, backend, rulebook), "gpu-model")


def _others(request: GpuRequest, backend: Backend, rulebook: Rulebook) -> str:
    """The fix for a model that the back end does not serve: the requested ones that it does, or others of its own."""
    served = cards.models_here(rulebook, backend)
    asked = [model for model in request.models if model in served]
    return f"ask for gpu-model: {cards.suggested_models(asked or served)}"


def _some(name: str, models: Sequence[str]) -> str:
    """A few of many models, those with a similar name first."""
    ranked = sorted(models, key=lambda model: name.lower() not in model.lower())
    return ", ".join(ranked[:MENTIONED]) + (", ..." if len(ranked) > MENTIONED else "")


def check_size(request: GpuRequest, card: Card | None, rulebook: Rulebook) -> None:
    """Raise CannotExpressError if no requested model is large enough, or else the card that `find_card` finds."""
    if request.memory is None:
        return
    named = [rulebook.devices[model.lower()] for model in request.models]
    asked = named or ([card] if card else [])
    largest = max(asked, key=lambda card: card.memory, default=None)
    if largest is not None and request.memory > largest.memory:
        usable = show_size(largest.memory)
        message = f"{largest.model} has {usable} of usable memory, less than {show_size(request.memory)}"
        raise CannotExpressError("GPU305", message, f"ask for {usable} or less", "gpu-memory")


def check_selects(request: GpuRequest, mode: Mode, backend: Backend, rulebook: Rulebook) -> None:
    """Raise CannotExpressError if the mode cannot select nodes by the requested models."""
    if not request.models:
        return
    if mode.selects is None and backend.models and backend.models.issubset(map(str.lower, request.models)):
        return
    if mode.selects is None:
        raise CannotExpressError("GPU303", "it has no way to select a model", LEAVE_OUT, "gpu-model")
    if mode.claims and len(request.models) > 1:
        raise CannotExpressError(
            "GPU303", "a template is for one model", f"ask for gpu-model: {', '.join(request.models)}", "gpu-model"
        )
    for model in request.models:
        if mode.selects == "product" and not rulebook.devices[model.lower()].names:
            message = f"the catalogue has no product name for {model}, by which it selects cards"
            raise CannotExpressError("GPU303", message, "add names: to the catalogue", "gpu-model")


def with_cores(request: GpuRequest, card: Card | None) -> GpuRequest:
    """The request with its TFLOPS as percent of the card's compute."""
    if request.tflops is None:
        return request
    asked = show(request.tflops)
    if card is None or card.tflops is None:
        raise CannotExpressError(
            "GPU304",
            f"how much of a card {asked} TFLOPS are depends on the card, and "
            + ("nothing says which card it is" if card is None else f"the catalogue has no figure for {card.model}"),
            f"add gpu-model, or {ask_for({'gpu-cores': '30'}, request)}",
            "gpu-tflops",
        )
    if request.tflops > card.tflops:
        message = f"{card.model} has {show(card.tflops)} TFLOPS, and gpu-tflops asks for {asked}"
        raise CannotExpressError("GPU305", message, f"ask for {show(card.tflops)} or less", "gpu-tflops")
    return replace(request, cores=100 * request.tflops / card.tflops, tflops=None)


def _mode_for(request: GpuRequest, backend: Backend, card: Card | None, rulebook: Rulebook) -> Mode:
    """The first mode for the request. A known card counts as a requested model."""
    meant = request if request.models or card is None else replace(request, models=(card.model,))
    for mode in backend.modes:
        if _suits(mode, request) and matches(mode.when, meant) and _fits(mode, request, card):
            return mode
    for mode in backend.modes:
        bare = replace(mode.when, unannotated=frozenset())
        if (reason := excluded(mode, request)) and _suits(mode, request) and matches(bare, meant):
            raise CannotExpressError("GPU301", *reason)
    serves = "; ".join(dict.fromkeys(mode.name for mode in backend.modes))
    raise CannotExpressError("GPU301", f"it serves only: {serves}", _nearest(request, backend, card, rulebook))


def _suits(mode: Mode, request: GpuRequest) -> bool:
    """Whether a mode is of the requested partition, and has a model to write if it writes one."""
    return mode.profile in {None, request.profile} and ("model" not in mode.when.has or bool(request.models))


def excluded(mode: Mode, request: GpuRequest) -> tuple[str, str] | None:
    """Why an annotation of the pod keeps the mode from it, and the fix; None if none does."""
    unwanted = sorted(mode.when.unannotated & request.annotations)
    if not unwanted:
        return None
    key, _, value = unwanted[0].partition("=")
    said = pasteable(key, value) if value else key
    return f"the annotation {said} excludes {mode.name}", f"remove the annotation {key}"


def _fits(mode: Mode, request: GpuRequest, card: Card | None) -> bool:
    if mode.size is None:
        return True
    asked = amounts.in_bytes(request, card)
    return asked is not None and asked <= mode.size


def _has(mode: Mode, request: GpuRequest) -> bool:
    """Whether a mode whose devices have one size has the memory, if the request says it in bytes."""
    return mode.size is None or (request.memory is not None and request.memory <= mode.size)


def _nearest(request: GpuRequest, backend: Backend, card: Card | None, rulebook: Rulebook) -> str:
    """The fix: a request close to this one that the back end has a mode for."""
    most = [high for mode in backend.modes if (high := mode.when.count[1]) is not None and high < request.count]
    fewer = [replace(request, count=high) for high in most]
    one = GpuRequest(annotations=request.annotations)
    tenth = replace(one, share=Fraction(1, 10), memory_share=Fraction(1, 10), cores=Fraction(10))
    sized = replace(one, memory=8 * GIB, cores=Fraction(10))
    same = (replace(one, memory=size) for size in _sizes(request, backend, card, rulebook))
    for other in (*same, replace(one, count=request.count), *fewer, replace(request, count=1), one, sized, tenth):
        known = card is not None or other.memory is None
        modes = (mode for mode in backend.modes if known or "memory" in mode.verbs)
        if any(_suits(mode, other) and matches(mode.when, other) and _has(mode, other) for mode in modes):
            words = dict(word.split("=", 1) for word in str(other).split(" "))
            return ask_for(words, request)
    return "ask for what it serves"


def _sizes(request: GpuRequest, backend: Backend, card: Card | None, rulebook: Rulebook) -> Iterator[int]:
    """The memory of the partition asked for; if the card is unknown, on the one of the back end where it has most."""
    able = [card] if card else cards.card_served(backend, rulebook)
    found = [one.profiles[name].memory for one in able for name in one.profiles if name == request.profile]
    yield from [max(found)] if found else ()


def matches(when: When, request: GpuRequest) -> bool:
    """Whether a mode's condition matches a request."""
    low, high = when.count
    if request.count < low or (high is not None and request.count > high):
        return False
    if when.devices is not None and when.devices != request.devices:
        return False
    if (when.has or when.lacks) and not (when.has <= request.has() and when.lacks.isdisjoint(request.has())):
        return False
    if (when.annotated or when.unannotated) and not (
        when.annotated <= request.annotations and when.unannotated.isdisjoint(request.annotations)
    ):
        return False
    if when.sharing is not None and when.sharing != request.sharing:
        return False
    return not when.models or (bool(request.models) and when.models.issuperset(map(str.lower, request.models)))
