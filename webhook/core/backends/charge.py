"""The charge of a request: what it counts as in devices, memory and compute, whatever its back end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import add, sub
from typing import Any

from webhook.core.kube.quantity import Fraction, show
from webhook.core.request import GpuRequest
from webhook.core.rules.catalog import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """An amount of devices, of their memory in bytes, and of their compute in percent (100 is one device's).

    `unsized` are those of the devices whose memory is unknown and not in `memory`; `presumed` are counted whole, as a
    part of an unknown card may be all of it.
    """

    devices: Fraction = Fraction(0)
    memory: int = 0
    compute: Fraction = Fraction(0)
    unsized: Fraction = Fraction(0)
    presumed: Fraction = Fraction(0)

    def __add__(self, other: Measure) -> Measure:
        return self._with(other, add)

    def less(self, other: Measure) -> Measure:
        """What is left of it, of each at least nothing."""
        return self._with(other, sub).at_least(Measure())

    def at_least(self, other: Measure) -> Measure:
        """Of each the larger."""
        return self._with(other, max)

    def times(self, number: int) -> Measure:
        """So many times as much."""
        return self._with(self, lambda amount, _: amount * number)

    def _with(self, other: Measure, join: Callable[[Any, Any], Any]) -> Measure:
        """The measure whose amounts are those of both, joined."""
        return Measure(
            devices=join(self.devices, other.devices),
            memory=join(self.memory, other.memory),
            compute=join(self.compute, other.compute),
            unsized=join(self.unsized, other.unsized),
            presumed=join(self.presumed, other.presumed),
        )


def total(measures: Iterable[Measure]) -> Measure:
    """The sum of many measures."""
    return sum(measures, start=Measure())


def asked(request: GpuRequest, card: Card | None) -> Measure:
    """What a request counts as: the devices it is charged, and the memory and compute that it gets.

    Without an amount of memory it gets all of it; a part without an amount of compute is granted none.
    """
    devices, part = charge(request, card), request.devices == "part"
    profile = card.profiles.get(request.profile or "") if card else None
    memory: Fraction | int | None = request.memory
    if card is not None and (memory is None or request.memory_share is not None):
        # Of a size and the share that a rule makes of it, which may be rounded up, the larger.
        share = 1 if request.memory_share is None else request.memory_share
        memory = max(memory or 0, profile.memory if profile else card.memory * share)
    compute = (request.cores or Fraction(0)) if part else Fraction(100)
    if not part and card and profile and card.compute_slices:
        compute = Fraction(100 * profile.compute_slices, card.compute_slices)
    return Measure(
        devices=devices,
        memory=0 if memory is None else int(request.count * memory),
        compute=request.count * compute,
        unsized=devices if memory is None else Fraction(0),
        presumed=devices if card is None and request.memory is not None else Fraction(0),
    )


def charge(request: GpuRequest, card: Card | None) -> Fraction:
    """Devices charged for a request: for each device the larger part, of its memory or of its compute.

    Without an amount of memory all of it counts. A size or a partition of an unknown card is charged as a whole card,
    as the rest of it cannot be promised to others.
    """
    if request.profile is not None and card is not None and request.profile in card.profiles:
        profile = card.profiles[request.profile]
        memory = Fraction(profile.memory_slices, card.memory_slices)
        return request.count * max(memory, Fraction(profile.compute_slices, card.compute_slices))
    if request.devices != "part":
        return Fraction(request.count)
    memory = Fraction(1) if request.memory_share is None else request.memory_share
    if request.memory is not None:
        memory = min(Fraction(1), Fraction(request.memory, card.memory)) if card else Fraction(1)
    compute = (request.cores or Fraction(0)) / 100
    if request.tflops is not None:
        compute = min(Fraction(1), request.tflops / card.tflops) if card and card.tflops else Fraction(1)
    return request.count * max(memory, compute)


def counted(charged: Fraction) -> str:
    """A charge for people: `1 device`, `0.3 devices`, `about 0.53 devices`."""
    exact = show(charged)
    if "/" in exact or len(exact) > len("0.125"):
        return f"about {float(charged):.2f} devices"
    return f"{exact} device{'' if charged == 1 else 's'}"
