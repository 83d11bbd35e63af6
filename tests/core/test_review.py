"""The wire: reviews in, answers out, as the API server and kubectl want them."""

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests import tables
from webhook.core import review
from webhook.core.decision import Decision, denied
from webhook.core.violations import Violation

WRONG = Violation(
    code="GPU401",
    path="spec.containers[0]",
    message="two things differ",
    fix="keep one",
    rule="hami-vgpu (hami-vgpu.yaml:4)",
    notes=("nvidia-gpu: no mode",),
)


def _answer(decision: Decision) -> Any:
    answer = orjson.loads(review.encode("some-uid", decision))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return answer["response"]


def test_yes_is_short() -> None:
    assert _answer(Decision(allowed=True)) == {"uid": "some-uid", "allowed": True}


def test_a_patch_is_base64() -> None:
    patch = [{"op": "add", "path": "/spec/schedulerName", "value": "ünï"}]

    answer = _answer(Decision(allowed=True, patch=patch, audit={"rules": "hami.yaml:1"}))

    encoded = answer.pop("patch")
    assert orjson.loads(base64.b64decode(encoded)) == patch
    assert answer == {
        "uid": "some-uid",
        "allowed": True,
        "patchType": "JSONPatch",
        "auditAnnotations": {"decision": "some-uid", "rules": "hami.yaml:1"},
    }


MESSAGE = """\
[GPU401] two things differ
  at   spec.containers[0]
  also nvidia-gpu: no mode
  rule hami-vgpu (hami-vgpu.yaml:4)
  fix  keep one"""


def test_a_denial_has_every_violation_and_no_reason_that_makes_kubectl_hide_the_message() -> None:
    cause = {"reason": "GPU401", "field": "spec.containers[0]", "message": "two things differ"}

    assert _answer(denied([WRONG, WRONG], ["mind the gap"])) == {
        "uid": "some-uid",
        "allowed": False,
        "warnings": ["mind the gap"],
        "status": {
            "status": "Failure",
            "code": 422,
            "message": f"{MESSAGE}\n{MESSAGE}",
            "details": {"causes": [cause, cause]},
        },
    }


@tables.rows
def test_a_denial_for_these_reasons_has_as_its_status(
    codes: list[str], code: int, reason: str | None, retry: int | None
) -> None:
    status = _answer(denied([replace(WRONG, code=each) for each in codes]))["status"]

    told = (status["code"], status.get("reason"), status["details"].get("retryAfterSeconds"))
    assert told == (code, reason, retry)


@pytest.mark.parametrize(
    ("warnings", "arriving"),
    [
        (["one", "two"], ["one", "two"]),
        (["one", "one"], ["one"]),
        (["a\nb\tc\x00d\x7fe\u2028f"], ["a b c d e\u2028f"]),
        (["a\u202eb\u2066c\u200bd\x1b[2J"], ["a b c d [2J"]),
        (["\n"], []),
        ([""], []),
        (["x" * 256], ["x" * 256]),
        (["x" * 257], ["x" * 255 + "…"]),
        (["é" * 257], ["é" * 255 + "…"]),
        (["x" * 300 + "a", "x" * 300 + "b"], ["x" * 255 + "…"]),
        ([f"{number:0256}" for number in range(17)], [f"{number:0256}" for number in range(16)]),
        (
            [*[f"{number:0250}" for number in range(16)], "x" * 97, "short"],
            [*[f"{number:0250}" for number in range(16)], "short"],
        ),
    ],
)
def test_warnings_arrive(warnings: list[str], arriving: list[str]) -> None:
    assert list(review.printable(warnings)) == arriving


def test_of_a_key_that_stands_twice_the_last_counts_as_it_does_to_the_api_server() -> None:
    """The API server writes no key twice; who sends a review himself gains nothing by it."""
    pod = b'{"metadata": {"labels": {"gpu": "1", "gpu": "2"}}, "metadata": {"labels": {"gpu": "3"}}}'
    request = b'{"uid": "a", "dryRun": true, "dryRun": false, "object": ' + pod + b"}"
    body = b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": ' + request + b"}"

    decoded = review.decode(body)

    assert (decoded.dry_run, decoded.pod) == (False, {"metadata": {"labels": {"gpu": "3"}}})


@tables.rows
def test_what_is_no_review_is_named(body: str, message: str) -> None:
    with pytest.raises(review.NotAReviewError) as refused:
        review.decode(body.encode())

    assert str(refused.value) == message


@tables.rows
def test_what_is_wrong_with_a_request_is_named(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(review.NotAReviewError) as refused:
        review.decode(
            orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request_})
        )

    assert str(refused.value) == message


def _author(user: str, *owners: Any, namespace: str = "dev") -> str:
    pod = {"metadata": {"ownerReferences": list(owners)}}
    return review.creating(pod, "review-1", namespace)._replace(user=user).author


REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"


def test_an_author_is_a_user_or_the_object_of_a_controller_for_which_the_pod_is_made() -> None:
    one, two = {"controller": True, "uid": "one"}, {"controller": True, "uid": "two"}
    own = "system:serviceaccount:dev:default"
    assert _author("ann") == _author("ann", one) == "8d3adf6abf23f3a5"
    assert _author(own, one) == _author(own, two)
    assert len({_author(REPLICA_SETS, each) for each in (one, two, {"uid": "one"})}) == 3
    assert _author(own, one, namespace="ci") != _author(own, two, namespace="ci")


def test_an_author_of_whom_no_certificate_tells_is_one_at_each_address() -> None:
    request = review.creating({}, "review-1", "dev")._replace(user="ann")
    assert [request._replace(address=address).author for address in ("10.9.9.9", "fd00::9")] == [
        "8d3adf6abf23f3a5@10.9.9.9",
        "8d3adf6abf23f3a5@fd00::9",
    ]


@pytest.mark.parametrize("owners", [None, 3, "x", [3, None, {}], {"controller": True}])
def test_owners_of_another_shape_are_none(owners: Any) -> None:
    pod = {"metadata": {"ownerReferences": owners}}
    assert review.creating(pod, "review-1", "dev")._replace(user=REPLICA_SETS).author == _author(REPLICA_SETS)
