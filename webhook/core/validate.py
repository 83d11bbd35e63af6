"""POST /validate: whether the pod as it would be stored gives what it asks, and whether its tenant may have it.

An UPDATE is judged by what it changes, and never blocks the metadata of an old pod. On CREATE violations of policies
are reported with all others. The ledger has to make the decision's reservation before the pod is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.core import projection
from webhook.core.decision import UNTOUCHED, Decision, denied, pinged
from webhook.core.interpret import interpret
from webhook.core.kube import patch, pod
from webhook.core.plan import allocation
from webhook.core.plan.allocation import Checked
from webhook.core.policy import defaults, judge, observe, updates, usage
from webhook.core.policy.judge import Judgement
from webhook.core.policy.usage import Holding
from webhook.core.request import GpuRequest
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

KEEPS: Final = "the pod keeps the GPU it was created with; create it again for the new shorthand to count"


def validate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Judge a pod that is about to be created or updated, or the Binding of one."""
    if request.is_a_ping:
        return pinged("validate")
    if not (request.is_of_a_pod or request.is_a_binding) or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    if request.is_a_binding:
        return _bound(request, rulebook)
    try:
        request = projection.project(request, rulebook)
    except Refusal as refusal:
        return observe.refused(refusal, rulebook)
    if rulebook.tenancy.observing:
        return _observed(request, rulebook)
    return _judged(request, rulebook)


def _bound(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Judge a Binding as the update of the pod that it makes; the API server refuses one for another pod's UID."""
    update = updates.update_by_binding(request)
    if update is None:
        return UNTOUCHED
    try:
        update = projection.project(update, rulebook)
    except Refusal as refusal:
        return observe.refused(refusal, rulebook)
    unnamed = updates.unnamed(request, update, rulebook)
    return observe.enforced(denied(unnamed), rulebook) if unnamed else validate(update, rulebook)


def _judged(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    return _updated(request, rulebook) if request.operation == "UPDATE" else _created(request, rulebook)


def _created(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Check that the pod gives at least what it asks; then policies judge what it gives."""
    try:
        seen = pod.read(request.pod or {}, request.namespace)
        checked = Checked((), interpret.Interpretation(), rulebook, {})
        if not interpret.asks_nothing(seen, rulebook):
            checked = allocation.check_sufficient(seen, rulebook)
    except Refusal as refusal:
        return denied(refusal.violations)
    held: Sequence[Holding] = ()
    if not rulebook.tenancy.silent:
        held = usage.holdings(seen, checked.rulebook, checked.interpretation, checked.allocations)
    return _together(checked.violations, judge.judge(seen, held, request, checked.rulebook))


def _together(violations: Sequence[Violation], judged: Judgement) -> Decision:
    """The decision for the violations of the check and of the policies."""
    audit = judged.audit()
    if violations or judged.violations:
        refused = denied([*violations, *judged.violations], judged.warnings, judged.findings)
        return refused._replace(audit=audit)
    return Decision(
        allowed=True,
        warnings=judged.warnings,
        findings=judged.findings,
        audit=audit,
        reservation=judged.reservation,
    )


def _updated(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Deny changes to what a pod with a GPU counts; warn that new shorthand has no effect on a pod that exists."""
    try:
        changed = updates.check(request, rulebook)
        if changed:
            return denied(changed)
        judged = judge.judge_update(request, rulebook)
        if judged.violations:
            return _together((), judged)
        before = _requests(request.old_pod, request.namespace, rulebook)
        after = _requests(request.pod, request.namespace, rulebook)
    except Refusal:
        return UNTOUCHED
    warnings = [*judged.warnings, *([] if before == after else [KEEPS])]
    return Decision(allowed=True, warnings=warnings, findings=judged.findings) if warnings else UNTOUCHED


def _requests(raw: Mapping[str, Any] | None, namespace: str, rulebook: Rulebook) -> list[tuple[str, GpuRequest]]:
    seen = pod.read(raw or {}, namespace)
    if interpret.asks_nothing(seen, rulebook):
        return []
    found = interpret.interpret(seen, rulebook)
    return [(asked.container.name, asked.request) for asked in found.asked if asked.request is not None]


def _observed(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Observe mode: the decision about the pod as /mutate would have made it. Refusals of /mutate are told there."""
    acting = replace(rulebook, tenancy=replace(rulebook.tenancy, observing=False))
    if request.operation != "UPDATE":
        try:
            planned = defaults.plan_for_tenant(pod.read(request.pod or {}, request.namespace), acting)
        except Refusal:
            return UNTOUCHED
        if planned.violations:
            return UNTOUCHED
        raw = request.pod or {}
        request = request._replace(pod=patch.applied(patch.to_patch(planned.edits, raw), raw))
    return observe.as_warnings(_judged(request, acting))
