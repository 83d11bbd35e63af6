"""`gpu-webhook explain`: what would become of pods, and why."""

import argparse
import difflib
import os
import pathlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import yaml

from webhook.cli import convert, explanation, options, policy_advice, snapshot
from webhook.cli.explanation import NOWHERE, Explanation, Setting
from webhook.cli.snapshot import Object
from webhook.cli.table import number, yaml_text
from webhook.core.backends import charge
from webhook.core.forms.document import UnreadableError, closest, did_you_mean
from webhook.core.interpret import claims
from webhook.core.kube import fields, pod
from webhook.core.kube.fields import Append, Edit, Path, Remove, field_path
from webhook.core.plan import choose
from webhook.core.plan.choose import NOTHING_SHARED, Assignment, NodeSelection
from webhook.core.quota import tally
from webhook.core.rules.cluster import OWN
from webhook.core.rules.rulebook import Rulebook, nearest_backend, with_only
from webhook.core.violations import CODES, Refusal
from webhook.files import rule_files
from webhook.files.documents import MAX_BYTES, parse_manifests
from webhook.server import settings


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook explain` takes."""
    command.epilog = f"{command.epilog}\n\nkubectl create --dry-run=server tells what else the API server refuses"
    what = "pods, workloads, policies, lists or reviews, as YAML or JSON, folders of them, or codes as GPU104"
    command.add_argument("file", nargs="*", metavar="FILE|DIR|-|CODE", help=what)
    command.add_argument("-f", "--filename", action="append", default=[], metavar="FILE", help="the same")
    command.add_argument("-k", "--kustomize", default="", metavar="DIR", help="what kustomize makes of a folder")
    options.around_option(
        command,
        "claims that the pods name, their classes, policies, and namespaces with their labels, where they are not in"
        " the same file",
    )
    namespace = "namespace of the pods; default: what each pod says"
    command.add_argument("-n", "--namespace", default="", metavar="NAME", help=namespace)
    command.add_argument("--user", default="", metavar="NAME", help="user who creates the pods, for exemptions")
    at = "time of the create, as 2027-01-31T00:00:00Z; default: now"
    command.add_argument("--at", type=options.time_of, metavar="TIME", help=at)
    usage = "what tenants use: kubectl get tenantusages,tenantpolicies,exemptions,namespaces -o yaml; default: none"
    command.add_argument("--usage", action="append", default=[], metavar="FILE", help=usage)
    command.add_argument("--backend", default="", metavar="NAME", help="as if the cluster had only this back end")
    command.add_argument("--to", default="", metavar="NAME", help="rewrite pods of another system for this back end")
    source = "with --to: the back end of the pods at present"
    command.add_argument("--from", dest="source", default="", metavar="NAME", help=source)
    there = "judge by the rules, policies, usage, nodes and claims of the current cluster"
    options.judging_options(command).add_argument("--cluster", action="store_true", help=there)
    installed = "with --cluster: the namespace where the server runs (default: %(default)s)"
    command.add_argument("--server-namespace", default=OWN, metavar="NAME", help=installed)
    output = "yaml: each pod as it would be stored, of a workload the pod that it makes (default: %(default)s)"
    command.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help=output)
    command.add_argument("-q", "--quiet", action="store_true", help="say only what is refused")


def run(arguments: argparse.Namespace) -> int:
    """Print what becomes of the pods; NOT_FINE where one of them is denied."""
    named = [*arguments.file, *arguments.filename]
    if named and all(CODE.fullmatch(name) and not pathlib.Path(name).exists() for name in named):
        meanings = {name.upper(): CODES.get(name.upper(), "") for name in named}
        if unknown := [code for code, meaning in meanings.items() if not meaning]:
            near = did_you_mean(closest(unknown[0], CODES)) or f"; they are {', '.join(CODES)}"
            raise options.UsageError(f"no message begins with {unknown[0]}{near}")
        as_text = "\n".join(f"{code}: {meaning}" for code, meaning in meanings.items())
        options.print_json(meanings) if arguments.output == "json" else print(as_text)
        return options.FINE
    if arguments.source and not arguments.to:
        raise options.UsageError("--from says whose pods --to rewrites; give both")
    if arguments.cluster and arguments.usage:
        raise options.UsageError("--cluster reads what tenants use; give changes to it by --with, not by --usage")

    def is_manifest(path: pathlib.Path) -> bool:  # as kubectl reads a folder; a kustomization is what -k is for
        return path.suffix in {".json", ".yaml", ".yml"} and path.stem != "kustomization" and path.is_file()

    contents = [options.read_content(file, MAX_BYTES + 1) for file in snapshot.files(named, is_manifest)]
    contents += [(_kustomized(arguments.kustomize), arguments.kustomize)] if arguments.kustomize else []
    if not contents:
        empty = f"no .yaml, .yml or .json file is in {', '.join(named)}" if named else "nothing is given"
        raise options.UsageError(f"{empty}; give files, folders, -k DIR, or - for standard input")

    # By what it is judged.
    if arguments.cluster:
        rulebook, usage = _read_cluster(arguments)
    else:
        rulebook = options.judged_by(arguments, quiet=arguments.quiet)
        usage = snapshot.read_files(snapshot.TENANTS, arguments.usage)

    documents = [(document, origin) for content, origin in contents for document in parse_manifests(content, origin)]
    around: list[Object] = []
    for file in arguments.around:
        around += parse_manifests(*options.read_content(file, MAX_BYTES + 1))
    answer = answer_question(
        [document for document, _ in documents],
        rulebook,
        usage,
        around=around,
        setting=Setting(arguments.namespace, arguments.user, arguments.at or time.time()),
        backend=arguments.backend,
        to=arguments.to,
        source=arguments.source,
        origins=[origin for _, origin in documents] if len(contents) > 1 else (),
    )
    for problem in answer.problems:  # as in a cluster: its namespaces get no GPU, and the others know nothing of it
        print(problem, file=sys.stderr)

    if not answer.explanations and not answer.tried:
        origins = ", ".join(origin for _, origin in contents)
        raise options.UsageError(f"{origins} holds no pod and nothing that makes pods")
    if not answer.explanations:  # what the author of policies is told when they are applied
        if arguments.output == "json":
            problems = [{"tenant": problem.tenant or None, "message": problem.message} for problem in answer.problems]
            options.print_json({"warnings": answer.advice, "problems": problems})
        elif (answer.advice or answer.usable) and not arguments.quiet:
            print(*(answer.advice or [f"{', '.join(answer.usable)}: fine"]), sep="\n")
        return options.FINE if answer.usable == answer.tried else options.NOT_FINE

    refused = [pod for pod in answer.explanations if not pod.decision.allowed]
    if not arguments.quiet:
        print(*answer.advice, sep="\n", end="\n" if answer.advice else "", file=sys.stderr)
    listed = refused if arguments.quiet or arguments.output == "yaml" else answer.explanations
    if arguments.output == "json":
        options.print_json(explanation.contract(listed))
    elif listed:
        where = sys.stderr if arguments.output == "yaml" else sys.stdout
        colours = COLOURS if where.isatty() and "NO_COLOR" not in os.environ else {}
        print("\n\n".join("\n".join(paint(View(pod), colours)) for pod in listed), file=where)
    if arguments.output == "yaml" and not arguments.quiet:
        stored = (pod.after for pod in answer.explanations if pod.decision.allowed)
        print(yaml_text({"apiVersion": "v1", "kind": "Pod", **pod} for pod in stored), end="")
    messages = [violation.message for pod in refused for violation in pod.decision.violations]
    unshared = any(message.startswith(NOTHING_SHARED) for message in messages)
    if unshared and not arguments.cluster and options.is_as_shipped(arguments.rules or settings.default_rules()):
        print("note: --demo judges by an imagined cluster that shares GPUs", file=sys.stderr)
    return options.NOT_FINE if refused else options.FINE


CODE: Final = re.compile("GPU[0-9]{3}", re.IGNORECASE)


def _kustomized(folder: str) -> bytes:
    """What kustomize makes of a folder; raises UsageError."""
    import shutil

    commands = (["kubectl", "kustomize", folder], ["kustomize", "build", folder])
    command = next((command for command in commands if shutil.which(command[0])), None)
    if command is None:
        raise options.UsageError(f"-k {folder}: kubectl or kustomize builds it, and neither is on the path")
    return options.output_of(command, " ".join(command))


def _read_cluster(arguments: argparse.Namespace) -> tuple[Rulebook, snapshot.Snapshot]:
    """The rules, nodes and claims of the current cluster, and its tenants; raises UnreadableError."""
    from webhook.cli import installation
    from webhook.cluster import client

    async def read(api: client.Api) -> Rulebook:
        rules, namespace = arguments.rules, arguments.server_namespace
        rulebook = rule_files.load_cached(rules) if rules else await installation.mounted(api, namespace)
        try:
            return await installation.surrounded(rulebook, api)
        except client.ForbiddenError as error:
            print(f"note: {error}; judged as if nothing were known of nodes and claims", file=sys.stderr)
            return rulebook

    tenants = snapshot.read_cluster(snapshot.TENANTS, needed=())
    if unread := ", ".join(kind for kind in snapshot.TENANTS if kind not in tenants.objects):
        print(f"note: you may not list {unread} of the cluster; judged as if there were none", file=sys.stderr)
    with options.progress("reading the rules and the nodes of the cluster"):
        return client.ask(read), tenants


# What a person asks at a command or on a page, answered: the pods, and all that is known around them.


class Answer(NamedTuple):
    """An explanation for each pod, and what is wrong with the policies and exemptions that were given.

    Those are `tried`, as `TenantPolicy/vision`, and of them the `usable` ones have no mistake; `advice` is what their
    author is told when they are applied.
    """

    explanations: Sequence[Explanation]
    problems: Sequence[snapshot.Problem]
    tried: Sequence[str] = ()
    usable: Sequence[str] = ()
    advice: Sequence[str] = ()


def answer_question(
    documents: Sequence[Object],
    rulebook: Rulebook,
    there: snapshot.Snapshot,
    *,
    around: Sequence[Object] = (),
    setting: Setting = NOWHERE,
    backend: str = "",
    to: str = "",
    source: str = "",
    origins: Sequence[str] = (),
) -> Answer:
    """What becomes of the pods in `documents`, by the rules and by the tenants that are there.

    `around` are objects beside them. Policies and usage among either stand in for those of their name that are there.
    `backend`: as if the cluster had only this one. `to`: rewritten for this one, from the words of `source`. Titles
    name the `origins` of the documents. Raises UnreadableError.
    """
    for name in filter(None, (backend, to, source)):
        if name not in rulebook.backends:
            near = nearest_backend(name, rulebook)
            others = did_you_mean(near) or f"; there are {', '.join(sorted(rulebook.backends))}"
            raise UnreadableError(f'no back end is called "{name[:63]}"{others}')

    # Tenants: what is there, and what the documents put in its place.
    objects = [*documents, *around]
    tried = snapshot.Snapshot(snapshot.TENANTS)
    for document in objects:
        tried.add(document)
    present, problems = there.tenancy(rulebook)
    tenancy, more = tried.tenancy(replace(rulebook, tenancy=present), tried=True)
    (used, unread), (tried_usage, also_unread) = there.ledgers(), tried.ledgers()
    if unread or also_unread:
        raise UnreadableError("; ".join(map(str, (*unread, *also_unread))))
    ledgers = {**used, **tried_usage}

    # Pods.
    judging = with_only(backend, rulebook) if backend else rulebook
    judging = claims.given(objects, replace(judging, tenancy=tenancy))
    setting = setting._replace(whole=there.whole)
    pods: list[Explanation] = []
    for document, origin in zip(documents, origins or repeat(""), strict=False):
        if to:
            made = convert.convert(document, to, judging, source or None, setting)
        else:
            made = explanation.explain(document, judging, setting)
        pods += [replace(pod, title=f"{pod.title}, {origin}") if origin else pod for pod in made]
    explanations = [*explanation.foreseen(pods, tenancy, ledgers, setting)]

    # What the author of the policies is told.
    with_them, before = replace(rulebook, tenancy=tenancy), replace(present, labels=tenancy.labels)
    advice = policy_advice.every(with_them, setting.at, ledgers, own=tried.written, before=before)
    sound = {policy.rule for policy in tenancy.policies if not policy.broken}
    sound |= {exemption.rule for exemption in tenancy.exemptions}
    usable = [name for name in tried.written if name in sound]
    return Answer(explanations, [*problems, *more], tried.written, usable, [*advice])


# A pod before and after as YAML lines, each kept, added or removed, the changed ones with the rule they come from.

CONTEXT: Final = 3
"""Lines that stay visible on each side of a change."""

WORTH_FOLDING: Final = 6
"""A fold of fewer lines would be harder to read than the lines."""

MANY_LINES: Final = 2000
"""In a longer pod difflib looks at frequent lines last: else the time grows with their square."""


class DifferenceLine(NamedTuple):
    """One line of YAML; `rule` is what made the change that begins with it."""

    mark: Literal[" ", "+", "-"]
    text: str
    rule: str = ""


class Passage(NamedTuple):
    """Lines that follow each other; those of a `folded` one are the same before and after, and far from a change."""

    lines: Sequence[DifferenceLine]
    folded: bool = False


def passages(before: Mapping[str, Any], after: Mapping[str, Any], edits: Iterable[Edit]) -> list[Passage]:
    """Everything, with what is far from any change folded away; `edits` lead from `before` to `after`."""
    (old, old_places), (new, new_places) = _yaml(before), _yaml(after)

    # The rule of each edit, by the line at which its value begins; what is appended learns its index.
    removed: dict[int, str] = {}
    added: dict[int, str] = {}
    appended: Counter[Path] = Counter()
    for edit in edits:
        if isinstance(edit, Remove):
            removed[old_places.get(edit.path, -1)] = edit.rule
            continue
        path = edit.path
        if isinstance(edit, Append):
            path = (*path, len(fields.at(before, *path) or ()) + appended[path])
            appended[edit.path] += 1
        added[new_places.get(path, -1)] = edit.rule

    lines: list[DifferenceLine] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > MANY_LINES)
    for same, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if same == "equal":
            lines += [DifferenceLine(" ", text) for text in old[old_from:old_to]]
        else:
            lines += [DifferenceLine("-", old[at], removed.get(at, "")) for at in range(old_from, old_to)]
            lines += [DifferenceLine("+", new[at], added.get(at, "")) for at in range(new_from, new_to)]

    near: set[int] = set()
    for index, line in enumerate(lines):
        if line.mark != " ":
            near.update(range(index - CONTEXT, index + CONTEXT + 1))
    runs = [(shown, [lines[i] for i in run]) for shown, run in groupby(range(len(lines)), near.__contains__)]
    return [Passage(run, folded=not shown and len(run) >= WORTH_FOLDING) for shown, run in runs]


def _yaml(pod: Mapping[str, Any]) -> tuple[list[str], Mapping[Path, int]]:
    """The lines of a pod in YAML, and the line at which each of its fields begins."""
    text = yaml_text([pod])
    places: dict[Path, int] = {}
    todo: list[tuple[Path, Any]] = [((), yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))]
    while todo:
        path, node = todo.pop()
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                places[*path, key.value] = key.start_mark.line
                todo.append(((*path, key.value), child))
        elif isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                places[*path, index] = child.start_mark.line
                todo.append(((*path, index), child))
    return text.splitlines(), places


# An explanation in finished sentences, which a terminal and the page of the console only paint.


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


class View:
    """What people are told of one pod.

    `lead` follows Allowed or Denied. `was` is how a pod of another system was understood, `tenant` has labelled
    sentences about the tenant and its quota, `tried` what policies in dry run would refuse, `exempted` what is lifted
    of them. `pod` is there if there are `changes` of one that stands in the object as it is.
    """

    def __init__(self, explained: Explanation) -> None:
        decision, planned, converted = explained.decision, explained.planned, explained.converted
        edits = planned.edits if planned is not None and decision.allowed and decision.patch else []
        from_before = edits if converted is None else []  # else they lead from the pod as it was understood
        self.explained = explained
        self.verdict = "Allowed" if decision.allowed else "Denied"
        self.asking = list(_asking(explained))
        self.tenant = list(_standing(explained))

        served_by = " and ".join(dict.fromkeys(decision.backends.values()))
        if not decision.allowed:
            count = len(decision.violations)
            self.lead = "for one reason" if count == 1 else f"for {count} reasons"
        elif planned is not None and planned.edits and not decision.patch:
            self.lead = "as it is: the webhook only observes"
        elif decision.backends:
            self.lead = f"as it is, and served by {served_by}: nothing is missing"
            if decision.patch:
                self.lead = f"and served by {served_by}"
        elif fields.at(explained.before, "spec", "resourceClaims"):
            self.lead = "as it is: what its resource claims hold, only their objects in the cluster tell"
        elif self.asking:
            self.lead = "as it is: no back end that is enabled here serves what it asks for"
        else:
            self.lead = "as it is: no container asks for a GPU"

        self.was = []
        for served in converted.assignments if converted is not None else ():
            amounts = {
                **{name: str(amount) for name, amount in served.amounts.items()},
                **served.demand.extended.texts,
            }
            self.was.append(f"{served.demand.container.name}: {_listed(amounts)}  ({served.backend.rule})")
        self.tried = [
            f"[{finding.code}] {finding.rule} would refuse it if it were enforced"
            for finding in decision.findings
            if finding.action == "dryrun" and not finding.exemption
        ]
        self.exempted = [
            f"[{finding.code}] of {finding.rule} is lifted by the exemption {finding.exemption}"
            for finding in decision.findings
            if finding.exemption
        ]
        self.changes = []
        for edit in from_before:
            verb, text = "remove", ""
            if not isinstance(edit, Remove):
                verb = "add" if isinstance(edit, Append) else "set"
                text = yaml.safe_dump(edit.value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
            self.changes.append(Change(verb, field_path(edit.path), text, edit.rule or "what the shorthand becomes"))
        self.pod: Sequence[Passage] = ()
        if edits and not explained.assembled:
            self.pod = passages(explained.before, explained.after, from_before)


def _standing(explained: Explanation) -> Iterator[tuple[str, str]]:
    """The tenant, what it has used of each thing that is counted, and how many pods like this would fit."""
    prospect, pods = explained.prospect, explained.pods
    if prospect is None:
        return
    quota = {None: ": no quota", "warn": ": its quota only warns", "dryrun": ": its quota is only tried"}
    state = quota.get(prospect.action, "")
    if prospect.lifted:
        state = f": the exemption {prospect.lifted} lifts its quota"
    yield "tenant", f"{prospect.policy.name}, by {prospect.policy.rule}{state}"
    for amount in prospect.amounts:
        used, requested = tally.rounded(amount.key, amount.used), tally.rounded(amount.key, amount.requested)
        limit, of = "no limit", f" by {pods} pods" if pods > 1 else ""
        if amount.limit is not None and amount.left is not None:
            over = "too many" if amount.left < 0 else "left"
            most, left = tally.rounded(amount.key, amount.limit), tally.rounded(amount.key, abs(amount.left))
            limit = f"{most} at most: {left} {over}"
        yield "quota", f"{amount.key.replace('/', ' of ')}: {used} used, {requested} asked{of}, {limit}"
    fit = prospect.fit
    if prospect.amounts and fit is not None and not prospect.lifted:
        more = f"{fit - pods or 'no'} more pod{'' if fit - pods == 1 else 's'} like this would fit"
        fewer = f"of the {pods} pods {fit or 'none'} would fit" if pods > 1 else "the pod does not fit"
        yield "quota", fewer if fit < pods else more


def _listed(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in amounts.items())


def _asking(explained: Explanation) -> Iterator[Asking]:
    """Each container that asks, with who serves it, and in the cluster's order why the others do not."""
    planned, rulebook = explained.planned, explained.rulebook
    if planned is None or rulebook is None:
        return
    nodes = NodeSelection(pod.read(explained.before), rulebook)
    assignments = {served.demand.container.name: served for served in planned.assignments}
    more = 0 if rulebook.trial else len(rulebook.backends) - len(rulebook.enabled)
    for demand in filter(attrgetter("anything"), planned.interpretation.asked):
        name = demand.container.name
        served = assignments.get(name)
        considered, others = [], ""
        reason = "the pod is refused for another reason"
        if served is not None:
            reason = "the policy of the tenant wants another"
            counts = f"{served.mode.name}; counts as {charge.counted(explained.charges[name])}"
            counts += f", as {why}" if (why := explained.presumed.get(name)) else ""
            considered.append(Considered(served.backend.name, served.backend.at.line_only, "serves", counts))
        elif more:
            others = f"{number(more, 'more back end')} {'is' if more == 1 else 'are'} not enabled"
            others += " (spec.backends of the Cluster document)"
        try:
            candidates = [*choose.candidates(nodes.bind(demand), rulebook)]
        except Refusal:
            candidates = []
        for candidate in candidates:
            backend, why = candidate.backend, ""
            if not isinstance(candidate, Assignment):
                why = candidate.reason.message
            elif served is not None and backend.name == served.backend.name:
                reason = "comes later in the cluster's order"
                continue
            elif not nodes.allows(candidate) or (served and nodes.binds_to(served) and not nodes.binds_to(candidate)):
                why = "the pod selects nodes of another"
            considered.append(
                Considered(backend.name, backend.at.line_only, "cannot" if why else "could", why or reason)
            )
        # The words of a pod that is converted were never on it.
        fields_of_pod = demand.stated.values() if demand.request and explained.converted is None else ()
        stated = list(dict.fromkeys((field.path, field.text) for field in fields_of_pod))
        own = _listed({resource: demand.extended.texts[resource] for resource in demand.extended.amounts})
        yield Asking(name, own if demand.request is None else str(demand.request), stated, considered, others)


# An explanation on a terminal: a line for each thing that is said, in colours where there are any.

COLOURS: Final[Mapping[str, str]] = {"strong": "\x1b[1m", "+": "\x1b[32m", "-": "\x1b[31m"}
"""What a terminal is sent before a line of each kind."""


def paint(view: View, colours: Mapping[str, str]) -> Iterator[str]:
    """The lines as text; control characters out of a pod are shown, not sent."""
    decision = view.explained.decision
    rows = [("was", text) for text in view.was]
    for asking in view.asking:
        stated = ", ".join(f"{path}: {text}" for path, text in asking.stated) or "its own resources"
        rows.append(("asked", f"{asking.name}: {asking.asked}" + ("" if view.was else f"  ({stated})")))
        for backend, place, outcome, reason in asking.considered:
            if outcome == "serves":
                rows.append(("served", f"{asking.name}: by {backend} ({place}): {reason}"))
            else:
                rows.append(("", f"{backend} {'could, but' if outcome == 'could' else 'cannot:'} {reason}"))
        if asking.others:
            rows.append(("", asking.others))
    # Of rows with the same label only the first has it.
    labels = ["", *(label for label, _ in view.tenant)]
    rows += [
        ("" if label == before else label, text) for before, (label, text) in zip(labels, view.tenant, strict=False)
    ]
    for label, texts in (("warning", decision.warnings), ("dryrun", view.tried), ("exempted", view.exempted)):
        rows += [(label, text) for text in texts]
    rows += [("missing", missing.effect) for missing in view.explained.missing]

    lines = [(view.explained.title, "strong"), *((f"  {label:<10}{text}", "") for label, text in rows)]
    if not decision.allowed:
        lines.append(("  denied", "-"))
        lines += [(f"    {line}", "") for violation in decision.violations for line in str(violation).splitlines()]
    elif not (view.pod or view.changes):
        lines.append((f"  admitted {view.lead}", ""))
    else:
        for verb, path, value, rule in view.changes:
            lines.append((f"  {verb:<6} {path}{': ' if value else ''}{value}    [{rule}]", ""))
        lines += [("", "")] if view.pod else []
        lines += [(f"{line.mark} {line.text}", line.mark) for passage in view.pod for line in passage.lines]

    for text, kind in lines:
        printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
        colour = colours.get(kind)
        yield f"{colour}{printable}\x1b[0m" if colour else printable
