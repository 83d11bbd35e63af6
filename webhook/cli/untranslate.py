"""What a pod's annotations, labels and node selection say of its devices: the inverse of `text`.

A line of a rule writes the models, the partition, the size or the placement that a request asks for. The same line,
read in reverse, completes a request that was read from resources: one device of a node that is cut into partitions is
a partition, and a list of product names is a list of models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards, read_back, translate
from webhook.core.backends.translate import CannotExpressError
from webhook.core.kube.fields import field_path
from webhook.core.kube.pod import Bounds, Pod, affinity_without, node_bounds, node_terms
from webhook.core.kube.quantity import shown
from webhook.core.plan import choose, plan
from webhook.core.plan.choose import Assignment, NodeSelection
from webhook.core.request import PLACEMENTS
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import CONTAINER, METADATA, Amount

# What a pod's annotations, labels and node selection say of its devices: the inverse of `text`.

_ABOUT_MODELS: Final = frozenset({"product", "model", "lookalikes"})
_HOLE: Final = re.compile(r"\\\{([a-z]+)\\\}")
_SELECTING: Final = frozenset({"In", "DoesNotExist"})
"""Operators of node affinity by which a rule selects nodes."""


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


def complete(served: Assignment, pod: Pod, rulebook: Rulebook) -> Completed:
    """Complete a request that was read from resources by what the rest of the pod says of the devices.

    Raises CannotExpressError if the pod is not on the back end's nodes, or nothing says which partition it gets.
    """
    bounds = node_bounds(pod)
    served = _by_nodes(_by_marks(served, pod), bounds)
    reach = NodeSelection(pod, rulebook)
    if not reach.allows(served):
        nodes = " and ".join(map(str, reach.pool(served)))
        message = f"a device of {served.backend.name} is on nodes {nodes}, and the pod selects others"
        fix = "set the parameters of the rule in the Cluster document as those nodes are, or name another back end"
        raise CannotExpressError("GPU405", message, fix)

    # The cards that every line about models allows, None for any.
    unread: list[Unread] = []
    notes: list[str] = []
    allowed: Sequence[Card] | None = None
    for line in _lines_about_models(served, pod, bounds):
        meant = {part: _meant(line.output, part, served.backend, rulebook) for part in line.parts}
        unknown = [part for part, among in meant.items() if not among]
        excludes = "lookalikes" in line.output.words
        if unknown or (excludes and allowed is None):
            unread.append(Unread(line.where, line.key, shown(", ".join(unknown or line.parts))))
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
            notes.append(f"{line.where} is read as {', '.join(able)}; {others}")
        allowed = [card for card in able.values() if allowed is None or card in allowed]

    models = served.request.models or tuple(card.model for card in allowed or ())
    named = [rulebook.devices[model.lower()] for model in models]
    if len(named) == 1:
        served = _on_card(served, named[0])
    request = replace(served.request, models=models, placement=_placement(served, pod))
    card = named[0] if len(named) == 1 else served.card
    if card is not None and served.mode.when.devices == "profile" and request.devices == "part":
        request = translate.cut_partition(request, card, served.backend)
    served = replace(served, request=request, card=card)

    # What the pod says in a line of the rule that the rule would not say for this request.
    for section, _ in METADATA:
        present = getattr(pod, section)
        for key, output in getattr(served.mode.outputs, section).items():
            computed = output.words and not output.is_number and not is_about_models(output)
            if key in present and computed and choose.rule_text(output, served, rulebook) != present[key]:
                unread.append(Unread(field_path(("metadata", section, key)), key, shown(str(present[key]))))
    unread += own(served.backend, pod)
    # Expressions on the rule's node labels that do not select a value.
    for term in node_terms(pod):
        for expression in term.get("matchExpressions") or ():
            key, operator = str(expression.get("key")), str(expression.get("operator"))
            if key in served.mode.outputs.node_affinity and operator not in _SELECTING:
                values = shown(", ".join(expression.get("values") or ()))
                unread.append(Unread("", key, f"the node affinity {key} {operator} {values}"))
    return Completed(served, unread, notes)


def _on_card(served: Assignment, card: Card) -> Assignment:
    """The container as its resources read on the card that the pod selects, where cards differ in their modes."""
    if card is served.card or not any(mode.when.models for mode in served.backend.modes):
        return served
    native, backend = served.demand.extended.amounts, cards.for_card(served.backend, card)
    request, mode = read_back.understand(native, backend, served.demand.annotations, (card.model,))
    return replace(served, request=request, mode=mode)


# Modes that only labels and annotations of the pod tell apart


def _by_marks(served: Assignment, pod: Pod) -> Assignment:
    """The mode for the same resources whose labels and annotations the pod has, if those of this one are others."""
    alike = [mode for mode in served.backend.modes if mode.when.devices == served.mode.when.devices]
    native = served.demand.extended.amounts.keys()
    modes = [mode for mode in alike if native <= mode.amounts.keys() and _is_marked(mode, pod)]
    return served if _is_marked(served.mode, pod) or not modes else replace(served, mode=modes[0])


def _is_marked(mode: Mode, pod: Pod) -> bool:
    """Whether the pod says nothing else than the mode does in the mode's constant labels and annotations."""
    for section, _ in METADATA:
        present = getattr(pod, section)
        for key, output in getattr(mode.outputs, section).items():
            if isinstance(output, Constant) and not output.words and present.get(key, output.value) != output.value:
                return False
    return True


# Partitions and sizes, which stand in the node selection


def _by_nodes(served: Assignment, bounds: Bounds) -> Assignment:
    """The request with the partition or the size that all nodes have which the pod selects."""
    if served.request.devices != "whole":
        return served
    for mode in served.backend.modes:
        if served.demand.extended.amounts.keys() <= mode.amounts.keys():
            told = _of_nodes(mode, served, bounds)
            if told:
                return replace(served, mode=mode, request=replace(served.request, **told))
    if served.mode.when.devices == "profile":
        keys = " or ".join(key for key, output in served.mode.pool.items() if "profile" in output.words)
        message = f"which partition a device of {served.backend.name} is says the node label {keys}"
        raise CannotExpressError("GPU405", f"{message}, and the pod does not select it", f"select nodes by {keys}")
    return served


def _of_nodes(mode: Mode, served: Assignment, bounds: Bounds) -> dict[str, Any]:
    """The fields of a request that the selected nodes tell. Of several sizes the least is sure."""
    numbers: dict[str, Any] = {}
    for key, output in mode.node_numbers.items():
        values = [int(value) for value in bounds.get(key, ()) if value.isdecimal() and int(value)]
        if values and isinstance(output, Amount):
            numbers |= translate.as_fields(output, min(values), served.request.count)
    lines = {
        key: line for key, line in mode.outputs.node_affinity.items() if "profile" in line.words and key in bounds
    }
    profiles = {profile for key, line in lines.items() for profile in _profiles(line, bounds[key], served.backend)}
    if len(profiles) > 1:
        message = f"a device on the nodes that the pod selects is any of {', '.join(sorted(profiles))}"
        raise CannotExpressError("GPU405", message, f"select nodes with one of them by {' and '.join(lines)}")
    return numbers | ({"profile": profiles.pop()} if profiles else {})


def _profiles(line: Output, values: Iterable[str], backend: Backend) -> Iterator[str]:
    spelled = {cards.as_label(name).lower(): name for name in backend.profiles}
    dotted = {name.replace("+", ".").lower(): name for name in backend.profiles}
    for template in line.texts if isinstance(line, Constant) else ():
        for value in values:
            spelling = _filling(template, value).get("profile", "").lower()
            yield from filter(None, [{**dotted, **spelled}.get(spelling)])


def _filling(template: str, value: str) -> Mapping[str, str]:
    """What fills the holes of a text so that it becomes the value; nothing if it is no such text."""
    match = re.fullmatch(_HOLE.sub(r"(?P<\1>.+)", re.escape(template)), value, re.IGNORECASE)
    return match.groupdict() if match else {}


# Models


class _Line(NamedTuple):
    """A line of a rule about models, and the parts of what the pod has there."""

    where: str
    key: str
    output: Output
    parts: Sequence[str]


def _lines_about_models(served: Assignment, pod: Pod, bounds: Bounds) -> Sequence[_Line]:
    """The lines that select models, then those that exclude some."""
    outputs, lines = served.mode.outputs, []
    for section, _ in METADATA:
        for key, output in getattr(outputs, section).items():
            value = getattr(pod, section).get(key)
            if value is not None and not output.is_number:
                parts = [part.strip() for part in str(value).split(",")]
                lines.append(_Line(field_path(("metadata", section, key)), key, output, parts))
    for key, output in outputs.node_affinity.items():
        if bounds.get(key):
            lines.append(_Line("the node label", key, output, sorted(bounds[key])))
    about = [line for line in lines if is_about_models(line.output)]
    return sorted(about, key=lambda line: "lookalikes" in line.output.words)


def is_about_models(output: Output) -> bool:
    """Whether a line of a rule says which models a pod may get."""
    return not _ABOUT_MODELS.isdisjoint(output.words)


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


# What else is said


def _placement(served: Assignment, pod: Pod) -> str | None:
    """The placement that an annotation asks for."""
    if served.request.placement is not None:
        return served.request.placement
    lines = served.mode.outputs.annotations.items()
    for key, output in [
        (key, output) for key, output in lines if isinstance(output, Amount) and output.what == "placement"
    ]:
        for placement in PLACEMENTS:
            if pod.annotations.get(key) in output.values.get(placement, (placement,)):
                return placement
    return None


def own(backend: Backend, pod: Pod) -> Iterator[Unread]:
    """The annotations and labels that are constraints of a back end."""
    for section, _ in METADATA:
        for key, value in getattr(pod, section).items():
            if constrains(key, backend):
                yield Unread(field_path(("metadata", section, key)), key, shown(str(value)))


def constrains(key: str, backend: Backend) -> bool:
    """Whether an annotation or a label narrows in the back end's own way which devices a pod may get."""
    return any(fnmatchcase(key, pattern) for pattern in backend.constraints)


# A pod without what its back end needed: the inverse of `plan` and `inject`, as far as rules tell.


def bare(pod: Pod, served: Sequence[Assignment]) -> dict[str, Any]:
    """The pod as its author might have written it before a back end was chosen, without empty mappings and lists."""
    modes = [assignment.mode for assignment in served]
    injected = [assignment.backend.inject for assignment in served]

    # The annotations and labels that neither a rule nor the back end's scheduler wrote.
    metadata = dict(pod.raw.get("metadata") or {})
    companions = [mode.companions for mode in modes if mode.companions is not None]
    for section in ("annotations", "labels"):
        written = [
            {key.replace(CONTAINER, assignment.demand.container.name): output for key, output in outputs.items()}
            for assignment in served
            for outputs in [getattr(assignment.mode.outputs, section)]
        ]
        left = {
            key: value
            for key, value in (metadata.get(section) or {}).items()
            if not any(key in outputs and outputs[key].wrote(value) for outputs in written)
            and not any(companion.reserves(key) for companion in companions)
        }
        metadata = with_value(metadata, section, left)

    # The fields of the spec that something is injected into; a name is the author's unless a rule writes it.
    spec = dict(pod.spec)
    writers = {
        "schedulerName": [injection.scheduler for injection in injected],
        "runtimeClassName": [injection.runtime_class for injection in injected],
    }
    for key, constants in writers.items():
        if any(constant and constant.value == spec.get(key) for constant in constants):
            spec = with_value(spec, key, None)
    tolerations = [dict(toleration) for injection in injected for toleration, _ in injection.tolerations]
    node_labels = {key for mode in modes for key in mode.outputs.node_affinity}
    claims = {
        name
        for assignment in served
        if assignment.mode.claims
        for name in plan.claim_names(assignment.demand.container)
    }
    selector = {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in node_labels}
    tolerated = [toleration for toleration in spec.get("tolerations") or () if toleration not in tolerations]
    claimed = [claim for claim in spec.get("resourceClaims") or () if claim.get("name") not in claims]
    spec = with_value(with_value(spec, "tolerations", tolerated), "nodeSelector", selector)
    spec = with_value(spec, "affinity", affinity_without(pod, node_labels) if spec.get("affinity") else None)
    spec = with_value(spec, "resourceClaims", claimed)

    # The resources, claims and variables of each container.
    for container in pod.containers:
        listed, index = str(container.path[1]), container.path[2]
        here = [assignment for assignment in served if assignment.demand.container.path == container.path]
        raw = dict(spec[listed][index])
        resources = dict(raw.get("resources") or {})
        owned = {name for assignment in here for name in assignment.backend.owns}
        for kind in ("limits", "requests"):
            left = {name: value for name, value in (resources.get(kind) or {}).items() if name not in owned}
            resources = with_value(resources, kind, left)
        names = set(plan.claim_names(container)) if any(assignment.mode.claims for assignment in here) else set()
        kept = [claim for claim in resources.get("claims") or () if claim.get("name") not in names]
        raw = with_value(raw, "resources", with_value(resources, "claims", kept))
        writers_of_env = [assignment.mode.outputs.env for assignment in here]
        env = [
            variable
            for variable in raw.get("env") or ()
            if not any(
                (name := variable.get("name")) in outputs and outputs[name].wrote(variable.get("value"))
                for outputs in writers_of_env
            )
        ]
        raw = with_value(raw, "env", env)
        spec[listed] = [raw if at == index else other for at, other in enumerate(spec[listed])]
    return {**pod.raw, "metadata": metadata, "spec": spec}


def with_value(holder: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The mapping with the value, or without the key if the value is empty; the order of keys stays."""
    return {name: value if name == key else entry for name, entry in holder.items() if name != key or value}
