"""What each request gets."""

import base64
import json
import re

import pytest

from tests import tables
from tests.bench.reviews import PLACEHOLDER, fraction_review
from tests.server.peer import Peer
from tests.server.process import Server


def test_a_fraction_is_translated(peer: Peer, fraction: bytes) -> None:
    answered = peer.ask("POST", "/mutate?timeout=10s", fraction)
    review = json.loads(answered.body)

    assert (answered.status, answered.headers["content-type"]) == (200, "application/json")
    assert review["kind"] == "AdmissionReview"
    assert review["response"]["uid"] == PLACEHOLDER
    assert review["response"]["allowed"] is True
    patch = json.loads(base64.b64decode(review["response"]["patch"]))
    assert any("/resources/limits/" in operation["path"] for operation in patch)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_pod_without_a_gpu_is_left_alone(peer: Peer, plain: bytes, path: str) -> None:
    answered = peer.ask("POST", path, plain)

    assert json.loads(answered.body)["response"] == {"uid": PLACEHOLDER, "allowed": True}


def test_an_untranslated_fraction_is_denied_when_validated(peer: Peer, fraction: bytes) -> None:
    response = json.loads(peer.ask("POST", "/validate", fraction).body)["response"]

    assert response["allowed"] is False
    assert response["status"]["message"].startswith("[GPU")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "text/plain", ""])
def test_the_content_type_is_not_looked_at(peer: Peer, plain: bytes, content_type: str) -> None:
    assert peer.ask("POST", "/mutate", plain, {"Content-Type": content_type}).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"request":' + b"[" * 2000 + b"]" * 2000 + b"}",
        *(body.encode() for body in tables.table(__file__, "no reviews")),
        fraction_review().replace(b'"name":"main"', b'"name":' + b"[" * 1000 + b"]" * 1000),
    ],
    ids=lambda body: body[:40].decode("ascii", "backslashreplace"),
)
def test_what_is_no_review_is_told_so_in_one_line(peer: Peer, plain: bytes, body: bytes) -> None:
    answered = peer.ask("POST", "/mutate", body)

    assert answered.status == 400
    assert answered.headers["content-type"].startswith("text/plain")
    assert answered.body.endswith(b"\n")
    assert answered.body.count(b"\n") == 1
    assert peer.ask("POST", "/mutate", plain).status == 200  # and the connection is as good as before


def test_an_empty_body_is_no_review(peer: Peer) -> None:
    assert peer.ask("POST", "/mutate", headers={"Content-Length": "0"}).status == 400


def test_deep_nesting_inside_a_pod_is_answered(peer: Peer) -> None:
    depth = 200
    pod = b'{"metadata":{"labels":{"gpu":"1"}},"spec":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    head = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":'
    resource = b'"resource":{"group":"","version":"v1","resource":"pods"}'
    body = head + b'{"uid":"u","operation":"CREATE",' + resource + b',"object":' + pod + b"}}"

    assert peer.ask("POST", "/mutate", body).status == 200


@pytest.mark.parametrize("path", ["/", "/mutate/", "/Mutate", "//mutate", "/%6dutate", "/metrics/x", "/admin"])
def test_other_paths_are_not_found(peer: Peer, path: str) -> None:
    answered = peer.ask("GET", path)

    assert answered.status == 404
    assert b"/mutate /validate /templates /policies /healthz /readyz /metrics" in answered.body


@tables.rows
def test_other_methods_are_not_allowed(peer: Peer, method: str, path: str, allowed: str) -> None:
    answered = peer.ask(method, path)

    assert (answered.status, answered.headers["allow"]) == (405, allowed)


def test_the_probes_say_ok_and_by_which_rules(peer: Peer, server: Server) -> None:
    pages = [peer.ask("GET", path) for path in ("/healthz", "/readyz")]

    assert [page.status for page in pages] == [200, 200]
    assert pages[0].body == b"ok\n"
    told = re.fullmatch(rb"ok, rules ([0-9a-f]{64})\n", pages[1].body)
    assert told
    assert server.metric(f'rulebook{{digest="{told[1].decode()}"}}') == 1


def test_head_has_the_length_and_no_body(peer: Peer) -> None:
    answered = peer.ask("HEAD", "/healthz")

    assert (answered.status, answered.headers["content-length"], answered.body) == (200, "3", b"")
    assert peer.ask("GET", "/healthz").status == 200


def test_an_upgrade_is_ignored(peer: Peer) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "x",
        "Sec-WebSocket-Version": "13",
    }

    assert peer.ask("GET", "/healthz", headers=headers).status == 200
