"""Observe mode: pods are neither changed nor refused; their authors are warned of what would happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.core.backends.translate import as_text
from webhook.core.decision import Decision, denied
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.review import line
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal


def refused(refusal: Refusal, rulebook: Rulebook) -> Decision:
    """The denial for a refusal; as warnings in observe mode."""
    return enforced(denied(refusal.violations), rulebook)


def enforced(decision: Decision, rulebook: Rulebook) -> Decision:
    """A decision of /validate; as warnings in observe mode."""
    return as_warnings(decision) if rulebook.tenancy.observing else decision


def enforced_mutation(decision: Decision, served: Sequence[Assignment], rulebook: Rulebook) -> Decision:
    """A decision of /mutate; as warnings in observe mode."""
    if not rulebook.tenancy.observing or not decision.allowed:
        return enforced(decision, rulebook)
    warnings = [*_becomes(served, rulebook), *decision.warnings] if decision.patch else decision.warnings
    return decision._replace(patch=(), warnings=warnings)


def as_warnings(decision: Decision) -> Decision:
    """The decision, as warnings; nothing is reserved."""
    return Decision(
        allowed=True,
        warnings=[*(line(violation, "would be refused: ") for violation in decision.violations), *decision.warnings],
        backends=decision.backends,
        audit=decision.audit,
        findings=[
            finding._replace(action="warn") if finding.action == "deny" else finding for finding in decision.findings
        ],
    )


def _becomes(served: Sequence[Assignment], rulebook: Rulebook) -> Iterator[str]:
    for name, words in becoming(served, rulebook):
        whose = f'the container "{name}"' if name else "the pod"
        yield f"{whose} would become {words}"


def becoming(served: Sequence[Assignment], rulebook: Rulebook) -> Iterator[tuple[str, str]]:
    """What the shorthand of each container becomes; the name is empty if only one container has a GPU.

    Containers with a back end's own resources are left out: these stay.
    """
    for assignment in served:
        if assignment.demand.request is not None:
            name = assignment.demand.container.name if len(served) > 1 else ""
            yield name, f"{', '.join(_resource_lines(assignment, rulebook))} ({assignment.backend.name})"


def _resource_lines(served: Assignment, rulebook: Rulebook) -> Iterator[str]:
    """What a container gets from its back end: `nvidia.com/gpu: 1`."""
    for name, number in served.amounts.items():
        output = served.mode.limits.get(name)
        yield f"{name}: {as_text(output, number) if output else number}"
    for template in plan.claim_templates(served, rulebook):
        yield f"a claim of {template}"
