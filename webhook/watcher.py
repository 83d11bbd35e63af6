"""Watches what the rules ask of a cluster, and keeps a small file of it for the admission server beside it.

A process of its own: what talks to the API server neither slows admission down nor takes it along when it fails.
Whatever the API server does, the last file stays, and this goes on trying. It also outlives rules that do not load.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from time import monotonic
from typing import Any, Final

import orjson

from webhook import cluster, logs
from webhook.cluster import AbsentError, Cluster, ClusterError, GoneError
from webhook.core import inventory, recognition
from webhook.core.rulebook import ObjectKind, Rulebook
from webhook.rulewatch import RULES_SECONDS, Rules

PAUSE_SECONDS: Final = 0.2
"""Between two writings: a pool that grows by a hundred nodes is not a hundred readings for everybody else."""

LONGEST_BACKOFF_SECONDS: Final = 30.0
ABSENT_SECONDS: Final = 30.0
"""How often a kind that the cluster does not have is looked for."""

SHORTEST_WATCH_SECONDS: Final = 1.0

log = logging.getLogger(__name__)

Object = Mapping[str, Any]


class Kind:
    """One kind of object that is watched. A subclass says where it is, what is remembered of it, and what written."""

    name: str
    paths: tuple[str, ...]
    """Where the API server may have it; the first that exists counts."""

    needed = True
    """Whether there is nothing to be said without it."""

    def remember(self, raw: Object) -> Object:
        """What is kept of an object, whatever the rules are."""
        raise NotImplementedError

    def written(self, kept: Sequence[Object], rulebook: Rulebook) -> Iterator[Object]:
        """What stands in the file of the objects that are there."""
        raise NotImplementedError


class Nodes(Kind):
    """Nodes: labels, what they advertise, and whether they take pods."""

    name = "nodes"
    paths = ("/api/v1/nodes",)

    def remember(self, raw: Object) -> Object:
        """Without annotations, images and addresses, which are most of a node."""
        status = raw.get("status") or {}
        ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
        labels = raw["metadata"].get("labels") or {}
        return {
            "metadata": {
                "name": raw["metadata"]["name"],
                "labels": {intern(key): intern(value) for key, value in labels.items()},
            },
            "spec": {"unschedulable": bool((raw.get("spec") or {}).get("unschedulable"))},
            "status": {
                "allocatable": status.get("allocatable") or status.get("capacity") or {},
                "conditions": [{"type": "Ready", "status": one["status"]} for one in ready],
            },
        }

    def written(self, kept: Sequence[Object], rulebook: Rulebook) -> Iterator[Object]:
        """Those with devices, cut down to what the rules ask for."""
        labels = recognition.labels(rulebook)
        yield from filter(None, (inventory.pruned(node, labels, rulebook) for node in kept))


class Claims(Kind):
    """Claims that containers may name, or their classes: a kind that some rule tells of."""

    needed = False

    def __init__(self, kind: ObjectKind) -> None:
        self.name = kind.name
        self.paths = tuple(f"/apis/{kind.group}/{version}/{kind.plural}" for version in kind.versions)

    def remember(self, raw: Object) -> Object:
        """What its author wrote."""
        named = {key: raw["metadata"][key] for key in ("namespace", "name") if key in raw["metadata"]}
        return {"metadata": named, **{key: value for key, value in raw.items() if key not in _NOBODY_ASKS}}

    def written(self, kept: Sequence[Object], rulebook: Rulebook) -> Iterator[Object]:  # noqa: ARG002 - as of any kind
        """All of them."""
        yield from kept


_NOBODY_ASKS: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


class Follower:
    """Keeps one kind in step with the cluster, in a thread of its own."""

    def __init__(self, kind: Kind, api: Cluster, changed: Callable[[], None]) -> None:
        self.kind = kind
        self._api = api
        self._changed = changed
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Object] | None = None
        self._tried = False
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to follow."""
        threading.Thread(target=self._run, name=self.kind.name, daemon=True).start()

    def leave(self) -> None:
        """Follow no more; a watch that is open ends when the API server ends it."""
        self._over.set()

    @property
    def settled(self) -> bool:
        """Whether what is kept is all that can be known now."""
        with self._lock:
            return self._kept is not None or (self._tried and not self.kind.needed)

    @property
    def kept(self) -> list[Object] | None:
        """What is there now, in a steady order; None before the first list, and where there is no such kind."""
        with self._lock:
            return None if self._kept is None else [self._kept[key] for key in sorted(self._kept)]

    def _run(self) -> None:
        backoff = PAUSE_SECONDS
        while not self._over.is_set():
            began = monotonic()
            try:
                self._follow()
            except GoneError as gone:
                log.info("%s are listed again: %s", self.kind.name, gone)
            except AbsentError as absent:
                if self._settle(None):
                    log.info("the cluster has no %s: %s", self.kind.name, absent)
                self._over.wait(ABSENT_SECONDS)
                continue
            except ClusterError as error:
                log.warning("%s", error)
                if not self._tried:
                    self._settle(None)
            # A watch that ran for a while was well; one that ends at once is not to be begun again at once.
            ran = monotonic() - began
            backoff = PAUSE_SECONDS if ran > LONGEST_BACKOFF_SECONDS else min(2 * backoff, LONGEST_BACKOFF_SECONDS)
            self._over.wait(backoff)

    def _settle(self, kept: dict[tuple[str, str], Object] | None) -> bool:
        """Keep what is known now, if only that nothing can be; whether that is news."""
        with self._lock:
            news = kept is not None or self._kept is not None or not self._tried
            self._kept, self._tried = kept, True
        if news:
            self._changed()
        return news

    def _list(self) -> tuple[str, list[tuple[tuple[str, str], Object]], str]:
        """Where the kind is, what there is of it, and the version of the whole."""
        for path in self.kind.paths:
            try:
                return path, *self._api.objects(path, lambda raw: (_key(raw), self.kind.remember(raw)))
            except AbsentError as absent:
                missing = absent
        raise missing

    def _follow(self) -> None:
        """List once, then take every change, until something goes wrong."""
        path, listed, version = self._list()
        self._settle(dict(listed))
        log.info("%d %s listed", len(listed), self.kind.name)
        while not self._over.is_set():
            began = monotonic()
            for change in self._api.changes(path, version):
                version = change.version
                if change.kind != "BOOKMARK":
                    self._take(change)
            if monotonic() - began < SHORTEST_WATCH_SECONDS:
                raise ClusterError(f"the watch of {self.kind.name} ended at once")

    def _take(self, change: cluster.Change) -> None:
        key = _key(change.object)
        with self._lock:
            if self._kept is None:
                return
            before = self._kept.pop(key, None)
            if change.kind != "DELETED":
                self._kept[key] = self.kind.remember(change.object)
            same = before == self._kept.get(key)
        if not same:
            self._changed()


def _key(raw: Object) -> tuple[str, str]:
    return str(raw["metadata"].get("namespace", "")), str(raw["metadata"]["name"])


class Followers:
    """One follower for each kind of object that the rules ask for."""

    def __init__(self, api: Cluster, changed: Callable[[], None]) -> None:
        self._api = api
        self._changed = changed
        self._by_kind: dict[str, Follower] = {}

    def follow(self, rulebook: Rulebook | None) -> None:
        """Begin to follow what the rules ask for, and leave what they no longer do."""
        asked = [] if rulebook is None else [kind for source in rulebook.sources for kind in source.kinds]
        kinds: dict[str, Kind] = {Nodes.name: Nodes(), **{kind.name: Claims(kind) for kind in asked}}
        for name in [*self._by_kind]:
            present = kinds.get(name)
            if present is None or present.paths != self._by_kind[name].kind.paths:
                self._by_kind.pop(name).leave()
        for name, kind in kinds.items():
            if name not in self._by_kind:
                self._by_kind[name] = Follower(kind, self._api, self._changed)
                self._by_kind[name].start()

    def content(self, rulebook: Rulebook | None) -> bytes | None:
        """The file as it should be; None until everything is known that belongs into it."""
        followers = self._by_kind.values()
        if rulebook is None or not all(follower.settled for follower in followers):
            return None
        kept = [(follower.kind, follower.kept) for follower in followers]
        objects = {kind.name: list(kind.written(there, rulebook)) for kind, there in kept if there is not None}
        return orjson.dumps(objects, option=orjson.OPT_APPEND_NEWLINE)


def watch(directory: Path, file: Path) -> int:
    """Keep the file in step with the cluster until told to stop; the exit code."""
    logs.configure(logs.Lines(logs.STDOUT), "info")
    changed, stop = threading.Event(), threading.Event()

    def leave(*_: object) -> None:
        stop.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    _keep(Followers(Cluster(), changed.set), Rules(directory), file, changed, stop)
    return 0


def _keep(followers: Followers, rules: Rules, file: Path, changed: threading.Event, stop: threading.Event) -> None:
    written, owed = b"", False
    while not stop.is_set():
        owed = rules.refresh() or changed.is_set() or owed
        if owed:
            changed.clear()  # before the objects are looked at: a change that comes now is seen the next time
            followers.follow(rules.rulebook)
            content = followers.content(rules.rulebook) or written
            owed = content != written and not _replaced(file, content)
            written = written if owed else content
        stop.wait(PAUSE_SECONDS)
        changed.wait(RULES_SECONDS)


def _replaced(file: Path, content: bytes) -> bool:
    """Whether it was written; a full disk is not the end, it is tried again."""
    try:
        _replace(file, content)
    except OSError as error:
        log.error("%s cannot be written: %s", file, error.strerror)  # noqa: TRY400 - the sentence is all there is to say
        return False
    log.info("%s written: %d bytes", file, len(content))
    return True


def _replace(file: Path, content: bytes) -> None:
    """Write it whole or not at all: who reads never sees a half."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as written:
            written.write(content)
            os.fchmod(written.fileno(), 0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
