"""A cluster in memory around real rotators: what is stored, API servers and replicas that hear of it late.

A rotator goes on by one request at a time, when a test says so, and may never go on again: a crash.
"""

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from types import coroutine
from typing import Any

from jsonpatch import JsonPatch, JsonPatchTestFailed

from certs import rotation, turns
from certs.api import Api, ApiError, ConflictError, Object, Site
from certs.issue import Pair, anchor, split
from certs.turns import Status

SITE = Site()
TERMS = rotation.Terms(authority=timedelta(days=120), leaf=timedelta(days=30))
BEGAN = datetime(2026, 11, 22, 12, tzinfo=UTC)
CONFIGURATIONS = tuple(SITE.configurations.values())
PATHS = (*CONFIGURATIONS, SITE.serving, SITE.authorities)
NAMES = ("mutate.gpu-webhook.io", "ping.gpu-webhook.io", "somebody-elses.example.com")


@coroutine
def _pause() -> Generator[None]:
    """Everything else may happen here."""
    yield


@cache
def vouched(leaf: bytes, bundle: bytes) -> bool:
    return anchor(leaf, split(bundle)) is not None


@dataclass
class Town(Api):
    """The API of one cluster, as its rotators see it, and everybody who follows it."""

    at: datetime = BEGAN
    objects: dict[str, Object] = field(default_factory=dict)
    history: dict[str, list[tuple[datetime, Object]]] = field(default_factory=lambda: {path: [] for path in PATHS})
    lag: timedelta = TERMS.overlap
    """The longest that an API server takes to hear of a configuration."""

    servers: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    """By API server and configuration: how much of the history it has heard of before that."""

    replicas: list[int] = field(default_factory=lambda: [0, 0, 0])
    """How much of the history of the serving Secret each has mounted, which may take for ever."""

    versions: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for path in CONFIGURATIONS:
            self.store(path, {"metadata": {}, "webhooks": [{"name": name, "clientConfig": {}} for name in NAMES]})

    def store(self, path: str, made: Object) -> None:
        """Write an object, as any program may; an API server notes when somebody changed a bundle."""
        metadata = {"creationTimestamp": self.at.isoformat(), **made["metadata"]}
        metadata["resourceVersion"] = str(next(self.versions))
        before = self.objects.get(path)
        if before is None or [*rotation.bundles(before)] != [*rotation.bundles(made)]:
            others = [fields for fields in metadata.get("managedFields", ()) if "f:caBundle" not in str(fields)]
            written = {"manager": "any", "time": self.at.isoformat(), "fieldsV1": {"f:caBundle": {}}}
            metadata["managedFields"] = [*others, written]
        self.objects[path] = {**made, "metadata": metadata}
        self.history[path].append((self.at, self.objects[path]))

    @property
    def authorities(self) -> rotation.Authorities:
        return rotation.authorities(self.objects[SITE.authorities])

    # What a rotator asks

    @property
    def now(self) -> datetime:
        return self.at

    async def find(self, path: str) -> Object | None:
        await _pause()
        return self.objects.get(path)

    async def put(self, path: str, changed: Object, present: Object | None) -> Object:
        await _pause()
        if _version(self.objects.get(path)) != _version(present):
            raise ConflictError(path)
        if changed.get("type") == "kubernetes.io/tls" and not {"tls.crt", "tls.key"} <= changed["data"].keys():
            raise ApiError(path)
        self.store(path, changed)
        return self.objects[path]

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        await _pause()
        try:
            self.store(path, JsonPatch(operations).apply(self.objects[path]))
        except (KeyError, JsonPatchTestFailed):
            raise ConflictError(path) from None

    # What API servers and replicas do

    def hear(self, server: int, path: str) -> None:
        """An API server hears of the next version of a configuration."""
        self.servers[server][path] = min(self.heard(server, path) + 1, len(self.history[path]))

    def heard(self, server: int, path: str) -> int:
        """How much of the history of a configuration an API server has heard of."""
        return max(self._before(path, self.lag), self.servers[server].get(path, 0))

    def hear_all_before(self, lag: timedelta) -> None:
        """All API servers hear of everything that is older."""
        for number, server in enumerate(self.servers):
            server |= {path: max(self._before(path, lag), self.heard(number, path)) for path in CONFIGURATIONS}

    def _before(self, path: str, lag: timedelta) -> int:
        return sum(at <= self.at - lag for at, _ in self.history[path])

    def mount(self, replica: int) -> None:
        """A kubelet writes the newest Secret for its replica."""
        self.replicas[replica] = len(self.history[SITE.serving])

    def everybody_hears(self) -> None:
        for server in self.servers:
            server |= {path: len(self.history[path]) for path in CONFIGURATIONS}
        for replica in range(len(self.replicas)):
            self.mount(replica)

    def served(self, replica: int) -> Pair | None:
        """The newest good pair that a replica has ever mounted: it keeps what is good."""
        mounted = self.history[SITE.serving][: self.replicas[replica]]
        pairs = (rotation.pair(secret) for _, secret in reversed(mounted))
        return next((pair for pair in pairs if pair and split(pair.certificate)), None)

    def refused(self) -> list[tuple[int, int]]:
        """Each API server that would refuse what a replica serves, and the replica.

        One of which every trusted CA has expired is not among them: it refuses whatever is served, until it hears.
        """
        trusted = [
            (server, bundle)
            for server in range(len(self.servers))
            for path in CONFIGURATIONS
            for _, configuration in self.history[path][: self.heard(server, path)][-1:]
            for _, bundle in [*rotation.bundles(configuration)][:1]
            if split(bundle, self.at) or not split(bundle)
        ]
        return [
            (server, replica)
            for replica in range(len(self.replicas))
            if (pair := self.served(replica)) is not None and split(pair.certificate, self.at)
            for server, bundle in trusted
            if not vouched(pair.certificate, bundle)
        ]


def _version(present: Object | None) -> str | None:
    return None if present is None else present["metadata"]["resourceVersion"]


class Walker:
    """A rotator that goes on when it is told to."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self.status = Status()
        self._rotator = rotation.Rotator(town, SITE, TERMS, self.status)
        self._turn: Coroutine[Any, Any, None] | None = None

    def walk(self) -> bool | None:
        """Go on until the next request; at the end of a turn: whether something was written."""
        self._turn = self._turn or turns.turn(self.status, [self._rotator.turn])
        try:
            self._turn.send(None)
        except StopIteration:
            self._turn = None
            return self.status.acted
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


def settle(town: Town, walker: Walker) -> int:
    """Take turns, while everybody hears of everything, until nothing was done for longer than GRACE.

    Returns in which turn the last thing was done.
    """
    last = 0
    for taken in range(40):
        town.everybody_hears()
        town.at += timedelta(seconds=10)
        if walker.whole_turn() or walker.status.problems:
            last = taken + 1
        if taken >= last + 7:
            return last
    raise AssertionError([problem.why for problem in walker.status.problems])


def installed() -> Town:
    """A town in which all is well."""
    town = Town()
    settle(town, Walker(town))
    town.everybody_hears()
    return town
