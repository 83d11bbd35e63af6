"""A world of ledgers: an API server, replicas that reserve, settlers that count, and all that can go wrong.

Time is whole ticks. Whatever is sent can be lost, be done and its answer lost, be done twice, or be done much later.
"""

from fractions import Fraction
from typing import Final

from webhook.core.quota.tally import Tally

GRACE: Final = 12
"""Ticks: a create is written so long after its reservation at most, or never, or after the advance it is part of."""

USE: Final = 4
"""Ticks: for how long an advance is drawn from, after the write was sent that sets it aside."""

TENANTS: Final = ("red", "blue")
NAMESPACES: Final = ("a", "b", "c")
NAMES: Final = ("one", "two", "three", "four")

AMOUNTS: Final[tuple[Tally, ...]] = (
    {"devices": Fraction(1)},
    {"devices": Fraction(1, 3), "memory": Fraction(2)},
    {"devices": Fraction(2), "memory": Fraction(5)},
    {"memory": Fraction(1)},
)
LIMITS: Final[tuple[Tally, ...]] = (
    {"devices": Fraction(7), "memory": Fraction(20)},
    {"devices": Fraction(2)},
    {"devices": Fraction(5), "memory": Fraction(6)},
    {"devices": Fraction(1), "memory": Fraction(3)},
)


class OvershootError(AssertionError):
    """More is used than the ledger knows of, or than the limit was."""


class LeakError(AssertionError):
    """When all is quiet, the ledger says something else than what is there."""
