"""A cluster in memory around real rotators: what is stored, API servers and replicas that hear of it late.

A rotator goes on by one request at a time, when a test says so, and may never go on again: a crash.
"""

from collections.abc import Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from types import coroutine
from typing import Any

from jsonpatch import JsonPatch, JsonPatchTestFailed

from certs import issue, stored
from certs.api import ApiError, ConflictError, Object
from certs.issue import Pair
from certs.problem import Problem
from certs.rotation import Terms
from certs.rotator import Rotator
from certs.stored import Site
from certs.turns import Status, Turns

SITE = Site()
TERMS = Terms(authority=timedelta(days=60), leaf=timedelta(days=30))
BEGAN = datetime(2026, 11, 22, 12, tzinfo=UTC)
PATHS = (*SITE.configurations.values(), SITE.serving, SITE.authorities)


@coroutine
def _pause() -> Generator[None]:
    """Everything else may happen here."""
    yield


@cache
def vouched(leaf: bytes, bundle: bytes) -> bool:
    return issue.anchor(leaf, issue.certificates(bundle)) is not None


@dataclass
class Town:
    """The API of one cluster, as its rotators see it, and everybody who follows it."""

    at: datetime = BEGAN
    objects: dict[str, Object] = field(default_factory=dict)
    history: dict[str, list[Object]] = field(default_factory=lambda: {path: [] for path in PATHS})
    servers: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    """By API server and configuration: how much of the history it knows."""

    replicas: list[int] = field(default_factory=lambda: [0, 0, 0])
    """How much of the history of the serving Secret each has mounted."""

    versions: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for path in SITE.configurations.values():
            names = ("mutate.gpu-webhook.io", stored.PROBE, "somebody-elses.example.com")
            self.store(path, {"metadata": {}, "webhooks": [{"name": name, "clientConfig": {}} for name in names]})

    def store(self, path: str, made: Object) -> None:
        """Write an object, as any program may."""
        self.objects[path] = {**made, "metadata": {**made["metadata"], "resourceVersion": str(next(self.versions))}}
        self.history[path].append(self.objects[path])

    # What a rotator asks

    @property
    def now(self) -> datetime:
        return self.at

    async def find(self, path: str) -> Object | None:
        await _pause()
        return self.objects.get(path)

    async def put(self, path: str, made: Object, present: Object | None) -> Object:
        await _pause()
        found = self.objects.get(path)
        if (found or {}).get("metadata", {}).get("resourceVersion") != _version(present):
            raise ConflictError(path)
        if made.get("type") == "kubernetes.io/tls" and not {"tls.crt", "tls.key"} <= made["data"].keys():
            raise ApiError(path)
        self.store(path, made)
        return self.objects[path]

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        await _pause()
        try:
            self.store(path, JsonPatch(operations).apply(self.objects[path]))
        except (KeyError, JsonPatchTestFailed):
            raise ConflictError(path) from None

    async def refusals(self, leaf: Pair, configurations: Collection[str]) -> Sequence[Problem]:
        found = []
        for server in range(len(self.servers)):
            await _pause()
            bundles = self.bundles(server, stored.PROBE)
            if len(bundles) < len(configurations) or not all(vouched(leaf.certificate, each) for each in bundles):
                found.append(Problem("api-server", str(server), ""))
        return found

    async def others(self, signer: bytes) -> Sequence[Problem]:
        found = []
        for replica in range(len(self.replicas)):
            await _pause()
            served = self.served(replica)
            if served is not None and issue.anchor(served.certificate, [signer]) is None:
                found.append(Problem("replica", str(replica), ""))
        return found

    # What API servers and replicas do

    def hear(self, server: int, path: str) -> None:
        """An API server hears of the next version of a configuration."""
        known = self.servers[server]
        known[path] = min(known.get(path, 0) + 1, len(self.history[path]))

    def mount(self, replica: int) -> None:
        """A kubelet writes the newest Secret for its replica."""
        self.replicas[replica] = len(self.history[SITE.serving])

    def everybody_hears(self) -> None:
        for server in self.servers:
            server |= {path: len(self.history[path]) for path in SITE.configurations.values()}
        for replica in range(len(self.replicas)):
            self.mount(replica)

    def bundles(self, server: int, hook: str) -> list[bytes]:
        """What an API server verifies a webhook with, in each configuration that it knows."""
        known = [(path, upto) for path, upto in self.servers[server].items() if upto]
        return [
            bundle
            for path, upto in known
            for _, name, bundle in stored.bundles(self.history[path][upto - 1])
            if name == hook
        ]

    def served(self, replica: int) -> Pair | None:
        """The newest good pair that a replica has ever mounted: it keeps what is good."""
        mounted = (stored.pair(each) for each in reversed(self.history[SITE.serving][: self.replicas[replica]]))
        return next((each for each in mounted if each and issue.certificates(each.certificate)), None)

    def refused(self) -> list[tuple[int, int]]:
        """Each API server that would refuse what a replica serves, and the replica."""
        return [
            (server, replica)
            for replica in range(len(self.replicas))
            if (pair := self.served(replica)) is not None and issue.split(pair.certificate, self.at)
            for server in range(len(self.servers))
            if not all(vouched(pair.certificate, each) for each in self.bundles(server, "mutate.gpu-webhook.io"))
        ]


def _version(present: Object | None) -> str | None:
    return None if present is None else present["metadata"]["resourceVersion"]


class Walker:
    """A rotator that goes on when it is told to."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self.status = Status()
        self._turns = Turns(self.status, [Rotator(town, town, SITE, TERMS, self.status)])
        self._turn: Coroutine[Any, Any, bool] | None = None

    def walk(self) -> bool | None:
        """Go on until the next request; at the end of a turn: whether something was written."""
        self._turn = self._turn or self._turns.turn()
        try:
            self._turn.send(None)
        except StopIteration as end:
            self._turn = None
            return bool(end.value)
        return None

    def whole_turn(self) -> bool:
        """A turn in which nothing else happens."""
        while (acted := self.walk()) is None:
            pass
        return acted

    def crash(self) -> None:
        """Begin anew, with nothing remembered."""
        if self._turn is not None:
            self._turn.close()
        self.__init__(self._town)  # type: ignore[misc]  # a new process


def settle(town: Town, walker: Walker, turns: int = 30) -> int:
    """Take turns, while everybody hears of everything, until there is nothing to do; returns how many."""
    for taken in range(turns):
        town.everybody_hears()
        town.at += timedelta(seconds=10)
        if not walker.whole_turn() and not walker.status.problems:
            return taken
    raise AssertionError([each.why for each in walker.status.problems])


def installed() -> Town:
    """A town in which all is well."""
    town = Town()
    settle(town, Walker(town))
    town.everybody_hears()
    return town
