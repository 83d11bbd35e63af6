"""What becomes of a pod once the ledger has answered."""

from __future__ import annotations

from dataclasses import replace

from webhook.core.decision import Decision, Finding, Reservation, denied
from webhook.core.tenancy import refusal
from webhook.core.tenancy.ledger import Ledger, Outcome
from webhook.core.violations import QUOTA


def reserved(decision: Decision, wanted: Reservation, outcome: Outcome, ledger: Ledger) -> Decision:
    """The decision about a pod, with what the ledger said of it."""
    if outcome.verdict in ("again", "wait"):
        return denied([refusal.again(wanted, outcome.why)], decision.warnings)
    findings = [*decision.findings, *(_finding(wanted) for _ in outcome.exceeded[:1])]
    if outcome.verdict == "over":
        violations = refusal.over(wanted, ledger, outcome.exceeded)
        return replace(denied(violations, decision.warnings), findings=findings)
    if wanted.action != "warn" or not outcome.exceeded:
        return replace(decision, findings=findings)
    warnings = [*decision.warnings, *refusal.admitted_over(wanted, ledger, outcome.exceeded)]
    return replace(decision, warnings=warnings, findings=findings)


def _finding(wanted: Reservation) -> Finding:
    return Finding(policy=wanted.tenant, rule=wanted.rule, code=QUOTA, action=wanted.action)
