"""The AdmissionReviews that are measured, as an API server sends them for a pod that a ReplicaSet makes."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import jsonpatch

from tests import builders, tables
from webhook.core.mutate import mutate
from webhook.core.review import creating

PLACEHOLDER = "00000000-0000-0000-0000-000000000000"  # the load generator writes a new uid here each time

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of review: what it is called, where it is posted, and its bytes.

    `patched`: our server translates the pod. `quota`: it is judged by a server whose tenants have one.
    """

    name: str
    path: str
    body: bytes
    patched: bool = False
    quota: bool = False


HIT = "same request"
MISS = "another request each time"


def all_measured() -> Sequence[Measured]:
    """Hits, whose request our server has seen before on a pod with other values around it; and misses."""
    hit, miss = pod([unlike(container("main", 18))], FRACTION), other_request(pod([container("main", 18)], FRACTION))
    measured = [
        Measured(f"/mutate, {HIT}", "/mutate", encoded(hit), patched=True),
        Measured(f"/mutate, {MISS}", "/mutate", encoded(miss), patched=True),
        Measured("/mutate, no GPU", "/mutate", encoded(pod([unlike(container("main", 18))], {}))),
        Measured("/mutate, 20 containers", "/mutate", encoded(large_pod()), patched=True),
    ]
    for what, asked in ((HIT, hit), (MISS, miss)):
        body = encoded(stored(asked))
        measured.append(Measured(f"/validate, {what}", "/validate", body))
        measured.append(Measured(f"/validate, quota, {what}", "/validate", body, quota=True))
    return measured


FRACTION: Mapping[str, str] = {"gpu": "0.3"}


def fraction_review() -> bytes:
    """The review of a pod that asks for a fraction of a GPU."""
    return encoded(pod([unlike(container("main", 18))], FRACTION))


def plain_review() -> bytes:
    """The review of a pod that asks for no GPU."""
    return encoded(pod([unlike(container("main", 18))], {}))


def unlike(one: Document) -> Document:
    """The container with an image, a command and a variable that are others in each review."""
    return {
        **one,
        "image": f"registry.example.com/vision/{PLACEHOLDER}",
        "command": ["train", PLACEHOLDER],
        "env": [*one["env"], {"name": "RUN", "value": PLACEHOLDER}],
    }


def other_request(one: Document) -> Document:
    """The pod with something that rules read and that is another in each review."""
    own = {"key": "pool.example.com/name", "operator": "Equal", "value": PLACEHOLDER}
    return {**one, "spec": {**one["spec"], "tolerations": [*one["spec"]["tolerations"], own]}}


def stored(one: Document) -> Document:
    """The pod as /validate sees it: translated, with its name and uid."""
    request = creating(one, uid="stored", namespace="vision-dev")
    rules = builders.rulebook(builders.shipped_files())
    translated: Document = jsonpatch.apply_patch(one, mutate(request, rules).patch)
    named = {"name": "classifier-7d9f8c6b5-x2x9q", "uid": "3b0c8a52-6f5e-4a39-b5c8-52a5d8a0c0d1"}
    return {**translated, "metadata": {**translated["metadata"], **named}}


def large_pod() -> Document:
    """Twenty containers with ten variables each; one of them gets the fraction."""
    containers = [container(f"worker-{number}", 10, padding=200) for number in range(20)]
    return pod(containers, {"gpu": "0.3", "gpu-container": "worker-7"})


def encoded(of: Document) -> bytes:
    """The bytes of the review that creates a pod."""
    return json.dumps(review(of), separators=(",", ":")).encode()


def review(of: Document) -> Document:
    """The review that creates a pod, in the mutating phase: no name yet."""
    made = _written("review")
    return {**made, "request": {**made["request"], "uid": PLACEHOLDER, "object": of}}


def pod(containers: list[Document], labels: Mapping[str, str]) -> Document:
    """A pod as defaulted by the API server."""
    made = _written("pod")
    made["metadata"]["labels"] |= labels
    made["spec"]["containers"] = containers
    return made


def container(name: str, variables: int, padding: int = 0) -> Document:
    """One container with environment, probes and the token mount that every container gets."""
    made = _written("container")
    value = "https://feature-store.vision.svc.cluster.local" + "x" * padding
    settings = [{"name": f"SETTING_{number}", "value": value[: 12 + padding]} for number in range(variables - 1)]
    return {
        **made,
        "name": name,
        "image": f"registry.example.com/vision/{name}:2026.11",
        "env": settings + made["env"],
    }


def _written(what: str) -> Document:
    """A document of the file beside this one, of which each caller has its own."""
    made: Document = deepcopy(tables.table(__file__, what))
    return made
