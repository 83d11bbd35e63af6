"""Await a condition, with a deadline: the only place that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHORTEST, LONGEST = 0.05, 0.2
"""Seconds between two questions."""


def until(condition: Callable[[], T], what: str, *, within: float = 30.0) -> T:
    """The first truthy answer of `condition`; TimeoutError names `what` was awaited.

    It is asked again after a tenth of what it has taken so far, as most questions cost a server and this test CPU.
    """
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > within:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(min(max(SHORTEST, waited / 10), LONGEST))
    return answer
