"""Where the inventory and the tenants on the page come from: files, the cluster itself, or what stands beside them.

Safe to use from several threads; each of them waits while another one reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Final, Generic, TypeVar

from webhook.cluster import current
from webhook.core.reports.overview import Overview
from webhook.core.reports.tenants import Tenants
from webhook.core.rules.rulebook import Rulebook
from webhook.files import file_stamps, inventory_objects, surroundings, tenant_objects
from webhook.files.inventory_objects import UnreadableError
from webhook.files.surroundings import SurroundingsError

T = TypeVar("T")

FRESH_SECONDS: Final = 10.0
"""How long what the cluster said is shown again: a page that is reloaded must not be a load on the API server."""


class _Latest(Generic[T]):
    """What was read last; read again when its file has changed, or after FRESH_SECONDS if it has none."""

    def __init__(self, file: Path | None, read: Callable[[], T]) -> None:
        self._file, self._read = file, read
        self._found: tuple[T, object, float] | None = None

    def get(self) -> T:
        """The latest; raises what reading raises."""
        stamp = file_stamps.file(self._file) if self._file else None
        if self._found is not None:
            found, seen, at = self._found
            if stamp == seen and (self._file or monotonic() - at < FRESH_SECONDS):
                return found
        found = self._read()
        self._found = found, stamp, monotonic()
        return found


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A view and where it is from, or why there is none.

    `counted`: what pods ask, or tenants use, is known; else only what exists, or what tenants may use.
    """

    view: T | None
    origin: str
    counted: bool = True
    problem: str | None = None


class Source:
    """Nodes and pods as they are now: of a file, of the cluster (`live`), or only nodes, of the watcher's file."""

    def __init__(self, file: Path | None = None, around: Path | None = None, *, live: bool = False) -> None:
        self.around = around
        self._origin = "the cluster" if live else str(file or around or "")
        self._counted = live or file is not None
        read = current.inventory if live else lambda: _inventory(file, around)
        self._latest = _Latest(None if live else file or around, read)
        self._lock = threading.Lock()
        self._viewed: tuple[inventory_objects.Objects, Rulebook, Overview] | None = None

    def now(self, rulebook: Rulebook) -> Seen[Overview]:
        """What is known at this moment, as the rules see it."""
        if not self._origin:
            return Seen(None, "")
        try:
            with self._lock:
                return Seen(self._view(self._latest.get(), rulebook), self._origin, self._counted)
        except (UnreadableError, SurroundingsError) as error:
            return Seen(None, self._origin, self._counted, str(error))

    def _view(self, objects: inventory_objects.Objects, rulebook: Rulebook) -> Overview:
        """The view of objects, kept while both stay: for thousands of pods it takes a second."""
        if self._viewed is None or self._viewed[0] is not objects or self._viewed[1] is not rulebook:
            self._viewed = objects, rulebook, objects.view(rulebook)
        return self._viewed[2]


class Standings:
    """Tenants as they are now: of a file, of the cluster (`live`), or of the rule files alone."""

    def __init__(self, file: Path | None = None, *, live: bool = False) -> None:
        self._origin = "the cluster" if live else str(file or "")
        self._latest = _Latest(None if live else file, current.tenants if live else lambda: _tenants(file))
        self._lock = threading.Lock()

    def now(self, rulebook: Rulebook) -> Seen[Tenants]:
        """What is known at this moment, as the rules see it."""
        if not self._origin:
            return Seen(tenant_objects.Objects().view(rulebook, time(), live=False), "the rule files", counted=False)
        try:
            with self._lock:
                return Seen(self._latest.get().view(rulebook, time(), live=True), self._origin)
        except UnreadableError as error:
            return Seen(None, self._origin, problem=str(error))


def _inventory(file: Path | None, around: Path | None) -> inventory_objects.Objects:
    objects = inventory_objects.Objects()
    if file is not None:
        objects.parse(_content(file), file.name)
    elif around is not None:
        objects.nodes += surroundings.read(around).get("nodes", ())
    return objects


def _tenants(file: Path | None) -> tenant_objects.Objects:
    objects = tenant_objects.Objects()
    if file is not None:
        objects.parse(_content(file), file.name)
    return objects


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
