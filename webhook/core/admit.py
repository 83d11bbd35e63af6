"""The two questions an API server asks about a pod, answered from values alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from webhook.core import choice, claims, edits, guard, interpret, inverse, native, places, pod, translate
from webhook.core.amounts import CannotExpressError
from webhook.core.asked import Asked
from webhook.core.backend import Backend
from webhook.core.decision import Decision, denied
from webhook.core.plan import Plan
from webhook.core.pod import Pod
from webhook.core.request import GpuRequest
from webhook.core.review import AdmissionRequest
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy import judge, observing, steer
from webhook.core.tenancy.judge import Judgement
from webhook.core.violations import Refusal, Violation

UNTOUCHED: Final = Decision(allowed=True)


def mutate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Translate the pod: say what is meant, and deny only what cannot be understood or satisfied."""
    if request.operation != "CREATE" or _not_a_pod(request) or exempt(request, rulebook):
        return UNTOUCHED
    try:
        seen = pod.read(request.pod or {}, request.namespace)
        if interpret.asks_nothing(seen, rulebook):
            return UNTOUCHED
        planned = steer.make(seen, rulebook)
    except Refusal as refusal:
        refused = denied(refusal.violations)
        return observing.validated(refused) if rulebook.tenancy.observing else refused
    decision = decide(planned, request, rulebook)
    return observing.mutated(decision, planned.served, rulebook) if rulebook.tenancy.observing else decision


def decide(planned: Plan, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """The answer that a plan comes to."""
    if planned.violations:
        refused = denied(planned.violations, planned.warnings)
        return _at_once(refused, planned, request, rulebook) if refused.code == HTTPStatus.FORBIDDEN else refused
    return Decision(
        allowed=True,
        warnings=planned.warnings,
        patch=edits.to_patch(planned.edits, request.pod or {}),
        backends={served.asked.container.name: served.backend.name for served in planned.served},
        audit=_audit(planned, request, rulebook),
    )


def _at_once(refused: Decision, planned: Plan, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """A refusal by nothing but the policy, with what else the policy would refuse once this is mended."""
    translated = pod.read(edits.apply(planned.edits, request.pod or {}), request.namespace)
    judged = judge.judge(translated, request, rulebook)
    more = [violation for violation in judged.violations if violation not in refused.violations]
    return replace(
        refused,
        violations=[*refused.violations, *more],
        warnings=[*refused.warnings, *judged.warnings],
        findings=judged.findings,
        audit=judged.audit(),
    )


def _audit(planned: Plan, request: AdmissionRequest, rulebook: Rulebook) -> dict[str, str]:
    if not planned.served:
        return {}
    rules = dict.fromkeys(served.backend.rule for served in planned.served)
    return {"decision": request.uid, "rules": ", ".join(rules), "rulebook": rulebook.digest[:12]}


def _not_a_pod(request: AdmissionRequest) -> bool:
    """Other resources and subresources: those that exist (`ephemeralcontainers`, `resize`) cannot change GPUs."""
    return request.resource != "pods" or request.subresource != "" or request.pod is None


def exempt(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether the pod is in a namespace of GPU infrastructure, which the Cluster document exempts by name."""
    return request.namespace in rulebook.cluster.system_namespaces


def validate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Check the pod as it would be stored: it has to give at least what its shorthand asks.

    Never chooses a back end again, and accepts what it does not know: rules differ between replicas for a while
    after every change, and that must refuse nobody. An UPDATE is only warned about. Policies are asked last, and
    what they say is said together with the rest.
    """
    if _not_a_pod(request) or exempt(request, rulebook):
        return UNTOUCHED
    if rulebook.tenancy.observing:
        return _observed(request, rulebook)
    if request.operation == "UPDATE":
        return _updated(request, rulebook)
    return _created(request, rulebook)


def _observed(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """What would be said of the pod as /mutate would have left it; what that refuses is said there."""
    acting = replace(rulebook, tenancy=replace(rulebook.tenancy, observing=False))
    if request.operation == "UPDATE":
        return observing.validated(_updated(request, acting))
    try:
        planned = steer.make(pod.read(request.pod or {}, request.namespace), acting)
    except Refusal:
        return UNTOUCHED
    if planned.violations:
        return UNTOUCHED
    mutated = edits.apply(planned.edits, request.pod or {})
    return observing.validated(_created(replace(request, pod=mutated), acting))


def _created(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    try:
        seen = pod.read(request.pod or {}, request.namespace)
        interpret.check_size(seen, rulebook)
        violations = [] if interpret.asks_nothing(seen, rulebook) else _missing(seen, rulebook)
        if violations and places.NOTE in seen.annotations:
            listening = _listening_to_all(rulebook)
            if not _missing(seen, listening):
                violations, rulebook = [], listening
    except Refusal as refusal:
        return denied(refusal.violations)
    if rulebook.tenancy.silent:
        return denied(violations) if violations else UNTOUCHED
    return _judged(violations, judge.judge(seen, request, rulebook))


def _judged(violations: Sequence[Violation], judged: Judgement) -> Decision:
    """The answer that the checks and the policies come to together."""
    audit = judged.audit()
    if violations or judged.violations:
        refused = denied([*violations, *judged.violations], judged.warnings, judged.findings)
        return replace(refused, audit=audit)
    return Decision(
        allowed=True,
        warnings=judged.warnings,
        findings=judged.findings,
        audit=audit,
        reservation=judged.reservation,
    )


def _listening_to_all(rulebook: Rulebook) -> Rulebook:
    """The rulebook that listens to the annotations and labels of every back end it knows.

    The replica that translated may have enabled one that this one has not.
    """
    return replace(rulebook, spoken=rulebook.heard, marks=rulebook.all_marks, marked=rulebook.all_marked)


def _missing(seen: Pod, rulebook: Rulebook) -> list[Violation]:
    """What the pod would have less than its shorthand asks."""
    found = interpret.interpret(seen, rulebook)
    # A model that this replica's catalogue lacks (3xx) may stand in the one of the replica that translated.
    violations = [violation for violation in found.violations if not violation.code.startswith("GPU3")]
    for asked in found.asked:
        violations += _given(asked, seen, rulebook)
    return violations


def _given(asked: Asked, seen: Pod, rulebook: Rulebook) -> Iterator[Violation]:
    """A violation if the container's resources are less than its shorthand asks.

    Resources that no rule here knows may be those of a back end that the replica which translated knows. The note
    is no proof of that; whoever forges it gets no GPU.
    """
    noted = places.NOTE in seen.annotations
    if asked.request is None or (noted and any(native.foreign(asked.container, rulebook))):
        return
    if asked.native.amounts:
        owners = {known.name: known for name in asked.native.amounts for known in rulebook.resources[name].known}
        if not any(
            _gives(asked, owner, rulebook) or _writes(asked, seen, owner, rulebook) for owner in owners.values()
        ):
            yield _less(asked, seen)
    elif not any(_writes(asked, seen, backend, rulebook) for backend in _by_claim(asked, seen, rulebook)):
        yield _untranslated(asked)


def _by_claim(asked: Asked, seen: Pod, rulebook: Rulebook) -> Sequence[Backend]:
    """The back ends that may have served a container without resources: those that claim, if it claims something."""
    if not claims.used(seen, asked.container):
        return ()
    return [backend for backend in rulebook.backends.values() if any(mode.claims for mode in backend.modes)]


def _writes(asked: Asked, seen: Pod, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end would write for this request just what stands on the container."""
    bare = replace(asked, native=native.NOTHING)
    try:
        served = choice.consider(bare, backend, rulebook)
    except CannotExpressError:
        return False
    claimed = set(claims.templates(served, rulebook)) <= claims.used(seen, asked.container)
    return claimed and asked.native.amounts == served.amounts


def _gives(asked: Asked, owner: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end reads the container as at least what was asked."""
    if asked.request is None:
        return True
    try:
        given, _ = inverse.understand(asked.native.amounts, owner, asked.marks)
        card = translate.find_card(asked.request, rulebook, owner)
        return inverse.gives(given, translate.with_cores(asked.request, card), card)
    except CannotExpressError:
        return False


def _untranslated(asked: Asked) -> Violation:
    return Violation(
        code="GPU601",
        path=asked.request.path() if asked.request else "",
        message=f'the container "{asked.container.name}" asks for {asked.request} and has no GPU resource: '
        "the mutating webhook did not run, or another one took its work away",
        fix="create the pod again; if it happens again, show this to whoever runs the cluster",
    )


def _less(asked: Asked, seen: Pod) -> Violation:
    there = ", ".join(f"{name}: {asked.native.texts[name]}" for name in asked.native.amounts)
    note = seen.annotations.get(places.NOTE, "untranslated")
    return Violation(
        code="GPU602",
        path=native.where(asked.container, next(iter(asked.native.amounts))),
        message=f'the container "{asked.container.name}" asks for {asked.request} and would get {there} ({note})',
        fix="remove the resource, and the shorthand will write it",
    )


def _updated(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """What a pod with a GPU counts by stays as it is; on another pod shorthand changes nothing, and it is said so."""
    try:
        guarded = guard.check(request, rulebook)
        if guarded:
            return denied(guarded)
        before = _requests(request.old_pod, request.namespace, rulebook)
        after = _requests(request.pod, request.namespace, rulebook)
    except Refusal:
        return UNTOUCHED
    if before == after:
        return UNTOUCHED
    return Decision(
        allowed=True,
        warnings=["the pod keeps the GPU it was created with; create it again for the new shorthand to count"],
    )


def _requests(raw: Mapping[str, Any] | None, namespace: str, rulebook: Rulebook) -> list[tuple[str, GpuRequest]]:
    seen = pod.read(raw or {}, namespace)
    if interpret.asks_nothing(seen, rulebook):
        return []
    found = interpret.interpret(seen, rulebook)
    return [(asked.container.name, asked.request) for asked in found.asked if asked.request is not None]
