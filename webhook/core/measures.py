"""The neutral unit of the global view: devices, their memory and their compute, whatever the system."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from webhook.core.charge import charge
from webhook.core.device import Device
from webhook.core.request import GpuRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """So many devices, bytes of their memory, percent of their compute (100 is one device's).

    `unsized` are those of the devices whose memory nobody knows, and which is not counted.
    """

    devices: Fraction = Fraction(0)
    memory: int = 0
    compute: Fraction = Fraction(0)
    unsized: Fraction = Fraction(0)

    def __add__(self, other: Measure) -> Measure:
        return Measure(
            devices=self.devices + other.devices,
            memory=self.memory + other.memory,
            compute=self.compute + other.compute,
            unsized=self.unsized + other.unsized,
        )

    def less(self, other: Measure) -> Measure:
        """What is left of it, of each at least nothing."""
        return Measure(
            devices=max(Fraction(0), self.devices - other.devices),
            memory=max(0, self.memory - other.memory),
            compute=max(Fraction(0), self.compute - other.compute),
            unsized=max(Fraction(0), self.unsized - other.unsized),
        )

    def at_least(self, other: Measure) -> Measure:
        """Of each the larger."""
        return Measure(
            devices=max(self.devices, other.devices),
            memory=max(self.memory, other.memory),
            compute=max(self.compute, other.compute),
            unsized=max(self.unsized, other.unsized),
        )


def total(measures: Iterable[Measure]) -> Measure:
    """All of them together."""
    return sum(measures, start=Measure())


def asked(request: GpuRequest, card: Device | None) -> Measure:
    """What a request comes to: devices as they are charged, and the memory and compute that it gets."""
    devices = charge(request, card)
    memory = _memory_of(request, card)
    return Measure(
        devices=devices,
        memory=0 if memory is None else int(request.count * memory),
        compute=request.count * _compute_of(request, card),
        unsized=devices if memory is None else Fraction(0),
    )


def _memory_of(request: GpuRequest, card: Device | None) -> Fraction | None:
    """Of each device; where none is asked all of it is given."""
    if request.memory is not None:
        return Fraction(request.memory)
    if card is None:
        return None
    if profile := card.profiles.get(request.profile or ""):
        return Fraction(profile.memory)
    return card.memory * (Fraction(1) if request.memory_share is None else request.memory_share)


def _compute_of(request: GpuRequest, card: Device | None) -> Fraction:
    """Percent of each device; a part that says nothing of it has no claim to any."""
    if request.devices == "part":
        return request.cores or Fraction(0)
    profile = card.profiles.get(request.profile or "") if card else None
    if card and profile and card.compute_slices:
        return Fraction(100 * profile.compute_slices, card.compute_slices)
    return Fraction(100)
