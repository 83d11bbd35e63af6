"""GPU systems as their vendors document them, read from a pod without any rule of ours.

Each reading says what a container gets, and asserts what its system asserts: amounts it knows, combinations it takes.
"""

from collections.abc import Callable, Mapping

from tests.laws.vendors import ascend, chips, clouds, nvidia, schedulers
from tests.laws.vendors.seen import Given, Seen

READINGS: Mapping[str, Callable[[Seen], Given]] = {
    **nvidia.READINGS,
    **schedulers.READINGS,
    **clouds.READINGS,
    **chips.READINGS,
    **ascend.READINGS,
}
"""By back end; every shipped one has its reading."""
