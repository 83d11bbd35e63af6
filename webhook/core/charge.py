"""What a request costs a tenant, in devices."""

from __future__ import annotations

from fractions import Fraction

from webhook.core.device import Device
from webhook.core.quantity import show
from webhook.core.request import GpuRequest


def charge(request: GpuRequest, card: Device | None) -> Fraction:
    """Devices charged for a request: of each device the larger of its memory's and its compute's part.

    Where no memory is asked all of it is given. A size or a partition of an unknown card is charged as the whole
    card: nobody else can be promised the rest.
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
