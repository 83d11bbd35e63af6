"""POST /mutate: the pod with its request translated for the back end that serves it."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from webhook.core import projection
from webhook.core.decision import UNTOUCHED, Decision, denied, pinged
from webhook.core.forms.document import Nearest
from webhook.core.interpret import interpret, locations
from webhook.core.kube import patch, pod
from webhook.core.kube.fields import at
from webhook.core.kube.pod import Pod
from webhook.core.plan.plan import Plan
from webhook.core.policy import defaults, device_access, judge, observe, updates, usage
from webhook.core.projection import ExcessError
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal


class Translated(NamedTuple):
    """The decision, and the plan behind it; None for a pod that asks for nothing or cannot be read."""

    decision: Decision
    plan: Plan | None = None


def mutate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Translate the pod; deny it only if its request cannot be understood or satisfied."""
    return _updated(request, rulebook) if request.operation == "UPDATE" else translate(request, rulebook).decision


def _updated(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Put back what the update states again; what cannot be read is left to /validate."""
    if not request.is_of_a_pod or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    whole = at(request.pod, "metadata", "uid") is None  # which the API server gives to what it has merged
    try:
        projection.check_budget(request.old_pod or {})
        return updates.keep_stored(projection.project(request, rulebook), rulebook, whole=whole)
    except (ExcessError, Refusal):
        return UNTOUCHED


def translate(request: AdmissionRequest, rulebook: Rulebook) -> Translated:
    """The same with its plan, for reports that show the reasons."""
    if request.is_a_ping:
        return Translated(pinged("mutate"))
    if request.operation != "CREATE" or not request.is_of_a_pod or rulebook.cluster.exempts(request.namespace):
        return Translated(UNTOUCHED)
    try:
        request = projection.project(request, rulebook)
        seen = pod.read(request.pod or {}, request.namespace)
        if interpret.asks_nothing(seen, rulebook):
            return Translated(_without_gpu(seen, request, rulebook))
        planned = defaults.plan_for_tenant(seen, rulebook)
    except Refusal as refusal:
        return Translated(observe.refused(refusal, rulebook))
    decision = _decision(planned, seen, request, rulebook)
    return Translated(observe.enforced_mutation(decision, planned.assignments, rulebook), planned)


def _without_gpu(seen: Pod, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """The decision for a pod that asks for nothing: its author is told of keys that may have been meant to."""
    warnings = [*locations.hints_of_keys(seen, rulebook, Nearest(interpret.WORDS))]
    removed = device_access.removal(seen, {}, rulebook)
    if not warnings and not removed:
        return UNTOUCHED
    decision = Decision(
        allowed=True,
        warnings=[*warnings, *map(device_access.told, removed)],
        patch=patch.to_patch(device_access.removing(removed), request.pod or {}),
    )
    return observe.enforced_mutation(decision, (), rulebook)


def _decision(planned: Plan, seen: Pod, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    if planned.violations:
        refused = denied(planned.violations, planned.warnings)
        return (
            _with_judgement(refused, planned, request, rulebook) if refused.code == HTTPStatus.FORBIDDEN else refused
        )
    backends = planned.backends
    removed = device_access.removal(seen, backends, rulebook)
    return Decision(
        allowed=True,
        warnings=[*planned.warnings, *map(device_access.told, removed)],
        patch=patch.to_patch([*planned.edits, *device_access.removing(removed)], request.pod or {}),
        backends=backends,
        audit=_audit(planned, rulebook),
    )


def _with_judgement(refused: Decision, planned: Plan, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """A refusal by the policy alone, with everything else that the policy would refuse after that is fixed."""
    before = request.pod or {}
    translated = pod.read(patch.applied(patch.to_patch(planned.edits, before), before), request.namespace)
    judged = judge.judge(translated, usage.holdings(translated, rulebook), request, rulebook)
    more = [violation for violation in judged.violations if violation not in refused.violations]
    return refused._replace(
        violations=[*refused.violations, *more],
        warnings=[*refused.warnings, *judged.warnings],
        findings=judged.findings,
        audit=judged.audit(),
    )


def _audit(planned: Plan, rulebook: Rulebook) -> dict[str, str]:
    if not planned.assignments:
        return {}
    rules = dict.fromkeys(served.backend.rule for served in planned.assignments)
    return {"rules": ", ".join(rules), "rulebook": rulebook.digest[:12]}
