"""Await a condition, with a deadline: the only place that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.05


def until(condition: Callable[[], T], what: str, *, within: float = 30.0) -> T:
    """The first truthy answer of `condition`, asked again and again; TimeoutError names `what` was awaited."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(PAUSE)
    return answer
