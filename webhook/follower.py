"""Keeps somebody in step with a collection of the Kubernetes API: a list, and then every change.

Whatever the API server does this goes on trying. How old what was heard may be is known at every moment: a watch is
begun anew every few seconds, and one that is silent for longer than it was asked for is taken for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from webhook.api import Api, ApiError, GoneError, Object

T = TypeVar("T")

FIRST_BACKOFF: Final = 0.1
LONGEST_BACKOFF: Final = 5.0

log = logging.getLogger(__name__)


class Ears(Protocol[T]):
    """Whoever is kept in step. Versions are those of the collection, and only grow."""

    def keep(self, found: Object) -> T:
        """What is kept of an object, the rest of which may be forgotten."""

    def listed(self, kept: list[T], version: int) -> None:
        """All objects there are."""

    def saw(self, kept: T, version: int) -> None:
        """An object that was added or changed."""

    def lost(self, kept: T, version: int) -> None:
        """An object that was deleted, as it last was."""

    def reached(self, version: int) -> None:
        """Nothing more happened up to a version."""


class Follower(Generic[T]):
    """Follows one collection; `run` never ends by itself."""

    def __init__(self, api: Api, path: str, ears: Ears[T], *, seconds: float = 240) -> None:
        self.path = path
        self.as_of = -inf
        """The time (monotonic) up to which everything was heard, as far as the API server itself knew it."""
        self._api = api
        self._ears = ears
        self._seconds = seconds

    async def run(self) -> None:
        """List, then watch, and once more whatever goes wrong."""
        backoff = FIRST_BACKOFF
        while True:
            began = monotonic()
            try:
                await self._follow()
            except GoneError as gone:
                log.info("%s is listed again: %s", self.path, gone)
            except ApiError as error:
                log.warning("%s", error)
            backoff = FIRST_BACKOFF if monotonic() - began > LONGEST_BACKOFF else min(2 * backoff, LONGEST_BACKOFF)
            await asyncio.sleep(backoff)

    async def _follow(self) -> None:
        began = monotonic()
        version = await self._list()
        self.as_of = began
        while True:
            began = monotonic()
            async for kind, found in self._api.changes(self.path, version, self._seconds):
                version = str(found["metadata"]["resourceVersion"])
                self._hear(kind, found, int(version))
            self.as_of = began  # the watch ended as it was asked to, so it was alive when it began

    async def _list(self) -> str:
        kept: list[T] = []
        version = "0"
        async for page in self._api.pages(self.path):
            version = str(page["metadata"]["resourceVersion"])
            kept += [self._ears.keep(found) for found in page["items"] or ()]
            await asyncio.sleep(0)
        self._ears.listed(kept, int(version))
        log.info("%d of %s listed", len(kept), self.path)
        return version

    def _hear(self, kind: str, found: Object, version: int) -> None:
        if kind == "BOOKMARK":
            self._ears.reached(version)
        elif kind == "DELETED":
            self._ears.lost(self._ears.keep(found), version)
        else:
            self._ears.saw(self._ears.keep(found), version)


class Collection:
    """The objects of a collection as they are now, by name; `changed` is told the name of each that changes."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.objects: dict[str, Object] = {}
        self.listing = False
        """Whether what changes now was found in a list, and may have changed long ago."""
        self._changed = changed

    def keep(self, found: Object) -> Object:
        """Without what only the API server needs."""
        metadata = found["metadata"]
        return {**found, "metadata": {key: metadata[key] for key in _KEPT if key in metadata}}

    def listed(self, kept: list[Object], version: int) -> None:  # noqa: ARG002 - of no use here
        """All objects there are."""
        before, self.objects = self.objects, {found["metadata"]["name"]: found for found in kept}
        self.listing = True
        for name in before.keys() | self.objects.keys():
            self._changed(name)
        self.listing = False

    def saw(self, kept: Object, version: int) -> None:  # noqa: ARG002 - of no use here
        """An object that was added or changed."""
        self.objects[kept["metadata"]["name"]] = kept
        self._changed(kept["metadata"]["name"])

    def lost(self, kept: Object, version: int) -> None:  # noqa: ARG002 - of no use here
        """An object that was deleted."""
        self.objects.pop(kept["metadata"]["name"], None)
        self._changed(kept["metadata"]["name"])

    def reached(self, version: int) -> None:
        """Nothing more happened."""


_KEPT: Final = ("name", "uid", "labels", "generation", "resourceVersion")
