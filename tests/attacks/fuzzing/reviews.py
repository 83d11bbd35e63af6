"""The life of a pod at one replica: its review, its patch, what is stored, its review again, the ledger."""

import asyncio
import base64
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from http import HTTPStatus
from typing import Any, Final, NoReturn

import orjson

from tests.attacks.fuzzing import api_server, kubelet
from tests.cases.served import NeverServedError, as_served
from tests.core.policy import tenants
from tests.laws import clusters
from webhook.cli import policy_advice, workload_advice
from webhook.core import review
from webhook.core.kube import fields
from webhook.core.mutate import mutate
from webhook.core.quota import tally
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.server.handler import Answer, Lane, OfflineReservations
from webhook.telemetry import Lines

SHIPPED: Final = "as shipped"
NAMESPACE: Final = "vision-dev"
"""A namespace with a quota of devices that nobody can use up."""

PATHS: Final = ("mutate", "validate", "templates", "policies")


class FoundError(AssertionError):
    """What an oracle has found."""


class Replica(Lane):
    """A lane whose own faults are raised, and which logs nothing."""

    def __init__(self, rulebook: Rulebook) -> None:
        judges = {
            "mutate": mutate,
            "validate": validate,
            "templates": workload_advice.warn,
            "policies": policy_advice.warn,
        }
        super().__init__(judges, rulebook, Lines(_nowhere()))

    def _failed(self, name: str, request: review.AdmissionRequest | None, error: Exception) -> NoReturn:  # noqa: ARG002 - the lane's
        raise error

    def refuse(self, status: HTTPStatus, text: str) -> Answer:
        return Answer(status, text.encode())

    def ask(self, path: str, body: bytes) -> Mapping[str, Any] | None:
        """The response to a review, None if it is none."""
        answered = self.answer(b"POST", f"/{path}?timeout=10s".encode(), body)
        answer = answered if isinstance(answered, Answer) else asyncio.run(_awaited(answered))
        if answer.status == HTTPStatus.BAD_REQUEST:
            return None
        assert answer.status == HTTPStatus.OK
        response: Mapping[str, Any] = orjson.loads(answer.body)["response"]
        # Whether the API server can use a response, and a person.
        warnings = response.get("warnings", [])
        assert response["uid"] == orjson.loads(body)["request"]["uid"]
        assert not [char for char in "".join(warnings) if unicodedata.category(char) == "Cc"]
        assert all(map(len, warnings))
        assert sum(map(len, warnings)) <= review.WARNINGS_LENGTH
        if not response["allowed"]:
            assert response["status"]["message"].startswith("[GPU")
            assert len(response["status"]["message"]) < 8 * review.TEXT_LENGTH * review.VIOLATIONS
        return response

    def reserves(self, path: str, body: bytes) -> tuple[Mapping[str, Any] | None, Fraction]:
        """The response, and how many devices a new ledger has reserved."""
        self.reservations = OfflineReservations()
        response = self.ask(path, body)
        pending = [
            amount
            for _, ledger in self.reservations.known()
            for by in ledger.pending.values()
            for amount in by.values()
        ]
        return response, sum((Fraction(amount.get(tally.DEVICES, 0)) for amount in pending), Fraction(0))


async def _awaited(answer: Any) -> Answer:
    awaited: Answer = await answer
    return awaited


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


@cache
def replica(cluster: str) -> Replica:
    """The replica of a cluster whose one tenant has a quota."""
    rulebook = tenants.RULES if cluster == SHIPPED else clusters.rulebook(cluster)
    rulebook = replace(rulebook, protections=tenants.RULES.protections)
    return Replica(tenants.rules(tenants.policy(quota=tenants.quota(devices=10**9)), rulebook=rulebook))


def live(content: bytes) -> bool:
    """Bring a review to a replica: `PATH CLUSTER`, a line end, and its body. Returns whether the oracle was asked."""
    head, _, body = content.partition(b"\n")
    path, _, cluster = head.decode("utf-8", "replace").partition(" ")
    if path not in PATHS or cluster not in (SHIPPED, clusters.ALL, *clusters.names()):
        return False  # the head is ours, and not part of what is sent
    there = replica(cluster)
    response = there.ask(path, body)
    if path != "mutate" or response is None or not response["allowed"]:
        return False
    whole = orjson.loads(body)
    if is_deep(whole):
        return False
    stored = _patched(whole["request"].get("object"), orjson.loads(body)["request"].get("object"), response)
    request = {**whole["request"], "object": stored}
    taken = _is_taken(stored) and _is_stored(request)
    if taken:
        request["object"] = stored = _as_stored(stored, request)
        again = there.ask("mutate", orjson.dumps({**whole, "request": request})) or {}
        if "patch" in again or not again["allowed"]:
            raise FoundError(f"/mutate changes its own result: {_said(again)}")
    last, charged = there.reserves("validate", orjson.dumps({**whole, "request": request}))
    if not taken or last is None:
        return False
    if not last["allowed"]:
        # /validate refuses what /mutate has made only for a policy; an author's own resources may be wrong.
        spec = orjson.loads(body)["request"]["object"]["spec"]
        status = last["status"]
        own = (each.get("resources") or {} for each in api_server.containers(spec))
        written = any(
            "/" in name for each in own for section in ("limits", "requests") for name in each.get(section) or ()
        )
        if status["code"] == HTTPStatus.UNPROCESSABLE_ENTITY and not written:
            raise FoundError(f"/validate refuses the result of /mutate: {status['message']}")
        return False
    if free := kubelet.free(stored, cluster, charged):
        raise FoundError(f"{charged} devices were charged for {free}")
    return charged > 0


def _said(response: Mapping[str, Any]) -> str:
    return str(base64.b64decode(response["patch"])) if "patch" in response else str(response.get("status"))


def is_deep(document: Any) -> bool:
    """Whether it is nested deeper than JSON is written here. No object of Kubernetes is."""
    try:
        return not orjson.dumps(document)
    except TypeError:
        return True


def _patched(pod: Any, copy: Any, response: Mapping[str, Any]) -> Any:
    """The pod with the patch of a response, by our own application and by another."""
    if "patch" not in response:
        return pod
    operations = orjson.loads(base64.b64decode(response["patch"]))
    ours = fields.applied(operations, pod)
    theirs = api_server.patched(copy, operations)
    assert ours == theirs
    return ours


def _is_stored(request: Mapping[str, Any]) -> bool:
    """Whether it creates a pod where the quota is."""
    resource = request.get("resource")
    of_pods = isinstance(resource, dict) and resource.get("resource") == "pods" and not request.get("subResource")
    return of_pods and request.get("operation") == "CREATE" and request.get("namespace") == NAMESPACE


def _is_taken(pod: Any) -> bool:
    try:
        api_server.check(pod)
        as_served(pod)
    except (api_server.NotTakenError, NeverServedError, KeyError, AttributeError):
        return False
    return True


def _as_stored(pod: Any, request: Mapping[str, Any]) -> Any:
    """The pod as /validate sees it: with what the API server has given it."""
    stored = as_served(pod)
    name = stored["metadata"].get("name") if isinstance(stored["metadata"].get("name"), str) else None
    named = {"name": name or "train", "namespace": request["namespace"], "uid": "8f2f8d4e"}
    return {**stored, "metadata": {**stored["metadata"], **named}}


def of(pod: Any, operation: str = "CREATE", old: Any = None, resource: str = "pods") -> dict[str, Any]:
    """A review, as a document that may still be mutated."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "8f2f8d4e",
            "operation": operation,
            "resource": {"group": "", "version": "v1", "resource": resource},
            "namespace": NAMESPACE,
            "name": "train",
            "userInfo": {"username": "bob"},
            "object": pod,
            "oldObject": old,
        },
    }
