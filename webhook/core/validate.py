"""POST /validate: whether the pod as it would be stored gives what it asks, and whether its tenant may have it.

An UPDATE is judged only by what it changes: a pod that today's rules would refuse can still be updated. On CREATE
violations of policies are reported with all others. The ledger has to make the decision's reservation before the pod
is admitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.core import projection
from webhook.core.decision import UNTOUCHED, Decision, denied, pinged
from webhook.core.interpret import interpret
from webhook.core.kube import fields
from webhook.core.kube import pod as pods
from webhook.core.plan.allocation import Checked, check_sufficient
from webhook.core.policy import defaults, judge, updates, usage
from webhook.core.request import GpuRequest
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal

KEEPS: Final = "create the pod again for the new shorthand to count: an update gives it no GPU, and changes none"


def validate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Judge a pod that is about to be created or updated, or the Binding of one.

    A Binding is judged as the update of the pod that it makes; the API server refuses one for another pod's UID.
    """
    if request.is_a_ping:
        return pinged("validate")
    binding = request if request.is_a_binding else None
    if not (binding or request.is_of_a_pod) or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    if binding is not None:
        update = updates.update_by_binding(binding)
        if update is None:
            return UNTOUCHED
        request = update
    try:
        request = projection.project(request, rulebook)
    except Refusal as refusal:
        return judge.refused(refusal, rulebook)
    if binding is not None and (unnamed := updates.unnamed(binding, request, rulebook)):
        return judge.decision_if_not_observing(denied(unnamed), rulebook)
    judge_pod = _updated if request.operation == "UPDATE" else _created
    if not rulebook.tenancy.observing:
        return judge_pod(request, rulebook)

    # Observe mode: the decision about the pod as /mutate would have made it. Refusals of /mutate are told there.
    acting = replace(rulebook, tenancy=replace(rulebook.tenancy, observing=False))
    if request.operation != "UPDATE":
        before = request.pod or {}
        try:
            plan = defaults.plan_for_tenant(pods.read(before, request.namespace), acting)
        except Refusal:
            return UNTOUCHED
        if plan.violations:
            return UNTOUCHED
        request = request._replace(pod=fields.applied(fields.to_patch(plan.edits, before), before))
    return judge.as_warnings(judge_pod(request, acting))


def _created(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Check that the pod gives at least what it asks; then policies judge what it gives."""
    try:
        pod = pods.read(request.pod or {}, request.namespace)
        checked = Checked((), interpret.Interpretation(), rulebook, {})
        if not interpret.asks_nothing(pod, rulebook):
            checked = check_sufficient(pod, rulebook)
    except Refusal as refusal:
        return denied(refusal.violations)
    holdings: Sequence[usage.Holding] = ()
    if not rulebook.tenancy.silent or rulebook.cluster.device_access is not None:
        holdings = usage.holdings(pod, checked.rulebook, checked.interpretation, checked.allocations)
    judged = judge.judge(pod, holdings, request, checked.rulebook)
    if not checked.violations:
        return judged
    violations = [*checked.violations, *judged.violations]
    return denied(violations, judged.warnings, judged.findings)._replace(audit=judged.audit)


def _updated(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Deny changes to what a pod with a GPU counts; warn that new shorthand has no effect on a pod that exists."""
    try:
        changes = updates.check(request, rulebook)
        if changes:
            return denied(changes)
        judged = judge.judge_update(request, rulebook)
        if not judged.allowed:
            return judged
        before = _requests(request.old_pod, request.namespace, rulebook)
        after = _requests(request.pod, request.namespace, rulebook)
    except Refusal:
        return UNTOUCHED
    return judged if before == after else judged._replace(warnings=[*judged.warnings, KEEPS])


def _requests(raw: Mapping[str, Any] | None, namespace: str, rulebook: Rulebook) -> list[tuple[str, GpuRequest]]:
    """What each container asks for, by its name."""
    pod = pods.read(raw or {}, namespace)
    if interpret.asks_nothing(pod, rulebook):
        return []
    demands = interpret.interpret(pod, rulebook).asked
    return [(demand.container.name, demand.request) for demand in demands if demand.request is not None]
