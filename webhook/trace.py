"""An explanation as text for a terminal or a page: what was asked and where, who serves it, every edit, its rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from webhook.core import quantity
from webhook.core.backend import Served
from webhook.core.edits import Append, Edit, Put, Remove
from webhook.core.explain import Explanation
from webhook.core.fields import field
from webhook.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Style:
    """How lines are marked up: `plain` leaves them alone."""

    added: str = ""
    removed: str = ""
    strong: str = ""
    end: str = ""

    def paint(self, colour: str, text: str) -> str:
        """The text in a colour, if there are colours."""
        return f"{colour}{text}{self.end}" if colour else text


PLAIN = Style()
TERMINAL = Style(added="\x1b[32m", removed="\x1b[31m", strong="\x1b[1m", end="\x1b[0m")


def lines(explanation: Explanation, style: Style = PLAIN) -> Iterator[str]:
    """The explanation, line by line."""
    yield style.paint(style.strong, explanation.title)
    if explanation.planned is not None:
        yield from _asked(explanation, explanation.planned)
    for warning in explanation.decision.warnings:
        yield f"  warning   {warning}"
    if not explanation.decision.allowed:
        yield style.paint(style.removed, "  denied")
        for violation in explanation.decision.violations:
            yield from ("    " + line for line in str(violation).splitlines())
    elif explanation.planned is not None and explanation.planned.edits:
        yield from _edits(explanation.planned.edits)
        yield ""
        yield from _diff(explanation.before, explanation.after, style)
    elif not explanation.decision.backends:
        yield "  admitted as it is: no container asks for a GPU"
    else:
        yield "  admitted as it is: nothing is missing"


def _asked(explanation: Explanation, planned: Plan) -> Iterator[str]:
    served = {one.asked.container.name: one for one in planned.served}
    for asked in planned.interpretation.asked:
        name = asked.container.name
        if not asked.anything:
            continue
        if asked.request is not None:
            said = ", ".join(f"{stated.path}: {stated.text}" for stated in asked.stated.values())
            yield f"  asked     {name}: {asked.request}  ({said})"
        else:
            said = ", ".join(f"{resource}: {amount}" for resource, amount in asked.native.amounts.items())
            yield f"  asked     {name}: {said}  (its own resources)"
        yield from _candidates(explanation, name, served.get(name))


def _candidates(explanation: Explanation, name: str, served: Served | None) -> Iterator[str]:
    if served is not None:
        charged = quantity.show(explanation.charges[name])
        yield f"  served    {name}: by {served.backend.rule}: {served.mode.name}; counts as {charged} devices"
    for candidate in explanation.candidates.get(name, ()):
        if isinstance(candidate, Served):
            if served is not None and candidate.backend.name != served.backend.name:
                yield f"            {candidate.backend.name} could too, and comes later in the cluster's order"
        else:
            yield f"            {candidate[0].name} cannot: {candidate[1].message}"


def _edits(edits: Sequence[Edit]) -> Iterator[str]:
    for edit in edits:
        match edit:
            case Put(path, value, rule):
                text = f"set    {field(path)}: {_short(value)}"
            case Append(path, value, rule):
                text = f"add    {field(path)}: {_short(value)}"
            case Remove(path, rule):
                text = f"remove {field(path)}"
        yield f"  {text}" + (f"    [{rule}]" if rule else "    [what the shorthand becomes]")


def _short(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def _diff(before: Mapping[str, Any], after: Mapping[str, Any], style: Style) -> Iterator[str]:
    one, other = (yaml.safe_dump(side, sort_keys=False).splitlines() for side in (before, after))
    for line in difflib.ndiff(one, other):
        match line[:1]:
            case "+":
                yield style.paint(style.added, line)
            case "-":
                yield style.paint(style.removed, line)
            case " ":
                yield line
