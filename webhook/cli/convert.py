"""A pod of one GPU system, rewritten for another: understood by the rule of the one, translated by that of the other.

What the first system needed beside resources goes as well: its scheduler, tolerations, node labels, annotations, as
far as its rule would write them; what the pod's author added stays. What the other system gives or guards otherwise
is said in warnings (`differences`), and what cannot be understood is refused: a conversion never gives less, or
something else, without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.cli import explanation, untranslate
from webhook.cli.explanation import NOWHERE, Explanation, Setting
from webhook.cli.untranslate import Unread
from webhook.core.backends import cards
from webhook.core.backends.translate import CannotExpressError
from webhook.core.decision import denied
from webhook.core.interpret import extended_resources
from webhook.core.interpret.interpret import ContainerRequest, interpret
from webhook.core.interpret.locations import CONTAINER, NOTE, annotation, claimed
from webhook.core.kube import fields, pod
from webhook.core.kube.fields import field_path
from webhook.core.kube.pod import Pod, bound_labels
from webhook.core.kube.quantity import Fraction, show, show_size, shown
from webhook.core.plan import choose, plan
from webhook.core.plan.choose import Assignment, NodeSelection
from webhook.core.plan.plan import Plan
from webhook.core.policy import unknown_devices
from webhook.core.request import PREFIX, Devices, FieldValue, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook, with_every_backend, with_only
from webhook.core.rules.verbs import METADATA
from webhook.core.violations import Refusal, Violation

# What a pod gets otherwise of another back end: each difference is a sentence that names both sides.

ALL: Final = Fraction(1)
"""All of a device's memory."""

LISTED: Final = 6
"""How many models a warning names."""


def between(
    before: Sequence[Assignment], after: Sequence[Assignment], lost: Iterable[Unread], rulebook: Rulebook
) -> Iterator[str]:
    """What differs of what each container gets; `lost` is what its pod said and nothing says any more."""
    there = {assignment.demand.container.name: assignment for assignment in after}
    for assignment in before:
        other = there.get(assignment.demand.container.name)
        if other is not None:
            yield from _cards(assignment, other, rulebook)
            yield from _amounts(assignment, other)
            # A hardware partition that becomes a share.
            if _is_cut(assignment) and not _is_cut(other) and other.request.devices == "part":
                src, dst = assignment.backend.name, other.backend.name
                yield f"a share of {dst} is no hardware partition, by which {src} keeps memory and compute apart"
    names = " and ".join(dict.fromkeys(assignment.backend.name for assignment in after))
    yield from (f"{unread} is lost: {names} has nothing that says it" for unread in lost)


# Cards


def promised(served: Assignment, rulebook: Rulebook) -> tuple[str, ...]:
    """The models that a container gets though it names none: those of its mode, or of a back end with one kind."""
    if served.mode.when.models:
        return tuple(rulebook.devices[name].model for name in sorted(served.mode.when.models))
    return (served.backend.card.model,) if served.backend.card is not None else ()


def _cards(before: Assignment, after: Assignment, rulebook: Rulebook) -> Iterator[str]:
    first, other = _possible(before, rulebook), _possible(after, rulebook)
    if all(card.virtual for card in other.values()) and not all(card.virtual for card in first.values()):
        yield f"a device of {after.backend.name} is a virtual card: it shares the compute of a card with neighbours"
    if other.keys() <= first.keys():
        return
    vendors = [sorted({card.vendor for card in models.values()}) for models in (first, other)]
    src, dst = before.backend.name, after.backend.name
    if not set(vendors[1]) <= set(vendors[0]):
        yield (
            f"{dst} has cards of {_listed(vendors[1])}, {src} of {_listed(vendors[0])}: "
            "programs for the ones may not run on the others"
        )
        return
    more = {model: card for model, card in other.items() if model not in first}
    yield f"{src} gives {_named(first)}; {dst} may give {_named(more)}"


def _possible(served: Assignment, rulebook: Rulebook) -> Mapping[str, Card]:
    """The cards that a container may get, by model."""
    models = served.request.models or promised(served, rulebook)
    named = [rulebook.devices[model.lower()] for model in models]
    named += choose.taken_for(served.request.models, [served.mode], rulebook)
    able = named or cards.card_served(served.backend, rulebook)
    return {card.model: card for card in able if served.request.profile in {None, *card.profiles}}


def _named(models: Mapping[str, Card]) -> str:
    if len(models) > LISTED:
        return f"{len(models)} models, as {next(iter(models))}"
    return _listed([f"{name} ({show_size(card.memory)})" for name, card in models.items()])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


# Amounts and isolation


def _amounts(before: Assignment, after: Assignment) -> Iterator[str]:
    """Compute that was open and is limited, and a number of devices that nobody rounded."""
    if before.demand.request is not None:
        return
    both = "share" in after.mode.verbs and before.request.cores is not None
    if both and before.request.cores != 100 * (before.request.memory_share or 0):
        yield f"{after.backend.name} gives one part of memory and compute: the larger of both"
    written = {output.what for name, output in after.mode.amounts.items() if name in after.amounts}
    limited = "share" in after.mode.verbs or "cores" in written or after.request.profile is not None
    if before.request.devices == "part" and before.request.cores is None and limited:
        limit = f": to {show(after.request.cores)}%" if after.request.cores is not None else ""
        yield f"{before.backend.name} does not limit compute here, and {after.backend.name} does{limit}"


def _is_cut(served: Assignment) -> bool:
    """Whether a container has a hardware partition."""
    kinds = served.backend.sharing - {"exclusive"}
    return served.mode.when.devices == "profile" or (served.request.devices == "part" and kinds == {"partitioned"})


# What stays on the pod, and what both systems have


def has_as_well(unread: Unread, before: Sequence[Assignment], rulebook: Rulebook) -> bool:
    """Whether the other back end reads the same annotation or label in the same way."""
    if any(untranslate.constrains(unread.key, target) for target in rulebook.enabled):
        return True
    lines = [mode.outputs.annotations.get(unread.key) for target in rulebook.enabled for mode in target.modes]
    without = not any(assignment.request.models for assignment in before)
    return without and any(line is not None and untranslate.is_about_models(line) for line in lines)


def left(after: Pod, planned: Sequence[Assignment], rulebook: Rulebook) -> Iterator[str]:
    """What stays on the pod and only other back ends read: keys of annotations, labels and node labels."""
    own = _keys(assignment.backend for assignment in planned)
    others: Mapping[str, Sequence[str]] | None = rulebook.cache.get(left)
    if others is None:  # made once for each rulebook
        others = rulebook.cache[left] = _keys(rulebook.backends.values())
    for section, _ in METADATA:
        for key, value in getattr(after, section).items():
            if key in others and key not in own:
                readers = _listed(others[key])
                stays = f"{shown(str(value))} stays, which only {readers} reads"
                yield f"{field_path(('metadata', section, key))}: {stays}"
    for key in bound_labels(after):
        if key in others and key not in own:
            yield f"the pod still selects nodes by {key}, as {_listed(others[key])} does"


def _keys(backends: Iterable[Backend]) -> Mapping[str, Sequence[str]]:
    """The annotations, labels and node labels that rules write, each with the back ends that do."""
    keys: dict[str, dict[str, Any]] = {}
    for backend in backends:
        for mode in backend.modes:
            outputs = mode.outputs
            for key in (*outputs.annotations, *outputs.labels, *outputs.node_affinity):
                keys.setdefault(key, {})[backend.name] = None
    return {key: [*names] for key, names in keys.items()}


# A pod of one GPU system, rewritten for another: understood by the rule of the one, translated by that of the other.


@dataclass(frozen=True, slots=True)
class Conversion:
    """From one back end, or whichever a pod is for, to another. `known` has the first, `wanted` the other."""

    known: Rulebook
    wanted: Rulebook

    def of(self, understood: Explanation, setting: Setting = NOWHERE) -> Explanation:
        """The pod of an explanation, rewritten."""
        # Its request has to be clear; what policies (1xx) and its first system (5xx) say does not matter here.
        codes = [
            violation.code
            for violation in understood.decision.violations
            if not violation.code.startswith(("GPU1", "GPU5"))
        ]
        planned = understood.planned
        if codes or planned is None or not planned.assignments:
            return understood
        workload_pod = pod.read(understood.before)
        try:
            read = [_completed(assignment, workload_pod, self.known) for assignment in planned.assignments]
            return self._rewritten(
                understood, replace(planned, assignments=[completed.served for completed in read]), read, setting
            )
        except Refusal as refusal:
            return replace(understood, decision=denied(refusal.violations), after=understood.before, planned=None)

    def _rewritten(
        self, understood: Explanation, was: Plan, read: Sequence[untranslate.Completed], setting: Setting
    ) -> Explanation:
        workload_pod = pod.read(understood.before)
        unread = [word for completed in read for word in completed.unread]
        kept = [word for word in unread if has_as_well(word, was.assignments, self.wanted)]
        neutral = _neutral(workload_pod, was.assignments, kept, self.wanted)
        bare = pod.read(neutral, understood.namespace)
        planned = _planned(bare, was.assignments, self.wanted)
        before = replace(understood, planned=planned, converted=was, after=understood.before, disabled=0)
        violations = list(unknown_devices.violations(unknown_devices.find(bare, self.wanted), bare))
        if violations or planned.violations:
            refused = denied(violations or planned.violations, planned.warnings)
            return explanation.with_candidates(replace(before, decision=refused), self.wanted)
        lost = [word for word in unread if word not in kept]
        warnings = [*planned.warnings, *(note for completed in read for note in completed.notes)]
        warnings += [*between(was.assignments, planned.assignments, lost, self.wanted)]
        operations = fields.to_patch(planned.edits, neutral)
        after = _without_notes(fields.applied(operations, neutral))
        judged = explanation.explain_pod(understood.title, after, understood.namespace, self.wanted, setting)
        warnings += [
            *left(pod.read(after), planned.assignments, self.wanted),
            *judged.decision.warnings,
        ]
        decision = judged.decision._replace(warnings=list(dict.fromkeys(warnings)))
        if decision.allowed:
            decision = decision._replace(patch=operations, backends=planned.backends)
            before = replace(before, after=after, charges=judged.charges)
        return explanation.with_candidates(replace(before, decision=decision), self.wanted)


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
    source_rulebook = with_every_backend(rulebook) if source is None else with_only(source, rulebook)
    conversion = Conversion(source_rulebook, replace(with_only(target, rulebook), tenancy=rulebook.tenancy))
    return [
        conversion.of(understood, setting) for understood in explanation.explain(document, source_rulebook, setting)
    ]


# What the pod asks


def _completed(served: Assignment, pod: Pod, rulebook: Rulebook) -> untranslate.Completed:
    """What a container asks, with all that its pod says; a device is what it is on the nodes that the pod selects."""
    if served.demand.request is not None:
        return untranslate.Completed(served, list(untranslate.own(served.backend, pod)))
    try:
        # Each back end to whose nodes the pod is bound, where a device is a part of one.
        reach = NodeSelection(pod, rulebook)
        for candidate in choose.candidates(served.demand, rulebook) if served.request.devices == "whole" else ():
            if isinstance(candidate, Assignment):
                with suppress(CannotExpressError):
                    completed = untranslate.complete(candidate, pod, rulebook)
                    if completed.served.request.devices != "whole" and reach.binds_to(completed.served):
                        return completed
        return untranslate.complete(served, pod, rulebook)
    except CannotExpressError as reason:
        path = extended_resources.where(served.demand.container, next(iter(served.demand.extended.amounts)))
        violation = Violation(code=reason.code, path=path, message=reason.message, fix=reason.fix)
        raise Refusal(replace(violation, rule=served.backend.rule)) from reason


def _carried(served: Assignment, rulebook: Rulebook) -> GpuRequest:
    """What a container asks, in neutral form. Where compute alone is limited, all of the memory is asked.

    A partition of the same name on another card is another one, so it is asked of the first back end's card.
    """
    request = served.demand.request or served.request
    if served.demand.request is None and request.devices == "part":
        sized = request.memory is not None or request.memory_share is not None
        request = request if sized else replace(request, memory_share=ALL)
    if request.profile is not None and not request.models:
        request = replace(request, models=_promised(served, rulebook))
    return replace(request, annotations=frozenset())


def _promised(served: Assignment, rulebook: Rulebook) -> tuple[str, ...]:
    """The models that the first back end gives without a word, which have to be asked of another."""
    own = served.backend.name in rulebook.orders["whole"]
    return () if own else promised(served, rulebook)


# The pod without its first system, and with the other


def _neutral(pod: Pod, served: Sequence[Assignment], kept: Sequence[Unread], rulebook: Rulebook) -> dict[str, Any]:
    """The pod without anything of the system it is for but what it asked in shorthand, and what is kept."""
    bare = untranslate.bare(pod, served)
    metadata = dict(bare.get("metadata") or {})
    named = tuple(prefix for source in rulebook.sources for prefix in source.prefixes)
    owners = [assignment.backend for assignment in served]
    staying = {unread.key for unread in kept}
    for section in ("annotations", "labels"):
        entries = {
            key: value
            for key, value in (metadata.get(section) or {}).items()
            # What names the system that served the pod so far, notes what it did, or is a constraint of it.
            if not key.startswith((annotation("gpu-backend", ""), claimed(""), *named))
            and key not in {NOTE, CONTAINER, "gpu-backend", PREFIX + "backend"}
            and not any(untranslate.constrains(key, owner) for owner in owners)
        }
        entries |= {key: value for key, value in getattr(pod, section).items() if key in staying}
        if all(assignment.request.claim is None for assignment in served):
            # Labels or annotations without the words for claims, which ask in resources by now.
            own = annotation("gpu-claim", "")
            entries = {
                k: v for k, v in entries.items() if k not in {"gpu-claim", PREFIX + "claim"} and not k.startswith(own)
            }
        metadata = untranslate.with_value(metadata, section, entries) if section in metadata else metadata
    return {**bare, "metadata": metadata}


def _planned(bare: Pod, served: Sequence[Assignment], rulebook: Rulebook) -> Plan:
    """The plan with the cards that the first back end gives; with any, if the other cannot select these."""
    assignments = {assignment.demand.container.name: assignment for assignment in served}
    plans = []
    for same_cards in (True, False):
        interpretation = interpret(bare, rulebook)
        interpretation.asked = [
            _asking(request, assignments.get(request.container.name), rulebook, same_cards=same_cards)
            for request in interpretation.asked
        ]
        plans.append(plan.make(bare, rulebook, interpretation=interpretation))
        violations = plans[0].violations
        if not violations or any(violation.code != "GPU303" for violation in violations):
            break
    return plans[0] if plans[-1].violations else plans[-1]


def _asking(
    bare: ContainerRequest, served: Assignment | None, rulebook: Rulebook, *, same_cards: bool
) -> ContainerRequest:
    """What a container asks of the other back end: the shorthand that it still has, or what it asked of the first."""
    if served is None:
        return bare
    request = _carried(served, rulebook)
    if bare.request is not None:
        shorthand = replace(bare.request, models=request.models)
        return replace(bare, request=shorthand)
    if same_cards and not request.models:
        request = replace(request, models=_promised(served, rulebook))
    stated = {**bare.stated, **_stated(request, served.demand)}
    request = replace(request, annotations=bare.annotations, stated=stated)
    return replace(bare, request=request, stated=stated, persist={})


def _stated(request: GpuRequest, container_request: ContainerRequest) -> Mapping[str, FieldValue]:
    """Where each part of a request is written: in the first resource that the container has."""
    values = {
        "gpu": Devices(request.count, request.share),
        "gpu-memory": request.memory,
        "gpu-cores": None if request.cores == 100 * (request.memory_share or 0) else request.cores,
        "gpu-profile": request.profile,
        "gpu-model": request.models or None,
        "gpu-placement": request.placement,
    }
    first = next(iter(container_request.extended.amounts), None)
    path, text = "spec.containers", str(request)
    if first is not None:
        path, text = (
            extended_resources.where(container_request.container, first),
            container_request.extended.texts[first],
        )
    return {key: FieldValue(value, path, text) for key, value in values.items() if value is not None}


def _without_notes(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The pod without the notes of a translation, unless its own annotations ask in shorthand."""
    metadata = raw.get("metadata") or {}
    present = metadata.get("annotations") or {}
    notes = {NOTE, CONTAINER}
    own = any(PREFIX in key and key not in notes for key in present)
    kept = {key: value for key, value in present.items() if own or key not in notes}
    return {**raw, "metadata": untranslate.with_value(metadata, "annotations", kept)}
