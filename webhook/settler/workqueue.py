"""Names that are due now or later, each once: what Kubernetes controllers call a work queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from math import inf
from time import monotonic


class WorkQueue:
    """Belongs to one event loop; times are of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._later: dict[str, float] = {}
        self._stirred = asyncio.Event()

    def add(self, names: Iterable[str]) -> None:
        """Make names due."""
        self._now.update(names)
        self._stirred.set()

    def add_at(self, name: str, at: float) -> None:
        """Make a name due at a time, if it is not before."""
        if at < self._later.get(name, inf):
            self._later[name] = at
            self._stirred.set()

    def stir(self) -> None:
        """End `wait`, though no name is due."""
        self._stirred.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a name is added or due; with `seconds`, until one is added or they are over."""
        soonest = min(self._later.values(), default=None)
        if seconds is None and soonest is not None:
            seconds = max(0.0, soonest - monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), seconds)

    def due(self) -> list[str]:
        """Take out all that are due."""
        now = monotonic()
        due = self._now | {name for name, at in self._later.items() if at <= now}
        self._now = set()
        for name in due:
            self._later.pop(name, None)
        self._stirred.clear()
        return sorted(due)
