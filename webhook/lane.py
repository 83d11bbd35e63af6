"""The admission lane: what each HTTP request gets for an answer, as a function of its method, path and body.

    POST /mutate, /validate     an AdmissionReview in, an AdmissionReview out
    GET  /healthz               the process answers
    GET  /readyz                it has rules and is not leaving
    GET  /metrics               counters for Prometheus

Belongs here: what HTTP says, and nothing that waits. Sockets, time and framing are `webhook.connection`; what is
decided about a pod is `webhook.core.admit`, which comes in as `judges`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from time import perf_counter, time
from typing import Final, NamedTuple

from webhook import logs, metrics
from webhook.core import review
from webhook.core.decision import Decision
from webhook.core.rulebook import Rulebook

Judge = Callable[[review.AdmissionRequest, Rulebook], Decision]

TEXT: Final = b"text/plain; charset=utf-8"
JSON: Final = b"application/json"
PAGES: Final = (b"/healthz", b"/readyz", b"/metrics")
NEVER_LOADED: Final = "the rules were never loaded: no review can be answered; the log of this pod says why"
FAILED: Final = "gpu-webhook failed on this review; that is a fault of its own, and the log of this pod has its trace"

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """One HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: bytes = TEXT
    allow: bytes = b""
    """The methods a 405 must name."""


class Lane:
    """Answers requests. One a process; `draining` and `rulebook` may be set from outside while it serves."""

    def __init__(self, judges: Mapping[str, Judge], rulebook: Rulebook | None, lines: logs.Lines) -> None:
        self.judges = {f"/{name}".encode(): (name, judge) for name, judge in judges.items()}
        self.rulebook = rulebook
        self.draining = False
        self.metrics = metrics.Metrics(judges)
        self._lines = lines

    def answer(self, method: bytes, target: bytes, body: bytes) -> Answer:
        """Answer one whole request."""
        path = target.partition(b"?")[0]
        if path in self.judges:
            if method != b"POST":
                return self._not_allowed(path, b"POST")
            name, judge = self.judges[path]
            return self._review(name, judge, body)
        if path not in PAGES:
            there = b" ".join((*self.judges, *PAGES)).decode()
            return self.refuse(HTTPStatus.NOT_FOUND, f"{_shown(path)} is not here; there are: {there}")
        if method not in (b"GET", b"HEAD"):
            return self._not_allowed(path, b"GET, HEAD")
        return self._page(path)

    def refuse(self, status: HTTPStatus, text: str) -> Answer:
        """The answer to a request that gets an HTTP error: counted, logged, and said in one line."""
        self.metrics.refused[(str(status.value),)] += 1
        log.warning("refused with %d: %s", status, text)
        return Answer(status, f"{text}\n".encode())

    def _not_allowed(self, path: bytes, methods: bytes) -> Answer:
        text = f"{_shown(path)} answers {methods.decode()} only"
        return self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, text)._replace(allow=methods)

    def _review(self, name: str, judge: Judge, body: bytes) -> Answer:
        """Decode, decide, encode. The one place where a fault of ours ends."""
        rulebook = self.rulebook
        if rulebook is None:
            return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, NEVER_LOADED)
        started = perf_counter()
        request = None
        try:
            request = review.decode(body, time())
            decision = judge(request, rulebook)
            answer = review.encode(request.uid, decision)
        except review.NotAReviewError as error:
            return self.refuse(HTTPStatus.BAD_REQUEST, " ".join(str(error).split()))
        except Exception:
            log.exception("review %s failed on /%s", request and request.uid, name)
            return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, FAILED)
        self._record(name, request, decision, rulebook, perf_counter() - started)
        return Answer(HTTPStatus.OK, answer, JSON)

    def _record(
        self, name: str, request: review.AdmissionRequest, decision: Decision, rulebook: Rulebook, seconds: float
    ) -> None:
        self.metrics.count(name, request.operation, decision, seconds)
        now = datetime.now(UTC)
        line = logs.decision_line(name, request, decision, seconds=seconds, digest=rulebook.digest, now=now)
        self._lines.write(line)

    def _page(self, path: bytes) -> Answer:
        if path == b"/metrics":
            self.metrics.lines_dropped = self._lines.dropped
            rules = {} if self.rulebook is None else {self.rulebook.digest: len(self.rulebook.backends)}
            return Answer(HTTPStatus.OK, metrics.render(self.metrics, rules), metrics.CONTENT_TYPE)
        if path == b"/readyz" and self.draining:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"leaving\n")
        if path == b"/readyz" and self.rulebook is None:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{NEVER_LOADED}\n".encode())
        return Answer(HTTPStatus.OK, b"ok\n")


def _shown(path: bytes) -> str:
    """A path as the sender wrote it, cut: it may be anything."""
    return path[:100].decode("ascii", "backslashreplace")
