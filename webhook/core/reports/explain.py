"""One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core.backends import charge
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.kube import patch, pod, quantity
from webhook.core.kube.paths import field as path_of
from webhook.core.mutate import decide
from webhook.core.plan import choose
from webhook.core.plan.choose import Candidate
from webhook.core.plan.plan import Plan
from webhook.core.policy import defaults, holdings, observe
from webhook.core.projection import projection
from webhook.core.quota.ledger import Ledger
from webhook.core.reports import forecast as prospects
from webhook.core.reports import pod_templates
from webhook.core.reports.forecast import Prospect
from webhook.core.reports.pod_templates import Found
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.validate import validate
from webhook.core.violations import Refusal, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What would become of one pod. `title` names the object, `before` and `after` are the pod.

    `converted` is how the pod was understood in the words of another system, if it is rewritten for this one. There
    are `pods` like this at a time, and `prospect` is what the quota of their tenant says to them, if it was asked.
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
    pods: int = 1
    prospect: Prospect | None = None


class Setting(NamedTuple):
    """By whom and when a pod is created, in seconds since 1970; and where, unless it says so itself."""

    namespace: str = ""
    user: str = ""
    at: float = 0.0


NOWHERE: Final = Setting()


def contract(found: Sequence[Explanation]) -> Any:
    """The form of `explain -o json`, which scripts rely on: of one pod an object, of several a list."""
    contracts = [
        {
            "allowed": one.decision.allowed,
            "code": int(one.decision.code),
            "violations": [
                {"code": v.code, "path": v.path, "message": v.message, "fix": v.fix} for v in one.decision.violations
            ],
            "warnings": list(one.decision.warnings),
            "backends": dict(one.decision.backends),
            "patch": [dict(operation) for operation in one.decision.patch],
            "pod": one.after,
            "tenant": one.prospect.contract() if one.prospect else None,
        }
        for one in found
    ]
    return contracts[0] if len(contracts) == 1 else contracts


def explain(document: Mapping[str, Any], rulebook: Rulebook, setting: Setting = NOWHERE) -> list[Explanation]:
    """Explain every pod that a document has, or why that cannot be said; an empty list for a kind without pods."""
    return [_explain_found(each, rulebook, setting) for each in pod_templates.pods(document, rulebook.workloads)]


def _explain_found(found: Found, rulebook: Rulebook, setting: Setting) -> Explanation:
    if found.wrong is not None:
        return Explanation(title=found.title, decision=denied([found.wrong]), before=found.pod, after=found.pod)
    namespace = setting.namespace or found.namespace
    explained = explain_pod(found.title, found.pod, namespace, rulebook, setting)
    decision = explained.decision
    warnings = [*decision.warnings, *filter(None, (found.note, "" if decision.backends else found.hint))]
    return replace(explained, pods=found.number, decision=decision._replace(warnings=warnings))


def foreseen(
    found: Iterable[Explanation], tenancy: Tenancy, ledgers: Mapping[str, Ledger] | None = None
) -> Iterator[Explanation]:
    """The explanations, each with the word of its tenant's ledger, as if all of it were created one after another.

    `ledgers` None: nobody uses anything yet.
    """
    known = ledgers
    for one in found:
        decision, prospect, after = prospects.foresee(
            one.decision, one.pods, one.namespace, tenancy, known, imagined=ledgers is None
        )
        known = after if decision.allowed and one.decision.reservation else known
        shown = one.after if decision.allowed else one.before
        yield replace(one, decision=decision, prospect=prospect, after=shown)


def explain_pod(
    title: str, raw: Mapping[str, Any], namespace: str, rulebook: Rulebook, setting: Setting = NOWHERE
) -> Explanation:
    """Explain one pod; a `title` that does not begin with `Pod ` is of something that makes pods."""
    review = creating(raw, "explain", namespace, setting.at)._replace(user=setting.user)
    return replace(explain_review(title, review, rulebook), namespace=namespace)


def explain_review(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """Explain what both webhooks make of a pod that is created, as the review says by whom, where and when."""
    raw = review.pod or {}
    found = foretell(title, review, rulebook)
    if found.planned is None:
        return found
    asking = [asked for asked in found.planned.interpretation.asked if asked.anything]
    after = patch.applied(found.decision.patch, raw) if found.decision.patch else raw
    return replace(
        found,
        after=after,
        candidates={asked.container.name: _candidates(asked, rulebook) for asked in asking},
        charges=_charges(found.planned, after, rulebook),
    )


def foretell(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """What both webhooks make of a pod, by its projection and without the reasons: as little work as theirs.

    The pod `after` is not made.
    """
    raw = review.pod or {}
    if not isinstance(raw.get("spec"), Mapping):
        missing = Violation(code="GPU001", path="spec", message="the pod has no spec", fix="write its spec")
        return Explanation(title=title, decision=denied([missing]), before=raw, after=raw)
    if rulebook.cluster.exempts(review.namespace):
        exempt = f"{title} (exempt: {review.namespace})"
        return Explanation(title=exempt, decision=UNTOUCHED, before=raw, after=raw)
    try:
        review = projection.project(review, rulebook)
        seen = pod.read(review.pod or {}, review.namespace)
        planned = defaults.plan_for_tenant(seen, rulebook)
    except Refusal as refusal:
        return Explanation(title=title, decision=observe.refused(refusal, rulebook), before=raw, after=raw)
    planned.violations += () if title.startswith("Pod ") else _not_in_a_template(seen)
    decision = decide(planned, review, rulebook)
    if decision.allowed:
        after = patch.applied(decision.patch, review.pod or {}) if decision.patch else review.pod
        decision = _judged(decision, review._replace(pod=after), rulebook)
    return Explanation(title=title, decision=decision, before=raw, after=raw, planned=planned)


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


def _not_in_a_template(seen: pod.Pod) -> Iterator[Violation]:
    """Kubernetes validates a template before any pod exists, so nothing can be rescued there."""
    for container in seen.containers:
        for section, present in (("limits", container.limits), ("requests", container.requests)):
            for name, value in present.items():
                path = path_of((*container.path, "resources", section, name))
                if "/" not in name and name.startswith("gpu"):
                    yield _template(path, f"{name} is no resource name that Kubernetes takes in a pod template")
                elif "/" in name and not quantity.is_whole(value):
                    yield _template(path, f"{name}: {value} is no whole number, and a pod template needs one")


def _template(path: str, message: str) -> Violation:
    fix = 'say it with a label or annotation of the template, as gpu: "0.3"'
    return Violation(code="GPU002", path=path, message=message, fix=fix)
