"""Hardware partitions (MIG slices, vNPU templates): which one has what a share asks, and what its resource is called.

A share is compared in slices, an absolute size in usable bytes: in bytes half a card would not fit half a card, as
every partition gives up a little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from math import ceil
from typing import Final

from webhook.core import amounts
from webhook.core.amounts import CannotExpressError
from webhook.core.backend import Amount, Backend, Mode, Output, Partitions
from webhook.core.device import Device, Profile
from webhook.core.quantity import show_size
from webhook.core.request import GpuRequest

HOLE: Final = "{profile}"


def cut(request: GpuRequest, card: Device | None, backend: Backend) -> GpuRequest:
    """The request for the smallest partition of the card that has the memory and the compute asked for."""
    if card is None:
        message = f"which partition has {request} depends on the card, and nothing says which card it is"
        raise CannotExpressError("GPU304", message, "add gpu-model, or name the partition (gpu-profile)", "gpu-model")
    known = [profile for name, profile in card.profiles.items() if name in backend.profiles]
    enough = [profile for profile in known if has(profile, request, card)]
    if not enough:
        raise _too_much(request, card, known, backend)
    best = min(enough, key=lambda profile: (profile.memory_slices, profile.compute_slices, "+" in profile.name))
    return replace(request, profile=best.name, share=None, memory=None, memory_share=None, cores=None)


def _too_much(request: GpuRequest, card: Device, known: Sequence[Profile], backend: Backend) -> CannotExpressError:
    if not known:
        return CannotExpressError("GPU305", f"{card.model} cannot be partitioned", "ask for another model")
    fix = f"ask for less, or for the largest (gpu-profile: {known[-1].name})"
    if any(mode.when.devices == "whole" for mode in backend.modes):
        fix = f"{fix}, or for a whole card (gpu: 1)"
    return CannotExpressError("GPU305", f"no partition of {card.model} has {request}", fix)


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


def check(name: str, card: Device | None, backend: Backend) -> None:
    """Raise CannotExpressError if the card, or where it is unknown no card of the back end, has such a partition."""
    if name not in backend.profiles:
        has = ", ".join(sorted(backend.profiles)) or "none"
        message = f"none of its cards has a partition {name}"
        raise CannotExpressError("GPU305", message, f"ask for one it has: {has}", "gpu-profile")
    if card is not None:
        amounts.partition(name, card)


def among(partitions: Partitions, name: str) -> bool:
    """Whether a back end has the partitions of this name, if a card does."""
    return any(fnmatchcase(name, pattern) for pattern in partitions.only)


def expanded(modes: Iterable[Mode], devices: Sequence[Device], partitions: Partitions) -> Iterator[Mode]:
    """The modes, each that differs from profile to profile once for every profile of the devices.

    That is one whose resources or claims are named after it, or, where the back end has only one kind of card,
    whose amounts are the profile's.
    """
    profiles = {name: profile for device in devices for name, profile in device.profiles.items()}
    known = [profile for name, profile in profiles.items() if among(partitions, name)]
    for mode in modes:
        if any(HOLE in name for name in (*mode.limits, *(str(claim.value) for claim in mode.claims))):
            yield from (_named(mode, profile.name, partitions.spelling) for profile in known)
        elif mode.when.devices == "profile" and len(devices) == 1 and "memory" in _whats(mode):
            yield from (_sized(mode, profile) for profile in known)
        else:
            yield mode


def _whats(mode: Mode) -> set[str]:
    return {output.what for output in mode.amounts.values() if isinstance(output, Amount)}


def _named(mode: Mode, name: str, spelling: Mapping[str, str]) -> Mode:
    # A resource name holds no plus sign: 1g.10gb+me is 1g.10gb.me there [NVIDIA/k8s-device-plugin internal/rm/rm.go].
    written = spelling.get(name, name).replace("+", ".")
    limits = {resource.replace(HOLE, written): output for resource, output in mode.limits.items()}
    amounts = {resource.replace(HOLE, written): output for resource, output in mode.amounts.items()}
    claims = [replace(claim, value=str(claim.value).replace(HOLE, written)) for claim in mode.claims]
    return replace(mode, profile=name, limits=limits, amounts=amounts, claims=claims)


def _sized(mode: Mode, profile: Profile) -> Mode:
    """The mode with the amount of memory that a profile's template has."""

    def fixed(output: Output) -> Output:
        if not isinstance(output, Amount) or output.what != "memory":
            return output
        return replace(output, fit=(ceil(profile.memory / output.unit),), step=1, minimum=None, maximum=None)

    limits = {name: fixed(output) for name, output in mode.limits.items()}
    amounts = {name: fixed(output) for name, output in mode.amounts.items()}
    return replace(mode, profile=profile.name, limits=limits, amounts=amounts)
