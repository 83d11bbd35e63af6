"""`gpu-webhook watch`: keeps a small file of what the rules read of a cluster, for the admission server beside it.

Here is what is kept of nodes and claims, and when the file is replaced. `webhook.files.surroundings` reads the file,
and `webhook.core.inventory` says what nodes mean.

A process of its own: what talks to the API server neither slows admission down nor takes it along when it fails.
Whatever the API server does, the last file stays, and the watcher retries. It also outlives rules that do not load.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from sys import intern
from time import monotonic, time
from typing import Final

import orjson

from webhook import telemetry
from webhook.cluster import client
from webhook.cluster.client import Api, ApiError, Collection, Follower, Object
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.core.rules.rulebook import Rulebook
from webhook.files import surroundings
from webhook.files.rule_files import RULES_SECONDS, ReloadedRules, write_whole

PAUSE_SECONDS: Final = 0.2
"""Between two writings: a pool that grows by a hundred nodes is not a hundred readings for the server."""

LONGEST_BACKOFF: Final = 30.0
"""How often a kind is looked for that the cluster does not have, or does not let us read."""

log = logging.getLogger(__name__)


NODES: Final = "nodes"
"""The kind without which nothing is written. All others are claims, or their classes, that some rule tells of."""


def remembered(kind: str, raw: Object) -> Object:
    """What is kept of an object, whatever the rules are: annotations, images and addresses are most of a node."""
    metadata = raw["metadata"]
    if kind != NODES:
        never_read = {"apiVersion", "kind", "metadata", "status"}
        name = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
        return {"metadata": name, **{key: value for key, value in raw.items() if key not in never_read}}
    status = raw.get("status") or {}
    ready = [condition for condition in status.get("conditions") or () if condition.get("type") == "Ready"]
    labels = {intern(key): intern(value) for key, value in (metadata.get("labels") or {}).items()}
    return {
        "metadata": {"name": metadata["name"], "labels": labels},
        "spec": {"unschedulable": bool((raw.get("spec") or {}).get("unschedulable"))},
        "status": {
            "allocatable": status.get("allocatable") or status.get("capacity") or {},
            "conditions": [{"type": "Ready", "status": condition["status"]} for condition in ready],
        },
    }


def written(kind: str, kept: Iterable[Object], rulebook: Rulebook) -> list[Object]:
    """What the file holds of the objects that are there: nodes with devices, cut down to what the rules ask for."""
    if kind != NODES:
        return list(kept)
    labels = cards.labels(rulebook)
    return [*filter(None, (inventory.pruned(node, labels, rulebook) for node in kept))]


class Watched(Collection):
    """The objects of one kind as they are now; `tell` is called at every change.

    paths    where the API server may have it; the first that exists counts
    present  whether the cluster is known to have it
    settled  whether what is known is all that can be known now
    """

    def __init__(self, kind: str, paths: Sequence[str], tell: Callable[[], None]) -> None:
        super().__init__(lambda _: tell())
        self.kind, self.paths = kind, paths
        self.present = self.settled = self._tried = False

    def keep(self, raw: Object) -> Object:
        """What is kept whatever the rules are."""
        return remembered(self.kind, raw)

    def listed(self, kept: list[Object], version: int) -> None:
        """All objects there are."""
        super().listed(kept, version)
        self.present = self.settled = self._tried = True
        self._tell(self.kind)

    def failed(self, error: ApiError) -> None:
        """What is known stays, unless the cluster no longer has the kind."""
        if not isinstance(error, client.MissingError):
            super().failed(error)
        elif self.present or not self._tried:
            self.present = False
            log.info("the cluster has no %s: %s", self.kind, error)
        if not self.present:
            self.settled, self._tried = self.kind != NODES, True
            self._tell(self.kind)


class Watcher:
    """Follows the kinds that the rules ask for, and keeps the file in step."""

    def __init__(self, api: Api, rules: ReloadedRules, file: Path) -> None:
        self._api, self._rules, self._file = api, rules, file
        self._changed = asyncio.Event()
        self._watched: dict[str, tuple[Watched, asyncio.Task[None]]] = {}
        self._written = b""
        self._nodes: Follower[Object]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            owed = False
            while True:
                if self._rules.refresh() or self._changed.is_set() or owed:
                    self._changed.clear()  # before the objects are looked at: a later change is seen the next time
                    self._follow(self._rules.rulebook, tasks)
                    owed = not self._write(self._rules.rulebook)
                # Tell replicas up to when nodes were heard of: the file may be right, and stay as it is, for weeks.
                at = time() - monotonic() + self._nodes.as_of
                with contextlib.suppress(OSError):
                    if self._written and at > 0:
                        mark = surroundings.heard(self._file)
                        mark.touch(0o644)
                        os.utime(mark, (at, at))
                await asyncio.sleep(PAUSE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), RULES_SECONDS)

    def _follow(self, rulebook: Rulebook | None, tasks: asyncio.TaskGroup) -> None:
        """Begin to follow what the rules ask for, and leave what they no longer do."""
        wanted = {NODES: ["/api/v1/nodes"]}
        for kind in [] if rulebook is None else [kind for source in rulebook.sources for kind in source.kinds]:
            wanted[kind.name] = [f"/apis/{kind.group}/{version}/{kind.plural}" for version in kind.versions]
        for name in [*self._watched]:
            watched, task = self._watched[name]
            if wanted.get(name) != watched.paths:
                task.cancel()
                del self._watched[name]
        for name, paths in wanted.items():
            if name not in self._watched:
                watched = Watched(name, paths, self._changed.set)
                follower = Follower(self._api, paths, watched, longest=LONGEST_BACKOFF)
                self._watched[name] = watched, tasks.create_task(follower.run())
                self._nodes = follower if name == NODES else self._nodes

    def _write(self, rulebook: Rulebook | None) -> bool:
        """Write the file if it should be another one, and all is known that belongs into it; False: retry later."""
        kinds = [watched for watched, _ in self._watched.values()]
        if rulebook is None or not all(watched.settled for watched in kinds):
            return True
        objects = {}
        for watched in kinds:
            if watched.present:  # in a steady order
                kept = [watched.objects[name] for name in sorted(watched.objects)]
                objects[watched.kind] = written(watched.kind, kept, rulebook)
        content = orjson.dumps(objects, option=orjson.OPT_APPEND_NEWLINE)
        if content == self._written:
            return True
        try:
            write_whole(self._file, content, 0o644)
        except OSError as error:
            log.error("%s cannot be written: %s", self._file, error.strerror)  # noqa: TRY400 - the sentence is all there is to say
            return False
        self._written = content
        log.info("%s written: %d bytes", self._file, len(content))
        return True


def watch(directory: Path, file: Path, log_level: str) -> int:
    """Keep the file in step with the cluster until told to stop; the exit code. Raises ApiError without a cluster."""
    telemetry.configure(log_level)
    client.run(lambda api: Watcher(api, ReloadedRules(directory), file).run())
    return 0
