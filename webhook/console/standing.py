"""Where the tenants on the page come from: a file of their objects, the cluster itself, or the rule files alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

from webhook import stamps, tenants
from webhook.console.source import FRESH_SECONDS
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy.overview import Tenants
from webhook.tenants import Objects, UnreadableError


@dataclass(frozen=True, slots=True)
class Standing:
    """The tenants and where they are from, or why they are not known.

    `counted`: what they use is known; else only what they may.
    """

    view: Tenants | None
    origin: str
    counted: bool = True
    problem: str | None = None


class Standings:
    """Tenants as they are now; safe to use from several threads."""

    def __init__(self, file: Path | None = None, *, live: bool = False) -> None:
        self._file, self._live = file, live
        self._lock = threading.Lock()
        self._seen: tuple[Objects, object, float] | None = None

    def now(self, rulebook: Rulebook) -> Standing:
        """What is known at this moment, as the rules see it."""
        if self._file is None and not self._live:
            return Standing(Objects().view(rulebook, time(), live=False), "the rule files", counted=False)
        origin = "the cluster" if self._live else str(self._file)
        try:
            with self._lock:
                return Standing(self._now().view(rulebook, time(), live=True), origin)
        except UnreadableError as error:
            return Standing(None, origin, problem=str(error))

    def _now(self) -> Objects:
        stamp = stamps.file(self._file) if self._file else None
        if self._seen is not None:
            objects, seen, at = self._seen
            if stamp == seen and (not self._live or monotonic() - at < FRESH_SECONDS):
                return objects
        objects = _read(self._file) if self._file else tenants.live()
        self._seen = (objects, stamp, monotonic())
        return objects


def _read(file: Path) -> Objects:
    objects = Objects()
    try:
        objects.parse(file.read_bytes(), file.name)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
    return objects
