"""The Binding of a pod waits for the pod, which the server reads: what it changes of it has to be known."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.reviews import container, encoded, pod
from tests.server.process import ROOT
from webhook.core.forms.document import UnreadableError
from webhook.core.validate import validate
from webhook.files import rule_files
from webhook.server.attachment import NOT_YET, follow
from webhook.server.handler import Answer, Lane, ReadPod
from webhook.telemetry import Lines

RULES = rule_files.load(ROOT / "rules", only_enabled=True)
Object = Mapping[str, Any]
Ask = Callable[..., Any]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Ask]:
    """What a server with a reader of pods answers to the review of a Binding with the label gpu-memory: 1Gi."""
    with (tmp_path / "log").open("wb") as output:

        def ask(stored: ReadPod | None, name: str = "train", *, attached: bool = False) -> Any:
            lane = Lane({"validate": validate}, RULES, Lines(output.fileno()))
            lane.read_pod = stored
            if attached:
                follow(lane).close()
            answer = lane.answer(b"POST", b"/validate?timeout=1s", binding(name))
            answered = answer if isinstance(answer, Answer) else asyncio.run(_waited(answer))
            return json.loads(answered.body)["response"]

        yield ask


async def _waited(answer: Any) -> Answer:
    found: Answer = await answer
    return found


def binding(name: str) -> bytes:
    bound = {"kind": "Binding", "metadata": {"name": name, "uid": "u-1", "labels": {"gpu-memory": "1Gi"}}}
    review = json.loads(encoded(bound))
    review["request"] |= {"subResource": "binding", "name": name, "namespace": "team"}
    return json.dumps(review).encode()


def stored(memory: str) -> Object:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}
    found = pod([container("main", 0) | {"resources": {"limits": limits, "requests": limits}}], {})
    found["metadata"] |= {"name": "train", "uid": "u-1", "labels": {"gpu-memory": memory}}
    return found


def test_a_binding_is_judged_by_the_pod_as_it_is(asked: Ask) -> None:
    reads: list[tuple[str, str]] = []

    async def more(namespace: str, name: str) -> Object:
        reads.append((namespace, name))
        return stored("8Gi")

    async def same(*_: str) -> Object:
        return stored("1Gi")

    refused = asked(more)

    assert reads == [("team", "train")]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
    assert refused["status"]["message"].startswith("[GPU109] the label gpu-memory of a pod with a GPU cannot change")
    assert asked(same)["allowed"]


def test_a_pod_that_is_not_there_is_left_to_the_api_server(asked: Ask) -> None:
    async def missing(*_: str) -> None:
        return None

    assert asked(missing)["allowed"]


async def _away(*_: str) -> Object:
    raise UnreadableError("the API server is away")


async def _silent(*_: str) -> Object:
    return await asyncio.Future()


@pytest.mark.parametrize(
    ("reader", "why"), [(_away, "the API server is away"), (_silent, "the API server did not answer in time")]
)
def test_while_the_pod_cannot_be_read_the_client_is_told_to_retry(asked: Ask, reader: ReadPod, why: str) -> None:
    refused = asked(reader)

    assert (refused["allowed"], refused["status"]["code"], refused["status"]["details"]["retryAfterSeconds"]) == (
        False,
        503,
        1,
    )
    assert refused["status"]["message"].split("\n")[0] == (
        f"[GPU111] whether the Binding changes what its pod counts cannot be told now: {why}"
    )


def test_until_the_cluster_is_known_nothing_is_bound_with_what_may_count(asked: Ask) -> None:
    refused = asked(None, attached=True)

    assert (refused["status"]["code"], refused["status"]["message"].split("\n")[0].partition(" now: ")[2]) == (
        503,
        NOT_YET,
    )


@pytest.mark.parametrize("name", ["", "..", "../../secrets/key"])
def test_nothing_is_read_by_a_name_that_no_pod_can_have(asked: Ask, name: str) -> None:
    assert asked(_away, name)["allowed"]


def test_without_a_cluster_there_is_no_pod_to_read_and_none_is_counted(asked: Ask) -> None:
    assert asked(None)["allowed"]
