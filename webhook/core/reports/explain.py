"""One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from webhook.core.backends import charge
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.kube import patch, pod
from webhook.core.mutate import translate
from webhook.core.plan import choose
from webhook.core.plan.choose import Candidate
from webhook.core.plan.plan import Plan
from webhook.core.policy import holdings
from webhook.core.reports import api_server, missing, pod_templates
from webhook.core.reports import forecast as prospects
from webhook.core.reports.forecast import Ledgers, Prospect
from webhook.core.reports.missing import NOWHERE, Judged, Missing, Setting
from webhook.core.reports.pod_templates import NOBODY, Found, Named
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.validate import validate
from webhook.core.violations import Refusal, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What would become of one pod. `title` names the object, `before` and `after` are the pod.

    `named` is the object that has it, or makes it. `converted` is how the pod was understood in the words of another
    system, if it is rewritten for this one. There are `pods` like this at a time, and `prospect` is what the quota of
    their tenant says to them, if it was asked. `missing` are the inputs that nobody gave, with what each may change.
    So many back ends are `disabled` that nothing was asked of.
    """

    title: str
    decision: Decision
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    planned: Plan | None = None
    candidates: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)
    charges: Mapping[str, Fraction] = field(default_factory=dict)
    converted: Plan | None = None
    namespace: str = "default"
    named: Named = NOBODY
    pods: int = 1
    prospect: Prospect | None = None
    missing: Sequence[Missing] = ()
    disabled: int = 0


def contract(found: Sequence[Explanation]) -> Any:
    """The form of `explain -o json`, which scripts rely on: of one pod an object, of several a list."""
    contracts = [
        {
            "object": {"kind": one.named.kind, "namespace": one.namespace, "name": one.named.name or None},
            "allowed": one.decision.allowed,
            "code": int(one.decision.code),
            "violations": [
                {"code": v.code, "path": v.path, "message": v.message, "rule": v.rule, "fix": v.fix}
                for v in one.decision.violations
            ],
            "warnings": list(one.decision.warnings),
            "backends": dict(one.decision.backends),
            "patch": [dict(operation) for operation in one.decision.patch],
            "pod": one.after,
            "tenant": one.prospect.contract() if one.prospect else None,
            "missing": [each._asdict() for each in one.missing],
        }
        for one in found
    ]
    return contracts[0] if len(contracts) == 1 else contracts


def explain(document: Mapping[str, Any], rulebook: Rulebook, setting: Setting = NOWHERE) -> list[Explanation]:
    """Explain every pod that a document has, or why that cannot be said; an empty list for a kind without pods."""
    return [_explain_found(each, rulebook, setting) for each in pod_templates.pods(document, rulebook.workloads)]


def _explain_found(found: Found, rulebook: Rulebook, setting: Setting) -> Explanation:
    namespace = setting.namespace or found.namespace
    if found.wrong is not None:
        bare = Explanation(title=found.title, decision=denied([found.wrong]), before=found.pod, after=found.pod)
        return replace(bare, namespace=namespace, named=found.named)
    explained = explain_pod(found.title, found.pod, namespace, rulebook, setting)
    decision = explained.decision
    hints = () if decision.backends else found.hints
    warnings = [*decision.warnings, *([found.note] if found.note else ()), *hints]
    decision = decision._replace(warnings=warnings)
    return replace(explained, pods=found.number, named=found.named, decision=decision)


def foreseen(
    found: Iterable[Explanation],
    tenancy: Tenancy,
    ledgers: Ledgers = MappingProxyType({}),
    setting: Setting = NOWHERE,
) -> Iterator[Explanation]:
    """The explanations, each with the word of its tenant's ledger, as if all of it were created one after another.

    A tenant uses nothing yet whose ledger is not there.
    """
    known = ledgers
    for one in found:
        decision, prospect, after = prospects.foresee(
            one.decision, one.pods, one.namespace, tenancy, known, imagined=True
        )
        known = after if decision.allowed and one.decision.reservation else known
        shown = one.after if decision.allowed else one.before
        told = replace(one, decision=decision, prospect=prospect, after=shown)
        if _concerns_gpus(told):
            judged = Judged(one.namespace, one.named.placed, decision, prospect)
            told = replace(told, missing=[*missing.find(judged, tenancy, ledgers, setting)])
        yield told


def _concerns_gpus(one: Explanation) -> bool:
    asking = one.planned is not None and any(asked.anything for asked in one.planned.interpretation.asked)
    return asking or bool(one.decision.findings)


def explain_pod(
    title: str, raw: Mapping[str, Any], namespace: str, rulebook: Rulebook, setting: Setting = NOWHERE
) -> Explanation:
    """Explain one pod; a `title` that does not begin with `Pod ` is of something that makes pods."""
    review = creating(raw, "explain", namespace, setting.at)._replace(user=setting.user)
    return replace(explain_review(title, review, rulebook), namespace=namespace)


def explain_review(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """Explain what both webhooks make of a pod that is created, as the review says by whom, where and when."""
    found = foretell(title, review, rulebook)
    if found.planned is None:
        return found
    charges = _charges(found.planned, found.after, rulebook)
    disabled = 0 if rulebook.trial else len(rulebook.backends) - len(rulebook.enabled)
    return with_candidates(replace(found, charges=charges, disabled=disabled), rulebook)


def with_candidates(explained: Explanation, rulebook: Rulebook) -> Explanation:
    """The explanation with the back ends that may serve each container."""
    asked = explained.planned.interpretation.asked if explained.planned else ()
    candidates = {one.container.name: _candidates(one, rulebook) for one in asked if one.anything}
    return replace(explained, candidates=candidates)


def foretell(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """What both webhooks and the API server make of a pod, without the reasons: as little work as theirs."""
    raw = review.pod or {}
    if not isinstance(raw.get("spec"), Mapping):
        wrong = Violation(code="GPU001", path="spec", message="the pod has no spec", fix="write its spec")
        return Explanation(title=title, decision=denied([wrong]), before=raw, after=raw)
    if rulebook.cluster.exempts(review.namespace):
        exempt = f"{title} (exempt: {review.namespace})"
        return Explanation(title=exempt, decision=UNTOUCHED, before=raw, after=raw)
    decision, planned = translate(review, rulebook)
    after = patch.applied(decision.patch, raw) if decision.patch else raw
    if decision.allowed:
        decision = _judged(decision, review._replace(pod=after), rulebook)
    stored = after if decision.allowed else raw
    if title.startswith("Pod "):
        refused = [*api_server.of_a_pod(review, stored, decision)]
    else:
        refused = [*api_server.of_a_template(review, decision, rulebook)]
    if refused:
        decision, stored = denied([*decision.violations, *refused], decision.warnings, decision.findings), raw
    return Explanation(title=title, decision=decision, before=raw, after=stored, planned=planned)


def _charges(planned: Plan, after: Mapping[str, Any], rulebook: Rulebook) -> dict[str, Fraction]:
    """What each container that is served is charged: what the stored pod counts, as far as it would be stored."""
    held = holdings.holdings(pod.read(after), rulebook)
    counted = {holding.container.name: holding.measure.devices for holding in held}
    return {
        one.asked.container.name: counted.get(one.asked.container.name, charge.charge(one.request, one.card))
        for one in planned.served
    }


def _judged(mutated: Decision, stored: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """The answer to a pod that was translated, after it was judged as it would be stored."""
    judged = validate(stored, rulebook)
    warnings = [*mutated.warnings, *judged.warnings]
    if not judged.allowed:
        return judged._replace(warnings=warnings, reservation=None)
    findings = [*mutated.findings, *judged.findings]
    return mutated._replace(warnings=warnings, reservation=judged.reservation, findings=findings)


def _candidates(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Candidate]:
    try:
        return list(choose.candidates(asked, rulebook))
    except Refusal:
        return []
