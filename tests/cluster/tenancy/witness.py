"""Watches pods by itself, and adds up what the live ones hold at every version of the cluster.

It knows nothing of our counting: what a pod holds is what the test that made it wrote into an annotation. Where a
watch breaks off and the API server no longer knows what came next, every version in between is read from etcd.
"""

import contextlib
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from tests.cluster.client import Client, RefusedError

HOLDS = "example.com/holds"
"""What a pod holds, in devices, by whoever wrote the test."""

PODS = "/api/v1/pods"
SECONDS = 30


class Peak(NamedTuple):
    """The most that was ever held at once, and when."""

    devices: Fraction
    version: int


class _Live(NamedTuple):
    namespace: str
    holds: Fraction


class _GoneError(Exception):
    """The API server does not know what came after a version."""


class Witness:
    """Watches the pods of some namespaces from the moment it is made until the end of its `with` block."""

    def __init__(self, client: Client, namespaces: Collection[str]) -> None:
        self.peak = Peak(Fraction(0), 0)
        self.versions = 0
        """At how many versions the sum was looked at."""
        self._client = client
        self._namespaces = namespaces
        self._live: dict[str, _Live] = {}
        self._total = Fraction(0)
        self._version = 0
        self._look(self._newest())
        self._stopped = threading.Event()
        self._failed: BaseException | None = None
        self._connection: http.client.HTTPSConnection | None = None
        self._thread = threading.Thread(target=self._run, name="witness")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with contextlib.suppress(AttributeError, OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]  # where there is none: no watch
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def held(self) -> dict[str, Fraction]:
        """What live pods hold now, by namespace."""
        found: Counter[str] = Counter()
        for each in list(self._live.values()):
            found[each.namespace] += each.holds  # type: ignore[assignment]  # a Fraction adds up as an int does
        return {namespace: Fraction(found[namespace]) for namespace in self._namespaces}

    def up_to_date(self) -> bool:
        """Whether it has seen what the API server has now; for when nothing happens any more."""
        if self._failed is not None:
            raise self._failed
        listed = {pod["metadata"]["uid"] for pod in self._pods({}) if _holds(pod)}
        return listed == {uid for uid, each in list(self._live.items()) if each.holds}

    # Versions

    def _look(self, version: int) -> None:
        """Read all pods that there were at a version."""
        pods = self._pods({"resourceVersion": str(version), "resourceVersionMatch": "Exact"})
        self._live = {pod["metadata"]["uid"]: _live(pod) for pod in pods}
        self._total = sum((each.holds for each in self._live.values()), Fraction(0))
        self._reach(version)

    def _change(self, kind: str, pod: Mapping[str, Any]) -> None:
        version = int(pod["metadata"]["resourceVersion"])
        if kind != "BOOKMARK" and pod["metadata"]["namespace"] in self._namespaces:
            before = self._live.pop(pod["metadata"]["uid"], None)
            self._total -= before.holds if before else 0
            if kind != "DELETED":
                after = self._live[pod["metadata"]["uid"]] = _live(pod)
                self._total += after.holds
        self._reach(version)

    def _reach(self, version: int) -> None:
        self._version = version
        self.versions += 1
        if self._total > self.peak.devices:
            self.peak = Peak(self._total, version)

    # The API server

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._watch()
                except _GoneError:
                    self._catch_up()
                except (OSError, http.client.HTTPException, ValueError, RefusedError):
                    self._stopped.wait(0.1)
        except BaseException as error:  # noqa: BLE001 - told by whoever asks it
            self._failed = error

    def _watch(self) -> None:
        query = {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": SECONDS}
        netloc = urlsplit(self._client.url).netloc
        connection = http.client.HTTPSConnection(netloc, context=self._client.tls, timeout=2 * SECONDS)
        try:
            self._connection = connection
            connection.request("GET", f"{PODS}?{urlencode(query)}")
            for line in _lines(connection.getresponse()):
                event = json.loads(line)
                if event.get("type", "ERROR") == "ERROR":
                    raise _GoneError(line)
                self._change(event["type"], event["object"])
        finally:
            connection.close()

    def _catch_up(self) -> None:
        """Look at every version from the last one known to the one there is now, as etcd has them all."""
        for version in range(self._version + 1, self._newest() + 1):
            self._look(version)

    def _newest(self) -> int:
        return int(self._client.send("GET", PODS, query={"limit": "1"})["metadata"]["resourceVersion"])

    def _pods(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        found = []
        for namespace in self._namespaces:
            path = f"/api/v1/namespaces/{namespace}/pods"
            found += self._client.send("GET", path, query=query)["items"]
        return found


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    if response.status == http.client.GONE:
        raise _GoneError(response.read())
    if response.status != http.client.OK:
        raise OSError(response.read())
    while line := response.readline():
        yield line


def _live(pod: Mapping[str, Any]) -> _Live:
    return _Live(pod["metadata"]["namespace"], _holds(pod))


def _holds(pod: Mapping[str, Any]) -> Fraction:
    """What its author says that it holds; nothing once it is over."""
    if pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return Fraction(0)
    return Fraction(pod["metadata"].get("annotations", {}).get(HOLDS, 0))
