"""Six clients send the most expensive pods they can make; a bystander goes on creating GPU pods."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from statistics import median
from time import monotonic
from typing import Self

import orjson
import pytest

from tests.attacks import monsters
from tests.attacks.conftest import Figure
from tests.cluster.binaries import Binaries
from tests.cluster.plane import control_plane
from tests.cluster.pods import pod
from tests.cluster.tenancy import fleet
from tests.cluster.tenancy.fleet import Fleet
from tests.laws import SOAK

pytestmark = pytest.mark.cluster

FAMILIES = ("labels gpu-xxxx", "nodeSelectorTerms", "resourceClaims", "annotations of absent containers")
ATTACKERS = 6
SIZE = monsters.LARGEST_POD // 30
"""Bytes of a pod. Larger ones stop the API server itself: without any webhook, 1.6 MB of labels take it 4 s, and
320 KB of containers with claims 5 s [measured, v1.36]."""

CREATES = 400 if SOAK else 20
"""How many pods the bystander creates: in peace, under an attack that we see, in a soak under one that we do not."""

UNSEEN = "kube-system"
"""A namespace whose pods the API server does not send us."""

NOT_SENT = ("400", "413")
"""What the API server answers itself, before it asks a webhook."""

PATIENCE = 35.0
"""Seconds; the API server itself gives up after 34."""


@pytest.fixture(scope="module")
def served(programs: Binaries, controllers: None) -> Iterator[Fleet]:  # noqa: ARG001 - asked for what it checks
    """Two replicas, and a tenant for each attack."""
    with (
        control_plane(programs, controllers=True) as plane,
        fleet.running(plane, len(FAMILIES), replicas=2) as running,
    ):
        yield running


@pytest.mark.parametrize("family", FAMILIES)
def test_a_bystander_gets_every_pod_and_waits_little_longer_than_for_the_api_server_alone(
    served: Fleet, family: str, figure: Figure
) -> None:
    """How long it waits is told each time, and judged in a soak: of twenty creates the median is chance."""
    _, (own, attacked) = served.tenant(3 * CREATES)
    monster = orjson.dumps(monsters.of_size(monsters.MONSTERS[family], SIZE))

    seconds = {"in peace": created(served, own, "calm")}
    if SOAK:  # what the API server alone makes of the attack is judged there, and nowhere else
        with Attack(served, UNSEEN, monster):
            seconds["beside attacks that we do not see"] = created(served, own, "alone")
    with Attack(served, attacked, monster) as attack:
        troubled = typical(created(served, own, "troubled"))

    told = ", ".join(f"{when} {typical(each):.3f} s" for when, each in seconds.items())
    figure(f"{family}, creates of a bystander {told}, beside attacks that we see {troubled:.3f} s")
    assert attack.answers.total() >= ATTACKERS
    assert not any(answer.startswith(NOT_SENT) for answer in attack.answers)
    if SOAK:
        assert troubled <= 5 * max(map(typical, seconds.values()))


def created(served: Fleet, namespace: str, name: str) -> list[float]:
    """Create pods one after the other; how many seconds each took."""
    seconds = []
    for number in range(CREATES):
        body = json.dumps(pod(f"{name}-{number}", labels={"gpu": "0.3"})).encode()
        began = monotonic()
        code, _, said = served.client.exchange("POST", f"/api/v1/namespaces/{namespace}/pods", body, seconds=PATIENCE)
        seconds.append(monotonic() - began)
        assert code == HTTPStatus.CREATED, said.decode()
    return seconds


def typical(seconds: list[float]) -> float:
    """What 99 of 100 stay below; of the few creates of a short run the median, as one pause would decide."""
    return sorted(seconds)[-1 - len(seconds) // 100] if SOAK else median(seconds)


class Attack:
    """Clients that send one pod as dry runs, again and again, while the block lasts; `answers` by code and text."""

    def __init__(self, served: Fleet, namespace: str, monster: bytes) -> None:
        self.answers: Counter[str] = Counter()
        self._client = served.client
        self._path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        self._monster = monster
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(ATTACKERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._over.is_set():
            try:
                code, _, said = self._client.exchange("POST", self._path, self._monster, seconds=PATIENCE)
                self.answers[f"{code} {said[:150]!r}"] += 1
            except OSError as error:
                self.answers[str(error)[:150]] += 1
