"""An explanation as the page shows it: every value a string, every sentence finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml
from markupsafe import Markup, escape

from webhook.console import difference
from webhook.console.difference import Passage
from webhook.core import charge
from webhook.core.asked import Asked
from webhook.core.choice import Candidate, Served
from webhook.core.edits import Append, Edit, Put
from webhook.core.explain import Explanation
from webhook.core.fields import field
from webhook.core.violations import Violation


@dataclass(frozen=True, slots=True)
class Change:
    """One edit: `verb` is set, add or remove."""

    verb: str
    path: str
    value: str
    rule: str


@dataclass(frozen=True, slots=True)
class Considered:
    """One back end that might have served a container. `outcome`: serves, could or cannot."""

    name: str
    at: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Asking:
    """A container that asks for a GPU: in which words, written where, and who could serve it."""

    name: str
    asked: str
    said: Sequence[tuple[str, str]]
    considered: Sequence[Considered]


@dataclass(frozen=True, slots=True)
class View:
    """One pod's part of the page. `changed`: there is a difference to show."""

    title: str
    allowed: bool
    lead: str
    warnings: Sequence[str]
    violations: Sequence[Violation]
    asking: Sequence[Asking]
    changes: Sequence[Change]
    pod: Sequence[Passage]

    @property
    def verdict(self) -> str:
        """One word."""
        return "Allowed" if self.allowed else "Denied"


def view(explanation: Explanation) -> View:
    """What the page says of one pod."""
    decision, planned = explanation.decision, explanation.planned
    edits = planned.edits if planned is not None and decision.allowed else []
    return View(
        title=explanation.title,
        allowed=decision.allowed,
        lead=_lead(explanation, edits),
        warnings=decision.warnings,
        violations=decision.violations,
        asking=list(_asking(explanation)),
        changes=[_change(edit) for edit in edits],
        pod=difference.passages(explanation.before, explanation.after, edits) if edits else (),
    )


def place(rule: str) -> str:
    """Where a rule stands: `hami-vgpu.yaml:48` of `hami-vgpu (hami-vgpu.yaml:48)`."""
    return rule.rpartition("(")[2].removesuffix(")")


def breakable(path: str) -> Markup:
    """A field path that a narrow page can break where a person would."""
    return escape(path).replace("[", Markup("<wbr>[")).replace(".", Markup("<wbr>."))


def _lead(explanation: Explanation, edits: Sequence[Edit]) -> str:
    decision = explanation.decision
    if not decision.allowed:
        count = len(decision.violations)
        return "for one reason" if count == 1 else f"for {count} reasons"
    if not decision.backends:
        return "as it is: no container asks for a GPU"
    names = " and ".join(dict.fromkeys(decision.backends.values()))
    return f"and served by {names}" if edits else f"as it is, and served by {names}: nothing is missing"


def _asking(explanation: Explanation) -> Iterator[Asking]:
    planned = explanation.planned
    if planned is None:
        return
    served = {one.asked.container.name: one for one in planned.served}
    for asked in planned.interpretation.asked:
        name = asked.container.name
        if asked.anything:
            considered = _considered(explanation, name, served.get(name))
            yield Asking(name, _words(asked), _said(asked), list(considered))


def _words(asked: Asked) -> str:
    if asked.request is not None:
        return str(asked.request)
    return ", ".join(f"{name}: {asked.native.texts[name]}" for name in asked.native.amounts)


def _said(asked: Asked) -> list[tuple[str, str]]:
    said = dict.fromkeys((stated.path, stated.text) for stated in asked.stated.values())
    return list(said) if asked.request is not None else []


def _considered(explanation: Explanation, container: str, served: Served | None) -> Iterator[Considered]:
    if served is not None:
        counts = charge.counted(explanation.charges[container])
        yield _row(served, "serves", f"{served.mode.name}; counts as {counts}")
    for candidate in explanation.candidates.get(container, ()):
        if not isinstance(candidate, Served):
            yield _row(candidate, "cannot", candidate[1].message)
        elif served is not None and candidate.backend.name != served.backend.name:
            yield _row(candidate, "could", "comes later in the cluster's order")


def _row(candidate: Candidate, outcome: str, reason: str) -> Considered:
    backend = candidate.backend if isinstance(candidate, Served) else candidate[0]
    return Considered(backend.name, backend.at.line_only, outcome, reason)


def _change(edit: Edit) -> Change:
    rule = edit.rule or "what the shorthand becomes"
    if isinstance(edit, Put | Append):
        return Change("set" if isinstance(edit, Put) else "add", field(edit.path), _short(edit.value), rule)
    return Change("remove", field(edit.path), "", rule)


def _short(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
