"""Card models as frozen values: what a catalogue knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from webhook.core.document import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A hardware partition of a card: usable bytes, and how many of the card's slices it takes."""

    name: str
    memory: int
    memory_slices: int
    compute_slices: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card model. `names` are the driver's product names, `memory` is usable bytes, `tflops` dense FP16.

    `profiles` are the partitions it can be cut into, the smallest first, and `slices` what they are counted in.
    """

    model: str
    vendor: str
    names: tuple[str, ...]
    memory: int
    nominal: int
    tflops: Fraction | None
    at: Location
    memory_slices: int = 0
    compute_slices: int = 0
    profiles: Mapping[str, Profile] = field(default_factory=dict)
