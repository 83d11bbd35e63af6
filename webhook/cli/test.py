"""`gpu-webhook test`: suites, which say what has to become of pods by rules and policies.

A suite is a YAML document beside the rules. It is strict: a code, a warning or an exemption that a case does not
expect fails it. What becomes of a pod is what `explain` says.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

from webhook.cli import explain, explanation, options, snapshot
from webhook.cli.table import number
from webhook.core.forms import document, forms
from webhook.core.forms.document import API_VERSION, Location, Node, Problem, Section, inside, nearest
from webhook.core.forms.forms import FILLED, OBJECT, TEXT, derived, form, list_of, map_of, optional, required
from webhook.core.kube import pod
from webhook.core.policy import usage
from webhook.core.quota import tally
from webhook.core.quota.tally import Tally
from webhook.core.request import KEYS
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TIME
from webhook.core.violations import CODES
from webhook.files import documents, rule_files, surroundings
from webhook.server import settings

# What a suite says.


def _amounts(node: Node, scope: forms.Scope) -> Tally:
    texts = map_of(TEXT).read(node, scope)
    try:
        return tally.read(texts)
    except ValueError as error:
        raise node.problem(str(error)) from None


def _code(node: Node, _: forms.Scope) -> str:
    if node.text() not in CODES:
        raise node.problem(f'"{node.text()}" is no code of a refusal{nearest(node.text(), CODES)}')
    return node.text()


_CODE: Final = forms.pattern("^GPU[0-9]{3}$", "write a code, as GPU104").reading(_code)
_CHARGE: Final = map_of(TEXT).reading(_amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What has to become of each pod of a case."""

    codes: frozenset[str] = optional(
        forms.set_of(_CODE), "The codes of its refusal. Left out, the pod is admitted.", ["GPU104"]
    )
    backends: Mapping[str, str] | None = optional(
        map_of(TEXT), "The back end of each container that gets a GPU.", {"main": "hami-vgpu"}, default=None
    )
    pod: Mapping[str, Any] = optional(
        OBJECT,
        "A part of the stored pod: of a list each element in its place, and empty where nothing may stand.",
        {"spec": {"schedulerName": "hami-scheduler", "runtimeClassName": None}},
    )
    tenant: str | None = optional(TEXT, "The TenantPolicy that holds; an empty text for none.", "vision")
    exemptions: frozenset[str] = optional(
        forms.set_of(TEXT), "The Exemptions that lift what would refuse it.", ["retraining"]
    )
    charge: Tally | None = optional(_CHARGE, "What the quota counts.", {"devices": "0.3"}, default=None)
    warnings: tuple[str, ...] = optional(
        list_of(FILLED), "A part of each warning, in their order.", ["counts as a whole device"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pod, or what makes pods, who creates it, and what has to become of it."""

    name: str = required(FILLED, "A sentence that says what holds.", "half a card is served by the default back end")
    ask: Mapping[str, str] = optional(
        map_of(TEXT, forms.word(KEYS)), "The shorthand of a pod with one container, `main`.", {"gpu": "0.5"}
    )
    object: Mapping[str, Any] | None = optional(OBJECT, "The pod, or what makes pods, instead.", default=None)
    namespace: str = optional(FILLED, "Where it is created.", "vision-dev", default="default")
    user: str = optional(FILLED, "Who creates it.", "ada", default="")
    at: float | None = optional(TIME, "When.", "2026-11-26T12:00:00Z")
    given: tuple[Mapping[str, Any], ...] = optional(
        list_of(OBJECT), "Namespaces, policies, exemptions, usage, nodes and claims beside those of the suite."
    )
    expect: Expected = optional(form(Expected), "What has to become of it.", default=Expected())
    place: Location = derived(forms.place)

    def complete(self, section: Section, _: forms.Scope) -> "Case":
        """The same; complain of a case that has not just one of both."""
        if bool(self.ask) == (self.object is not None):
            section.complain("needs either ask: or object:")
        return self


CASE: Final = form(Case, complete=Case.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases with what they have in common."""

    at: float = optional(TIME, "When the pods are created; left out, now.", "2026-11-26T12:00:00Z", default=0.0)
    given: tuple[Mapping[str, Any], ...] = optional(
        list_of(OBJECT), "Namespaces, policies, exemptions, usage, nodes and claims."
    )
    cases: tuple[Case, ...] = required(list_of(CASE, forms.EMPTY), "What has to hold.", default=())


SUITE: Final = form(Suite)
_DOCUMENT: Final[forms.Form[Mapping[str, Any]]] = forms.mapping(
    {
        "apiVersion": required(forms.word((API_VERSION,)), "The version."),
        "kind": required(forms.word(("Suite",)), "What it is."),
        "metadata": required(forms.mapping({"name": required(FILLED, "What it is called.")}), "Its name."),
        "spec": required(SUITE, "What it says.", default=Suite(cases=())),
    }
)


def read(content: bytes, name: str) -> Iterator[tuple[str, Suite]]:
    """The suites of a file, each with its name and all other objects of the file given; raises UnreadableError."""
    problems: list[Problem] = []
    suites: list[tuple[str, Suite]] = []
    beside: list[Mapping[str, Any]] = []
    try:
        for node in documents.parse(content, name):
            kind = node.value.get("kind") if isinstance(node.value, dict) else None
            if kind is not None and kind.value != "Suite":
                beside.append(node.plain())
                continue
            suite = _DOCUMENT.read(node, forms.Scope(problems))
            if not problems:
                suites.append((suite["metadata"]["name"], suite["spec"]))
    except document.DocumentError as error:
        problems += error.problems
    if problems:
        raise document.DocumentError(*problems)
    yield from ((title, replace(suite, given=(*beside, *suite.given))) for title, suite in suites)


# What becomes of a case, beside what it expects.


class Result(NamedTuple):
    """A case that was tried; it has passed if there are no `failures`."""

    suite: str
    case: str
    place: Location
    failures: Sequence[str]


def tried(suite: Suite, name: str, rulebook: Rulebook, now: float) -> Iterator[Result]:
    """The result of each case."""
    for case in suite.cases:
        around = [*suite.given, *case.given]
        nodes = [raw for raw in around if raw.get("kind") == "Node"]
        there = surroundings.concluded(rulebook, {"nodes": nodes}) if nodes else rulebook
        raw = case.object or {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "test", "labels": {**case.ask}},
            "spec": {"containers": [{"name": "main", "image": "test"}]},
        }
        at = suite.at if case.at is None else case.at
        setting = explanation.Setting(case.namespace, case.user, at or now)
        failures: list[str] = []
        try:
            answer = explain.answer_question(
                [raw], there, snapshot.Snapshot(snapshot.TENANTS), around=around, setting=setting
            )
            failures += map(str, answer.problems)
            if not answer.explanations:
                failures.append("it makes no pod")
            for explained in answer.explanations:
                failures += differing(case.expect, explained, there)
        except document.UnreadableError as error:
            failures.append(str(error))
        yield Result(name, case.name, case.place, failures)


def differing(expected: Expected, explained: explanation.Explanation, rulebook: Rulebook) -> Iterator[str]:
    """A sentence for each thing that is not as expected."""
    decision, prospect = explained.decision, explained.prospect
    reasons = [f"[{violation.code}] {violation.message}" for violation in decision.violations]
    if {violation.code for violation in decision.violations} != expected.codes:
        wanted = " and ".join(sorted(expected.codes))
        yield f"expects {wanted or 'it to be admitted'}, and gets {'; '.join(reasons) or 'it admitted'}"
    exemptions = {finding.exemption for finding in decision.findings if finding.exemption}
    if exemptions != expected.exemptions:
        yield _sentence("exemptions", sorted(expected.exemptions), sorted(exemptions))
    if expected.backends is not None and {**decision.backends} != {**expected.backends}:
        yield _sentence("backends", {**expected.backends}, {**decision.backends})
    tenant = prospect.policy.name if prospect else ""
    if expected.tenant not in {None, tenant}:
        yield _sentence("tenant", expected.tenant, tenant)
    if expected.charge is not None:
        stored = pod.read(explained.after if decision.allowed else {}, explained.namespace)
        charge = usage.pod_usage(usage.holdings(stored, rulebook)).tally
        if charge != {**expected.charge}:
            yield _sentence("charge", tally.write(expected.charge), tally.write(charge))
    if len(expected.warnings) != len(decision.warnings) or not all(
        part in warning for part, warning in zip(expected.warnings, decision.warnings, strict=True)
    ):
        yield _sentence("warnings", [*expected.warnings], [*decision.warnings])
    yield from _unlike(expected.pod, explained.after, "")


def _unlike(part: Any, whole: Any, path: str) -> Iterator[str]:
    """A sentence for each place of a part of an object where the object is another."""
    if isinstance(part, dict) and isinstance(whole, dict):
        for key, inner in part.items():
            yield from _unlike(inner, whole.get(key), inside(path, key))
    elif isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        for index, (inner, element) in enumerate(zip(part, whole, strict=True)):
            yield from _unlike(inner, element, f"{path}[{index}]")
    elif part != whole:
        yield _sentence(path, part, whole)


def _sentence(what: str, expected: object, given: object) -> str:
    return f"{what}: expects {json.dumps(expected, default=str)}, and gets {json.dumps(given, default=str)}"


# The command, and what it prints for people and for programs that run it.

WATCH_SECONDS: Final = 0.2
FORMS: Final = ("text", "json", "junit", "sarif", "github")


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook test` takes."""
    suites = "suites, or folders of them (default: the folder tests of the rules)"
    command.add_argument("file", nargs="*", metavar="FILE|DIR", help=suites)
    options.around_option(command, "policies, exemptions, namespaces, usage, nodes and claims for all suites")
    options.judging_options(command)
    what = "github: annotations of a workflow (default: %(default)s)"
    command.add_argument("-o", "--output", choices=FORMS, default="text", help=what)
    command.add_argument(
        "--watch", action="store_true", help="run again whenever a file changes, until it is stopped"
    )


def run(arguments: argparse.Namespace) -> int:
    """Try every case; NOT_FINE where one fails."""
    named = arguments.file or [str((arguments.rules or settings.default_rules()) / "tests")]
    if not arguments.watch:
        return _tried(arguments, named)
    while True:
        stamp = _stamp(arguments, named)
        try:
            _tried(arguments, named)
        except (options.UsageError, document.UnreadableError, OSError) as error:
            print(error, flush=True)
        while _stamp(arguments, named) == stamp:
            time.sleep(WATCH_SECONDS)


def _stamp(arguments: argparse.Namespace, named: Sequence[str]) -> object:
    files = [rule_files.file_stamp(Path(name)) for name in snapshot.files([*named, *arguments.around])]
    return rule_files.directory_stamp(arguments.rules or settings.default_rules()), files


def _tried(arguments: argparse.Namespace, named: Sequence[str]) -> int:
    rulebook = options.judged_by(arguments)
    around: list[Mapping[str, Any]] = []
    for name in snapshot.files(arguments.around):
        around += documents.parse_manifests(*options.read_content(name))
    results: list[Result] = []
    for name in snapshot.files(named):
        try:
            suites = [*read(Path(name).read_bytes(), name)]
        except OSError as error:
            raise options.UsageError(f"{name}: {error.strerror}") from None
        for suite_name, suite in suites:
            results += tried(replace(suite, given=(*around, *suite.given)), suite_name, rulebook, time.time())
    if not results:
        raise options.UsageError(f"there is no suite in {', '.join(named)}")
    print(_shown(results, arguments.output), flush=True)
    return options.NOT_FINE if any(result.failures for result in results) else options.FINE


def _shown(results: Sequence[Result], form: str) -> str:
    """The results in one of FORMS."""
    failed = [(result, failure) for result in results for failure in result.failures]
    cases = len({result.place for result, _ in failed})
    match form:
        case "json":
            rows = [{**result._asdict(), "place": asdict(result.place)} for result in results]
            return json.dumps({"cases": len(results), "failed": cases, "results": rows}, indent=2)
        case "junit":
            return _junit(results)
        case "sarif":
            return json.dumps(_sarif(failed), indent=2)
        case "github":
            return "\n".join(
                f"::error file={_escaped(result.place.file, ':,')},line={result.place.line},"
                f"title={_escaped(result.case, ':,')}::{_escaped(failure)}"
                for result, failure in failed
            )
    lines = [f"{result.place.line_only}: {result.case}: {failure}" for result, failure in failed]
    return "\n".join([*lines, f"{number(len(results), 'case')}: {f'{cases} failed' if cases else 'all passed'}"])


def _junit(results: Sequence[Result]) -> str:
    """As Jenkins and GitLab read it."""
    root = ET.Element("testsuites")
    suites: dict[str, ET.Element] = {}
    for result in results:
        if result.suite not in suites:
            suites[result.suite] = ET.SubElement(root, "testsuite", name=result.suite)
        place = {"classname": result.suite, "file": result.place.file, "line": str(result.place.line)}
        case = ET.SubElement(suites[result.suite], "testcase", {"name": result.case, **place})
        if result.failures:
            ET.SubElement(case, "failure", message=result.failures[0]).text = "\n".join(result.failures)
    for suite in [root, *suites.values()]:
        suite.set("tests", str(len(suite.findall(".//testcase"))))
        suite.set("failures", str(len(suite.findall(".//failure"))))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _sarif(failed: Sequence[tuple[Result, str]]) -> Mapping[str, Any]:
    """SARIF 2.1.0, as code scanning reads it."""
    results = [
        {
            "ruleId": "case",
            "level": "error",
            "message": {"text": f"{result.case}: {failure}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": result.place.file},
                        "region": {"startLine": max(result.place.line, 1), "startColumn": result.place.column},
                    }
                }
            ],
        }
        for result, failure in failed
    ]
    driver = {"name": "gpu-webhook test", "rules": [{"id": "case"}]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return {"$schema": schema, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _escaped(text: str, more: str = "") -> str:
    """A text in a workflow command, where these characters would end it; in a property `more` of them."""
    return text.translate({ord(char): f"%{ord(char):02X}" for char in f"%\r\n{more}"})
