"""An explanation in finished sentences, which a terminal (`terminal`) and a page (`console`) only paint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import yaml

from webhook.core.backends import charge
from webhook.core.kube.patch import Append, Edit, Remove
from webhook.core.kube.paths import at, field
from webhook.core.plan.choose import Assignment, Candidate
from webhook.core.plan.plan import Plan
from webhook.core.policy import refusal
from webhook.core.reports.checkup import number
from webhook.core.reports.explain import Explanation
from webhook.core.reports.forecast import Amount, Prospect
from webhook.core.violations import QUOTA, Violation
from webhook.views import difference
from webhook.views.difference import Passage

_QUOTA: Final = {
    None: ": no quota",
    "deny": "",
    "warn": ": its quota only warns",
    "dryrun": ": its quota is only tried",
}


class Change(NamedTuple):
    """One edit: its verb is set, add or remove; `rule` is the line that it comes from."""

    verb: str
    path: str
    value: str
    rule: str


class Considered(NamedTuple):
    """One back end that might serve a container, where its rule stands, and why it does or does not."""

    name: str
    at: str
    outcome: Literal["serves", "could", "cannot"]
    reason: str


class Asking(NamedTuple):
    """A container that asks for a GPU: in which words, at which field paths they stand, and who could serve it.

    Nothing is `stated` where the container has the resources of a back end itself. `others` says how many are
    not enabled, where nobody serves it.
    """

    name: str
    asked: str
    stated: Sequence[tuple[str, str]]
    considered: Sequence[Considered]
    others: str = ""


class Row(NamedTuple):
    """A sentence about the tenant or its quota."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What people are told of one pod.

    `lead` follows Allowed or Denied. `was` is how a pod of another system was understood, `tenant` what its quota
    says, `tried` what policies in dry run would refuse, `missing` what nobody gave and what it may change. `pod` is
    there if there are `changes`.
    """

    title: str
    allowed: bool
    lead: str
    was: Sequence[str]
    asking: Sequence[Asking]
    tenant: Sequence[Row]
    warnings: Sequence[str]
    tried: Sequence[str]
    missing: Sequence[str]
    violations: Sequence[Violation]
    changes: Sequence[Change]
    pod: Sequence[Passage]

    @property
    def verdict(self) -> str:
        """One word."""
        return "Allowed" if self.allowed else "Denied"


def view(explanation: Explanation) -> View:
    """What is said of one pod."""
    decision, planned, converted = explanation.decision, explanation.planned, explanation.converted
    prospect = explanation.prospect
    edits = planned.edits if planned is not None and decision.allowed and decision.patch else []
    from_before = edits if converted is None else []  # else they lead from the pod as it was understood
    return View(
        title=explanation.title,
        allowed=decision.allowed,
        lead=_lead(explanation),
        was=[
            f"{one.asked.container.name}: {_listed(_amounts(one))}  ({one.backend.rule})"
            for one in (converted.served if converted is not None else ())
        ],
        asking=list(_asking(explanation, planned)) if planned is not None else (),
        tenant=list(_tenant(prospect)) if prospect is not None else (),
        warnings=decision.warnings,
        tried=[
            f"[{finding.code}] {finding.rule} would refuse it if it were enforced"
            for finding in decision.findings
            if finding.action == "dryrun" and not (finding.code == QUOTA and prospect and prospect.lifted)
        ],
        missing=[each.effect for each in explanation.missing],
        violations=decision.violations,
        changes=[_change(edit) for edit in from_before],
        pod=difference.passages(explanation.before, explanation.after, from_before) if edits else (),
    )


def _lead(explanation: Explanation) -> str:
    decision, planned = explanation.decision, explanation.planned
    if not decision.allowed:
        count = len(decision.violations)
        return "for one reason" if count == 1 else f"for {count} reasons"
    if planned is not None and planned.edits and not decision.patch:
        return "as it is: the webhook only observes"
    if not decision.backends and at(explanation.before, "spec", "resourceClaims"):
        return "as it is: what its resource claims hold, only their objects in the cluster tell"
    if not decision.backends:
        return "as it is: no container asks for a GPU"
    names = " and ".join(dict.fromkeys(decision.backends.values()))
    return f"and served by {names}" if decision.patch else f"as it is, and served by {names}: nothing is missing"


def _amounts(one: Assignment) -> Iterable[tuple[str, str]]:
    return {**{name: str(value) for name, value in one.amounts.items()}, **one.asked.extended.texts}.items()


def _asking(explanation: Explanation, planned: Plan) -> Iterator[Asking]:
    served = {one.asked.container.name: one for one in planned.served}
    for asked in planned.interpretation.asked:
        name = asked.container.name
        if asked.anything:
            # The words of a pod that is converted were never on it.
            said = asked.stated.values() if asked.request and explanation.converted is None else ()
            stated = list(dict.fromkeys((each.path, each.text) for each in said))
            considered = list(_considered(explanation, name, served.get(name)))
            own = _listed((resource, asked.extended.texts[resource]) for resource in asked.extended.amounts)
            others = "" if name in served else _others(explanation.disabled)
            yield Asking(name, own if asked.request is None else str(asked.request), stated, considered, others)


def _others(disabled: int) -> str:
    more = f"{number(disabled, 'more back end')} {'is' if disabled == 1 else 'are'} not enabled"
    return f"{more} (spec.backends of the Cluster document)" if disabled else ""


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in pairs)


def _considered(explanation: Explanation, container: str, served: Assignment | None) -> Iterator[Considered]:
    """Who serves the container, and in the cluster's order why the others do not."""
    if served is not None:
        counts = charge.counted(explanation.charges[container])
        yield _row(served, "serves", f"{served.mode.name}; counts as {counts}")
    why_not = (
        "the policy of the tenant wants another" if served is not None else "the pod is refused for another reason"
    )
    for candidate in explanation.candidates.get(container, ()):
        if not isinstance(candidate, Assignment):
            yield _row(candidate, "cannot", candidate[1].message)
        elif served is None or candidate.backend.name != served.backend.name:
            yield _row(candidate, "could", why_not)
        else:
            why_not = "comes later in the cluster's order"


def _row(candidate: Candidate, outcome: Literal["serves", "could", "cannot"], reason: str) -> Considered:
    backend = candidate.backend if isinstance(candidate, Assignment) else candidate[0]
    return Considered(backend.name, backend.at.line_only, outcome, reason)


def _tenant(prospect: Prospect) -> Iterator[Row]:
    quota = ": an exemption lifts its quota" if prospect.lifted else _QUOTA[prospect.action]
    yield Row("tenant", f"{prospect.tenant}, by {prospect.rule}{quota}")
    by = f" by {prospect.pods} pods" if prospect.pods > 1 else ""
    for amount in prospect.amounts:
        used, asked = (refusal.shown(amount.key, each) for each in (amount.used, amount.asked))
        what = amount.key.replace("/", " of ")
        yield Row("quota", f"{what}: {used} used, {asked} asked{by}{_of_limit(amount)}")
    if prospect.amounts and prospect.fit is not None and not prospect.lifted:
        yield Row("quota", _fitting(prospect.pods, prospect.fit))


def _of_limit(amount: Amount) -> str:
    if amount.limit is None or amount.left is None:
        return ", no limit"
    limit, left = refusal.shown(amount.key, amount.limit), refusal.shown(amount.key, abs(amount.left))
    return f", {limit} at most: {left} {'too many' if amount.left < 0 else 'left'}"


def _fitting(pods: int, fit: int) -> str:
    if fit < pods:
        return f"of the {pods} pods {fit or 'none'} would fit" if pods > 1 else "the pod does not fit"
    more = fit - pods
    return f"{more or 'no'} more pod{'' if more == 1 else 's'} like this would fit"


def _change(edit: Edit) -> Change:
    rule = edit.rule or "what the shorthand becomes"
    if isinstance(edit, Remove):
        return Change("remove", field(edit.path), "", rule)
    value = yaml.safe_dump(edit.value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return Change("add" if isinstance(edit, Append) else "set", field(edit.path), value, rule)
