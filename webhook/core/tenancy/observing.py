"""Observe mode: nothing is changed or refused, and the author of a pod is told what would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from webhook.core import claims
from webhook.core.amounts import as_text
from webhook.core.choice import Served
from webhook.core.decision import Decision, Finding
from webhook.core.review import line
from webhook.core.rulebook import Rulebook


def mutated(decision: Decision, served: Sequence[Served], rulebook: Rulebook) -> Decision:
    """What /mutate would have done, as warnings."""
    if not decision.allowed:
        return validated(decision)
    warnings = [*_becomes(served, rulebook), *decision.warnings] if decision.patch else decision.warnings
    return replace(decision, patch=(), warnings=warnings)


def validated(decision: Decision) -> Decision:
    """What /validate would have said, as warnings; nothing is reserved."""
    return Decision(
        allowed=True,
        warnings=[*(line(violation, "would be refused: ") for violation in decision.violations), *decision.warnings],
        backends=decision.backends,
        audit=decision.audit,
        findings=[_softened(finding) for finding in decision.findings],
    )


def _softened(finding: Finding) -> Finding:
    return finding._replace(action="warn") if finding.action == "deny" else finding


def _becomes(served: Sequence[Served], rulebook: Rulebook) -> Iterator[str]:
    for name, words in becoming(served, rulebook):
        whose = f'the container "{name}"' if name else "the pod"
        yield f"{whose} would become {words}"


def becoming(served: Sequence[Served], rulebook: Rulebook) -> Iterator[tuple[str, str]]:
    """What shorthand turns into, and of which container, where there are several.

    Nothing for who wrote the words of a back end, which stay.
    """
    for one in served:
        if one.asked.request is not None:
            name = one.asked.container.name if len(served) > 1 else ""
            yield name, f"{', '.join(_words(one, rulebook))} ({one.backend.name})"


def _words(served: Served, rulebook: Rulebook) -> Iterator[str]:
    """What a container has in the end, in the words of its back end: `nvidia.com/gpu: 1`."""
    for name, number in served.amounts.items():
        output = served.mode.limits.get(name)
        yield f"{name}: {as_text(output, number) if output else number}"
    for template in claims.templates(served, rulebook):
        yield f"a claim of {template}"
