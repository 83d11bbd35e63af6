"""`gpu-webhook watch`: keeps a small file of what the rules read of a cluster, for the admission server beside it.

A process of its own: what talks to the API server neither slows admission down nor takes it along when it fails.
Whatever the API server does, the last file stays, and the watcher retries. It also outlives rules that do not load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from sys import intern
from typing import Final, NamedTuple

import orjson

from webhook import telemetry
from webhook.cluster import client
from webhook.cluster.client import Api, ApiError, MissingError, Object
from webhook.cluster.follower import Collection, Follower
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.core.rules.claim_source import ObjectKind
from webhook.core.rules.rulebook import Rulebook
from webhook.files.rule_files import RULES_SECONDS, ReloadedRules

PAUSE_SECONDS: Final = 0.2
"""Between two writings: a pool that grows by a hundred nodes is not a hundred readings for the server."""

LONGEST_BACKOFF: Final = 30.0
"""How often a kind is looked for that the cluster does not have, or does not let us read."""

log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """One kind of object.

    paths     where the API server may have it; the first that exists counts
    remember  what is kept of an object, whatever the rules are
    needed    whether nothing is written without it
    """

    name: str
    paths: tuple[str, ...]
    remember: Callable[[Object], Object]
    needed: bool = False


def _node(raw: Object) -> Object:
    """Labels, what it advertises, and whether it takes pods: annotations, images and addresses are most of a node."""
    status = raw.get("status") or {}
    ready = [condition for condition in status.get("conditions") or () if condition.get("type") == "Ready"]
    labels = raw["metadata"].get("labels") or {}
    return {
        "metadata": {
            "name": raw["metadata"]["name"],
            "labels": {intern(key): intern(value) for key, value in labels.items()},
        },
        "spec": {"unschedulable": bool((raw.get("spec") or {}).get("unschedulable"))},
        "status": {
            "allocatable": status.get("allocatable") or status.get("capacity") or {},
            "conditions": [{"type": "Ready", "status": condition["status"]} for condition in ready],
        },
    }


NODES: Final = Kind("nodes", ("/api/v1/nodes",), _node, needed=True)


def claims(kind: ObjectKind) -> Kind:
    """Claims that containers may name, or their classes: a kind that some rule tells of."""
    return Kind(kind.name, tuple(f"/apis/{kind.group}/{version}/{kind.plural}" for version in kind.versions), _claim)


def _claim(raw: Object) -> Object:
    never_read = {"apiVersion", "kind", "metadata", "status"}
    metadata = {key: raw["metadata"][key] for key in ("namespace", "name") if key in raw["metadata"]}
    return {"metadata": metadata, **{key: value for key, value in raw.items() if key not in never_read}}


def written(kind: Kind, kept: Iterable[Object], rulebook: Rulebook) -> list[Object]:
    """What the file holds of the objects that are there: nodes with devices, cut down to what the rules ask for."""
    if kind != NODES:
        return list(kept)
    labels = cards.labels(rulebook)
    return [*filter(None, (inventory.pruned(node, labels, rulebook) for node in kept))]


class Watched(Collection):
    """The objects of one kind as they are now; `changed` is told of every change."""

    def __init__(self, kind: Kind, changed: Callable[[], None]) -> None:
        super().__init__(lambda _: changed())
        self.kind = kind
        self._notify = changed
        self._tried = self._exists = False

    def keep(self, raw: Object) -> Object:
        """What the kind says."""
        return self.kind.remember(raw)

    def listed(self, kept: list[Object], version: int) -> None:
        """All objects there are."""
        super().listed(kept, version)
        self._tried = self._exists = True
        self._notify()

    def failed(self, error: ApiError) -> None:
        """What is known stays, unless the cluster no longer has the kind."""
        if not isinstance(error, MissingError):
            super().failed(error)
        elif self._exists or not self._tried:
            self._exists = False
            log.info("the cluster has no %s: %s", self.kind.name, error)
        if not self._exists:
            self._tried = True
            self._notify()

    @property
    def settled(self) -> bool:
        """Whether what is known is all that can be known now."""
        return self._exists or (self._tried and not self.kind.needed)

    @property
    def present(self) -> list[Object] | None:
        """What is there now, in a steady order; None before the first list, and where there is no such kind."""
        return [self.objects[name] for name in sorted(self.objects)] if self._exists else None


class Watcher:
    """Follows the kinds that the rules ask for, and keeps the file in step."""

    def __init__(self, api: Api, rules: ReloadedRules, file: Path) -> None:
        self._api, self._rules, self._file = api, rules, file
        self._changed = asyncio.Event()
        self._watched: dict[str, tuple[Watched, asyncio.Task[None]]] = {}
        self._written = b""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            owed = False
            while True:
                if self._rules.refresh() or self._changed.is_set() or owed:
                    self._changed.clear()  # before the objects are looked at: a later change is seen the next time
                    self._follow(self._rules.rulebook, tasks)
                    owed = not self._write(self._rules.rulebook)
                await asyncio.sleep(PAUSE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), RULES_SECONDS)

    def _follow(self, rulebook: Rulebook | None, tasks: asyncio.TaskGroup) -> None:
        """Begin to follow what the rules ask for, and leave what they no longer do."""
        kinds = [] if rulebook is None else [kind for source in rulebook.sources for kind in source.kinds]
        wanted = {kind.name: kind for kind in (NODES, *map(claims, kinds))}
        for name in [*self._watched]:
            watched, task = self._watched[name]
            if wanted.get(name) != watched.kind:
                task.cancel()
                del self._watched[name]
        for name, kind in wanted.items():
            if name not in self._watched:
                watched = Watched(kind, self._changed.set)
                follower = Follower(self._api, kind.paths, watched, longest_backoff=LONGEST_BACKOFF)
                self._watched[name] = watched, tasks.create_task(follower.run())

    def _write(self, rulebook: Rulebook | None) -> bool:
        """Write the file if it should be another one, and all is known that belongs into it; False: retry later."""
        watched = [raw for raw, _ in self._watched.values()]
        if rulebook is None or not all(raw.settled for raw in watched):
            return True
        present = [(raw.kind, raw.present) for raw in watched]
        objects = {kind.name: written(kind, there, rulebook) for kind, there in present if there is not None}
        content = orjson.dumps(objects, option=orjson.OPT_APPEND_NEWLINE)
        if content == self._written:
            return True
        try:
            # Write a file whole or not at all: a reader never sees a half.
            file = self._file
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            try:
                with os.fdopen(handle, "wb") as new:
                    new.write(content)
                    os.fchmod(new.fileno(), 0o644)
                Path(name).replace(file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            log.error("%s cannot be written: %s", self._file, error.strerror)  # noqa: TRY400 - the sentence is all there is to say
            return False
        self._written = content
        log.info("%s written: %d bytes", self._file, len(content))
        return True


def watch(directory: Path, file: Path) -> int:
    """Keep the file in step with the cluster until told to stop; the exit code. Raises ApiError without a cluster."""
    telemetry.configure()
    rules = ReloadedRules(directory)
    client.run(lambda api: Watcher(api, rules, file).run())
    return 0
