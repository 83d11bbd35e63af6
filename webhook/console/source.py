"""Where the global view comes from: a file of nodes and pods, the cluster itself, or the watcher's file."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from webhook import stamps, surroundings
from webhook.core.overview import Overview
from webhook.core.rulebook import Rulebook
from webhook.inventory import Objects, UnreadableError, live, parse
from webhook.surroundings import SurroundingsError

FRESH_SECONDS: Final = 10.0
"""How long what the cluster said is shown again: a page that is reloaded must not be a load on the API server."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The global view and where it is from, or why there is none.

    `pods`: what they ask is known; else only what exists is.
    """

    view: Overview | None
    origin: str
    pods: bool = True
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read, and the view of it by one rulebook, which for thousands of pods takes a second."""

    objects: Objects
    stamp: object
    at: float
    last: list[tuple[Rulebook, Overview]] = field(default_factory=list)

    def view(self, rulebook: Rulebook) -> Overview:
        if not self.last or self.last[0][0] is not rulebook:
            self.last[:] = [(rulebook, self.objects.view(rulebook))]
        return self.last[0][1]


class Source:
    """Nodes and pods as they are now; safe to use from several threads."""

    def __init__(self, file: Path | None = None, around: Path | None = None, *, live: bool = False) -> None:
        self.around = around
        self._file, self._live = file, live
        self._lock = threading.Lock()
        self._seen: _Seen | None = None

    def now(self, rulebook: Rulebook) -> Sight:
        """What is known at this moment, as the rules see it."""
        origin = "the cluster" if self._live else str(self._file or self.around or "")
        if not origin:
            return Sight(None, "")
        pods = self._live or self._file is not None
        try:
            with self._lock:
                return Sight(self._now().view(rulebook), origin, pods)
        except (UnreadableError, SurroundingsError) as error:
            return Sight(None, origin, pods, str(error))

    def _now(self) -> _Seen:
        file = self._file or self.around
        stamp = stamps.file(file) if file else None
        fresh = not self._live or (self._seen is not None and monotonic() - self._seen.at < FRESH_SECONDS)
        if self._seen is None or stamp != self._seen.stamp or not fresh:
            self._seen = _Seen(self._read(), stamp, monotonic())
        return self._seen

    def _read(self) -> Objects:
        if self._live:
            return live()
        if self._file is None:
            assert self.around is not None  # noqa: S101 - for the type checker: `now` has asked
            return Objects(nodes=list(surroundings.read(self.around).get("nodes", ())))
        objects = Objects()
        try:
            parse(self._file.read_bytes(), self._file.name, objects)
        except OSError as error:
            raise UnreadableError(f"{self._file}: {error.strerror}") from None
        return objects
