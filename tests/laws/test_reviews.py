"""What comes over the wire is what was meant, and what goes back is what was decided."""

import base64
import contextlib
import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws import surroundings, tried
from webhook.core import review
from webhook.core.decision import Decision
from webhook.core.review import AdmissionRequest, NotAReviewError
from webhook.core.violations import Violation

_TEXT = st.text(max_size=30).filter(lambda text: text.isprintable())
_OPERATIONS = st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"])


def _sent(request: AdmissionRequest) -> bytes:
    """The review as an API server would send it."""
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": request.uid,
                "operation": request.operation,
                "resource": {"group": "", "version": "v1", "resource": request.resource},
                **({"subResource": request.subresource} if request.subresource else {}),
                "namespace": request.namespace,
                **({"name": request.name} if request.name else {}),
                "dryRun": request.dry_run,
                "userInfo": {"username": request.user},
                "object": request.pod,
                "oldObject": request.old_pod,
                "options": {"kind": "CreateOptions"},
            },
        }
    )


@pytest.mark.large
@tried(500)
@given(
    st.builds(
        AdmissionRequest,
        uid=_TEXT.filter(bool),
        operation=_OPERATIONS,
        resource=st.just("pods"),
        subresource=st.sampled_from(["", "ephemeralcontainers", "resize"]),
        namespace=_TEXT,
        name=_TEXT,
        dry_run=st.booleans(),
        pod=st.none() | surroundings.pods(),
        old_pod=st.none() | surroundings.pods(),
        user=_TEXT,
        at=st.just(0.0),
        projection=st.none(),
        text=st.just(b""),
        address=_TEXT,
    )
)
def test_a_review_is_read_as_it_was_sent(request: AdmissionRequest) -> None:
    assert review.decode(_sent(request), address=request.address) == request


@tried(500)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["kind", "apiVersion", "request", "uid", "object", "resource", "operation"]),
            inner | st.sampled_from(["AdmissionReview", "admission.k8s.io/v1", 1]),
            max_size=5,
        ),
    ).map(orjson.dumps)
)
def test_whatever_is_sent_is_read_or_named_as_no_review(body: bytes) -> None:
    with contextlib.suppress(NotAReviewError):
        assert review.decode(body).uid


_VIOLATIONS = st.builds(
    Violation, code=st.sampled_from(["GPU201", "GPU401"]), path=_TEXT, message=_TEXT, fix=_TEXT, rule=_TEXT
)
_WARNINGS = st.lists(st.text(max_size=400) | st.integers(1, 600).map(lambda length: "w" * length), max_size=30)
_PATCHES = st.lists(
    st.fixed_dictionaries({"op": st.just("add"), "path": _TEXT, "value": _TEXT | st.integers(-5, 5)}), max_size=3
)


@pytest.mark.large
@tried(500)
@given(_TEXT, st.lists(_VIOLATIONS, max_size=3), _WARNINGS, _PATCHES)
def test_an_answer_says_what_was_decided(
    uid: str, violations: list[Violation], warnings: list[str], patch: list[dict[str, Any]]
) -> None:
    decision = Decision(
        allowed=not violations, code=422 if violations else 200, violations=violations, warnings=warnings, patch=patch
    )

    answer = orjson.loads(review.encode(uid, decision))["response"]

    assert (answer["uid"], answer["allowed"]) == (uid, decision.allowed)
    assert orjson.loads(base64.b64decode(answer.get("patch", base64.b64encode(b"[]")))) == patch
    if violations:
        assert answer["status"]["message"] == "\n".join(map(str, violations))
    # The API server passes warnings on whole: one line each, short, none twice, not too much in all
    said = answer.get("warnings", [])
    assert len(said) == len(set(said))
    assert all(0 < len(warning) <= review.WARNING_LENGTH for warning in said)
    assert sum(map(len, said)) <= review.WARNINGS_LENGTH
    assert not [char for char in "".join(said) if unicodedata.category(char) == "Cc"]
