"""The admission lane: the answer to each HTTP request, as a function of its method, path and body.

    POST /mutate, /validate, /templates, /policies     an AdmissionReview in, an AdmissionReview out
    GET  /healthz                                      the process answers
    GET  /readyz                                       it knows its rules and policies, and is not shutting down
    GET  /metrics                                      counters for Prometheus, of tenants too on a port of its own

Only three reviews ever wait: that of a pod that a quota counts, for the ledger; that of a Binding, for its pod; and
that of a TenantPolicy, for what its tenant uses.
Sockets, deadlines and framing are in `webhook.server.connections`. Decisions about a pod are in `webhook.core`, which
is passed in as `judges`.
"""

import asyncio
import gc
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from math import inf
from operator import attrgetter
from time import monotonic, perf_counter, time
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from webhook import telemetry
from webhook.core import projection, review
from webhook.core.decision import Decision, Reservation, denied
from webhook.core.forms.document import UnreadableError
from webhook.core.forms.labels import is_dns_label
from webhook.core.kube import quantity
from webhook.core.policy import device_access, quota_words, updates
from webhook.core.quota import ledger as ledgers
from webhook.core.quota.ledger import Answered, Ledger, is_of_a_pod, names_a_pod
from webhook.core.quota.tally import Ask
from webhook.core.review import AdmissionRequest
from webhook.core.rules.load import POLICY_KINDS
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import UNREADABLE, Tenancy
from webhook.core.violations import Refusal

# The one door to the words of `webhook.cli`: what /templates and /policies answer, which only warn. It is loaded when
# it is first asked for, so a server that answers nothing but pods has none of it in memory.


def advice_on_workload(request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger]) -> Decision:
    """What is wrong with the pods that a workload would make, as warnings."""
    from webhook.cli import workload_advice  # noqa: PLC0415 - see above

    return workload_advice.warn(request, rulebook, ledgers)


def advice_on_policy(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """What a TenantPolicy or an Exemption would do that its author may not mean, as warnings."""
    from webhook.cli import policy_advice  # noqa: PLC0415 - see above

    return policy_advice.warn(request, rulebook, ledgers)


# Remembers decisions: pods with equal projections get equal decisions while a rulebook is in force.

Judge = Callable[[AdmissionRequest, Rulebook], Decision]

REMEMBERED: Final = 512
"""How many decisions: at most 2 MiB of projections, and the decisions themselves."""

LONGEST: Final = 4 * 1024
"""The longest projection that is remembered, in bytes. An ordinary pod has about 600."""

_MIRROR_KEY: Final = device_access.MIRROR.encode()


class Memo:
    """Returns a remembered decision, or calls the judge. A denial is not remembered: it may be long."""

    def __init__(self) -> None:
        self._rulebook: Rulebook | None = None
        # By the judge's name, the namespace, the user and the second if they may decide, and the projection as JSON.
        self._decisions: dict[tuple[str, str, tuple[str, int] | None, bytes], Decision] = {}

    def decide(self, name: str, judge: Judge, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
        """The decision about one request, by `judge` or from memory; `name` is the judge's name in the key."""
        if request.operation != "CREATE" or request.old_pod is not None or not request.is_of_a_pod:
            return judge(request, rulebook)
        try:
            projected = projection.project(request, rulebook)
        except Refusal:
            return judge(request, rulebook)  # which words the refusal, or in observe mode the warning
        if not 0 < len(projected.text) <= LONGEST:  # too large, or nested too deep to be compared
            return self._named(judge(projected, rulebook), request)
        if rulebook is not self._rulebook:
            self._rulebook, self._decisions = rulebook, {}
        holds = any(exemption.covers(request.namespace) for exemption in rulebook.tenancy.exemptions)
        moment = (request.user, int(request.at)) if holds or _MIRROR_KEY in projected.text else None
        key = name, request.namespace, moment, projected.text
        decision = self._decisions.get(key)
        if decision is None:
            decision = judge(projected, rulebook)
            if decision.allowed:
                if len(self._decisions) >= REMEMBERED:
                    del self._decisions[next(iter(self._decisions))]  # the oldest
                self._decisions[key] = decision
        return self._named(decision, request)

    @staticmethod
    def _named(decision: Decision, request: AdmissionRequest) -> Decision:
        """The decision about an equal projection; its reservation gets this pod's name, UID, author and time."""
        if decision.reservation is None:
            return decision
        metadata: Mapping[str, Any] = (request.pod or {}).get("metadata") or {}
        try:
            created = quantity.parse_time(metadata.get("creationTimestamp"))
        except (TypeError, ValueError):
            created = 0.0
        name, uid = str(metadata.get("name") or ""), str(metadata.get("uid") or "")
        ask = decision.reservation.ask._replace(name=name, uid=uid, author=request.author, created=created)
        return decision._replace(reservation=replace(decision.reservation, ask=ask))


class Reserves(Protocol):
    """Says whether a pod is within its tenant's quota, and reserves for it.

    `OfflineReservations`, or `webhook.cluster.ledgers.Reservations` in a cluster.
    """

    def draw(self, tenant: str, ask: Ask) -> Answered | None:
        """Admit from the replica's escrow, without a write; None where it does not suffice. Not for a dry run."""

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """Reserve in the ledger, before `deadline` (of the monotonic clock)."""

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:
        """What would become of an ask; writes nothing."""

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers that were used of late, by tenant."""


class OfflineReservations:
    """Reserves in memory, to try the server without a cluster: an admitted pod counts for good."""

    def __init__(self, ledgers: Mapping[str, Ledger] = MappingProxyType({})) -> None:
        self._ledgers = dict(ledgers)

    def draw(self, tenant: str, ask: Ask) -> Answered:
        """Reserve, at once."""
        answered = self._answered(tenant, ask)
        self._ledgers[tenant] = answered.ledger
        return answered

    async def reserve(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - it never waits
        """Reserve, at once."""
        return self.draw(tenant, ask)

    async def preview(self, tenant: str, ask: Ask, deadline: float) -> Answered:  # noqa: ARG002 - it never waits
        """What would become of an ask, and the ledger as it would be then."""
        return self._answered(tenant, ask)

    def _answered(self, tenant: str, ask: Ask) -> Answered:
        ledger = self._ledgers.get(tenant) or Ledger(view=1)
        if ledger.hard is not ask.hard or ask.namespace not in ledger.held:
            ledger = replace(ledger, hard=ask.hard, held={ask.namespace: {}, **ledger.held})
        after, [outcome] = ledgers.reserve(ledger, [ask])
        return Answered(outcome, after)

    def known(self) -> Iterator[tuple[str, Ledger]]:
        """The ledgers, by tenant."""
        return iter(self._ledgers.items())


TEXT: Final = b"text/plain; charset=utf-8"
JSON: Final = b"application/json"
PAGES: Final = (b"/healthz", b"/readyz", b"/metrics")
NEVER_LOADED: Final = "the rules were never loaded: no review can be answered; the log of this pod says why"
MARGIN_SECONDS: Final = 0.5
"""Of the API server's timeout, the part that is kept for sending the answer."""

_TIMEOUT = re.compile(rb"[?&]timeout=([0-9]{1,4})s(?:&|$)")

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """One HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: bytes = TEXT
    allow: bytes = b""
    """The methods a 405 must name."""


ReadPod = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
ReadUsage = Callable[[str], Awaitable[Ledger]]


class _Reviewed(NamedTuple):
    """A review that has a decision: its path, request and rulebook, and when it began."""

    name: str
    request: AdmissionRequest
    rulebook: Rulebook
    started: float


class Lane:
    """Answers requests; one for each process. The worker and `reservations` set its public attributes."""

    def __init__(self, judges: Mapping[str, Judge], rulebook: Rulebook | None, lines: telemetry.Lines) -> None:
        self.judges = {f"/{name}".encode(): (name, judge) for name, judge in judges.items()}
        self.rules = rulebook
        """What the rule files and the nodes say."""
        self.tenancy: Callable[[Rulebook], Tenancy] = attrgetter("tenancy")
        """The policies to add to the rules."""
        self.rulebook = rulebook
        """The rules with the policies: what is in force."""
        self.draining = False
        self.good_until = inf
        """Until when (monotonic) the policies may be used: a process that was paused has missed changes."""
        self.not_ready = ""
        """Why it is not ready yet; empty if it is."""
        self.on_quota_decision: Callable[[AdmissionRequest, Decision], None] | None = None
        """Called with every decision that a ledger had a part in."""
        self.read_pod: ReadPod | None = None
        """Reads the pod of a Binding by namespace and name, None if there is none; raises UnreadableError. Without a
        cluster there is no such reader, and nothing counts stored pods."""
        self.read_usage: ReadUsage | None = None
        """Reads the ledger of a tenant; raises UnreadableError."""
        self.metrics = telemetry.Metrics(judges)
        self.reservations: Reserves = OfflineReservations()
        self._memo = Memo()
        self._lines = lines

    def use(self, rules: Rulebook | None) -> None:
        """Answer by these rules, and the policies as they are now."""
        self.rules = rules
        self.rulebook = rules and replace(rules, tenancy=self.tenancy(rules))

    def answer(
        self, method: bytes, target: bytes, body: bytes, address: str = "", *, named: bool = True
    ) -> Answer | Awaitable[Answer]:
        """Answer one whole request. The answer is awaitable if the review has to wait, as the module says.

        `address`: of a client that showed no certificate. `named`: /metrics names tenants.
        """
        path = target.partition(b"?")[0]
        shown = path[:100].decode("ascii", "backslashreplace")  # the sender may write anything
        if path not in self.judges and path not in PAGES:
            there = b" ".join((*self.judges, *PAGES)).decode()
            return self.refuse(HTTPStatus.NOT_FOUND, f"{shown} is not here; there are: {there}")
        methods = (b"POST",) if path in self.judges else (b"GET", b"HEAD")
        if method not in methods:
            allow = b", ".join(methods)
            text = f"{shown} answers {allow.decode()} only"
            return self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, text)._replace(allow=allow)
        if path in self.judges:
            return self._review(*self.judges[path], body, target, address)
        digest = "" if self.rulebook is None else self.rulebook.digest
        if path == b"/metrics":
            page = self.metrics.render(digest, self._lines.dropped, named=named)
            return Answer(HTTPStatus.OK, page, telemetry.CONTENT_TYPE)
        if path == b"/healthz":
            return Answer(HTTPStatus.OK, b"ok\n")
        # Whether it answers reviews, and by which rules.
        not_ready = "leaving" if self.draining else NEVER_LOADED if self.rulebook is None else self.not_ready
        if not_ready:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{not_ready}\n".encode())
        return Answer(HTTPStatus.OK, f"ok, rules {digest}\n".encode())

    def refuse(self, status: HTTPStatus, text: str) -> Answer:
        """The answer with an HTTP error: one line of text, counted and logged."""
        self.metrics.refused[(str(status.value),)] += 1
        log.warning("refused with %d: %s", status, text)
        return Answer(status, f"{text}\n".encode())

    def _review(
        self, name: str, judge: Judge, body: bytes, target: bytes, address: str
    ) -> Answer | Awaitable[Answer]:
        """Decode, decide, encode."""
        rulebook = self.rulebook
        if rulebook is None:
            return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, NEVER_LOADED)
        if monotonic() > self.good_until:
            rulebook = replace(rulebook, tenancy=replace(rulebook.tenancy, unknown=UNREADABLE))
        started = perf_counter()
        request = None
        gc.disable()  # a review makes no cycles, and each part of a large one would be looked at several times
        try:
            request = review.decode(body, time(), address)
            reviewed = _Reviewed(name, request, rulebook, started)
            subject = request.namespace, request.object_name  # what is read of it becomes part of a path
            if self.read_pod is not None and request.is_a_binding and names_a_pod(*subject):
                return self._later(reviewed, self._bind(reviewed, judge, self.read_pod, target))
            of_a_policy = POLICY_KINDS.get(request.resource) == "TenantPolicy" and is_dns_label(subject[1])
            if self.read_usage is not None and of_a_policy:
                return self._later(reviewed, self._advise(reviewed, self.read_usage, target))
            decision = self._memo.decide(name, judge, request, rulebook)
            wanted = decision.reservation
            if wanted is None:
                return self._tell(reviewed, decision)
            if not is_of_a_pod(wanted.ask):
                text = (
                    "the pod has no name, namespace and uid as an API server gives them: nothing is reserved for it"
                )
                return self.refuse(HTTPStatus.BAD_REQUEST, text)
            drawn = None if request.dry_run else self.reservations.draw(wanted.tenant, wanted.ask)
            if drawn is not None:
                return self._conclude(reviewed, decision, wanted, drawn)
            # As much of the pod as a log line and an event read: any number of reviews may wait for a ledger.
            metadata = (request.pod or {}).get("metadata") or {}
            kept = {key: metadata[key] for key in ("generateName", "ownerReferences") if key in metadata}
            request = request._replace(pod={"metadata": kept}, old_pod=None)
            reviewed = reviewed._replace(request=request)
            return self._later(reviewed, self._reserve(reviewed, decision, wanted, target))
        except RecursionError:
            return self.refuse(HTTPStatus.BAD_REQUEST, "the review is nested deeper than any object of Kubernetes")
        except review.NotAReviewError as error:
            return self.refuse(HTTPStatus.BAD_REQUEST, " ".join(str(error).split()))
        except Exception as error:  # noqa: BLE001 - any exception here is a fault of this program: `_failed` answers
            return self._failed(name, request, error)
        finally:
            gc.enable()

    async def _later(self, reviewed: _Reviewed, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(reviewed.name, reviewed.request, error)

    async def _reserve(self, reviewed: _Reviewed, decision: Decision, wanted: Reservation, target: bytes) -> Answer:
        ask = self.reservations.preview if reviewed.request.dry_run else self.reservations.reserve
        answered = await ask(wanted.tenant, wanted.ask, monotonic() + _seconds(target))
        return self._conclude(reviewed, decision, wanted, answered)

    async def _bind(self, reviewed: _Reviewed, judge: Judge, read_pod: ReadPod, target: bytes) -> Answer:
        """Judge a Binding together with its pod."""
        request = reviewed.request
        try:
            async with asyncio.timeout(_seconds(target)):
                pod = await read_pod(request.namespace, request.object_name)
        except (UnreadableError, TimeoutError) as error:
            why = str(error) or "the API server did not answer in time"
            return self._tell(reviewed, denied([updates.unread(why)]))
        return self._tell(reviewed, judge(request._replace(old_pod=pod), reviewed.rulebook))

    async def _advise(self, reviewed: _Reviewed, read_usage: ReadUsage, target: bytes) -> Answer:
        """Judge a policy together with what its tenant uses, if that can be read in time."""
        request, ledgers = reviewed.request, {}
        with suppress(UnreadableError, TimeoutError):
            async with asyncio.timeout(_seconds(target)):
                ledgers = {request.object_name: await read_usage(request.object_name)}
        return self._tell(reviewed, advice_on_policy(request, reviewed.rulebook, ledgers))

    def _conclude(self, reviewed: _Reviewed, decision: Decision, wanted: Reservation, answered: Answered) -> Answer:
        final = quota_words.after_ledger(decision, wanted, answered.outcome, answered.ledger)
        if self.on_quota_decision is not None and not reviewed.request.dry_run:
            self.on_quota_decision(reviewed.request, final)
        return self._tell(reviewed, final)

    def _failed(self, name: str, request: AdmissionRequest | None, error: Exception) -> Answer:
        """The answer to a review on which this program failed."""
        log.error("review %s failed on /%s", request and request.uid, name, exc_info=error)
        text = "gpu-webhook failed on this review; that is a fault of its own, and the log of this pod has its trace"
        return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _tell(self, reviewed: _Reviewed, decision: Decision) -> Answer:
        """Encode the decision, count it and log it."""
        name, request, rulebook, started = reviewed
        answer = review.encode(request.uid, decision)
        seconds = perf_counter() - started
        self.metrics.count(name, request.operation, decision, seconds)
        self._lines.write(telemetry.decision_line(name, request, decision, seconds=seconds, digest=rulebook.digest))
        return Answer(HTTPStatus.OK, answer, JSON)


def _seconds(target: bytes) -> float:
    """How long an answer may take, by the `?timeout=` of the API server's call."""
    match = _TIMEOUT.search(target)
    seconds = float(match[1] if match else review.TIMEOUT_SECONDS)
    return max(seconds - MARGIN_SECONDS, seconds / 2)
