"""`gpu-webhook explain`: what would become of pods, and why."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import yaml

from webhook.cli import convert, explanation, options, policy_advice, snapshot
from webhook.cli.checkup import number
from webhook.cli.explanation import NOWHERE, Amount, Explanation, Prospect, Setting
from webhook.cli.options import FINE, NOT_FINE, UsageError
from webhook.cli.tenants import Problem
from webhook.core.backends import charge
from webhook.core.forms.document import nearest
from webhook.core.interpret import claims
from webhook.core.kube import fields as times
from webhook.core.kube.fields import Path, at, field_path
from webhook.core.kube.patch import Append, Edit, Remove
from webhook.core.plan.choose import Assignment, Candidate
from webhook.core.plan.plan import Plan
from webhook.core.policy import totals
from webhook.core.rules.rulebook import Rulebook, with_only
from webhook.core.violations import QUOTA, Violation
from webhook.files import rule_files
from webhook.files.documents import MAX_BYTES, UnreadableError, parse_manifests

# `gpu-webhook explain`: what would become of pods, and why.

if TYPE_CHECKING:
    pass


def explain_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook explain` takes."""
    command.add_argument(
        "file", metavar="FILE|-", help="pods, workloads, policies, lists or reviews, as YAML or JSON"
    )
    options.around(
        command,
        "claims that the pods name, their classes, policies, and namespaces with their labels, where they are not in"
        " the same file",
    )
    command.add_argument(
        "-n", "--namespace", default="", metavar="NAME", help="namespace of the pods; default: what each pod says"
    )
    command.add_argument("--user", default="", metavar="NAME", help="user who creates the pods, for exemptions")
    command.add_argument(
        "--at", type=_time, metavar="TIME", help="time of the create, as 2027-01-31T00:00:00Z; default: now"
    )
    command.add_argument(
        "--usage",
        action="append",
        default=[],
        metavar="FILE",
        help="what tenants use: kubectl get tenantusages,tenantpolicies,exemptions,namespaces -o yaml; default: none",
    )
    command.add_argument("--backend", default="", metavar="NAME", help="as if the cluster had only this back end")
    command.add_argument("--to", default="", metavar="NAME", help="rewrite pods of another system for this back end")
    command.add_argument(
        "--from", dest="source", default="", metavar="NAME", help="with --to: the back end of the pods at present"
    )
    options.rules_option(command)
    options.output_option(command)
    command.set_defaults(command=_explain)


def _explain(given: argparse.Namespace) -> int:
    from webhook.cli import snapshot

    rulebook = rule_files.load_cached(given.rules)
    if given.source and not given.to:
        raise UsageError("--from says whose pods --to rewrites; give both")
    most = MAX_BYTES + 1
    content, where = options.read_content(given.file, most)
    documents = parse_manifests(content, where)
    around = [each for file in given.around for each in parse_manifests(*options.read_content(file, most))]
    setting = Setting(given.namespace, given.user, given.at or time.time())
    asked = Question(documents, around, setting, given.backend, given.to, given.source)
    there = snapshot.TenantObjects()
    for file in given.usage:
        there.parse(*options.read_content(file))
    answer = answer_question(asked, rulebook, there)
    found, advice = answer.found, answer.advice
    for one in answer.problems:  # as in a cluster: its own namespaces get no GPU, and the others know nothing of it
        print(f"{one.tenant}: {one.message}" if one.tenant else one.message, file=sys.stderr)
    if not found and answer.tried:
        return _print_policies(answer, given.output)
    if not found:
        raise UsageError(f"{where} holds no pod and nothing that makes pods")
    for line in advice:
        print(line, file=sys.stderr)
    options.print_json(explanation.contract(found)) if given.output == "json" else _print_text(found)
    return FINE if all(explanation.decision.allowed for explanation in found) else NOT_FINE


def _print_policies(answer: Answer, output: str) -> int:
    """Of a file without pods: what the author of its policies is told when they are applied."""
    if output == "json":
        problems = [{"tenant": one.tenant or None, "message": one.message} for one in answer.problems]
        options.print_json({"warnings": answer.advice, "problems": problems})
    elif answer.advice or answer.usable:
        print(*(answer.advice or [f"{', '.join(answer.usable)}: fine"]), sep="\n")
    return FINE if answer.usable == answer.tried else NOT_FINE


def _time(text: str) -> float:
    try:
        return times.parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _print_text(found: Sequence[Explanation]) -> None:

    colours = COLOURS if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    print("\n\n".join("\n".join(paint(view(explanation), colours)) for explanation in found))


# What a person asks at a command or on a page, answered: the pods, and all that is known around them.

Object = Mapping[str, Any]


class Question(NamedTuple):
    """What becomes of the pods in `documents`, with what is `around` them.

    `backend`: as if the cluster had only this one. `to`: rewritten for this one, from the words of `source`.
    """

    documents: Sequence[Object]
    around: Sequence[Object] = ()
    setting: Setting = NOWHERE
    backend: str = ""
    to: str = ""
    source: str = ""


class Answer(NamedTuple):
    """An explanation for each pod, and what is wrong with the policies and exemptions that were given.

    Those are `tried`, as `TenantPolicy/vision`, and of them the `usable` ones have no mistake; `advice` is what their
    author is told when they are applied.
    """

    found: Sequence[Explanation]
    problems: Sequence[Problem]
    tried: Sequence[str] = ()
    usable: Sequence[str] = ()
    advice: Sequence[str] = ()


def answer_question(asked: Question, rulebook: Rulebook, there: snapshot.TenantObjects) -> Answer:
    """The answer, by the rules and by the tenants that are there; raises UnreadableError.

    Policies and usage among the documents stand in for those of their name that are there.
    """
    _check_names(asked, rulebook)
    given = [*asked.documents, *asked.around]
    tried = snapshot.TenantObjects()
    for document in given:
        tried.add(document)
    known, broken = there.tenancy(rulebook)
    tenancy, wrong = tried.tenancy(replace(rulebook, tenancy=known), tried=True)
    (used, unread), (used_as_given, also_unread) = there.ledgers(), tried.ledgers()
    if unread or also_unread:
        raise UnreadableError("; ".join(f"{one.tenant}: {one.message}" for one in (*unread, *also_unread)))
    judging = with_only(asked.backend, rulebook) if asked.backend else rulebook
    judging = claims.given(given, replace(judging, tenancy=tenancy))
    setting = asked.setting._replace(whole=there.whole)
    explained = _explained(asked, judging, setting)
    ledgers = {**used, **used_as_given}
    found = [*explanation.foreseen(explained, tenancy, ledgers, setting)]
    with_them, before = replace(rulebook, tenancy=tenancy), replace(known, labels=tenancy.labels)
    advice = policy_advice.every(with_them, setting.at, ledgers, own=tried.written, before=before)
    sound = {one.rule for one in tenancy.policies if not one.broken} | {one.rule for one in tenancy.exemptions}
    usable = [name for name in tried.written if name in sound]
    return Answer(found, [*broken, *wrong], tried.written, usable, [*advice])


def _check_names(asked: Question, rulebook: Rulebook) -> None:
    for name in filter(None, (asked.backend, asked.to, asked.source)):
        if name not in rulebook.backends:
            known = f"{nearest(name[:63], rulebook.backends)}; there are {', '.join(sorted(rulebook.backends))}"
            raise UnreadableError(f'no back end is called "{name[:63]}"{known}')


def _explained(asked: Question, rulebook: Rulebook, setting: Setting) -> Iterator[Explanation]:
    for document in asked.documents:
        if asked.to:
            yield from convert.convert(document, asked.to, rulebook, asked.source or None, setting)
        else:
            yield from explanation.explain(document, rulebook, setting)


# A pod before and after as YAML lines, each kept, added or removed, the changed ones with the rule they come from.

Mark = Literal[" ", "+", "-"]
Rules = Mapping[Path, str]

CONTEXT: Final = 3
"""Lines that stay visible on each side of a change."""

WORTH_FOLDING: Final = 6
"""A fold of fewer lines would be harder to read than the lines."""

_MISSING: Final = object()
"""Stands for the side on which a key or an element does not exist."""


@dataclass(frozen=True, slots=True)
class DifferenceLine:
    """One line of YAML; `rule` is what made the change that begins with it."""

    mark: Mark
    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines that follow each other; those of a `folded` one are the same before and after, and far from a change."""

    lines: Sequence[DifferenceLine]
    folded: bool = False


def passages(before: Mapping[str, Any], after: Mapping[str, Any], edits: Iterable[Edit]) -> list[Passage]:
    """Everything, with what is far from any change folded away; `edits` lead from `before` to `after`."""
    found = list(_difference_lines(before, after, (), _rules(edits, before)))
    near = _near([line.mark != " " for line in found])
    runs = [
        (shown, [line for _, line in run]) for shown, run in groupby(zip(near, found, strict=True), itemgetter(0))
    ]
    return [Passage(run, folded=not shown and len(run) >= WORTH_FOLDING) for shown, run in runs]


def _near(changed: Sequence[bool]) -> list[bool]:
    """Which lines stand within reach of a changed one."""
    near = [False] * len(changed)
    for index in (index for index, is_changed in enumerate(changed) if is_changed):
        for reached in range(max(0, index - CONTEXT), min(len(changed), index + CONTEXT + 1)):
            near[reached] = True
    return near


def _rules(edits: Iterable[Edit], before: Any) -> dict[Path, str]:
    """What each edit goes back to, by the path of what it makes; an element learns its place in the list."""
    found: dict[Path, str] = {}
    appended: Counter[Path] = Counter()
    for edit in edits:
        path = edit.path
        if isinstance(edit, Append):
            path = (*path, _length(before, path) + appended[path])
            appended[edit.path] += 1
        found[path] = edit.rule
    return found


def _length(at: Any, path: Path) -> int:
    for step in path:
        at = at[step] if isinstance(step, int) else at.get(step)
        if at is None:
            return 0
    return len(at)


def _difference_lines(before: Any, after: Any, at: Path, rules: Rules) -> Iterator[DifferenceLine]:
    """The lines of two mappings or two lists, those they share once."""
    if before == after:
        yield from (DifferenceLine(" ", text) for text in _dump(before))
    elif _both(Mapping, before, after):
        one, other = _present(before, {}), _present(after, {})
        for key in dict.fromkeys([*one, *other]):
            yield from _entry(key, one.get(key, _MISSING), other.get(key, _MISSING), (*at, key), rules)
    else:
        pairs = zip_longest(_present(before, []), _present(after, []), fillvalue=_MISSING)
        for index, (one, other) in enumerate(pairs):
            yield from _element(one, other, (*at, index), rules)


def _entry(key: str, before: Any, after: Any, at: Path, rules: Rules) -> Iterator[DifferenceLine]:
    if not _comparable(before, after):
        yield from _scalars({key: before}, {key: after}, _mark(before, after), rules.get(at, ""))
        return
    yield DifferenceLine(_mark(before, after), _dump({key: {}})[0].removesuffix(" {}"), rules.get(at, ""))
    indent = "  " if _both(Mapping, before, after) else ""
    yield from (replace(line, text=indent + line.text) for line in _difference_lines(before, after, at, rules))


def _element(before: Any, after: Any, at: Path, rules: Rules) -> Iterator[DifferenceLine]:
    """An element of a list: the first line of each side begins with a dash."""
    if not _comparable(before, after):
        yield from _scalars([before], [after], _mark(before, after), rules.get(at, ""))
        return
    dashes = {"-": "- ", "+": "- "}
    rule = rules.get(at, "")
    for line in _difference_lines(before, after, at, rules):
        same = dashes["-"] == dashes["+"]
        for mark in (line.mark,) if line.mark != " " or same else ("-", "+"):
            yield DifferenceLine(mark, dashes[mark.replace(" ", "+")] + line.text, line.rule or rule)
            rule = ""
        dashes.update(dict.fromkeys("-+" if line.mark == " " else line.mark, "  "))


def _scalars(before: Any, after: Any, mark: Mark, rule: str) -> Iterator[DifferenceLine]:
    """Two values in one, each in what holds it; one of them if they are the same, or if `mark` says so."""
    if before == after:
        yield from (DifferenceLine(" ", text) for text in _dump(before))
        return
    removed = [DifferenceLine("-", text) for text in (_dump(before) if mark != "+" else ())]
    added = [DifferenceLine("+", text) for text in (_dump(after) if mark != "-" else ())]
    for index, line in enumerate([*removed, *added]):
        yield replace(line, rule=rule) if index == (len(removed) if added else 0) else line


def _mark(before: Any, after: Any) -> Mark:
    if before is _MISSING:
        return "+"
    return "-" if after is _MISSING else " "


def _comparable(before: Any, after: Any) -> bool:
    """Whether the sides differ, and are mappings, or lists, as far as they exist."""
    return before != after and (_both(Mapping, before, after) or _both(list, before, after))


def _both(kind: Any, *sides: Any) -> bool:
    return all(side is _MISSING or (isinstance(side, kind) and bool(side)) for side in sides)


def _present(value: Any, empty: Any) -> Any:
    return empty if value is _MISSING else value


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # in C where there is C
    """YAML as people write it: a script of several lines stays one."""


_Dumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    ),
)
_Dumper.ignore_aliases = lambda _self, _value: True


def _dump(value: Any) -> list[str]:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").splitlines()


# An explanation in finished sentences, which a terminal (`terminal`) and a page (`console`) only paint.

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
            f"{one.demand.container.name}: {_listed(_amounts(one))}  ({one.backend.rule})"
            for one in (converted.assignments if converted is not None else ())
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
        pod=passages(explanation.before, explanation.after, from_before) if edits else (),
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
    return {**{name: str(value) for name, value in one.amounts.items()}, **one.demand.extended.texts}.items()


def _asking(explanation: Explanation, planned: Plan) -> Iterator[Asking]:
    served = {one.demand.container.name: one for one in planned.assignments}
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
        used, asked = (totals.shown(amount.key, each) for each in (amount.used, amount.asked))
        what = amount.key.replace("/", " of ")
        yield Row("quota", f"{what}: {used} used, {asked} asked{by}{_of_limit(amount)}")
    if prospect.amounts and prospect.fit is not None and not prospect.lifted:
        yield Row("quota", _fitting(prospect.pods, prospect.fit))


def _of_limit(amount: Amount) -> str:
    if amount.limit is None or amount.left is None:
        return ", no limit"
    limit, left = totals.shown(amount.key, amount.limit), totals.shown(amount.key, abs(amount.left))
    return f", {limit} at most: {left} {'too many' if amount.left < 0 else 'left'}"


def _fitting(pods: int, fit: int) -> str:
    if fit < pods:
        return f"of the {pods} pods {fit or 'none'} would fit" if pods > 1 else "the pod does not fit"
    more = fit - pods
    return f"{more or 'no'} more pod{'' if more == 1 else 's'} like this would fit"


def _change(edit: Edit) -> Change:
    rule = edit.rule or "what the shorthand becomes"
    if isinstance(edit, Remove):
        return Change("remove", field_path(edit.path), "", rule)
    value = yaml.safe_dump(edit.value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return Change("add" if isinstance(edit, Append) else "set", field_path(edit.path), value, rule)


# An explanation on a terminal: a line for each thing that is said, in colours where there are any.

COLOURS: Final[Mapping[str, str]] = {"strong": "\x1b[1m", "+": "\x1b[32m", "-": "\x1b[31m"}
"""What a terminal is sent before a line of each kind."""


class TerminalLine(NamedTuple):
    """One line; its kind is a key of COLOURS, or of a plain line anything else."""

    text: str
    kind: str = ""


def paint(view: View, colours: Mapping[str, str]) -> Iterator[str]:
    """The lines as text; control characters out of a pod are shown, not sent."""
    for line in _lines(view):
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line.text)
        colour = colours.get(line.kind)
        yield f"{colour}{shown}\x1b[0m" if colour else shown


def _lines(view: View) -> Iterator[TerminalLine]:
    yield TerminalLine(view.title, "strong")
    yield from (_terminal_row("was", text) for text in view.was)
    for asking in view.asking:
        yield from _terminal_asking(asking, converted=bool(view.was))
    for label, rows in groupby(view.tenant, attrgetter("label")):
        yield from (_terminal_row("" if number else label, row.text) for number, row in enumerate(rows))
    yield from (_terminal_row("warning", text) for text in view.warnings)
    yield from (_terminal_row("dryrun", text) for text in view.tried)
    yield from (_terminal_row("missing", text) for text in view.missing)
    if not view.allowed:
        yield TerminalLine("  denied", "-")
        yield from (
            TerminalLine(f"    {line}") for violation in view.violations for line in str(violation).splitlines()
        )
    elif not view.pod:
        yield TerminalLine(f"  admitted {view.lead}")
    else:
        for verb, path, value, rule in view.changes:
            yield TerminalLine(f"  {verb:<6} {path}{': ' if value else ''}{value}    [{rule}]")
        yield TerminalLine("")
        yield from (
            TerminalLine(f"{line.mark} {line.text}", line.mark) for passage in view.pod for line in passage.lines
        )


def _terminal_row(label: str, text: str) -> TerminalLine:
    return TerminalLine(f"  {label:<10}{text}")


def _terminal_asking(asking: Asking, *, converted: bool) -> Iterator[TerminalLine]:
    where = ", ".join(f"{path}: {text}" for path, text in asking.stated) or "its own resources"
    yield _terminal_row("asked", f"{asking.name}: {asking.asked}" + ("" if converted else f"  ({where})"))
    for name, line, outcome, reason in asking.considered:
        match outcome:
            case "serves":
                yield _terminal_row("served", f"{asking.name}: by {name} ({line}): {reason}")
            case "could":
                yield _terminal_row("", f"{name} could, but {reason}")
            case "cannot":
                yield _terminal_row("", f"{name} cannot: {reason}")
    if asking.others:
        yield _terminal_row("", asking.others)
