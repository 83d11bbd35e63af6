"""Laws that hold for every pod, tried on generated ones.

`SOAK=1` multiplies the number of pods, and draws others every time; the laws say how many they try without it, and
these are the same for everybody.
"""

import os

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("SOAK") or 0)


def tried(pods: int, soak: int = 20) -> settings:
    """So many examples, and `soak` times as many in a soak; no deadline, as machines differ."""
    return settings(
        max_examples=pods * (soak if SOAK else 1),
        deadline=None,
        database=None,
        derandomize=not SOAK,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
