"""A pod of one GPU system, rewritten for another: understood by the rule of the one, translated by that of the other.

What the first system needed beside resources goes as well: its scheduler, tolerations, node labels, annotations, as
far as its rule would write them; what the pod's author added stays. What the other system gives or guards otherwise
is said in warnings (`differences`), and what cannot be understood is refused: a conversion never gives less, or
something else, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.cli import explanation
from webhook.cli.explanation import NOWHERE, Explanation, Setting
from webhook.core.backends import cards, read_back
from webhook.core.backends.translate import CannotExpressError, as_fields, smallest_partition
from webhook.core.decision import denied
from webhook.core.interpret import extended_resources
from webhook.core.interpret.interpret import ContainerRequest, interpret
from webhook.core.interpret.locations import CONTAINER, NOTE, annotation, claimed
from webhook.core.kube import fields, pod
from webhook.core.kube.pod import Bounds, Pod, affinity_without, bound_labels, node_bounds, node_terms
from webhook.core.kube.quantity import Fraction, show, show_size, shown
from webhook.core.plan import choose, plan
from webhook.core.plan.choose import Assignment, NodeSelection
from webhook.core.policy import unknown_devices
from webhook.core.request import PLACEMENTS, PREFIX, Devices, FieldValue
from webhook.core.rules import verbs
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook, with_every_backend, with_only
from webhook.core.rules.verbs import METADATA, Amount
from webhook.core.violations import Violation


def rewritten(understood: Explanation, known: Rulebook, wanted: Rulebook, setting: Setting = NOWHERE) -> Explanation:
    """The pod of an explanation by the rulebook `known`, rewritten for the back end of `wanted`."""
    # Its request has to be clear; what policies (1xx) and its first system (5xx) say does not matter here.
    unclear = any(not violation.code.startswith(("GPU1", "GPU5")) for violation in understood.decision.violations)
    planned = understood.planned
    if unclear or planned is None or not planned.assignments:
        return understood
    workload_pod = pod.read(understood.before)
    read: list[Completed] = []
    for assignment in planned.assignments:
        try:
            read.append(complete(assignment, workload_pod, known))
        except CannotExpressError as reason:
            path = extended_resources.where(
                assignment.demand.container, next(iter(assignment.demand.extended.amounts))
            )
            rule = assignment.backend.rule
            violation = Violation(code=reason.code, path=path, message=reason.message, fix=reason.fix, rule=rule)
            return replace(understood, decision=denied([violation]), after=understood.before, planned=None)
    was = replace(planned, assignments=[completed.served for completed in read])
    unread = [word for completed in read for word in completed.unread]

    # What the other back end reads in the same annotation or label in the same way stays.
    any_model = not any(assignment.request.models for assignment in was.assignments)
    outputs = [mode.outputs.annotations for target in wanted.enabled for mode in target.modes if any_model]
    kept = [
        word
        for word in unread
        if any(constrains(word.key, target) for target in wanted.enabled)
        or any(word.key in written and is_about_models(written[word.key]) for written in outputs)
    ]
    neutral = _neutral(workload_pod, was.assignments, kept, wanted)
    bare = pod.read(neutral, understood.namespace)

    # The plan with the cards that the first back end gives; with any, if the other cannot select these.
    plans = []
    assignments = {assignment.demand.container.name: assignment for assignment in was.assignments}
    for same_cards in (True, False):
        interpretation = interpret(bare, wanted)
        interpretation.asked = [
            _carried(request, assignments.get(request.container.name), wanted, same_cards=same_cards)
            for request in interpretation.asked
        ]
        plans.append(plan.make(bare, wanted, interpretation=interpretation))
        if not plans[0].violations or any(violation.code != "GPU303" for violation in plans[0].violations):
            break
    planned = plans[0] if plans[-1].violations else plans[-1]
    before = replace(understood, planned=planned, converted=was, after=understood.before, rulebook=wanted)
    violations = list(unknown_devices.violations(unknown_devices.find(bare, wanted), bare)) or planned.violations
    if violations:
        return replace(before, decision=denied(violations, planned.warnings))

    # Without the notes of a translation, unless its own annotations ask in shorthand.
    operations = fields.to_patch(planned.edits, neutral)
    after = fields.applied(operations, neutral)
    metadata, annotations = after.get("metadata") or {}, fields.mapping(after, "metadata", "annotations")
    notes = {NOTE, CONTAINER}
    if not any(PREFIX in key and key not in notes for key in annotations):
        others = {key: value for key, value in annotations.items() if key not in notes}
        after = {**after, "metadata": _with(metadata, "annotations", others)}

    judged = explanation.explain_pod(understood.title, after, understood.namespace, wanted, setting)
    lost = [word for word in unread if word not in kept]
    warnings = [
        *planned.warnings,
        *(note for completed in read for note in completed.notes),
        *differences(was.assignments, planned.assignments, lost, wanted),
        *left(pod.read(after), planned.assignments, wanted),
        *judged.decision.warnings,
    ]
    decision = judged.decision._replace(warnings=list(dict.fromkeys(warnings)))
    if decision.allowed:
        decision = decision._replace(patch=operations, backends=planned.backends)
        before = replace(before, after=after, charges=judged.charges)
    return replace(before, decision=decision)


def convert(
    document: Mapping[str, Any],
    target: str,
    rulebook: Rulebook,
    source: str | None = None,
    setting: Setting = NOWHERE,
) -> list[Explanation]:
    """Each pod of a document as the back end `target` would have it; `source` says whose resources it has.

    Without `source` all back ends are asked, those of the cluster first. Raises KeyError for unknown names.
    """
    first = with_every_backend(rulebook) if source is None else with_only(source, rulebook)
    other = replace(with_only(target, rulebook), tenancy=rulebook.tenancy)
    return [
        rewritten(understood, first, other, setting) for understood in explanation.explain(document, first, setting)
    ]


def _carried(
    bare: ContainerRequest, served: Assignment | None, rulebook: Rulebook, *, same_cards: bool
) -> ContainerRequest:
    """What a container asks of the other back end: the shorthand that it still has, or what it asked of the first."""
    if served is None:
        return bare
    request = served.demand.request or served.request
    sized = request.memory is not None or request.memory_share is not None
    if served.demand.request is None and request.devices == "part" and not sized:
        request = replace(request, memory_share=Fraction(1))  # compute alone is limited

    # The models that the first back end gives without a word have to be asked of another. A partition of the same
    # name on another card is another one, so it is asked of the first back end's card.
    of_card = request.profile is not None or (same_cards and bare.request is None)
    if of_card and not request.models and served.backend.name not in rulebook.orders["whole"]:
        request = replace(request, models=promised(served, rulebook))
    if bare.request is not None:
        return replace(bare, request=replace(bare.request, models=request.models))

    # Each part of the request is written in the first resource that the container has.
    path, text = "spec.containers", str(request)
    for name in [*served.demand.extended.amounts][:1]:
        path = extended_resources.where(served.demand.container, name)
        text = served.demand.extended.texts[name]
    values = {
        "gpu": Devices(request.count, request.share),
        "gpu-memory": request.memory,
        "gpu-cores": None if request.cores == 100 * (request.memory_share or 0) else request.cores,
        "gpu-profile": request.profile,
        "gpu-model": request.models or None,
        "gpu-placement": request.placement,
    }
    present = {key: FieldValue(value, path, text) for key, value in values.items() if value is not None}
    stated = {**bare.stated, **present}
    request = replace(request, annotations=bare.annotations, stated=stated)
    return replace(bare, request=request, stated=stated, persist={})


# What a pod gets otherwise of another back end: each difference is a sentence that names both sides.

LISTED: Final = 6
"""How many models a warning names."""


def differences(
    before: Sequence[Assignment], after: Sequence[Assignment], lost: Iterable[Unread], rulebook: Rulebook
) -> Iterator[str]:
    """What differs of what each container gets; `lost` is what its pod said and nothing says any more."""

    def named(models: Mapping[str, Card]) -> str:
        if len(models) > LISTED:
            return f"{len(models)} models, as {next(iter(models))}"
        return _listed([f"{name} ({show_size(card.memory)})" for name, card in models.items()])

    there = {assignment.demand.container.name: assignment for assignment in after}
    for first in before:
        other = there[first.demand.container.name]
        src, dst = first.backend.name, other.backend.name

        # Cards.
        had, has = _possible(first, rulebook), _possible(other, rulebook)
        if all(card.virtual for card in has.values()) and not all(card.virtual for card in had.values()):
            yield f"a device of {dst} is a virtual card: it shares the compute of a card with neighbours"
        vendors, others = ({card.vendor for card in models.values()} for models in (had, has))
        more = {model: card for model, card in has.items() if model not in had}
        if not others <= vendors:
            yield (
                f"{dst} has cards of {_listed(sorted(others))}, {src} of {_listed(sorted(vendors))}: "
                "programs for the ones may not run on the others"
            )
        elif more:
            yield f"{src} gives {named(had)}; {dst} may give {named(more)}"

        # Compute that was open and is limited, and a number of devices that nobody rounded.
        request = first.request
        if first.demand.request is None:
            shares = "share" in other.mode.verbs
            if shares and request.cores is not None and request.cores != 100 * (request.memory_share or 0):
                yield f"{dst} gives one part of memory and compute: the larger of both"
            written = {output.what for name, output in other.mode.amounts.items() if name in other.amounts}
            limited = shares or "cores" in written or other.request.profile is not None
            if request.devices == "part" and request.cores is None and limited:
                limit = f": to {show(other.request.cores)}%" if other.request.cores is not None else ""
                yield f"{src} does not limit compute here, and {dst} does{limit}"

        # What a share only counted, and what is limited now: programs may have used more.
        counted = [what for what in first.backend.unenforced if what not in other.backend.unenforced]
        if counted and request.memory_share is not None and other.request.devices == "part":
            part = f"{show(100 * request.memory_share)}% of a card"
            yield f"{src} does not limit {' and '.join(counted)}, and {dst} does: to {part}"

        # A hardware partition that becomes a share.
        was_cut, is_cut = (
            served.mode.when.devices == "profile"
            or (served.request.devices == "part" and served.backend.sharing - {"exclusive"} == {"partitioned"})
            for served in (first, other)
        )
        if was_cut and not is_cut and other.request.devices == "part":
            yield f"a share of {dst} is no hardware partition, by which {src} keeps memory and compute apart"
    names = " and ".join(dict.fromkeys(assignment.backend.name for assignment in after))
    yield from (f"{unread} is lost: {names} has nothing that says it" for unread in lost)


def promised(served: Assignment, rulebook: Rulebook) -> tuple[str, ...]:
    """The models that a container gets though it names none: those of its mode, or of a back end with one kind."""
    if served.mode.when.models:
        return tuple(rulebook.devices[name].model for name in sorted(served.mode.when.models))
    return (served.backend.card.model,) if served.backend.card is not None else ()


def _possible(served: Assignment, rulebook: Rulebook) -> Mapping[str, Card]:
    """The cards that a container may get, by model."""
    named = [rulebook.devices[model.lower()] for model in served.request.models or promised(served, rulebook)]
    named += choose.lookalike_cards(served.request.models, [served.mode], rulebook)
    able = named or cards.card_served(served.backend, rulebook)
    return {card.model: card for card in able if served.request.profile in {None, *card.profiles}}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def left(after: Pod, planned: Sequence[Assignment], rulebook: Rulebook) -> Iterator[str]:
    """What stays on the pod and only other back ends read: keys of annotations, labels and node labels."""

    def written(backend: Backend) -> set[str]:
        outputs = [mode.outputs for mode in backend.modes]
        return {key for lines in outputs for key in (*lines.annotations, *lines.labels, *lines.node_affinity)}

    own = {key for assignment in planned for key in written(assignment.backend)}
    others: dict[str, list[str]] = {}
    for backend in rulebook.backends.values():
        for key in written(backend) - own:
            others.setdefault(key, []).append(backend.name)
    for section, _ in METADATA:
        for key, value in getattr(after, section).items():
            if key in others and not any(constrains(key, assignment.backend) for assignment in planned):
                stays = f"{shown(str(value))} stays, which only {_listed(others[key])} reads"
                yield f"{fields.field_path(('metadata', section, key))}: {stays}"
    for key in bound_labels(after):
        if key in others:
            yield f"the pod still selects nodes by {key}, as {_listed(others[key])} does"


# What a pod's annotations, labels and node selection say of its devices: the inverse of `text`. A line of a rule
# writes the models, the partition, the size or the placement that a request asks for. The same line, read in reverse,
# completes a request that was read from resources: one device of a node that is cut into partitions is a partition,
# and a list of product names is a list of models.

ABOUT_MODELS: Final = frozenset({"product", "model", "lookalikes"})
HOLE: Final = re.compile(r"\\\{([a-z]+)\\\}")


class Unread(NamedTuple):
    """What a pod says of its devices and no request can say: the key, where it stands, and how it reads."""

    where: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


class Completed(NamedTuple):
    """A container's request with all that its pod says of its devices.

    `unread` is what a request cannot say, and `notes` are sentences about what it says more narrowly.
    """

    served: Assignment
    unread: Sequence[Unread] = ()
    notes: Sequence[str] = ()


def complete(served: Assignment, pod: Pod, rulebook: Rulebook, *, whole: bool = False) -> Completed:
    """Complete a request that was read from resources by what the rest of the pod says of the devices.

    A device is what it is on the nodes that the pod selects, unless it is said to be `whole`. Raises
    CannotExpressError if the pod is not on the back end's nodes, or nothing says which partition it gets.
    """
    if served.demand.request is not None:
        return Completed(served, list(own(served.backend, pod)))
    reach = NodeSelection(pod, rulebook)
    # Each back end to whose nodes the pod is bound, where a device is a part of one.
    for candidate in () if whole or served.request.devices != "whole" else choose.candidates(served.demand, rulebook):
        if isinstance(candidate, Assignment):
            with suppress(CannotExpressError):
                completed = complete(candidate, pod, rulebook, whole=True)
                if completed.served.request.devices != "whole" and reach.binds_to(completed.served):
                    return completed
    bounds, backend, native = node_bounds(pod), served.backend, served.demand.extended.amounts

    # Of modes that only labels and annotations tell apart, that whose constant ones the pod does not contradict.
    def is_marked(mode: Mode) -> bool:
        return all(
            output.value == value
            for _, _, output, value in _lines(mode, pod)
            if isinstance(output, Constant) and not output.words
        )

    if not is_marked(served.mode):
        alike = [mode for mode in backend.modes if mode.when.devices == served.mode.when.devices]
        modes = [mode for mode in alike if native.keys() <= mode.amounts.keys() and is_marked(mode)]
        served = replace(served, mode=modes[0]) if modes else served
    served = _by_nodes(served, bounds)
    if not reach.allows(served):
        nodes = " and ".join(map(str, reach.pool(served)))
        message = f"a device of {backend.name} is on nodes {nodes}, and the pod selects others"
        fix = "set the parameters of the rule in the Cluster document as those nodes are, or name another back end"
        raise CannotExpressError("GPU405", message, fix)

    # The lines that select models, then those that exclude some, each with the names that the pod has there.
    about: list[tuple[str, str, Output, Sequence[str]]] = []
    for where, key, output, value in _lines(served.mode, pod):
        if value is not None and not output.is_number:
            about.append((where, key, output, [part.strip() for part in str(value).split(",")]))
    for key, output in served.mode.outputs.node_affinity.items():
        if bounds.get(key):
            about.append(("the node label", key, output, sorted(bounds[key])))
    about = [line for line in about if is_about_models(line[2])]

    # The cards that every one of them allows, None for any.
    unread: list[Unread] = []
    notes: list[str] = []
    allowed: Sequence[Card] | None = None
    for where, key, output, parts in sorted(about, key=lambda line: "lookalikes" in line[2].words):
        meant = {part: _meant(output, part, backend, rulebook) for part in parts}
        unknown = [part for part, among in meant.items() if not among]
        excludes = "lookalikes" in output.words
        if unknown or (excludes and allowed is None):
            unread.append(Unread(where, key, shown(", ".join(unknown or parts))))
        every = {card.model: card for among in meant.values() for card in among}
        if excludes:
            allowed = None if allowed is None else [card for card in allowed if card not in every.values()]
            continue
        able: dict[str, Card] = {}
        for part, among in meant.items():
            # Of the cards whose names hold the part, those that are called so; all of them if none is.
            called = [card for card in cards.read_model(part, rulebook) if card in among]
            able |= {card.model: card for card in called or among}
        if more := len(every) - len(able):
            others = f"{more} other models whose names hold a part of it are left out"
            notes.append(f"{where} is read as {', '.join(able)}; {others}")
        allowed = [card for card in able.values() if allowed is None or card in allowed]

    models = served.request.models or tuple(card.model for card in allowed or ())
    card = served.card
    if len(models) == 1:
        card = rulebook.devices[models[0].lower()]
        if card is not served.card and any(mode.when.models for mode in backend.modes):  # cards differ in their modes
            on_card = cards.for_card(backend, card)
            request, mode = read_back.understand(native, on_card, served.demand.annotations, (card.model,))
            served = replace(served, request=request, mode=mode)

    # The placement that an annotation asks for.
    placement = served.request.placement
    for key, output in served.mode.outputs.annotations.items():
        if placement is None and isinstance(output, Amount) and output.what == "placement":
            names = (name for name in PLACEMENTS if pod.annotations.get(key) in output.values.get(name, (name,)))
            placement = next(names, None)
    request = replace(served.request, models=models, placement=placement)
    if card is not None and served.mode.when.devices == "profile" and request.devices == "part":
        request = smallest_partition(request, card, backend)
    served = replace(served, request=request, card=card)

    # What the pod says in a line of the rule that the rule would not say for this request.
    for where, key, output, value in _lines(served.mode, pod):
        computed = output.words and not output.is_number and not is_about_models(output)
        if computed and choose.rule_text(output, served, rulebook) != value:
            unread.append(Unread(where, key, shown(str(value))))
    unread += own(backend, pod)
    # Expressions on the rule's node labels that do not select a value.
    for term in node_terms(pod):
        for expression in term.get("matchExpressions") or ():
            key, operator = str(expression.get("key")), str(expression.get("operator"))
            if key in served.mode.outputs.node_affinity and operator not in {
                "In",
                "DoesNotExist",
            }:  # by which a rule selects nodes
                values = shown(", ".join(expression.get("values") or ()))
                unread.append(Unread("", key, f"the node affinity {key} {operator} {values}"))
    return Completed(served, unread, notes)


def _lines(mode: Mode, pod: Pod) -> Iterator[tuple[str, str, Output, Any]]:
    """The lines of a rule for labels and annotations that the pod has: the field path, the key, and the value."""
    for section, _ in METADATA:
        present = getattr(pod, section)
        for key, output in getattr(mode.outputs, section).items():
            if key in present:
                yield fields.field_path(("metadata", section, key)), key, output, present[key]


def _by_nodes(served: Assignment, bounds: Bounds) -> Assignment:
    """The request with the partition or the size that all nodes have which the pod selects.

    Of several sizes the least is sure.
    """
    if served.request.devices != "whole":
        return served
    backend = served.backend
    spellings = {name.replace("+", ".").lower(): name for name in backend.profiles}
    spellings |= {cards.as_label(name).lower(): name for name in backend.profiles}
    for mode in backend.modes:
        if not served.demand.extended.amounts.keys() <= mode.amounts.keys():
            continue
        limits: dict[str, Any] = {}
        for key, output in mode.node_numbers.items():
            values = [int(value) for value in bounds.get(key, ()) if value.isdecimal() and int(value)]
            if values and isinstance(output, Amount):
                limits |= as_fields(output, min(values), served.request.count)
        affinity = mode.outputs.node_affinity.items()
        lines = {key: line for key, line in affinity if "profile" in line.words and key in bounds}
        profiles = {
            spellings[spelling]
            for key, line in lines.items()
            for template in (line.texts if isinstance(line, Constant) else ())
            for value in bounds[key]
            if (spelling := _filling(template, value).get("profile", "").lower()) in spellings
        }
        if len(profiles) > 1:
            message = f"a device on the nodes that the pod selects is any of {', '.join(sorted(profiles))}"
            raise CannotExpressError("GPU405", message, f"select nodes with one of them by {' and '.join(lines)}")
        if profiles:
            limits["profile"] = profiles.pop()
        if limits:
            return replace(served, mode=mode, request=replace(served.request, **limits))
    if served.mode.when.devices == "profile":
        keys = " or ".join(key for key, output in served.mode.pool.items() if "profile" in output.words)
        message = f"which partition a device of {backend.name} is says the node label {keys}"
        raise CannotExpressError("GPU405", f"{message}, and the pod does not select it", f"select nodes by {keys}")
    return served


def _filling(template: str, value: str) -> Mapping[str, str]:
    """What fills the holes of a text so that it becomes the value; nothing if it is no such text."""
    match = re.fullmatch(HOLE.sub(r"(?P<\1>.+)", re.escape(template)), value, re.IGNORECASE)
    return match.groupdict() if match else {}


def is_about_models(output: Output) -> bool:
    """Whether a line of a rule says which models a pod may get."""
    return not ABOUT_MODELS.isdisjoint(output.words)


def _meant(output: Output, text: str, backend: Backend, rulebook: Rulebook) -> Sequence[Card]:
    """The cards that one name means to the system; where it looks for parts of names, all that have it."""
    part, able = text.lower(), cards.card_served(backend, rulebook)
    if isinstance(output, Amount) and (output.substring or output.what == "lookalikes"):
        # Systems that look for a part of a name look at a product, perhaps after its vendor.
        names = {card.model: [f"{card.vendor}-{name}".lower() for name in (*card.names, card.model)] for card in able}
        return [card for card in able if part and any(part in name for name in names[card.model])]
    return [
        card
        for card in able
        if any(written.lower() == part or _filling(written, part) for written in cards.texts(output, card))
    ]


def own(backend: Backend, pod: Pod) -> Iterator[Unread]:
    """The annotations and labels that are constraints of a back end."""
    for section, _ in METADATA:
        for key, value in getattr(pod, section).items():
            if constrains(key, backend):
                yield Unread(fields.field_path(("metadata", section, key)), key, shown(str(value)))


def constrains(key: str, backend: Backend) -> bool:
    """Whether an annotation or a label narrows in the back end's own way which devices a pod may get."""
    return any(fnmatchcase(key, pattern) for pattern in backend.constraints)


# A pod without what its back end needed: the inverse of `plan` and `inject`, as far as rules tell.


def _neutral(pod: Pod, served: Sequence[Assignment], kept: Sequence[Unread], rulebook: Rulebook) -> dict[str, Any]:
    """The pod without anything of the system it is for but what it asked in shorthand, and what is `kept`.

    Mappings and lists that are empty without it go as well.
    """
    modes = [assignment.mode for assignment in served]
    injected = [assignment.backend.inject for assignment in served]

    # The annotations and labels: not those that a rule or the back end's scheduler wrote, that name the system which
    # served the pod so far, note what it did, or are a constraint of it; nor the words for claims if all of them ask
    # in resources by now.
    named = tuple(prefix for source in rulebook.sources for prefix in source.prefixes)
    prefixes: tuple[str, ...] = (annotation("gpu-backend", ""), claimed(""), *named)
    words, staying = {NOTE, CONTAINER, "gpu-backend", PREFIX + "backend"}, {unread.key for unread in kept}
    companions = [mode.companions for mode in modes if mode.companions is not None]
    claim_words: set[str] = set()
    if all(assignment.request.claim is None for assignment in served):
        claim_words = {"gpu-claim", PREFIX + "claim"}
    metadata = dict(pod.raw.get("metadata") or {})
    for section in ("annotations", "labels"):
        written = [
            (ruled.replace(verbs.CONTAINER, assignment.demand.container.name), output)
            for assignment in served
            for ruled, output in getattr(assignment.mode.outputs, section).items()
        ]
        entries = {}
        for key, value in (metadata.get(section) or {}).items():
            by_system = (
                any(key == name and output.wrote(value) for name, output in written)
                or any(companion.reserves(key) for companion in companions)
                or key.startswith(prefixes)
                or key in words
                or any(constrains(key, assignment.backend) for assignment in served)
            )
            about_claims = claim_words and (key in claim_words or key.startswith(annotation("gpu-claim", "")))
            if (key in staying or not by_system) and not about_claims:
                entries[key] = value
        metadata = _with(metadata, section, entries)

    # The fields of the spec that something is injected into; a name is the author's unless a rule writes it.
    spec = dict(pod.spec)
    writers = {
        "schedulerName": [injection.scheduler for injection in injected],
        "runtimeClassName": [injection.runtime_class for injection in injected],
    }
    for key, constants in writers.items():
        if any(constant and constant.value == spec.get(key) for constant in constants):
            spec = _with(spec, key, None)
    tolerations = [dict(toleration) for injection in injected for toleration, _ in injection.tolerations]
    node_labels = {key for mode in modes for key in mode.outputs.node_affinity}
    claiming = [assignment.demand.container for assignment in served if assignment.mode.claims]
    claims = {name for container in claiming for name in plan.claim_names(container)}
    without = {
        "tolerations": [toleration for toleration in spec.get("tolerations") or () if toleration not in tolerations],
        "nodeSelector": {k: v for k, v in (spec.get("nodeSelector") or {}).items() if k not in node_labels},
        "affinity": affinity_without(pod, node_labels) if spec.get("affinity") else None,
        "resourceClaims": [claim for claim in spec.get("resourceClaims") or () if claim.get("name") not in claims],
    }
    for key, rest in without.items():
        spec = _with(spec, key, rest)

    # The resources, claims and variables of each container.
    for container in pod.containers:
        listed, index = str(container.path[1]), container.path[2]
        here = [assignment for assignment in served if assignment.demand.container.path == container.path]
        raw = dict(spec[listed][index])
        resources = dict(raw.get("resources") or {})
        owned = {name for assignment in here for name in assignment.backend.owns}
        for kind in ("limits", "requests"):
            amounts = {name: value for name, value in (resources.get(kind) or {}).items() if name not in owned}
            resources = _with(resources, kind, amounts)
        names = set(plan.claim_names(container)) if any(assignment.mode.claims for assignment in here) else set()
        others = [claim for claim in resources.get("claims") or () if claim.get("name") not in names]
        raw = _with(raw, "resources", _with(resources, "claims", others))
        env = raw.get("env") or ()
        for name, output in (line for assignment in here for line in assignment.mode.outputs.env.items()):
            env = [entry for entry in env if entry.get("name") != name or not output.wrote(entry.get("value"))]
        raw = _with(raw, "env", env)
        spec[listed] = [raw if at == index else other for at, other in enumerate(spec[listed])]
    return {**pod.raw, "metadata": metadata, "spec": spec}


def _with(holder: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The mapping with the value, or without the key if the value is empty; the order of keys stays."""
    return {name: value if name == key else entry for name, entry in holder.items() if name != key or value}
