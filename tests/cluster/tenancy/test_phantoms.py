"""Creates that are refused after they were admitted, again and again, keep nothing from others."""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import Town, create, gpu_pod, owner, told
from tests.cluster.waiting import until
from tests.server.peer import Peer

pytestmark = pytest.mark.cluster

PAUSE = 0.02


@contextmanager
def attacked(there: Client, name: str, devices: str) -> Iterator[Counter[int]]:
    """Create pods as fast as that goes, until the end of the block; how often, by code. A name may have a number."""
    answers: Counter[int] = Counter()
    stopped = threading.Event()

    def attack() -> None:
        for number in count():
            if stopped.wait(PAUSE):
                return
            answers[told(there, gpu_pod(name.format(number), devices))[0]] += 1

    thread = threading.Thread(target=attack, name="attacker")
    thread.start()
    try:
        yield answers
    finally:
        stopped.set()
        thread.join()


def test_who_creates_a_name_that_is_taken_again_and_again_keeps_nothing_reserved(town: Town) -> None:
    here, there = town.tenant("starved", namespaces=2, quota={"devices": 10})
    create(here, gpu_pod("train", "0.1"))
    town.await_used("starved", "0.1")

    with attacked(here, "train", "9") as answers, town.watched(here, there) as witness:
        until(lambda: answers[409] > 20, "the attack goes on", within=30)
        for number in range(4):
            create(here, gpu_pod(f"here-{number}"))
            create(there, gpu_pod(f"there-{number}"))

    assert set(answers) == {409}
    assert witness.peak.devices <= 10
    town.await_used("starved", "8.1")
    message = refused(here, gpu_pod("train", "9"))
    assert (message["reason"], '[GPU115] pods "train" already exists' in message["message"]) == (
        "AlreadyExists",
        True,
    )


def refused(there: Client, made: Any) -> dict[str, Any]:
    try:
        there.create(made)
    except RefusedError as error:
        return error.status
    raise AssertionError("it was created")


def test_whose_pods_a_resource_quota_refuses_again_and_again_keeps_an_eighth_reserved(town: Town) -> None:
    here, there = town.tenant("refused", namespaces=2, quota={"devices": 16})
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    here.create(quota)
    until(lambda: here.get(quota).get("status", {}).get("hard") == {"pods": "0"}, "the quota is counted")

    def suspects() -> dict[str, int]:
        return dict(world.usage(town.client, "refused").get("suspects", {}))

    def free() -> bool:
        usage = world.usage(town.client, "refused")
        return max(suspects().values(), default=0) > 1 and float(usage["used"].get("devices", 0)) <= 2

    with attacked(here, "x{}", "4"), attacked(here, "y{}", "1"):
        until(free, "the attacker is suspect, and the large reservations are gone", within=60)
        for number in range(7):
            create(there, gpu_pod(f"p{number}", "2"))

    town.await_used("refused", "14", within=30)


def test_what_a_stranger_says_makes_nobody_else_suspect(town: Town) -> None:
    """Four made-up reviews, in the name of the user who owns the namespace."""
    [there] = town.tenant("accused", quota={"devices": 8})
    user = owner(there, "accused-owner")
    stored = dict(user.create(gpu_pod("made-up", "0.25"), dry_run=True))
    port = urlsplit(town.webhook.url).port or 0
    context = ssl.create_default_context(cadata=town.webhook.authority.decode())

    def suspects() -> dict[str, int]:
        return dict(world.usage(town.client, "accused").get("suspects", {}))

    def came_to_nothing(times: int) -> bool:
        return max(suspects().values(), default=0) == times

    for times in range(1, 5):
        assert reviewed_for_a_stranger(port, context, stored, there.namespace, "accused-owner", f"made-up-{times}")
        until(partial(came_to_nothing, times), "it came to nothing", within=30)

    assert [told(user, gpu_pod(f"mine-{number}", "3")) for number in range(2)] == [(201, "")] * 2
    assert {key.partition(" ")[0] for key in suspects()} == {f"{there.namespace}@{STRANGER}"}


STRANGER = "127.0.0.2"
"""An address from which no API server here asks."""


def reviewed_for_a_stranger(
    port: int, context: ssl.SSLContext, stored: Object, namespace: str, user: str, name: str
) -> bool:
    """Whether a pod of somebody else is admitted that no API server was asked for."""
    made = {**stored, "metadata": {**stored["metadata"], "name": name, "uid": name}}
    request = {
        "uid": name,
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "name": name,
        "userInfo": {"username": user},
        "object": made,
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    with closing(Peer.connect(port, context, STRANGER)) as stranger:
        answered = stranger.ask("POST", "/validate?timeout=10s", json.dumps(review).encode())
    return answered.status == 200 and bool(json.loads(answered.body)["response"]["allowed"])
