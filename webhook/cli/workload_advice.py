"""What becomes of the pods of a workload, told to the author of the workload.

A controller creates the pods, and nobody reads the API server's answers to it.
"""

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from webhook.cli import api_server, explanation
from webhook.core import pod_templates
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.kube.fields import Path, controllers, field_path
from webhook.core.policy import judge
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest, warning_text
from webhook.core.rules.objects import Workload, find
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal

MOST: Final = 16
"""Of how many templates of a workload something is said: nobody reads more, and reviews of pods wait meanwhile."""


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """Warnings that say what the pods of a workload become, or why they will be refused; it is never denied.

    `ledgers` are those that happen to be known here: nobody waits for one to warn of a quota.
    """
    raw = request.pod
    workload = None if raw is None or request.subresource else _workload(raw, rulebook)
    if workload is None or raw is None or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    if any(_workload(owner, rulebook) for owner in controllers(raw)):
        return UNTOUCHED  # the author of the owner has been told already
    try:
        templates = pod_templates.templates(raw, workload)
    except Refusal as refusal:
        unknown = "what becomes of its pods cannot be said: "
        return Decision(allowed=True, warnings=[warning_text(violation, unknown) for violation in refusal.violations])
    old: dict[Path, pod_templates.Template] = {}
    if request.operation == "UPDATE" and request.old_pod:
        with suppress(Refusal):
            old = {template.path: template for template in pod_templates.templates(request.old_pod, workload)}
    warnings: list[str] = []
    for template in templates[:MOST]:
        # Of what was there before its author was told when it was new.
        before = old.get(template.path)
        is_new = before is None or before.pod != template.pod
        more = template.number - (before.number if before else 0)
        known_hints = [*warnings, *(pod_templates.misplaced(request.old_pod or {}, before) if before else ())]
        hints = [hint for hint in pod_templates.misplaced(raw, template) if hint not in known_hints]
        if not is_new and more <= 0:
            warnings += hints
            continue

        # As the pods of the workload will be created: by its controller, and not as a trial.
        review = request._replace(
            operation="CREATE", resource="pods", pod=template.pod, old_pod=None, user=workload.created_by
        )
        foretold = explanation.foretell("the template", review, rulebook)
        decision, planned = foretold.decision, foretold.planned
        # An update replaces pods that are counted already, and may add some.
        reservation, known = decision.reservation, [] if is_new else decision.warnings
        if reservation is not None and reservation.tenant in ledgers and more > 0:
            decision, _, ledgers = explanation.foresee(decision, more, request.namespace, rulebook.tenancy, ledgers)

        pods = f"pods of {'this template' if len(templates) == 1 else field_path(template.path)}"
        told = []
        for container, becoming in judge.becoming(
            planned.assignments if planned and decision.patch and is_new else (), rulebook
        ):
            told.append(f"{pods} become " + (f'"{container}": ' if container else "") + becoming)
        wait = decision.code == HTTPStatus.SERVICE_UNAVAILABLE
        fate = f"{pods} {'have to wait for now' if wait else 'will be refused'}: "
        # Of a template that asks for no GPU, the API server says by itself what it does not take.
        told += [warning_text(v, fate) for v in decision.violations if planned or v.code != api_server.REFUSED]
        told += [f"{pods}: {warning}" for warning in decision.warnings if warning not in known]
        warnings += told or hints
    if len(templates) > MOST and warnings:
        warnings.append(f"of the other {len(templates) - MOST} templates nothing is said")
    return Decision(allowed=True, warnings=warnings) if warnings else UNTOUCHED


def _workload(raw: Mapping[str, Any], rulebook: Rulebook) -> Workload | None:
    """The workload that an object, or an owner, is of; None of a pod, and of a kind without pods or unknown."""
    workload = find(rulebook.workloads, str(raw.get("apiVersion") or ""), str(raw.get("kind") or ""))
    return workload if workload is not None and workload.pods and workload.pods[0].roots[0] else None
