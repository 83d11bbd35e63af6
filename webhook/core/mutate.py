"""POST /mutate: the pod with its request translated for the back end that serves it."""

from collections.abc import Mapping
from http import HTTPStatus

from webhook.core import projection
from webhook.core.decision import UNTOUCHED, Decision, denied, pinged
from webhook.core.forms.document import Nearest
from webhook.core.interpret import interpret, locations
from webhook.core.kube import pod as pods
from webhook.core.kube.fields import Edit, applied, at, to_patch
from webhook.core.plan.plan import Plan
from webhook.core.policy import defaults, device_access, judge, updates, usage
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal


def mutate(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Translate the pod; deny it if its request cannot be understood or satisfied, or its policy rules it out.

    Of an update what it states again is put back; one that cannot be read is left to /validate.
    """
    if request.operation != "UPDATE":
        return mutate_with_plan(request, rulebook)[0]
    if not request.is_of_a_pod or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    whole = at(request.pod, "metadata", "uid") is None  # which the API server gives to what it has merged
    try:
        request = projection.project(request, rulebook, bounds_old_pod=True)
        return updates.keep_stored(request, rulebook, whole=whole)
    except Refusal:
        return UNTOUCHED


def mutate_with_plan(request: AdmissionRequest, rulebook: Rulebook) -> tuple[Decision, Plan | None]:
    """Translate a pod that is created. Reports take the reasons from the plan, None for a pod that has none."""
    if request.is_a_ping:
        return pinged("mutate"), None
    if request.operation != "CREATE" or not request.is_of_a_pod or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED, None
    plan: Plan | None = None
    edits: list[Edit] = []
    warnings: list[str] = []
    backends: Mapping[str, str] = {}
    audit: dict[str, str] = {}
    try:
        request = projection.project(request, rulebook)
        pod = pods.read(request.pod or {}, request.namespace)
        if interpret.asks_nothing(pod, rulebook):
            # Its author is told of keys that may have been meant to ask.
            warnings += locations.hints_of_keys(pod, rulebook, Nearest(interpret.WORDS))
        else:
            plan = defaults.plan_for_tenant(pod, rulebook)
    except Refusal as refusal:
        return judge.refused(refusal, rulebook), None
    if plan is not None:
        if plan.violations:
            refused = denied(plan.violations, plan.warnings)
            if refused.code == HTTPStatus.FORBIDDEN:
                # The policy alone refuses: with everything else that it would refuse after that is fixed.
                before = request.pod or {}
                pod = pods.read(applied(to_patch(plan.edits, before), before), request.namespace)
                judged = judge.judge(pod, usage.holdings(pod, rulebook), request, rulebook)
                more = [violation for violation in judged.violations if violation not in refused.violations]
                refused = refused._replace(
                    violations=[*refused.violations, *more],
                    warnings=[*refused.warnings, *judged.warnings],
                    findings=judged.findings,
                    audit=judged.audit,
                )
            return judge.mutation_if_not_observing(refused, plan.assignments, rulebook), plan
        edits, warnings, backends = plan.edits, plan.warnings, plan.backends
        if plan.assignments:
            rules = dict.fromkeys([assignment.backend.rule for assignment in plan.assignments])
            audit = {"rules": ", ".join(rules), "rulebook": rulebook.digest[:12]}
    if removed := device_access.removal(pod, backends, rulebook):
        edits = [*edits, *device_access.removing(removed)]
        warnings = [*warnings, *map(device_access.told, removed)]
    if plan is None and not warnings:
        return UNTOUCHED, None
    operations = to_patch(edits, request.pod or {})
    decision = Decision(allowed=True, warnings=warnings, patch=operations, backends=backends, audit=audit)
    if rulebook.tenancy.observing:
        decision = judge.mutation_if_not_observing(decision, plan.assignments if plan else (), rulebook)
    return decision, plan
