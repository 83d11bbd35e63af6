"""What a pod's annotations, labels and node selection say of its devices: the inverse of `text`.

A line of a rule writes the models, the partition, the size or the placement that a request asks for. The same line,
read in reverse, completes a request that was read from resources: one device of a node that is cut into partitions is
a partition, and a list of product names is a list of models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.core.backends import amounts, cards, read_back, translate
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.kube import node_affinity
from webhook.core.kube.fields import field_path
from webhook.core.kube.node_affinity import Bounds
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import shown
from webhook.core.plan import inject
from webhook.core.plan.choose import Assignment
from webhook.core.plan.inject import NodeSelection
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


def complete(served: Assignment, seen: Pod, rulebook: Rulebook) -> Completed:
    """Complete a request that was read from resources by what the rest of the pod says of the devices.

    Raises CannotExpressError if the pod is not on the back end's nodes, or nothing says which partition it gets.
    """
    bounds = node_affinity.bounds(seen)
    served = _by_nodes(_by_marks(served, seen), bounds)
    reach = NodeSelection(seen, rulebook)
    if not reach.allows(served):
        raise _elsewhere(served, reach)
    told = _models(served, seen, bounds, rulebook)
    named = served.request.models or tuple(card.model for card in told.allowed or ())
    known = [rulebook.devices[model.lower()] for model in named]
    if len(known) == 1:
        served = _on_card(served, known[0])
    request = replace(served.request, models=named, placement=_placement(served, seen))
    card = known[0] if len(known) == 1 else served.card
    if card is not None and served.mode.when.devices == "profile" and request.devices == "part":
        request = translate.cut_partition(request, card, served.backend)
    served = replace(served, request=request, card=card)
    others = [*_otherwise(served, seen, rulebook), *own(served.backend, seen), *_excluded(served.mode, seen)]
    return Completed(served, [*told.unread, *others], told.notes)


def _on_card(served: Assignment, card: Card) -> Assignment:
    """The container as its resources read on the card that the pod selects, where cards differ in their modes."""
    if card is served.card or not any(mode.when.models for mode in served.backend.modes):
        return served
    native, backend = served.demand.extended.amounts, cards.for_card(served.backend, card)
    request, mode = read_back.understand(native, backend, served.demand.annotations, (card.model,))
    return replace(served, request=request, mode=mode)


# Modes that only labels and annotations of the pod tell apart


def _by_marks(served: Assignment, seen: Pod) -> Assignment:
    """The mode for the same resources whose labels and annotations the pod has, if those of this one are others."""
    alike = [mode for mode in served.backend.modes if mode.when.devices == served.mode.when.devices]
    native = served.demand.extended.amounts.keys()
    modes = [mode for mode in alike if native <= mode.amounts.keys() and _is_marked(mode, seen)]
    return served if _is_marked(served.mode, seen) or not modes else replace(served, mode=modes[0])


def _is_marked(mode: Mode, seen: Pod) -> bool:
    """Whether the pod says nothing else than the mode does in the mode's constant labels and annotations."""
    for section, _ in METADATA:
        present = getattr(seen, section)
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
            found = _of_nodes(mode, served, bounds)
            if found:
                return replace(served, mode=mode, request=replace(served.request, **found))
    if served.mode.when.devices == "profile":
        keys = " or ".join(key for key, output in served.mode.pool.items() if "profile" in output.words)
        message = f"which partition a device of {served.backend.name} is says the node label {keys}"
        raise CannotExpressError("GPU405", f"{message}, and the pod does not select it", f"select nodes by {keys}")
    return served


def _of_nodes(mode: Mode, served: Assignment, bounds: Bounds) -> dict[str, Any]:
    """The fields of a request that the selected nodes tell. Of several sizes the least is sure."""
    found: dict[str, Any] = {}
    for key, output in mode.node_numbers.items():
        values = [int(value) for value in bounds.get(key, ()) if value.isdecimal() and int(value)]
        if values and isinstance(output, Amount):
            found |= amounts.read_back(output, min(values), served.request.count)
    lines = {key: one for key, one in mode.outputs.node_affinity.items() if "profile" in one.words and key in bounds}
    profiles = {one for key, line in lines.items() for one in _profiles(line, bounds[key], served.backend)}
    if len(profiles) > 1:
        message = f"a device on the nodes that the pod selects is any of {', '.join(sorted(profiles))}"
        raise CannotExpressError("GPU405", message, f"select nodes with one of them by {' and '.join(lines)}")
    return found | ({"profile": profiles.pop()} if profiles else {})


def _profiles(line: Output, values: Iterable[str], backend: Backend) -> Iterator[str]:
    spelled = {cards.as_label(name).lower(): name for name in backend.profiles}
    dotted = {name.replace("+", ".").lower(): name for name in backend.profiles}
    for template in line.texts if isinstance(line, Constant) else ():
        for value in values:
            said = _filling(template, value).get("profile", "").lower()
            yield from filter(None, [{**dotted, **spelled}.get(said)])


def _filling(template: str, value: str) -> Mapping[str, str]:
    """What fills the holes of a text so that it becomes the value; nothing if it is no such text."""
    match = re.fullmatch(_HOLE.sub(r"(?P<\1>.+)", re.escape(template)), value, re.IGNORECASE)
    return match.groupdict() if match else {}


def _elsewhere(served: Assignment, reach: NodeSelection) -> CannotExpressError:
    nodes = " and ".join(map(str, reach.pool(served)))
    message = f"a device of {served.backend.name} is on nodes {nodes}, and the pod selects others"
    fix = "set the parameters of the rule in the Cluster document as those nodes are, or name another back end"
    return CannotExpressError("GPU405", message, fix)


# Models


class _Told(NamedTuple):
    """The cards that every line allows, None for any; and what is said of models that a request cannot say."""

    allowed: Sequence[Card] | None
    unread: Sequence[Unread]
    notes: Sequence[str]


def _models(served: Assignment, seen: Pod, bounds: Bounds, rulebook: Rulebook) -> _Told:
    unread: list[Unread] = []
    notes: list[str] = []
    allowed: Sequence[Card] | None = None
    for line in _said(served, seen, bounds):
        meant = {part: _meant(line.output, part, served.backend, rulebook) for part in line.parts}
        unknown = [part for part, found in meant.items() if not found]
        excludes = "lookalikes" in line.output.words
        if unknown or (excludes and allowed is None):
            unread.append(Unread(line.where, line.key, shown(", ".join(unknown or line.parts))))
        if excludes:
            without = _all(meant.values())
            allowed = None if allowed is None else [card for card in allowed if card not in without]
            continue
        found = _all(_called(part, cards_, rulebook) for part, cards_ in meant.items())
        notes += _narrowed(line, found, _all(meant.values()))
        allowed = found if allowed is None else [card for card in found if card in allowed]
    return _Told(allowed, unread, notes)


def _all(found: Iterable[Sequence[Card]]) -> Sequence[Card]:
    return list({card.model: card for among in found for card in among}.values())


def _called(name: str, found: Sequence[Card], rulebook: Rulebook) -> Sequence[Card]:
    """Of the cards whose names hold a part, those that are called so; all of them if none is."""
    return [card for card in cards.read_model(name, rulebook) if card in found] or found


def _narrowed(line: _Line, found: Sequence[Card], meant: Sequence[Card]) -> Iterator[str]:
    more = len(meant) - len(found)
    if more:
        names = ", ".join(card.model for card in found)
        yield f"{line.where} is read as {names}; {more} other models whose names hold a part of it are left out"


class _Line(NamedTuple):
    """A line of a rule about models, and the parts of what the pod has there."""

    where: str
    key: str
    output: Output
    parts: Sequence[str]


def _said(served: Assignment, seen: Pod, bounds: Bounds) -> Sequence[_Line]:
    """The lines that select models, then those that exclude some."""
    outputs, found = served.mode.outputs, []
    for section, _ in METADATA:
        for key, output in getattr(outputs, section).items():
            value = getattr(seen, section).get(key)
            if value is not None and not output.is_number:
                parts = [part.strip() for part in str(value).split(",")]
                found.append(_Line(field_path(("metadata", section, key)), key, output, parts))
    for key, output in outputs.node_affinity.items():
        if bounds.get(key):
            found.append(_Line("the node label", key, output, sorted(bounds[key])))
    about = [line for line in found if is_about_models(line.output)]
    return sorted(about, key=lambda line: "lookalikes" in line.output.words)


def is_about_models(output: Output) -> bool:
    """Whether a line of a rule says which models a pod may get."""
    return not _ABOUT_MODELS.isdisjoint(output.words)


def _meant(output: Output, said: str, backend: Backend, rulebook: Rulebook) -> Sequence[Card]:
    """The cards that one name means to the system; where it looks for parts of names, all that have it."""
    part, found = said.lower(), cards.card_served(backend, rulebook)
    if isinstance(output, Amount) and (output.substring or output.what == "lookalikes"):
        return [card for card in found if part and any(part in name for name in _names(card))]
    return [card for card in found if any(_is(written, part) for written in cards.texts(output, card))]


def _names(card: Card) -> Iterator[str]:
    """What systems that look for a part of a name look at: a product, perhaps after its vendor."""
    yield from (f"{card.vendor}-{name}".lower() for name in (*card.names, card.model))


def _is(written: str, said: str) -> bool:
    return written.lower() == said or bool(_filling(written, said))


# What else is said


def _placement(served: Assignment, seen: Pod) -> str | None:
    """The placement that an annotation asks for."""
    if served.request.placement is not None:
        return served.request.placement
    lines = served.mode.outputs.annotations.items()
    for key, output in [(key, one) for key, one in lines if isinstance(one, Amount) and one.what == "placement"]:
        for placement in PLACEMENTS:
            if seen.annotations.get(key) in output.values.get(placement, (placement,)):
                return placement
    return None


def _otherwise(served: Assignment, seen: Pod, rulebook: Rulebook) -> Iterator[Unread]:
    """What the pod says in a line of the rule that the rule would not say for this request."""
    for section, _ in METADATA:
        present = getattr(seen, section)
        for key, output in getattr(served.mode.outputs, section).items():
            computed = output.words and not output.is_number and not is_about_models(output)
            if key in present and computed and inject.text(output, served, rulebook) != present[key]:
                yield Unread(field_path(("metadata", section, key)), key, shown(str(present[key])))


def own(backend: Backend, seen: Pod) -> Iterator[Unread]:
    """The annotations and labels that are constraints of a back end."""
    for section, _ in METADATA:
        for key, value in getattr(seen, section).items():
            if constrains(key, backend):
                yield Unread(field_path(("metadata", section, key)), key, shown(str(value)))


def constrains(key: str, backend: Backend) -> bool:
    """Whether an annotation or a label narrows in the back end's own way which devices a pod may get."""
    return any(fnmatchcase(key, pattern) for pattern in backend.constraints)


def _excluded(mode: Mode, seen: Pod) -> Iterator[Unread]:
    """Expressions on the rule's node labels that do not select a value."""
    for term in node_affinity.terms(seen):
        for one in term.get("matchExpressions") or ():
            key, operator = str(one.get("key")), str(one.get("operator"))
            if key in mode.outputs.node_affinity and operator not in _SELECTING:
                values = shown(", ".join(one.get("values") or ()))
                yield Unread("", key, f"the node affinity {key} {operator} {values}")


# A pod without what its back end needed: the inverse of `plan` and `inject`, as far as rules tell.


def bare(pod: Pod, served: Sequence[Assignment]) -> dict[str, Any]:
    """The pod as its author might have written it before a back end was chosen, without empty mappings and lists."""
    metadata = dict(pod.raw.get("metadata") or {})
    for section in ("annotations", "labels"):
        left = _left(metadata.get(section) or {}, section, served)
        metadata = with_value(metadata, section, left)
    spec = dict(pod.spec)
    for key, left in _fields(pod, served).items():
        spec = with_value(spec, key, left)
    for container in pod.containers:
        path = container.path[1:]
        here = [one for one in served if one.demand.container.path == container.path]
        spec = _replaced(spec, path, partial(_container, served=here))
    return {**pod.raw, "metadata": metadata, "spec": spec}


def with_value(holder: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The mapping with the value, or without the key if the value is empty; the order of keys stays."""
    return {name: value if name == key else entry for name, entry in holder.items() if name != key or value}


def _replaced(holder: Any, path: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(holder)
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [_replaced(entry, rest, change) if index == step else entry for index, entry in enumerate(holder)]
    return {key: _replaced(value, rest, change) if key == step else value for key, value in holder.items()}


def _left(present: Mapping[str, Any], section: str, served: Sequence[Assignment]) -> dict[str, Any]:
    """The annotations or labels that neither a rule nor the back end's scheduler wrote."""
    written = [
        {key.replace(CONTAINER, one.demand.container.name): output for key, output in outputs.items()}
        for one in served
        for outputs in [getattr(one.mode.outputs, section)]
    ]
    companions = [one.mode.companions for one in served if one.mode.companions is not None]
    return {
        key: value
        for key, value in present.items()
        if not any(key in outputs and outputs[key].wrote(value) for outputs in written)
        and not any(each.reserves(key) for each in companions)
    }


def _container(raw: Mapping[str, Any], served: Sequence[Assignment]) -> dict[str, Any]:
    container = dict(raw)
    resources = dict(container.get("resources") or {})
    owned = {name for one in served for name in one.backend.owns}
    for section in ("limits", "requests"):
        left = {name: value for name, value in (resources.get(section) or {}).items() if name not in owned}
        resources = with_value(resources, section, left)
    names = {name for one in served for name in inject.claim_names(one.demand.container) if one.mode.claims}
    kept = [claim for claim in resources.get("claims") or () if claim.get("name") not in names]
    env = [entry for entry in container.get("env") or () if not _injected(entry, served)]
    return with_value(with_value(container, "resources", with_value(resources, "claims", kept)), "env", env)


def _injected(variable: Mapping[str, Any], served: Sequence[Assignment]) -> bool:
    outputs = (one.mode.outputs.env for one in served)
    name = variable.get("name")
    return any(name in env and env[name].wrote(variable.get("value")) for env in outputs if name)


def _fields(pod: Pod, served: Sequence[Assignment]) -> Mapping[str, Any]:
    """What is left of each field of the spec that something is injected into."""
    spec, injected = pod.spec, [one.backend.inject for one in served]
    tolerations = [dict(toleration) for each in injected for toleration, _ in each.tolerations]
    labels = {key for one in served for key in one.mode.outputs.node_affinity}
    claims = {name for one in served if one.mode.claims for name in inject.claim_names(one.demand.container)}
    return {
        "schedulerName": _unless(spec.get("schedulerName"), [each.scheduler for each in injected]),
        "runtimeClassName": _unless(spec.get("runtimeClassName"), [each.runtime_class for each in injected]),
        "tolerations": [each for each in spec.get("tolerations") or () if each not in tolerations],
        "nodeSelector": {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in labels},
        "affinity": node_affinity.without(pod, labels) if spec.get("affinity") else None,
        "resourceClaims": [each for each in spec.get("resourceClaims") or () if each.get("name") not in claims],
    }


def _unless(present: Any, constants: Iterable[Constant | None]) -> Any:
    """What the author wrote; None where it is what a rule writes."""
    return None if any(constant and constant.value == present for constant in constants) else present
