"""Hardware partitions (MIG slices, vNPU templates): the smallest one that has what a request asks for.

A share is compared in slices, an absolute size in usable bytes. In bytes half a card would not fit half a card, as
each partition loses some memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from webhook.core.backends import amounts
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.kube.quantity import show_size
from webhook.core.request.advice import WHOLE, ask_for
from webhook.core.request.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Profile


def cut(request: GpuRequest, card: Card | None, backend: Backend) -> GpuRequest:
    """The request for the smallest partition of the card that has the memory and the compute asked for."""
    if card is None:
        message = f"which partition has {request} depends on the card, and nothing says which card it is"
        example = {"gpu-profile": min(backend.profiles, default="NAME").replace("+", ".")}
        raise CannotExpressError("GPU304", message, f"add gpu-model, or {ask_for(example, request)}", "gpu-model")
    known = [profile for name, profile in card.profiles.items() if name in backend.profiles]
    enough = [profile for profile in known if has(profile, request, card)]
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


def has(profile: Profile, request: GpuRequest, card: Card) -> bool:
    """Whether a partition of the card has the memory and the compute of a request."""
    memory = ceil((request.memory_share or Fraction(0)) * card.memory_slices)
    compute = ceil((request.cores or Fraction(0)) / 100 * card.compute_slices)
    return (
        profile.memory_slices >= memory
        and profile.compute_slices >= compute
        and profile.memory >= (request.memory or 0)
    )


def warning(request: GpuRequest, cut_to: GpuRequest, card: Card) -> str | None:
    """A warning with both amounts, if the partition gives more than the share; None if it gives exactly that."""
    profile = card.profiles[cut_to.profile or ""]
    exact = request.memory_share == Fraction(profile.memory_slices, card.memory_slices)
    if exact and request.cores == Fraction(100 * profile.compute_slices, card.compute_slices):
        return None
    slices = f"{profile.memory_slices}/{card.memory_slices} of the memory"
    compute = f"{profile.compute_slices}/{card.compute_slices} of the compute"
    return f"{request} becomes {profile.name}: {show_size(profile.memory)}, {slices}, {compute} of {card.model}"


def check(name: str, card: Card | None, backend: Backend) -> None:
    """Raise CannotExpressError if the card (if it is unknown: each card of the back end) lacks the partition."""
    if name not in backend.profiles:
        there = sorted(backend.profiles if card is None else backend.profiles & card.profiles.keys())
        has = f"one of: {', '.join(there)}".replace("+", ".") if there else "another model"
        message = f"none of its cards has a partition {name}"
        raise CannotExpressError("GPU305", message, f"ask for {has}", "gpu-profile")
    if card is not None:
        amounts.partition(name, card)
