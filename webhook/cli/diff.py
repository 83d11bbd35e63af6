"""`gpu-webhook diff`: what a change of rules or policies means for pods that were recorded, or that run now.

Each pod is created twice in the order of the record, once by the old side and once by the new one. Each side has
ledgers of its own, which fill as its pods come and drain as they end. A pod that the webhook has translated is first
put back as its author wrote it: else the old translation would stand in the way of the new one.
"""

import argparse
import heapq
import io
import json
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from webhook.cli import options, snapshot
from webhook.cli.explanation import Ledgers, foresee, foretell, released
from webhook.cli.snapshot import Object
from webhook.cli.table import gib, number, several, short
from webhook.core import pod_templates, projection
from webhook.core.decision import Decision, Reservation
from webhook.core.forms.document import UnreadableError
from webhook.core.interpret.locations import NOTE
from webhook.core.kube import fields, pod, quantity
from webhook.core.kube.quantity import Fraction
from webhook.core.mutate import mutate
from webhook.core.policy import updates, usage
from webhook.core.policy.membership import member, undecided
from webhook.core.quota import tally
from webhook.core.quota.tally import Tally
from webhook.core.review import creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal
from webhook.files import documents, rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook diff` takes."""
    side = "a folder of rules, policies in a file or folder, or REVISION:PATH of the git repository here"
    command.add_argument("old", metavar="OLD", help=side)
    command.add_argument("new", metavar="NEW", help="the same after the change")
    pods = (
        "what is tried: kubectl get pods -A -o json, what makes pods, reviews, or an API server's audit log with"
        " requests; default: the current cluster's pods"
    )
    command.add_argument("--pods", action="append", default=[], metavar="FILE|-", help=pods)
    options.around_option(command, "namespaces with their labels, and policies beside those of both sides")
    options.judging_options(command)
    forms = ("text", "json", "markdown")
    command.add_argument("-o", "--output", choices=forms, default="text", help="default: %(default)s")
    command.epilog = f"exit codes: 0 nothing changes for any pod, 1 something does\n\n{command.epilog}"


def run(arguments: argparse.Namespace) -> int:
    """Print what changes for whom; NOT_FINE where anything does."""
    kinds = {kind: paths for kind, paths in snapshot.TENANTS.items() if kind != "TenantUsage"}
    around = snapshot.read_files(kinds, arguments.around)
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            _checked_out(source, Path(folder, str(number)))
            for number, source in enumerate((arguments.old, arguments.new))
        ]
        # Whether the files of a side are rules of a cluster, and not only policies.
        whole = [
            path.is_dir() and any(_CLUSTER_DOCUMENT.search(file.read_bytes()) for file in path.glob("*.y*ml"))
            for path in paths
        ]
        shared = None if all(whole) else options.judged_by(arguments)
        old, new = (
            shared if shared and not rules else rule_files.load(path, only_enabled=True)
            for path, rules in zip(paths, whole, strict=True)
        )

        # The record, of files one after the other; without files the namespaces and pods of the cluster.
        recorded = (
            member
            for name in snapshot.files(arguments.pods)
            for document in stream(*options.read_content(name))
            for member in snapshot.members(document)
        )
        if not arguments.pods:
            there = snapshot.read_cluster({"Namespace": kinds["Namespace"], "Pod": snapshot.INVENTORY["Pod"]})
            recorded = ((kind, raw) for kind in there.kinds for raw in there.of(kind))
        record: list[Creation] = []
        latest: dict[tuple[str, str], int] = {}
        for kind, raw in recorded:
            about = fields.mapping(raw, "objectRef")
            if kind == "Namespace":
                around.add(raw)
            elif (kind, raw.get("verb"), about.get("resource")) == ("Event", "delete", "pods"):
                number = latest.get((str(about.get("namespace")), f"Pod {about.get('name')}"))
                if number is not None:
                    record[number] = record[number]._replace(ends=_moment(raw.get("requestReceivedTimestamp")))
            else:
                for creation in creations({**raw, "kind": kind}, old):
                    latest[creation.namespace, creation.title] = len(record)
                    record.append(creation)
        if not record:
            raise options.UsageError("there is no pod to try")
        namespaces = sorted({creation.namespace for creation in record})
        old, new = (
            _with_policies(rulebook, around, "" if rules else str(path), namespaces)
            for rulebook, path, rules in zip((old, new), paths, whole, strict=True)
        )
    places = compare(record, old, new)
    match arguments.output:
        case "json":
            options.print_json(contract(places))
        case "markdown":
            print("\n".join(markdown(places)))
        case _:
            print("\n".join(lines(places)))
    return options.NOT_FINE if any(place.changes for place in places) else options.FINE


# The two sides: rulebooks with policies.

_CLUSTER_DOCUMENT: Final = re.compile(rb"\bkind:\s*[\"']?Cluster\b")


def _checked_out(source: str, folder: Path) -> Path:
    """The path of a side; what git keeps of `REVISION:PATH` is written below `folder`. Raises UsageError."""
    if Path(source).exists():
        return Path(source)
    if ":" not in source:
        raise options.UsageError(f"{source} does not exist; what git keeps is written REVISION:PATH")
    program = shutil.which("git")
    if program is None:
        raise options.UsageError(f"{source} is no file here, and there is no git that may know it")

    def git(*arguments: str) -> bytes:
        return options.output_of([program, *arguments], f"{source}: git says")

    name = git("rev-parse", "--verify", "--end-of-options", source).decode().strip()
    folder.mkdir()
    if git("cat-file", "-t", name).strip() == b"blob":
        file = folder / Path(source).name
        file.write_bytes(git("cat-file", "blob", name))
        return file
    top = git("rev-parse", "--show-toplevel").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(git("-C", top, "archive", "--format=tar", name))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _with_policies(rulebook: Rulebook, around: snapshot.Snapshot, name: str, namespaces: Iterable[str]) -> Rulebook:
    """The rules with the policies of a file or folder, and the namespaces around.

    Raises UsageError, also for a namespace whose labels would decide which policy is for it, and which nobody gave.
    """
    given = replace(around, objects={kind: [*objects] for kind, objects in around.objects.items()})
    for file in snapshot.files([name]) if name else ():
        given.parse(*options.read_content(file))
    tenancy, problems = given.tenancy(rulebook, tried=True)
    if problems:
        raise options.UsageError("\n".join(f"{name}: {problem}" if name else str(problem) for problem in problems))
    for namespace in namespaces:
        policies = () if namespace in tenancy.labels else undecided(namespace, tenancy)
        if rules := " and ".join(policy.rule for policy in policies):
            raise options.UsageError(
                f"no Namespace {namespace} was given: its labels decide whether {rules} is for it; give all of them"
                " by --with FILE, from kubectl get namespaces -o yaml"
            )
    return replace(rulebook, tenancy=tenancy)


# The record: pods as their authors wrote them, when they came and when they ended.

_LIST: Final = re.compile(
    r'\s*\{(?:\s*"(?:kind|apiVersion|metadata)"\s*:\s*(?:"(?P<text>[^"]*)"|\{[^{}]*\})\s*,)*\s*"items"\s*:\s*\[\s*'
)
_KIND: Final = re.compile(r'"kind"\s*:\s*"(\w+)List"')
_GAP: Final = re.compile(r"[\s,]*")


def stream(content: bytes, name: str) -> Iterator[Object]:
    """The documents of a file in YAML or JSON, of a list in JSON its objects; raises UnreadableError.

    A large list is never held as a whole: its objects take six times the room of their text.
    """
    text = content.decode(errors="replace")
    del content
    head = _LIST.match(text)
    kind = _KIND.search(text, 0, head.end()) if head else None
    position, decoder = head.end() if head else 0, json.JSONDecoder()
    while text[position : position + 1] not in {"", "]"}:
        try:
            raw, position = decoder.raw_decode(text, position)
        except ValueError as error:
            if position:
                raise UnreadableError(f"{name}: is not JSON: {error}") from None
            yield from documents.objects(text.encode(), name, snapshot.MOST_VALUES)
            return
        if not isinstance(raw, dict):
            raise UnreadableError(f"{name}: is not an object")
        yield {"kind": kind[1], **raw} if kind else raw
        if gap := _GAP.match(text, position):
            position = gap.end()


class Creation(NamedTuple):
    """A pod that is created: where, by whom and when, and when it ends, in seconds since 1970.

    `number`: how many identical pods. `packed`: the pod as compressed JSON. `is_stored`: it is as the cluster has it.
    """

    title: str
    namespace: str
    packed: bytes
    number: int = 1
    user: str = ""
    at: float = 0.0
    ends: float = inf
    is_stored: bool = False


_OF_SERVER: Final = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "deletionTimestamp", "selfLink")
"""What of a pod's metadata the API server writes."""


def creations(raw: Object, rulebook: Rulebook) -> Iterator[Creation]:
    """What an object creates: itself, the pods that it makes, or what an audit event tells of.

    An object that makes pods and is in a cluster has made them already, and they are recorded themselves.
    """
    user, at = "", 0.0
    if raw.get("kind") == "Event" and "requestObject" in raw:  # audit.k8s.io/v1: as the client sent it
        about = fields.mapping(raw, "objectRef")
        if (raw.get("verb"), about.get("resource")) != ("create", "pods") or about.get("subresource"):
            return
        user = str(fields.at(raw, "user", "username") or "")
        at = _moment(raw.get("requestReceivedTimestamp"))
        own = {"namespace": about.get("namespace"), "name": fields.at(raw, "responseObject", "metadata", "name")}
        metadata = {**own, **fields.mapping(raw, "requestObject", "metadata")}
        raw = {"kind": "Pod", "apiVersion": "v1", **raw["requestObject"], "metadata": metadata}
    elif raw.get("kind") == "AdmissionReview":
        user = str(fields.at(raw, "request", "userInfo", "username") or "")
    is_stored = fields.at(raw, "metadata", "uid") is not None
    if is_stored and raw.get("kind") != "Pod":
        return
    for made in pod_templates.pods(raw, rulebook.workloads):
        packed = zlib.compress(orjson.dumps({key: value for key, value in made.pod.items() if key != "status"}), 1)
        if is_stored:  # one that is over has given back its devices
            at, end = _moment(fields.at(raw, "metadata", "creationTimestamp")), inf
            if not pod.live(raw):
                statuses = fields.objects(fields.at(raw, "status", "containerStatuses"))
                ends = [_moment(fields.at(status, "state", "terminated", "finishedAt")) for status in statuses]
                end = max(ends, default=0.0) or at
            yield Creation(made.title, made.namespace, packed, user=user, at=at, ends=end, is_stored=True)
        elif made.wrong is None:
            yield Creation(made.title, made.namespace, packed, made.number, user, at)


def _moment(text: Any) -> float:
    try:
        return quantity.parse_time(text)
    except (TypeError, ValueError):
        return 0.0


def submitted(raw: Object, namespace: str, rulebook: Rulebook) -> dict[str, Any]:
    """A stored pod as its author wrote it: without what the cluster added, and what these rules write for it.

    To learn what they write, a pod with only the request is translated.
    """
    metadata = {key: value for key, value in fields.mapping(raw, "metadata").items() if key not in _OF_SERVER}
    annotations = fields.mapping(raw, "metadata", "annotations")
    reserved = updates.reserved(rulebook) if fields.at(raw, "spec", "nodeName") else ()  # what schedulers wrote
    kept = {key: text for key, text in annotations.items() if not any(fnmatchcase(key, glob) for glob in reserved)}
    spec = {key: value for key, value in fields.mapping(raw, "spec").items() if key != "nodeName"}
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "annotations": kept}, "spec": spec}
    if NOTE not in annotations:
        return bare
    del kept[NOTE]
    containers = {key: fields.objects(spec[key]) for key in ("initContainers", "containers") if key in spec}
    names = {key: [{"name": container.get("name")} for container in group] for key, group in containers.items()}
    request = {"metadata": bare["metadata"], "spec": names}
    decision = mutate(creating(request, "diff", namespace), rulebook)
    author: dict[str, Any] = _without(bare, fields.applied(decision.patch, request), request)
    for container in (container for key in containers for container in author["spec"][key]):
        resources = container.get("resources", {})
        if container.get("name") in decision.backends:  # other mutators may have added to what was written
            container["resources"] = {
                key: {name: amount for name, amount in inner.items() if name not in rulebook.resources}
                for key, inner in resources.items()
                if isinstance(inner, dict)
            }
    return author


def _without(value: Any, written: Any, request: Any) -> Any:
    """A value without what is `written` and was not part of the request; containers stand in the same order."""
    if isinstance(value, dict) and isinstance(written, dict):
        before = request if isinstance(request, dict) else {}
        left = {}
        for key, inner in value.items():
            if key not in written or (key in before and not isinstance(inner, dict | list)):
                left[key] = inner
                continue
            if key in before or inner != written[key]:
                rest = _without(inner, written[key], before.get(key))
                if rest not in ({}, []):
                    left[key] = rest
        return left
    if isinstance(value, list) and isinstance(written, list):
        if isinstance(request, list) and len(request) == len(written) == len(value):
            return [_without(*entry) for entry in zip(value, written, request, strict=True)]
        return [entry for entry in value if entry not in written]
    return value


# What becomes of a pod by one side, and by its quota at that time.


class Outcome(NamedTuple):
    """What one side makes of a pod: whether it is admitted, why not, and what it is charged.

    `texts` has what may differ between two that are admitted, as people read it, by the name of the change.
    """

    allowed: bool
    reasons: tuple[str, ...]
    texts: Mapping[str, str]
    charge: Tally


MOST_ALIKE: Final = 1000
"""So many pods of an object that makes more are tried."""


class Side:
    """Creates pods by the rules and policies of one side, and counts them."""

    def __init__(self, rulebook: Rulebook) -> None:
        self._rulebook = rulebook
        self._remembered: dict[tuple[object, ...], tuple[Decision, Mapping[str, str], Tally]] = {}
        self._ledgers: Ledgers = {}
        self._ends: list[tuple[float, int, Reservation]] = []
        self._numbers = count()

    def create(self, creation: Creation, raw: Object) -> Outcome:
        """Remove the pods that ended before this one, then create it."""
        while self._ends and self._ends[0][0] <= creation.at:
            self._ledgers = released(self._ledgers, heapq.heappop(self._ends)[-1])
        decision, texts, charge = self._judged(creation, raw)
        if reservation := decision.reservation:
            tenancy = self._rulebook.tenancy
            decision, _, ledgers = foresee(decision, 1, creation.namespace, tenancy, self._ledgers, imagined=True)
            if decision.allowed:
                self._ledgers = ledgers
                if creation.ends < inf:
                    heapq.heappush(self._ends, (creation.ends, next(self._numbers), reservation))
        return Outcome(
            allowed=decision.allowed,
            reasons=tuple(f"[{reason.code}] {reason.message}; {reason.fix}" for reason in decision.violations),
            texts={**texts, "warning": "; ".join(decision.warnings) or "none"},
            charge=charge if decision.allowed else tally.NOTHING,
        )

    def _judged(self, creation: Creation, raw: Object) -> tuple[Decision, Mapping[str, str], Tally]:
        """The decision without the quota, `Outcome.texts`, and the charge; those of an equal pod are remembered."""
        rulebook, namespace = self._rulebook, creation.namespace
        review = creating(raw, "diff", namespace, creation.at)._replace(user=creation.user)
        exempted = any(exemption.covers(namespace) for exemption in rulebook.tenancy.exemptions)
        moment = (creation.user, creation.at) if exempted else None
        try:
            text = projection.project(review, rulebook).text
        except Refusal:
            text = b""
        key = namespace, moment, blake2b(text or orjson.dumps(raw), digest_size=16).digest()
        if key not in self._remembered:
            foretold = foretell(creation.title, review, rulebook)
            decision, tenant, amounts, charge = foretold.decision, "", list[str](), tally.NOTHING
            if decision.allowed and decision.backends:
                stored = pod.read(foretold.after, namespace)
                policy = member(namespace, rulebook.tenancy).policy
                tenant = policy.name if policy else ""
                charge = usage.pod_usage(usage.holdings(stored, rulebook)).tally
                amounts = [
                    f"{container.name}: {name} {container.limits[name]}"
                    for container in stored.containers
                    for name in sorted(rulebook.resources.keys() & container.limits.keys())
                ]
            texts = {
                "backend": " and ".join(sorted({*decision.backends.values()})) or "nobody",
                "amounts": ", ".join(amounts) or "nothing",
                "charge": _amounts(charge) or "nothing",
                "tenant": tenant or "nobody",
            }
            self._remembered[key] = decision, texts, charge
        return self._remembered[key]


# What differs, pod by pod, and by namespace.

CHANGES: Final[Mapping[str, str]] = {
    "refused": "newly refused",
    "admitted": "newly admitted",
    "backend": "served by another back end",
    "amounts": "with other amounts",
    "charge": "charged otherwise",
    "tenant": "of another tenant",
    "reason": "refused for other reasons",
    "warning": "with other warnings",
}
"""Each change by its name in JSON, the worst first; of a pod the first counts."""


@dataclass(slots=True)
class Change:
    """A change that some pods of a namespace have in common: what the first of them was and is."""

    change: str
    before: str
    after: str
    pods: int = 0
    names: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Place:
    """What changes in a namespace: its pods, what they are charged in all by both sides, and each change by a key."""

    namespace: str
    pods: int = 0
    charges: tuple[Tally, Tally] = (tally.NOTHING, tally.NOTHING)
    changes: dict[tuple[str, ...], Change] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        """How many pods have each of CHANGES."""
        return [sum(kind.pods for kind in self.changes.values() if kind.change == change) for change in CHANGES]


def compare(recording: Iterable[Creation], old: Rulebook, new: Rulebook) -> Sequence[Place]:
    """Create every pod by both sides, in the order of their time. The worst namespaces come first."""
    sides = Side(old), Side(new)
    places: dict[str, Place] = {}
    for creation in sorted(recording, key=lambda creation: creation.at):
        place = places.setdefault(creation.namespace, Place(creation.namespace))
        raw = orjson.loads(zlib.decompress(creation.packed))
        if creation.is_stored:
            raw = submitted(raw, creation.namespace, old)
        for _ in range(min(creation.number, MOST_ALIKE)):
            before, after = (side.create(creation, raw) for side in sides)
            charged, charged_after = place.charges
            place.charges = tally.plus(charged, before.charge), tally.plus(charged_after, after.charge)
            place.pods += 1
            if key := _difference(before, after):
                was, is_now = (
                    side.texts.get(key[0], "; ".join(side.reasons) or "allowed") for side in (before, after)
                )
                change = place.changes.setdefault(key, Change(key[0], was, is_now))
                change.pods += 1
                change.names[creation.title] = None
    return sorted(places.values(), key=lambda place: ([-pods for pods in place.counts], place.namespace))


def _difference(before: Outcome, after: Outcome) -> tuple[str, ...]:
    """The name of the worst change of a pod, and what it has in common with others; empty where all is the same."""
    codes = tuple(reason.partition("]")[0] for reason in (*before.reasons, *after.reasons))
    if before.allowed != after.allowed:
        return ("refused" if before.allowed else "admitted", *codes)
    if not before.allowed:
        return ("reason", *codes) if codes[: len(before.reasons)] != codes[len(before.reasons) :] else ()
    texts = ((change, text, after.texts[change]) for change, text in before.texts.items())
    return next((different for different in texts if different[1] != different[2]), ())


# For people, for a pull request and for scripts.


def _amounts(amount: Tally) -> str:
    return ", ".join(f"{text} {key.replace('/', ' of ')}" for key, text in tally.write(amount).items())


def _summary(places: Sequence[Place]) -> str:
    """`3 of 10 pods: 1 newly refused, 2 with other amounts; devices 4 -> 4.5, memory 64Gi`."""
    counts = [sum(column) for column in zip(*(place.counts for place in places), strict=True)]
    changes = ", ".join(f"{count} {text}" for count, text in zip(counts, CHANGES.values(), strict=True) if count)
    sides = [tally.total(place.charges[side] for place in places) for side in (0, 1)]
    charges = []
    for key, shown in ((tally.DEVICES, short), (tally.MEMORY, gib)):
        if any(side.get(key) for side in sides):
            texts = dict.fromkeys(shown(side.get(key, Fraction(0))) for side in sides)
            charges.append(f"{key} {' -> '.join(texts)}")
    of = number(sum(place.pods for place in places), "pod")
    return "; ".join([f"{sum(counts)} of {of}{f': {changes}' if changes else ' change'}", *charges])


def _changes(place: Place) -> Sequence[Change]:
    """The worst come first."""
    return sorted(place.changes.values(), key=lambda change: ([*CHANGES].index(change.change), -change.pods))


def lines(places: Sequence[Place]) -> Iterator[str]:
    """The difference as text."""
    yield _summary(places)
    for place in places:
        if place.changes:
            yield f"\n{place.namespace}: {_summary([place])}"
        for change in _changes(place):
            yield f"  {CHANGES[change.change]}: {number(change.pods, 'pod')} ({several([*change.names], ', ')})"
            yield f"    - {change.before}"
            yield f"    + {change.after}"


def markdown(places: Sequence[Place]) -> Iterator[str]:
    """The difference as a comment on a pull request."""
    yield f"**{_summary(places)}**"
    if any(place.changes for place in places):
        yield "\n| namespace | change | pods | before | after |\n|---|---|---|---|---|"
    for place in places:
        for change in _changes(place):
            pods = f"{change.pods}: {several([*change.names], ', ')}"
            cells = (place.namespace, CHANGES[change.change], pods, change.before, change.after)
            yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def contract(places: Sequence[Place]) -> dict[str, Any]:
    """The form of `-o json`, on which scripts rely."""
    return {
        "pods": sum(place.pods for place in places),
        "changed": sum(sum(place.counts) for place in places),
        "namespaces": [
            {
                "namespace": place.namespace,
                "pods": place.pods,
                "counts": {name: pods for name, pods in zip(CHANGES, place.counts, strict=True) if pods},
                **{
                    side: {key: tally.plain(amount) for key, amount in charge.items()}
                    for side, charge in zip(("chargedBefore", "chargedAfter"), place.charges, strict=True)
                },
                "changes": [{**asdict(change), "names": [*change.names]} for change in _changes(place)],
            }
            for place in places
        ],
    }
