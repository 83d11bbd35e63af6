"""An explanation as text for a terminal or a page: what was asked and where, who serves it, every edit, its rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from webhook.core import charge
from webhook.core.choice import Served
from webhook.core.edits import Append, Edit, Put, Remove
from webhook.core.explain import Explanation
from webhook.core.fields import field
from webhook.core.plan import Plan
from webhook.core.tenancy import refusal
from webhook.core.tenancy.prospect import Amount, Prospect


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `kind` is `plain`, `strong`, `added` or `removed`."""

    text: str
    kind: str = "plain"


TERMINAL: Final[Mapping[str, str]] = {"strong": "\x1b[1m", "added": "\x1b[32m", "removed": "\x1b[31m"}
"""What a terminal is sent before a line of each kind."""


def paint(lines: Iterable[Line], colours: Mapping[str, str]) -> Iterator[str]:
    """The lines as text, in colours if there are any; control characters out of a pod are shown, not sent."""
    for line in lines:
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line.text)
        colour = colours.get(line.kind)
        yield f"{colour}{shown}\x1b[0m" if colour else shown


def trace(explanation: Explanation) -> Iterator[Line]:
    """The explanation, line by line."""
    yield Line(explanation.title, "strong")
    if explanation.converted is not None:
        yield from map(Line, _converted(explanation.converted))
    if explanation.planned is not None:
        yield from map(Line, _asked(explanation, explanation.planned))
    if explanation.prospect is not None:
        yield from map(Line, _prospect(explanation.prospect))
    for warning in explanation.decision.warnings:
        yield Line(f"  warning   {warning}")
    for finding in explanation.decision.findings:
        if finding.action == "dryrun":
            yield Line(f"  dryrun    [{finding.code}] {finding.rule} would refuse it if it were enforced")
    yield from _outcome(explanation)


def _outcome(explanation: Explanation) -> Iterator[Line]:
    decision, planned = explanation.decision, explanation.planned
    if not decision.allowed:
        yield Line("  denied", "removed")
        for violation in decision.violations:
            yield from (Line(f"    {line}") for line in str(violation).splitlines())
    elif planned is not None and planned.edits and not decision.patch:
        yield Line("  admitted as it is: the webhook only observes")
    elif planned is not None and planned.edits:
        if explanation.converted is None:
            yield from map(Line, _edits(planned.edits))
        yield Line("")
        yield from diff(explanation.before, explanation.after)
    elif not decision.backends:
        yield Line("  admitted as it is: no container asks for a GPU")
    else:
        yield Line("  admitted as it is: nothing is missing")


def _converted(planned: Plan) -> Iterator[str]:
    for one in planned.served:
        texts = {**{name: str(value) for name, value in one.amounts.items()}, **one.asked.native.texts}
        said = ", ".join(f"{name}: {text}" for name, text in texts.items())
        yield f"  was       {one.asked.container.name}: {said}  ({one.backend.rule})"


def _asked(explanation: Explanation, planned: Plan) -> Iterator[str]:
    served = {one.asked.container.name: one for one in planned.served}
    for asked in planned.interpretation.asked:
        name = asked.container.name
        if not asked.anything:
            continue
        if asked.request is not None:
            said = ", ".join(dict.fromkeys(f"{stated.path}: {stated.text}" for stated in asked.stated.values()))
            where = "" if explanation.converted else f"  ({said})"
            yield f"  asked     {name}: {asked.request}{where}"
        else:
            said = ", ".join(f"{name}: {asked.native.texts[name]}" for name in asked.native.amounts)
            yield f"  asked     {name}: {said}  (its own resources)"
        yield from _candidates(explanation, name, served.get(name))


def _candidates(explanation: Explanation, name: str, served: Served | None) -> Iterator[str]:
    if served is not None:
        counts = charge.counted(explanation.charges[name])
        yield f"  served    {name}: by {served.backend.rule}: {served.mode.name}; counts as {counts}"
    why_not = "the policy of the tenant wants another"
    for candidate in explanation.candidates.get(name, ()):
        if isinstance(candidate, Served):
            if served is not None and candidate.backend.name != served.backend.name:
                yield f"            {candidate.backend.name} could too, and {why_not}"
            else:
                why_not = "comes later in the cluster's order"
        else:
            yield f"            {candidate[0].name} cannot: {candidate[1].message}"


def _prospect(prospect: Prospect) -> Iterator[str]:
    """What the tenant has used of its quota, and what the pods leave of it."""
    quota = {None: ": no quota", "deny": "", "warn": ": its quota only warns", "dryrun": ": its quota is only tried"}
    said = ": an exemption lifts its quota" if prospect.lifted else quota[prospect.action]
    yield f"  tenant    {prospect.tenant}, by {prospect.rule}{said}"
    by = f" by {prospect.pods} pods" if prospect.pods > 1 else ""
    for number, amount in enumerate(prospect.amounts):
        used, asked = (refusal.shown(amount.key, each) for each in (amount.used, amount.asked))
        what = amount.key.replace("/", " of ")
        yield f"  {'' if number else 'quota':<10}{what}: {used} used, {asked} asked{by}{_of_limit(amount)}"
    if prospect.amounts and prospect.fit is not None:
        yield f"            {_fitting(prospect.pods, prospect.fit)}"


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


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Line]:
    """The pod before and after as one text, what is new and what is gone marked."""
    one, other = (yaml.safe_dump(side, sort_keys=False).splitlines() for side in (before, after))
    # Not difflib.ndiff: it looks for likenesses inside lines as well, which takes seconds for a large pod.
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, one, other).get_opcodes():
        if tag == "equal":
            yield from (Line(f"  {line}") for line in one[i1:i2])
            continue
        yield from (Line(f"- {line}", "removed") for line in one[i1:i2])
        yield from (Line(f"+ {line}", "added") for line in other[j1:j2])
