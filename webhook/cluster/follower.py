"""Follows a collection of the Kubernetes API: a list, and then every change.

The follower retries whatever the API server does. It always knows how old its knowledge may be: a watch is begun anew
every few seconds or minutes, and one that is silent for longer than it was asked for is taken for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Final, Generic, TypeVar

from webhook.cluster.client import Api, ApiError, GoneError, MissingError, Object

T = TypeVar("T")

FIRST_BACKOFF: Final = 0.1
LONGEST_BACKOFF: Final = 5.0
SHORTEST_WATCH_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class Handler(Generic[T]):
    """What a follower tells of its collection. Versions are those of the collection, and only grow."""

    def keep(self, raw: Object) -> T:
        """What is kept of an object; the rest is forgotten at once."""
        raise NotImplementedError

    def listed(self, kept: list[T], version: int) -> None:
        """All objects, as they are at a version."""
        raise NotImplementedError

    def updated(self, kept: T, version: int) -> None:
        """An object was added or changed."""
        raise NotImplementedError

    def deleted(self, kept: T, version: int) -> None:
        """An object was deleted; as it last was."""
        raise NotImplementedError

    def bookmarked(self, version: int) -> None:
        """Nothing more happened up to a version."""

    def failed(self, error: ApiError) -> None:
        """The collection could not be listed or watched, and is retried; MissingError: it does not exist."""
        log.warning("%s", error)


class Follower(Generic[T]):
    """Follows one collection; `run` never ends by itself.

    `paths`: where the API server may have it; the first that exists counts. `seconds`: how long one watch goes on.
    """

    def __init__(
        self,
        api: Api,
        paths: Sequence[str],
        handler: Handler[T],
        *,
        seconds: float = 240,
        longest_backoff: float = LONGEST_BACKOFF,
    ) -> None:
        self.as_of = -inf
        """The time (monotonic) up to which every change was heard, as far as the API server itself knew it."""
        self._api, self._paths, self._handler = api, paths, handler
        self._seconds, self._longest_backoff = seconds, longest_backoff

    async def run(self) -> None:
        """List, then watch; begin anew, after a pause that grows, whatever goes wrong."""
        backoff = FIRST_BACKOFF
        while True:
            began = monotonic()
            try:
                await self._follow()
            except GoneError as gone:
                log.info("listed again: %s", gone)
            except ApiError as error:
                self._handler.failed(error)
            lasted = monotonic() - began > self._longest_backoff
            backoff = FIRST_BACKOFF if lasted else min(2 * backoff, self._longest_backoff)
            await asyncio.sleep(backoff)

    async def _follow(self) -> None:
        began = monotonic()
        path, version = await self._list()
        self.as_of = began
        while True:
            began = monotonic()
            async for kind, raw in self._api.watch(path, version, self._seconds):
                version = str(raw["metadata"]["resourceVersion"])
                self._handle(kind, raw, int(version))
            if monotonic() - began < SHORTEST_WATCH_SECONDS:
                raise ApiError(f"the watch of {path} ended at once")
            self.as_of = began  # the watch ended as it was asked to, so it was alive when it began

    async def _list(self) -> tuple[str, str]:
        """List the collection; its path and version."""
        for path in self._paths:
            try:
                kept, version = await self._read(path)
            except MissingError as error:
                missing = error
                continue
            self._handler.listed(kept, int(version))
            log.info("%d of %s listed", len(kept), path)
            return path, version
        raise missing

    async def _read(self, path: str) -> tuple[list[T], str]:
        kept: list[T] = []
        version = "0"
        async for page in self._api.pages(path):
            version = str(page["metadata"]["resourceVersion"])
            kept += [self._handler.keep(raw) for raw in page["items"] or ()]
            await asyncio.sleep(0)
        return kept, version

    def _handle(self, kind: str, raw: Object, version: int) -> None:
        if kind == "BOOKMARK":
            self._handler.bookmarked(version)
        elif kind == "DELETED":
            self._handler.deleted(self._handler.keep(raw), version)
        else:
            self._handler.updated(self._handler.keep(raw), version)


class Collection(Handler[Object]):
    """The objects of a collection as they are now, by name or `namespace/name`, in the form that `keep` gives them.

    `changed` is told the name of each that changes.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.objects: dict[str, Object] = {}
        self.listing = False
        """Whether what changes now was found in a list, and may have changed long ago."""
        self._changed = changed

    def keep(self, raw: Object) -> Object:
        """Without what only the API server needs."""
        metadata = raw["metadata"]
        return {**raw, "metadata": {key: metadata[key] for key in _KEPT if key in metadata}}

    def listed(self, kept: list[Object], version: int) -> None:  # noqa: ARG002 - of no use here
        """All objects there are."""
        before, self.objects = self.objects, {_name(raw): raw for raw in kept}
        self.listing = True
        for name in before.keys() | self.objects.keys():
            self._changed(name)
        self.listing = False

    def updated(self, kept: Object, version: int) -> None:  # noqa: ARG002 - of no use here
        """An object was added or changed."""
        name = _name(kept)
        before = self.objects.get(name)
        self.objects[name] = kept
        if kept != before:
            self._changed(name)

    def deleted(self, kept: Object, version: int) -> None:  # noqa: ARG002 - of no use here
        """An object was deleted."""
        self.objects.pop(_name(kept), None)
        self._changed(_name(kept))


def _name(kept: Object) -> str:
    metadata = kept["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


_KEPT: Final = ("name", "uid", "labels", "generation", "resourceVersion")
