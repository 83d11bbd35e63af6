"""Hardware partitions (MIG slices, vNPU templates): which one has what a share asks, and what its resource is called.

A share is compared in slices, an absolute size in usable bytes: in bytes half a card would not fit half a card, as
every partition gives up a little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Final

from webhook.core.amounts import CannotExpressError
from webhook.core.quantity import show_size
from webhook.core.request import GpuRequest
from webhook.core.rulebook import Device, Mode, Profile

HOLE: Final = "{profile}"


def cut(request: GpuRequest, card: Device | None) -> GpuRequest:
    """The request for the smallest partition of the card that has the memory and the compute asked for."""
    if card is None:
        message = f"which partition has {request} depends on the card, and nothing says which card it is"
        raise CannotExpressError("GPU304", message, "add gpu-model, or name the partition (gpu-profile)", "gpu-model")
    enough = [profile for profile in card.profiles.values() if has(profile, request, card)]
    if not enough:
        largest = next(reversed(list(card.profiles)), None)
        message = f"no partition of {card.model} has {request}" if largest else f"{card.model} cannot be partitioned"
        fix = f"ask for less, or for the largest (gpu-profile: {largest})" if largest else "ask for another model"
        raise CannotExpressError("GPU305", message, fix)
    best = min(enough, key=lambda profile: (profile.memory_slices, profile.compute_slices, "+" in profile.name))
    return replace(request, profile=best.name, share=None, memory=None, memory_share=None, cores=None)


def has(profile: Profile, request: GpuRequest, card: Device) -> bool:
    """Whether a partition of the card has the memory and the compute that a share or size asks for."""
    memory = ceil((request.memory_share or Fraction(0)) * card.memory_slices)
    compute = ceil((request.cores or Fraction(0)) / 100 * card.compute_slices)
    return (
        profile.memory_slices >= memory
        and profile.compute_slices >= compute
        and profile.memory >= (request.memory or 0)
    )


def warning(request: GpuRequest, cut_to: GpuRequest, card: Device) -> str | None:
    """What a share becomes, both amounts named; None for one that a partition gives exactly."""
    profile = card.profiles[cut_to.profile or ""]
    exact = request.memory_share == Fraction(profile.memory_slices, card.memory_slices)
    if exact and request.cores == Fraction(100 * profile.compute_slices, card.compute_slices):
        return None
    slices = f"{profile.memory_slices}/{card.memory_slices} of the memory"
    compute = f"{profile.compute_slices}/{card.compute_slices} of the compute"
    return f"{request} becomes {profile.name}: {show_size(profile.memory)}, {slices}, {compute} of {card.model}"


def check(request: GpuRequest, card: Device | None) -> None:
    """Raise CannotExpressError if the card is known and has no such partition."""
    if card is None or request.profile in card.profiles:
        return
    has = ", ".join(card.profiles)
    message = f"{card.model} has no partition {request.profile}"
    fix = f"ask for one of {has}" if has else "ask for another model: this one cannot be partitioned"
    raise CannotExpressError("GPU305", message, fix, "gpu-profile")


def expanded(modes: Iterable[Mode], devices: Iterable[Device], spelling: Mapping[str, str]) -> Iterator[Mode]:
    """The modes, each whose resources are named after a profile once for every profile of the devices."""
    names = list(dict.fromkeys(name for device in devices for name in device.profiles))
    for mode in modes:
        if any(HOLE in resource for resource in mode.limits):
            yield from (_of(mode, name, spelling) for name in names)
        else:
            yield mode


def _of(mode: Mode, name: str, spelling: Mapping[str, str]) -> Mode:
    # A resource name holds no plus sign: 1g.10gb+me is 1g.10gb.me there [NVIDIA/k8s-device-plugin internal/rm/rm.go].
    written = spelling.get(name, name).replace("+", ".")
    limits = {resource.replace(HOLE, written): output for resource, output in mode.limits.items()}
    return replace(mode, profile=name, limits=limits)
