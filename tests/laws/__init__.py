"""Laws that hold for every pod, tried on generated ones.

`SOAK=1` multiplies the number of pods, and draws others every time; the laws say how many they try without it, and
these are the same for everybody.
"""

import os
import subprocess
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("SOAK") or 0)


def dated(head: str) -> str:
    """The head of a page of results, with `{when}` and `{commit}` filled in."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return head.format(when=datetime.now(UTC), commit=commit.stdout.strip() or "unknown")


def tried(pods: int) -> settings:
    """So many examples, twenty times as many in a soak; no deadline, as machines differ."""
    return settings(
        max_examples=pods * (20 if SOAK else 1),
        deadline=None,
        database=None,
        derandomize=not SOAK,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
