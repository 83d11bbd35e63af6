"""One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core import admit, charge, choice, edits, pod, quantity
from webhook.core.asked import Asked
from webhook.core.choice import Candidate
from webhook.core.decision import Decision, denied
from webhook.core.fields import Path
from webhook.core.fields import field as path_of
from webhook.core.plan import Plan
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rulebook import Rulebook
from webhook.core.shorthand import KEYS
from webhook.core.tenancy import counting, observing, steer
from webhook.core.tenancy import prospect as prospects
from webhook.core.tenancy.ledger import Ledger
from webhook.core.tenancy.policy import Tenancy
from webhook.core.tenancy.prospect import Prospect
from webhook.core.violations import Refusal, Violation

TEMPLATES: Mapping[str, Path] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where a kind keeps its pod; every other kind that has `spec.template` keeps it there."""

NUMBERS: Sequence[Path] = (
    ("spec", "replicas"),
    ("spec", "parallelism"),
    ("spec", "jobTemplate", "spec", "parallelism"),
)
"""Where an object says how many pods it has at a time."""

COMPLETIONS: Sequence[Path] = (("spec", "completions"), ("spec", "jobTemplate", "spec", "completions"))
"""Where a Job says how many it wants in all: no more than that run at a time."""


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

    def contract(self) -> dict[str, Any]:
        """The form of `explain -o json`, which scripts rely on."""
        return {
            "allowed": self.decision.allowed,
            "code": int(self.decision.code),
            "violations": [
                {"code": v.code, "path": v.path, "message": v.message, "fix": v.fix} for v in self.decision.violations
            ],
            "warnings": list(self.decision.warnings),
            "backends": dict(self.decision.backends),
            "patch": [dict(operation) for operation in self.decision.patch],
            "pod": self.after,
            "tenant": self.prospect.contract() if self.prospect else None,
        }


class Setting(NamedTuple):
    """By whom and when a pod is created, in seconds since 1970; and where, unless it says so itself."""

    namespace: str = ""
    user: str = ""
    at: float = 0.0


NOWHERE: Final = Setting()


def explain(document: Mapping[str, Any], rulebook: Rulebook, setting: Setting = NOWHERE) -> list[Explanation]:
    """Explain every pod that a document has; an empty list for a kind without pods."""
    found = [
        replace(explain_pod(title, raw, setting.namespace or namespace, rulebook, setting), pods=pods)
        for title, raw, namespace, pods in _pods(document)
    ]
    return [_with_hint(one, document) for one in found]


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


def _with_hint(one: Explanation, document: Mapping[str, Any]) -> Explanation:
    """The explanation, with a warning for shorthand that stands on a workload instead of on its pods."""
    hint = None if one.title.startswith("Pod ") or one.decision.backends else misplaced(document, one.before)
    if hint is None:
        return one
    return replace(one, decision=replace(one.decision, warnings=[*one.decision.warnings, hint]))


def misplaced(workload: Mapping[str, Any], template: Mapping[str, Any]) -> str | None:
    """A hint about shorthand among the labels of something that makes pods, where it means nothing.

    Not if the template has it, too: Kubernetes gives a Job without labels those of its template.
    """
    labels, there = (at(one, ("metadata", "labels")) for one in (workload, template))
    present = there if isinstance(there, Mapping) else {}
    keys = [key for key in labels if key in KEYS and key not in present] if isinstance(labels, Mapping) else []
    return f"metadata.labels.{keys[0]} is of the workload; its pods have the labels of its template" if keys else None


def _pods(document: Any, kind: str = "") -> Iterator[tuple[str, Mapping[str, Any], str, int]]:
    """The pods of a document: title, pod, namespace, and how many there are at a time."""
    if not isinstance(document, Mapping):
        return
    kind = str(document.get("kind") or kind)
    if kind == "AdmissionReview":
        yield from _reviewed(at(document, ("request",)))
    elif kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _pods(item, kind.removesuffix("List"))
    else:
        made = at(document, template_path(kind))
        if isinstance(made, Mapping):
            name = at(document, ("metadata", "name")) or at(document, ("metadata", "generateName"))
            namespace = at(document, ("metadata", "namespace"))
            yield f"{kind} {name or '(no name)'}", made, str(namespace or "default"), number(document)


def template_path(kind: str) -> Path:
    """Where a kind keeps its pod."""
    return TEMPLATES.get(kind, ("spec", "template"))


def number(document: Any) -> int:
    """How many pods of an object there are at a time, as far as it says so; of a DaemonSet, one."""
    at_a_time, in_all = _positive(document, NUMBERS), _positive(document, COMPLETIONS)
    return min([at_a_time[0], *in_all]) if at_a_time else 1


def _positive(document: Any, paths: Iterable[Path]) -> list[int]:
    found = (at(document, path) for path in paths)
    return [each for each in found if isinstance(each, int) and each > 0]


def _reviewed(request: Any) -> Iterator[tuple[str, Mapping[str, Any], str, int]]:
    """The pod of a review; its namespace is the review's, which the object need not have yet."""
    for title, raw, namespace, pods in _pods(at(request, ("object",)), "Pod"):
        yield title, raw, str(at(request, ("namespace",)) or namespace), pods


def at(document: Any, path: Path) -> Any:
    """What stands at a path of keys, None where there is nothing."""
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def explain_pod(
    title: str, raw: Mapping[str, Any], namespace: str, rulebook: Rulebook, setting: Setting = NOWHERE
) -> Explanation:
    """Explain one pod; a `title` that does not begin with `Pod ` is of something that makes pods."""
    review = replace(creating(raw, "explain", namespace, setting.at), user=setting.user)
    return replace(explain_review(title, review, rulebook), namespace=namespace)


def explain_review(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """Explain what both webhooks make of a pod that is created, as the review says by whom, where and when."""
    raw = review.pod or {}
    if not isinstance(raw.get("spec"), Mapping):
        missing = Violation(code="GPU001", path="spec", message="the pod has no spec", fix="write its spec")
        return Explanation(title=title, decision=denied([missing]), before=raw, after=raw)
    if admit.exempt(review, rulebook):
        exempt = f"{title} (exempt: {review.namespace})"
        return Explanation(title=exempt, decision=admit.UNTOUCHED, before=raw, after=raw)
    try:
        seen = pod.read(raw, review.namespace)
        rejected = [] if title.startswith("Pod ") else list(_not_in_a_template(seen))
        planned = steer.make(seen, rulebook)
    except Refusal as refusal:
        refused = denied(refusal.violations)
        refused = observing.validated(refused) if rulebook.tenancy.observing else refused
        return Explanation(title=title, decision=refused, before=raw, after=raw)
    planned.violations += rejected
    decision = admit.decide(planned, review, rulebook)
    if rulebook.tenancy.observing:
        decision = observing.mutated(decision, planned.served, rulebook)
    after = edits.apply(planned.edits, raw) if decision.patch else raw
    decision = _judged(decision, replace(review, pod=after), rulebook) if decision.allowed else decision
    return Explanation(
        title=title,
        decision=decision,
        before=raw,
        after=after if decision.allowed else raw,
        planned=planned,
        candidates={asked.container.name: _candidates(asked, rulebook) for asked in _asking(planned)},
        charges=_charges(planned, after if decision.allowed else raw, rulebook),
    )


def _charges(planned: Plan, after: Mapping[str, Any], rulebook: Rulebook) -> dict[str, Fraction]:
    """What each container that is served is charged: what the stored pod counts, as far as it would be stored."""
    held = counting.holdings(pod.read(after), rulebook)
    counted = {holding.container.name: holding.measure.devices for holding in held}
    return {
        one.asked.container.name: counted.get(one.asked.container.name, charge.charge(one.request, one.card))
        for one in planned.served
    }


def _judged(mutated: Decision, stored: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """The answer to a pod that was translated, after it was judged as it would be stored."""
    judged = admit.validate(stored, rulebook)
    warnings = [*mutated.warnings, *judged.warnings]
    if not judged.allowed:
        return replace(judged, warnings=warnings, reservation=None)
    findings = [*mutated.findings, *judged.findings]
    return replace(mutated, warnings=warnings, reservation=judged.reservation, findings=findings)


def _asking(planned: Plan) -> list[Asked]:
    return [asked for asked in planned.interpretation.asked if asked.anything]


def _candidates(asked: Asked, rulebook: Rulebook) -> Sequence[Candidate]:
    try:
        return list(choice.candidates(asked, rulebook))
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
