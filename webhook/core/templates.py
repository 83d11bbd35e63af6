"""What becomes of the pods of a workload, told to whoever writes the workload.

A controller makes the pods, and nobody reads what the API server says to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from webhook.core import admit, explain
from webhook.core.decision import Decision
from webhook.core.explain import Explanation
from webhook.core.fields import Path
from webhook.core.review import AdmissionRequest, line
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy import observing, prospect
from webhook.core.tenancy.ledger import Ledger

TEMPLATES: Final[Mapping[str, Path]] = {
    "deployments": ("spec", "template"),
    "statefulsets": ("spec", "template"),
    "daemonsets": ("spec", "template"),
    "replicasets": ("spec", "template"),
    "jobs": ("spec", "template"),
    "cronjobs": ("spec", "jobTemplate", "spec", "template"),
}
"""Where each resource keeps the pod that it makes."""

MAKERS: Final[Mapping[str, str]] = {
    "deployments": "replicaset",
    "statefulsets": "statefulset",
    "daemonsets": "daemon-set",
    "replicasets": "replicaset",
    "jobs": "job",
    "cronjobs": "job",
}
"""Whose ServiceAccount creates the pods: `system:serviceaccount:kube-system:job-controller`."""

OWNERS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"})
"""Whoever wrote an object of these kinds has been told; what its controller makes of it tells nobody anything new."""


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """Warnings that say what the pods of a workload become, or why they will be refused; it is never denied.

    `ledgers` are those that happen to be known here: nobody waits for one to warn of a quota.
    """
    path = TEMPLATES.get(request.resource)
    if path is None or request.subresource or request.pod is None or admit.exempt(request, rulebook):
        return admit.UNTOUCHED
    template = explain.at(request.pod, path)
    if not isinstance(template, Mapping) or _made(request.pod):
        return admit.UNTOUCHED
    if request.operation == "UPDATE" and template == explain.at(request.old_pod, path):
        return admit.UNTOUCHED
    # As the pods of the workload will be created: by its controller, and not as a trial.
    review = replace(
        request,
        operation="CREATE",
        resource="pods",
        pod=template,
        old_pod=None,
        user=f"system:serviceaccount:kube-system:{MAKERS[request.resource]}-controller",
    )
    explained = explain.explain_review("the template", review, rulebook)
    explained = _with_quota(explained, request, rulebook, ledgers)
    asks = explained.decision.backends or explained.decision.violations
    hint = None if asks else explain.misplaced(request.pod, template)
    warnings = [*_told(explained, rulebook), *([hint] if hint else [])]
    return Decision(allowed=True, warnings=warnings) if warnings else admit.UNTOUCHED


def _made(workload: Mapping[str, Any]) -> bool:
    """Whether a controller of Kubernetes has made it, and not a person."""
    references = explain.at(workload, ("metadata", "ownerReferences"))
    return isinstance(references, list) and any(
        isinstance(one, Mapping) and one.get("controller") is True and one.get("kind") in OWNERS for one in references
    )


def _with_quota(
    explained: Explanation, request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger]
) -> Explanation:
    """With what a ledger says; not of an update, which replaces pods that are counted already."""
    wanted = explained.decision.reservation
    if wanted is None or wanted.tenant not in ledgers or request.operation != "CREATE":
        return explained
    pods = explain.number(request.pod)
    foreseen = prospect.foresee(explained.decision, pods, request.namespace, rulebook.tenancy, ledgers)
    return replace(explained, decision=foreseen.decision)


def _told(explained: Explanation, rulebook: Rulebook) -> Iterator[str]:
    decision = explained.decision
    if decision.patch:
        yield from _becomes(explained, rulebook)
    later = decision.code == HTTPStatus.SERVICE_UNAVAILABLE
    verdict = "have to wait for now" if later else "will be refused"
    yield from (line(violation, f"pods of this template {verdict}: ") for violation in decision.violations)
    yield from (f"pods of this template: {warning}" for warning in decision.warnings)


def _becomes(explained: Explanation, rulebook: Rulebook) -> Iterator[str]:
    """What shorthand turns into; nothing for who wrote the words of a back end, which stay."""
    served = explained.planned.served if explained.planned else []
    for one in served:
        if one.asked.request is not None:
            whose = f'"{one.asked.container.name}": ' if len(served) > 1 else ""
            words = ", ".join(observing.words(one, rulebook))
            yield f"pods of this template become {whose}{words} ({one.backend.name})"
