"""What becomes of the pods of a workload, told to the author of the workload.

A controller creates the pods, and nobody reads the API server's answers to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from webhook.cli import api_server, explanation
from webhook.cli.explanation import Explanation, Ledgers
from webhook.core import pod_templates
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.kube import fields
from webhook.core.kube.fields import Path
from webhook.core.kube.fields import field_path as path_of
from webhook.core.pod_templates import Template
from webhook.core.policy import observe
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest, line
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.workload import Workload, find
from webhook.core.violations import Refusal


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """Warnings that say what the pods of a workload become, or why they will be refused; it is never denied.

    `ledgers` are those that happen to be known here: nobody waits for one to warn of a quota.
    """
    workload = None if request.pod is None or request.subresource else _workload(request.pod, rulebook)
    if workload is None or request.pod is None or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    if any(_workload(owner, rulebook) for owner in fields.controllers(request.pod)):
        return UNTOUCHED  # the author of the owner has been told already
    try:
        made = _changed(request, workload)
    except Refusal as refusal:
        unknown = "what becomes of its pods cannot be said: "
        return Decision(allowed=True, warnings=[line(violation, unknown) for violation in refusal.violations])
    warnings: list[str] = []
    for template, which in made:
        explained, ledgers = _foretold(request, workload, template, rulebook, ledgers)
        told = list(_warnings(explained, f"pods of {which}", rulebook))
        warnings += told
        hints = () if told else pod_templates.misplaced(request.pod, template)
        warnings += [hint for hint in hints if hint not in warnings]
    return Decision(allowed=True, warnings=warnings) if warnings else UNTOUCHED


def _workload(raw: Mapping[str, Any], rulebook: Rulebook) -> Workload | None:
    """The workload that an object, or an owner, is of; None of a pod, and of a kind without pods or unknown."""
    found = find(rulebook.workloads, str(raw.get("apiVersion") or ""), str(raw.get("kind") or ""))
    return found if found is not None and found.pods and found.pods[0].roots[0] else None


def _changed(request: AdmissionRequest, workload: Workload) -> list[tuple[Template, str]]:
    """The templates that are new, each with words for it; raises Refusal."""
    made = pod_templates.templates(request.pod or {}, workload)
    old: dict[Path, Mapping[str, Any]] = {}
    if request.operation == "UPDATE" and request.old_pod:
        with suppress(Refusal):
            old = {each.path: each.pod for each in pod_templates.templates(request.old_pod, workload)}
    alone = len(made) == 1
    return [
        (each, "this template" if alone else path_of(each.path)) for each in made if old.get(each.path) != each.pod
    ]


def _foretold(
    request: AdmissionRequest, workload: Workload, template: Template, rulebook: Rulebook, ledgers: Ledgers
) -> tuple[Explanation, Ledgers]:
    """What becomes of the pods of one template, and the ledgers as they are with these pods."""
    # As the pods of the workload will be created: by its controller, and not as a trial.
    review = request._replace(
        operation="CREATE", resource="pods", pod=template.pod, old_pod=None, user=workload.created_by
    )
    explained = explanation.foretell("the template", review, rulebook)
    wanted = explained.decision.reservation
    if wanted is not None and wanted.tenant in ledgers and request.operation == "CREATE":
        # An update replaces pods that are counted already.
        foreseen = explanation.foresee(
            explained.decision, template.number, request.namespace, rulebook.tenancy, ledgers
        )
        explained, ledgers = replace(explained, decision=foreseen.decision), foreseen.ledgers
    return explained, ledgers


def _warnings(explained: Explanation, pods: str, rulebook: Rulebook) -> Iterator[str]:
    decision = explained.decision
    served = explained.planned.assignments if explained.planned and decision.patch else ()
    for name, words in observe.becoming(served, rulebook):
        whose = f'"{name}": ' if name else ""
        yield f"{pods} become {whose}{words}"
    later = decision.code == HTTPStatus.SERVICE_UNAVAILABLE
    verdict = "have to wait for now" if later else "will be refused"
    # Of a template that asks for no GPU, the API server says by itself what it does not take.
    ours = [each for each in decision.violations if explained.planned or each.code != api_server.REFUSED]
    yield from (line(violation, f"{pods} {verdict}: ") for violation in ours)
    yield from (f"{pods}: {warning}" for warning in decision.warnings)
