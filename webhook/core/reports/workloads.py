"""What becomes of the pods of a workload, told to the author of the workload.

A controller creates the pods, and nobody reads the API server's answers to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.kube import paths
from webhook.core.policy import observe
from webhook.core.quota.ledger import Ledger
from webhook.core.reports import explain, forecast, pod_templates
from webhook.core.reports.explain import Explanation
from webhook.core.review import AdmissionRequest, line
from webhook.core.rules.rulebook import Rulebook


class Workload(NamedTuple):
    """What makes pods: its kind, and the controller whose ServiceAccount creates them."""

    kind: str
    controller: str


WORKLOADS: Final[Mapping[str, Workload]] = {
    "deployments": Workload("Deployment", "replicaset"),
    "statefulsets": Workload("StatefulSet", "statefulset"),
    "daemonsets": Workload("DaemonSet", "daemon-set"),
    "replicasets": Workload("ReplicaSet", "replicaset"),
    "jobs": Workload("Job", "job"),
    "cronjobs": Workload("CronJob", "job"),
}
"""By resource."""

OWNERS: Final = frozenset(workload.kind for workload in WORKLOADS.values())
"""The author of an object of these kinds has been told already, and what its controller creates would repeat it."""


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """Warnings that say what the pods of a workload become, or why they will be refused; it is never denied.

    `ledgers` are those that happen to be known here: nobody waits for one to warn of a quota.
    """
    workload = WORKLOADS.get(request.resource)
    if workload is None or request.subresource or request.pod is None or rulebook.cluster.exempts(request.namespace):
        return UNTOUCHED
    path = pod_templates.template_path(workload.kind)
    template = paths.at(request.pod, *path)
    if not isinstance(template, Mapping) or any(one.get("kind") in OWNERS for one in paths.controllers(request.pod)):
        return UNTOUCHED
    if request.operation == "UPDATE" and template == paths.at(request.old_pod, *path):
        return UNTOUCHED
    # As the pods of the workload will be created: by its controller, and not as a trial.
    review = request._replace(
        operation="CREATE",
        resource="pods",
        pod=template,
        old_pod=None,
        user=f"system:serviceaccount:kube-system:{workload.controller}-controller",
    )
    explained = explain.foretell("the template", review, rulebook)
    explained = _with_quota(explained, request, rulebook, ledgers)
    asks = explained.decision.backends or explained.decision.violations
    hint = None if asks else pod_templates.misplaced(request.pod, template)
    warnings = [*_warnings(explained, rulebook), *([hint] if hint else [])]
    return Decision(allowed=True, warnings=warnings) if warnings else UNTOUCHED


def _with_quota(
    explained: Explanation, request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger]
) -> Explanation:
    """With what a ledger says; not of an update, which replaces pods that are counted already."""
    wanted = explained.decision.reservation
    if wanted is None or wanted.tenant not in ledgers or request.operation != "CREATE":
        return explained
    pods = pod_templates.number(request.pod)
    foreseen = forecast.foresee(explained.decision, pods, request.namespace, rulebook.tenancy, ledgers)
    return replace(explained, decision=foreseen.decision)


def _warnings(explained: Explanation, rulebook: Rulebook) -> Iterator[str]:
    decision = explained.decision
    served = explained.planned.served if explained.planned and decision.patch else ()
    for name, words in observe.becoming(served, rulebook):
        whose = f'"{name}": ' if name else ""
        yield f"pods of this template become {whose}{words}"
    later = decision.code == HTTPStatus.SERVICE_UNAVAILABLE
    verdict = "have to wait for now" if later else "will be refused"
    yield from (line(violation, f"pods of this template {verdict}: ") for violation in decision.violations)
    yield from (f"pods of this template: {warning}" for warning in decision.warnings)
