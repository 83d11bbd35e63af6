"""The wire: `AdmissionReview` v1 bytes in, a frozen request out; a decision in, bytes out.

The pod stays the raw mapping that was received, so fields unknown to this program survive. Formats: Kubernetes
"Dynamic Admission Control", `admission.k8s.io/v1`; the limits on warnings and audit keys were measured on a
v1.36 API server.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from unicodedata import category

import orjson

from webhook.core.decision import Decision
from webhook.core.kube import fields
from webhook.core.violations import Violation

WARNING_LENGTH: Final = 256
WARNINGS_LENGTH: Final = 4096
TEXT_LENGTH: Final = 4096
"""The longest text of a violation. Those about names and values that Kubernetes takes are shorter."""

TIMEOUT_SECONDS: Final = 3
"""How long API servers wait for an answer: `timeoutSeconds` of our webhooks."""

RETRY_SECONDS: Final = 1
VIOLATIONS: Final = 20
"""The most violations in a denial: a hostile pod may have any number, and API servers hold answers in memory."""

REASONS: Final[Mapping[int, str]] = {HTTPStatus.FORBIDDEN: "Forbidden", HTTPStatus.CONFLICT: "AlreadyExists"}
"""The reasons of a Status by its code. Clients look at AlreadyExists, and so does the API server: it takes another
name for a pod with generateName."""


class NotAReviewError(ValueError):
    """The body is not an `AdmissionReview` v1 that this program can answer."""


class AdmissionRequest(NamedTuple):
    """One review as the API server sent it.

    `pod` and `old_pod` are decoded JSON objects, None where the review has none (`object` on DELETE,
    `oldObject` on CREATE; the server reads the pod of a Binding). `name` is empty under generateName in a mutating
    review. `user` is the client's user, by name, `at` the time of the review in seconds since 1970. `address` is that
    of a client that showed no certificate, which may be anybody; empty if it showed one. `projection` is the
    allow-list by which the pods were pruned (`webhook.core.projection`), None: they are not pruned; `text` is the
    pruned pod as JSON.
    """

    uid: str
    operation: str
    resource: str
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    pod: Mapping[str, Any] | None
    old_pod: Mapping[str, Any] | None
    user: str = ""
    at: float = 0.0
    address: str = ""
    projection: object = None
    text: bytes = b""

    @property
    def author(self) -> str:
        """Who creates the pod, in one word that nobody else has.

        That is the user. A controller is one user for all its objects, so for programs outside of the namespace it is
        also the object that the pod says it is controlled by. What anybody may have written is of its address only.
        """
        name = self.user
        if name.startswith("system:") and not name.startswith(f"system:serviceaccount:{self.namespace}:"):
            name = " ".join([name, *(str(owner.get("uid")) for owner in fields.controllers(self.pod))])
        author = blake2b(name.encode(errors="replace"), digest_size=8).hexdigest()
        return f"{author}@{self.address}" if self.address else author

    @property
    def is_of_a_pod(self) -> bool:
        """Whether it has a pod that can change.

        `pods/status` takes labels and annotations, and `pods/ephemeralcontainers` variables. Of `pods/resize` the API
        server takes no metadata, and of both no GPUs [measured].
        """
        judged = self.subresource in {"", "status", "ephemeralcontainers"}
        return self.resource == "pods" and judged and self.pod is not None

    @property
    def is_a_binding(self) -> bool:
        """Whether it binds a pod to a node: `pod` is the Binding then, and `old_pod` the pod if it is known."""
        return (self.resource, self.subresource) in {("pods", "binding"), ("bindings", "")} and self.pod is not None

    @property
    def is_a_ping(self) -> bool:
        """Whether it is of a Lease: the certificate program asks through an API server whether replicas answer.

        Our configurations bring nothing else of that kind here than its Leases, by the paths of pods.
        """
        return self.resource == "leases"

    @property
    def object_name(self) -> str:
        """The name of the object itself, empty if it has none."""
        metadata = (self.pod or {}).get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def creating(pod: Mapping[str, Any], uid: str, namespace: str = "", at: float = 0.0) -> AdmissionRequest:
    """The request to create a pod as a dry run, for reports: nothing is stored."""
    return AdmissionRequest(uid, "CREATE", "pods", "", namespace, "", dry_run=True, pod=pod, old_pod=None, at=at)


def decode(body: bytes, at: float = 0.0, address: str = "") -> AdmissionRequest:
    """Read the bytes of a review, received at the time `at`; raises NotAReviewError with a sentence."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotAReviewError(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise NotAReviewError('the body is not an AdmissionReview: its "kind" says otherwise')
    if review.get("apiVersion") != "admission.k8s.io/v1":
        raise NotAReviewError("only admission.k8s.io/v1 is spoken: set admissionReviewVersions: [v1]")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise NotAReviewError("the review has no request with a uid")
    pods = [request.get("object"), request.get("oldObject")]
    for key, pod in zip(("object", "oldObject"), pods, strict=True):
        if pod is not None and not isinstance(pod, dict):
            raise NotAReviewError(f"request.{key} is not an object")
    resource, user = request.get("resource"), request.get("userInfo")
    return AdmissionRequest(
        uid=request["uid"],
        operation=_text(request, "operation"),
        resource=_text(resource, "resource") if isinstance(resource, dict) else "",
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        dry_run=request.get("dryRun") is True,
        pod=pods[0],
        old_pod=pods[1],
        user=_text(user, "username") if isinstance(user, dict) else "",
        at=at,
        address=address,
    )


def _text(request: dict[str, Any], key: str) -> str:
    text = request.get(key, "")
    if not isinstance(text, str):
        raise NotAReviewError(f"request.{key} is not a string")
    return text


def encode(uid: str, decision: Decision) -> bytes:
    """The bytes of the AdmissionReview that answers the request `uid`."""
    response: dict[str, Any] = {"uid": uid, "allowed": decision.allowed}
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(decision.patch)).decode("ascii")
    if decision.warnings:
        response["warnings"] = list(printable(decision.warnings))
    if decision.audit or decision.findings:
        found = ", ".join(dict.fromkeys(map(str, decision.findings)))
        policy = {"policy": found} if found else {}
        response["auditAnnotations"] = {"decision": uid, **policy, **decision.audit}
    if not decision.allowed:
        response["status"] = _status(decision)
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def _status(decision: Decision) -> dict[str, Any]:
    """A Status that kubectl prints in full: with the reason "Invalid" it would drop the message [measured]."""
    shown: list[Violation] = []
    for violation in decision.violations[:VIOLATIONS]:
        # Without most of a name or value that is longer than any that Kubernetes takes.
        texts = {"path": violation.path, "message": violation.message, "fix": violation.fix}
        cut: dict[str, Any] = {
            key: f"{text[: TEXT_LENGTH - 1]}…" for key, text in texts.items() if len(text) > TEXT_LENGTH
        }
        notes = tuple(note[:TEXT_LENGTH] for note in violation.notes)
        shown.append(replace(violation, notes=notes, **cut) if cut or notes != violation.notes else violation)
    lines = [*map(str, shown)]
    if len(decision.violations) > VIOLATIONS:
        lines.append(f"... and {len(decision.violations) - VIOLATIONS} more; mend these first")
    causes = [{"reason": wrong.code, "field": wrong.path, "message": wrong.message} for wrong in shown]
    details: dict[str, Any] = {"causes": causes}
    if decision.code == HTTPStatus.SERVICE_UNAVAILABLE:
        # Kubernetes clients, kubectl among them, retry because of this [measured].
        details["retryAfterSeconds"] = RETRY_SECONDS
    status = {"status": "Failure", "code": int(decision.code), "message": "\n".join(lines), "details": details}
    return {**status, "reason": REASONS[decision.code]} if decision.code in REASONS else status


def warning_text(violation: Violation, lead: str = "") -> str:
    """The first line of a violation as a warning, with its fix: first, if there is no room for all of it."""
    start = f"{lead}[{violation.code}] "
    whole = f"{start}{violation.message}; {violation.fix}"
    return whole if len(whole) <= WARNING_LENGTH else f"{start}{violation.fix}; because {violation.message}"


def printable(warnings: Iterable[str]) -> Iterator[str]:
    """Warnings as the API server passes them on: one line, 256 characters each and 4,096 in all.

    The API server drops a warning with a control character, and cuts the others if one is too many [measured].
    """
    room = WARNINGS_LENGTH
    told: set[str] = set()
    for warning in warnings:
        text = warning[: 2 * WARNING_LENGTH].strip()
        if not text.isprintable():
            text = "".join(" " if category(char)[0] == "C" else char for char in text).strip()
        if len(text) > WARNING_LENGTH:
            text = text[: WARNING_LENGTH - 1] + "…"
        if text and text not in told and len(text) <= room:
            told.add(text)
            room -= len(text)
            yield text
