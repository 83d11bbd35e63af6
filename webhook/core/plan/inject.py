"""What a pod needs beside resources: runtime class, scheduler, env, tolerations, node affinity, labels, annotations.

Only pods that get a GPU are changed, and only as the back end's rule says. A value of the pod's author is kept,
unless the rule says `enforce`. If it cannot be kept without breaking the back end, the pod is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import Any, Final

from webhook.core.backends import amounts, cards
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.charge import charge
from webhook.core.forms import labels
from webhook.core.kube import node_affinity
from webhook.core.kube.fields import Path, at, field_path, mapping, objects
from webhook.core.kube.node_affinity import Bounds, Requirement
from webhook.core.kube.patch import Append, Edit, Put, Remove
from webhook.core.kube.pod import INIT, SIDECAR, Container, Pod
from webhook.core.kube.quantity import Fraction, show_size
from webhook.core.plan.choose import Assignment
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Companions, Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import Slot, SlotKind, holes
from webhook.core.violations import Violation

# The text that rules write into annotations, labels, env and node affinity.

_OF_MODELS: Final = frozenset({"product", "lookalikes", "model"})
"""Words that have no value if no model is asked for."""


def texts(output: Output, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The values of an output, in order; empty if it is to be left out."""
    if isinstance(output, Constant):
        return [filled for template in output.texts for filled in _filled(template, served, rulebook) if filled]
    if output.is_number:
        number, _ = amounts.express(output, served.request, served.card)
        return [] if number is None else [amounts.as_text(output, number)]
    values = _word(output.what, output.form, served, rulebook)
    return [text for value in values for text in output.values.get(value, (value,))]


def text(output: Output, served: Assignment, rulebook: Rulebook) -> str | None:
    """The values of an output joined by commas; None if it is to be left out."""
    if output.what in _OF_MODELS and not served.request.models:
        return None
    return ",".join(texts(output, served, rulebook)) or None


def _word(what: str, form: str, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    request = served.request
    if what in _OF_MODELS:
        return _of_models(what, form, request.models, rulebook) if request.models else ()
    value: str | None = None
    match what:
        case "container":
            value = served.asked.container.name
        case "memory":
            value = None if request.memory is None else show_size(request.memory)
        case "profile" | "placement" | "claim":
            value = getattr(request, what)
    return () if value is None else (value,)


def _of_models(what: str, form: str, models: Sequence[str], rulebook: Rulebook) -> Sequence[str]:
    if what == "model":
        return models
    if what == "product":
        names = [name for model in models for name in rulebook.devices[model.lower()].names]
    else:
        names = [name for _, name in _lookalikes("product", models, rulebook)]
    return [cards.as_label(name) for name in names] if form == "label" else names


def _filled(template: str, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The text with its holes filled, once for each product or model; empty if a hole has no value."""
    texts = [template]
    open_holes = dict.fromkeys(holes(template))
    for hole in open_holes:
        words = _word(hole, "label", served, rulebook)
        if hole == "product" and "profile" in open_holes and not served.request.models:
            words = _products_with(served, rulebook)
        texts = [text.replace(f"{{{hole}}}", word) for text in texts for word in words]
    return texts


def taken_for(models: Sequence[str], modes: Iterable[Mode], rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a system with one of these modes may give, beside the models that it is asked for."""
    loosely = {mode.loosely for mode in modes if mode.loosely} if models else ()
    found = (card for what in loosely for card, _ in _lookalikes(what, models, rulebook))
    return list({card.model: card for card in found}.values())


def _lookalikes(what: str, models: Sequence[str], rulebook: Rulebook) -> list[tuple[Card, str]]:
    """Other cards and their products whose names contain a requested one, as `NVIDIA A100` contains `NVIDIA A10`.

    `what` is `product` or `model`: the names by which they are requested.
    """
    asked = {card.model: card for card in (rulebook.devices[model.lower()] for model in models)}
    vendors = {card.vendor for card in asked.values()}
    products = _products(rulebook)
    places = {place for card in asked.values() for place in _like(what, card, rulebook)}
    found = (products[place] for place in sorted(places))
    return [(card, name) for card, name in found if card.vendor in vendors and card.model not in asked]


def _products(rulebook: Rulebook) -> Sequence[tuple[Card, str]]:
    """The products of all cards; listed once for each rulebook."""
    known: list[tuple[Card, str]] | None = rulebook.cache.get(_products)
    if known is None:
        all_cards = {card.model: card for card in rulebook.devices.values()}.values()
        known = rulebook.cache[_products] = [(card, name) for card in all_cards for name in card.names]
    return known


def _like(what: str, card: Card, rulebook: Rulebook) -> Sequence[int]:
    """The places of the products whose names contain one of the card's; found once for each card."""
    known: list[int] | None = rulebook.cache.get((_like, what, card.model))
    if known is None:
        parts = [name.lower() for name in (card.names if what == "product" else [card.model])]
        lower = [name.lower() for _, name in _products(rulebook)]
        known = [place for place, name in enumerate(lower) if any(part in name for part in parts)]
        rulebook.cache[_like, what, card.model] = known
    return known


def _products_with(served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The products of all cards that have the requested partition, if no model is asked for."""
    able = (card for card in cards.card_served(served.backend, rulebook) if served.request.profile in card.profiles)
    names = [name for card in able for name in card.names]
    return [cards.as_label(name) for name in names]


# Reach: on the nodes of which back ends a pod may run, by its own node selection.


@dataclass(frozen=True)
class NodeSelection:
    """The nodes that one pod may run on. Answers are cached: it may have many containers and many terms."""

    pod: Pod
    rulebook: Rulebook
    _left: dict[object, bool] = field(default_factory=dict)

    @property
    def selects(self) -> bool:
        """Whether the pod selects its nodes at all."""
        return node_affinity.selects(self.pod)

    def leaves(self, served: Assignment) -> bool:
        """Whether the pod's own node selection leaves any node of a back end, whatever card is asked for."""
        if not served.mode.outputs.node_affinity or not self.selects:
            return True
        which = (served.backend.name, id(served.mode), served.request.models, served.request.profile)
        if which not in self._left:
            self._left[which] = not self.excludes(served, served.mode.outputs.node_affinity)
        return self._left[which]

    def excludes(self, served: Assignment, keys: Iterable[str]) -> bool:
        """Whether the pod excludes the nodes that the constants among these lines of a rule ask for."""
        lines = served.mode.outputs.node_affinity
        wanted = requirements(served, {key: lines[key] for key in keys if not lines[key].what}, self.rulebook)
        return any(isinstance(found, Violation) for found in node_affinity.require(self.pod, wanted))

    def stays_with(self, served: Assignment) -> bool:
        """Whether every node that the pod may run on is of the back end; False where no label tells its nodes."""
        pool = self.pool(served) if self.selects else ()
        return bool(pool) and all(node_affinity.within(self._bounds, wanted) for wanted in pool)

    def stays_on_card(self, served: Assignment) -> bool:
        """Whether every node that the pod may run on has a card that is asked for; False if no label tells cards."""
        lines = {key: line for key, line in served.mode.outputs.node_affinity.items() if key not in served.mode.pool}
        wanted = list(requirements(served, lines, self.rulebook)) if self.selects else ()
        return bool(wanted) and all(node_affinity.within(self._bounds, one) for one in wanted)

    def pool(self, served: Assignment) -> Sequence[Requirement]:
        """What tells the back end's nodes from those of others; empty if no label does."""
        return list(requirements(served, served.mode.pool, self.rulebook))

    @cached_property
    def _bounds(self) -> Bounds:
        return node_affinity.bounds(self.pod)


def requirements(served: Assignment, lines: Mapping[str, Output], rulebook: Rulebook) -> Iterator[Requirement]:
    """What these lines of a rule require of the nodes; a line without a value requires nothing."""
    for key, output in lines.items():
        values = texts(output, served, rulebook)
        if values or (isinstance(output, Constant) and output.value == ()):
            labels = tuple(map(cards.as_label, values))
            yield Requirement(key, labels, output.rule, served.asked.container.name)


# What a pod needs beside resources: runtime class, scheduler, env, tolerations, node affinity, labels, annotations.

DEFAULT_SCHEDULER: Final = "default-scheduler"


Injected = Edit | Violation


def inject(reach: NodeSelection, served: Sequence[Assignment]) -> Iterator[Injected]:
    """The edits that the back ends' rules require, and a violation for each that cannot be made."""
    if not served:
        return
    pod, rulebook = reach.pod, reach.rulebook
    yield from _scheduler(pod, served)
    yield from _runtime_class(pod, served)
    yield from _tolerations(pod, served)
    for one in served:
        if one.mode.outputs.env:
            yield from _env(one, rulebook)
    yield from _metadata(pod.annotations, "annotation", served, rulebook)
    yield from _metadata(pod.labels, "label", served, rulebook)
    wanted = list(_node_affinity(served, reach))
    if wanted:
        yield from node_affinity.require(pod, wanted)


def _wanted(served: Sequence[Assignment], attribute: str) -> list[tuple[Assignment, Constant]]:
    found = [(one, getattr(one.backend.inject, attribute)) for one in served]
    return [(one, constant) for one, constant in found if constant is not None and constant.value]


def _scheduler(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    wanted = _wanted(served, "scheduler")
    yield from _agreed(wanted, "schedulerName")
    for one, constant in wanted[:1]:
        present = pod.spec.get("schedulerName")
        if present in {None, "", DEFAULT_SCHEDULER}:
            yield Put(("spec", "schedulerName"), constant.value, constant.rule)
        elif present != constant.value:
            message = f"{one.backend.name} works only with the scheduler {constant.value}; the pod names {present}"
            fix = f"leave schedulerName out, or name {constant.value}"
            yield Violation(code="GPU501", path="spec.schedulerName", message=message, fix=fix, rule=constant.rule)


def _runtime_class(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    wanted = _wanted(served, "runtime_class")
    if pod.spec.get("runtimeClassName"):
        return
    yield from _agreed(wanted, "runtimeClassName")
    for _, constant in wanted[:1]:
        yield Put(("spec", "runtimeClassName"), constant.value, constant.rule)


def _agreed(wanted: Sequence[tuple[Assignment, Constant]], name: str) -> Iterator[Violation]:
    """A violation if two back ends require different values of a field of the pod."""
    for one, constant in wanted[1:]:
        first, value = wanted[0]
        if constant.value != value.value:
            yield Violation(
                code="GPU501",
                path=f"spec.{name}",
                message=f"two back ends of this pod want a different {name}: {first.backend.name} wants "
                f"{value.value}, {one.backend.name} wants {constant.value}",
                fix="name one back end for the whole pod with gpu-backend, or use two pods",
                rule=constant.rule,
            )


def _tolerations(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    present = [*(pod.spec.get("tolerations") or ())]
    for backend in {one.backend.name: one.backend for one in served}.values():
        for wanted, rule in backend.inject.tolerations:
            if not any(_tolerates(toleration, wanted) for toleration in present):
                present.append(wanted)
                yield Append(("spec", "tolerations"), dict(wanted), rule)


def _tolerates(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a toleration of the pod covers the required one."""
    key, operator = present.get("key") or "", present.get("operator") or "Equal"
    if key != (wanted.get("key") or "") and not (key == "" and operator == "Exists"):
        return False
    if operator == "Equal" and (
        (wanted.get("operator") or "Equal") != "Equal" or present.get("value", "") != wanted.get("value", "")
    ):
        return False
    forever = present.get("tolerationSeconds") in {None, wanted.get("tolerationSeconds")}
    return forever and present.get("effect") in {None, "", wanted.get("effect")}


def _env(served: Assignment, rulebook: Rulebook) -> Iterator[Injected]:
    """Each variable once. The author's own is kept, or with `enforce` replaced, whatever its source of a value."""
    container = served.asked.container
    for name, output in served.mode.outputs.env.items():
        value = text(output, served, rulebook)
        if value is not None:
            enforce = isinstance(output, Constant) and output.enforce
            yield from _one_variable(container, name, value, output.rule, enforce=enforce)


def _one_variable(container: Container, name: str, value: str, rule: str, *, enforce: bool) -> Iterator[Edit]:
    entry = {"name": name, "value": value}
    path: Path = (*container.path, "env")
    present = [index for index, variable in enumerate(container.env) if variable.get("name") == name]
    if not present:
        yield Append(path, entry, rule)
        return
    if not enforce or [container.env[index] for index in present] == [entry]:
        return
    yield Put((*path, present[0]), entry, rule)
    for index in reversed(present[1:]):
        yield Remove((*path, index), rule)


def _metadata(
    present: Mapping[str, Any], kind: SlotKind, served: Sequence[Assignment], rulebook: Rulebook
) -> Iterator[Injected]:
    """Labels or annotations. The author's own constant is kept; a value that contradicts the request is refused."""
    section = f"{kind}s"
    ours: dict[str, tuple[str, str]] = {}
    for one in served:
        name = one.asked.container.name
        for ruled, output in getattr(one.mode.outputs, section).items():
            slot = Slot(kind, ruled)
            if slot in one.mode.amounts and (slot not in one.amounts or slot in one.asked.extended.amounts):
                continue  # nobody asks for it; or it is there, perhaps in other digits
            value = text(output, one, rulebook)
            if value is None:
                continue
            key = slot.named(name)
            path: Path = ("metadata", section, key)
            if section == "labels" and not labels.is_value(value):
                yield _no_label(path, value, one, output)
                continue
            first, before = ours.setdefault(key, (name, value))
            if before != value:
                who = f'the containers "{first}" and "{name}" need'
                yield _differ(path, who, (before, value), "ask for the same, or use two pods", output.rule)
            elif key not in present and first == name:
                yield Put(path, value, output.rule)
            elif key in present and present[key] != value and (output.what or output.enforce):
                who = f'the pod and its container "{name}" want'
                yield _differ(path, who, (present[key], value), f"remove {key} from the pod", output.rule)


def _no_label(path: Path, value: str, served: Assignment, output: Output) -> Violation:
    message = f'{served.backend.name} would set {field_path(path)} to "{value[:80]}", which no label can hold'
    fix = "ask for less at once, as for one model"
    return Violation(code="GPU503", path=field_path(path), message=message, fix=fix, rule=output.rule)


def _differ(path: Path, who: str, values: tuple[Any, str], fix: str, rule: str) -> Violation:
    message = f'{who} different values of {field_path(path)}: "{values[0]}", and "{values[1]}"'
    return Violation(code="GPU503", path=field_path(path), message=message, fix=fix, rule=rule)


def _node_affinity(served: Iterable[Assignment], reach: NodeSelection) -> Iterator[Requirement]:
    dropped: dict[int, set[str]] = {}
    for one in served:
        lines = one.mode.outputs.node_affinity
        if one.asked.request is None and "gpu-backend" not in one.asked.stated and reach.selects:
            # A pod with the back end's own resources may choose other nodes, and counts what they give. A pod that
            # names the back end or the card may not: the name decides what it is charged.
            if id(one.mode) not in dropped:
                dropped[id(one.mode)] = {
                    key for key, line in lines.items() if not line.words and reach.excludes(one, [key])
                }
            lines = {key: line for key, line in lines.items() if key not in dropped[id(one.mode)]}
        yield from requirements(one, lines, reach.rulebook)


# What a back end requires of the rest of a pod, or forbids, and what the webhook never writes itself.


def check_requirements(pod: Pod, served: Sequence[Assignment]) -> Iterator[Violation]:
    """A violation (GPU503) for each required field that is missing and each forbidden one, once for each back end."""
    by_rule: dict[str, list[Assignment]] = {}
    for one in served:
        if one.mode.companions is not None:
            by_rule.setdefault(one.mode.companions.rule, []).append(one)
    for group in by_rule.values():
        companions = group[0].mode.companions
        if companions is not None:
            owned = group[0].backend.owns
            same = [one for one in served if not owned.isdisjoint(one.amounts)]
            yield from _check(pod, group, companions)
            yield from _together(same, companions)


def _check(pod: Pod, group: Sequence[Assignment], wanted: Companions) -> Iterator[Violation]:
    name = group[0].backend.name
    for word, value in wanted.requires.items():
        yield from (
            _violation(wanted, path, f"{name} needs {what}", f"write {what}, if your cluster allows it")
            for path, what in REQUIRABLE[word](pod, group, value)
        )
    for word in wanted.forbids:
        found = FORBIDDABLE[word](pod, group)
        yield from (_violation(wanted, path, f"{name} does not work with {what}", fix) for path, what, fix in found)
    yield from _reserved(pod, name, wanted)


def _violation(wanted: Companions, path: Path, message: str, fix: str) -> Violation:
    return Violation(code="GPU503", path=field_path(path), message=message, fix=fix, rule=wanted.rule)


def _reserved(pod: Pod, name: str, wanted: Companions) -> Iterator[Violation]:
    for key in sorted(pod.annotations) if wanted.reserved else ():
        if wanted.reserves(key):
            message = f"the annotation {key} is written by the scheduler of {name}, and by nobody else"
            yield _violation(wanted, ("metadata", "annotations", key), message, f"remove {key}")


def _together(group: Sequence[Assignment], wanted: Companions) -> Iterator[Violation]:
    """The limits on all containers of a pod together."""
    names = [one.asked.container.name for one in group]
    if wanted.containers is not None and len(group) > wanted.containers:
        most = f"{wanted.containers} container{'s' if wanted.containers > 1 else ''} of a pod"
        message = f"{group[0].backend.name} serves {most}; {' and '.join(names)} ask for a GPU"
        yield _violation(wanted, group[-1].asked.container.path, message, "use a pod for each of them")
    if wanted.one_device and len(group) > 1:
        yield from _one_device(group, wanted, names)


def _one_device(group: Sequence[Assignment], wanted: Companions, names: Sequence[str]) -> Iterator[Violation]:
    card = next((one.card for one in group if one.card is not None), None)
    sizes = sum(one.request.memory or 0 for one in group)
    parts = sum((charge(one.request, one.card) for one in group if one.card is not None), Fraction(0))
    too_large = card is not None and sizes > card.memory
    if too_large or parts > 1:
        asked = f"{show_size(sizes)}, and {card.model} has {show_size(card.memory)}" if card and too_large else ""
        message = (
            f"all containers of a pod share one device of {group[0].backend.name}, and {' and '.join(names)} "
            f"together ask for {asked or f'{float(parts):.2f} devices'.replace('.00', '')}"
        )
        yield _violation(wanted, ("spec", "containers"), message, "ask for less, or use two pods")


Required = Iterator[tuple[Path, str]]
Forbidden = Iterator[tuple[Path, str, str]]


def _host_ipc(pod: Pod, _group: Sequence[Assignment], _value: str) -> Required:
    if pod.spec.get("hostIPC") is not True:
        yield ("spec", "hostIPC"), "hostIPC: true"


def _run_as_user(pod: Pod, group: Sequence[Assignment], value: str) -> Required:
    general = _context(pod.spec).get("runAsUser")
    for one in group:
        user = _context(one.asked.container.raw).get("runAsUser", general)
        if str(user) != value:
            path: Path = (*one.asked.container.path, "securityContext", "runAsUser")
            yield path, f"securityContext.runAsUser: {value}"


def _host_path(pod: Pod, group: Sequence[Assignment], value: str) -> Required:
    volumes = [volume for volume in objects(pod.spec.get("volumes")) if at(volume, "hostPath", "path") == value]
    named = {str(volume.get("name")) for volume in volumes}
    for one in group:
        mounts = objects(one.asked.container.raw.get("volumeMounts"))
        if not any(str(mount.get("name")) in named and mount.get("mountPath") == value for mount in mounts):
            path: Path = (*one.asked.container.path, "volumeMounts")
            yield path, f"the hostPath volume {value}, mounted at the same path"


REQUIRABLE: Final[Mapping[str, Callable[[Pod, Sequence[Assignment], str], Required]]] = {
    "hostIPC": _host_ipc,
    "runAsUser": _run_as_user,
    "hostPath": _host_path,
}
"""The words of `requires:`. Each yields the path and the name of what is missing."""


def _privileged(pod: Pod, _group: Sequence[Assignment]) -> Forbidden:
    for container in pod.containers:
        if _context(container.raw).get("privileged") is True:
            path: Path = (*container.path, "securityContext", "privileged")
            yield path, f'the privileged container "{container.name}"', "leave privileged out"


def _node_name(pod: Pod, _group: Sequence[Assignment]) -> Forbidden:
    if pod.spec.get("nodeName"):
        fix = "leave nodeName out; a node affinity on kubernetes.io/hostname selects a node, too"
        yield ("spec", "nodeName"), "spec.nodeName, which passes its scheduler by", fix


def _init_containers(_pod: Pod, group: Sequence[Assignment]) -> Forbidden:
    for one in group:
        container = one.asked.container
        if container.kind in {INIT, SIDECAR}:
            yield container.path, f'init containers, and "{container.name}" is one', "ask in a container"


FORBIDDABLE: Final[Mapping[str, Callable[[Pod, Sequence[Assignment]], Forbidden]]] = {
    "privileged": _privileged,
    "nodeName": _node_name,
    "initContainers": _init_containers,
}
"""The words of `forbids:`. Each yields the path, the name and the fix of what is there."""


def _context(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(holder, "securityContext")


# Resource claims (Kubernetes DRA): a container gets devices by the name of a template instead of a quantity.

_LONGEST: Final = 63

_LEGAL: Final = str.maketrans("+_", ".-")
"""Characters of a profile that no object's name can have: 1g.10gb+me is claimed as 1g.10gb.me."""


def claim_templates(served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The names of the templates that a container's request becomes."""
    filled = (text(claim, served, rulebook) for claim in served.mode.claims)
    return [name.lower().translate(_LEGAL) for name in filled if name is not None]


def claim_names(container: Container) -> set[str]:
    """The claims that a container has, by their names within the pod."""
    return {str(claim.get("name")) for claim in objects(at(container.raw, "resources", "claims"))}


def used_claims(pod: Pod, container: Container) -> set[str]:
    """The templates that a container claims."""
    there = claim_names(container)
    return _templates_of(there, _by_name(pod)) if there else set()


def made_for(pod: Pod, container: Container) -> bool:
    """Whether a container has claims, and each is an object by its name: a webhook may have made it of resources."""
    by_name = _by_name(pod)
    there = claim_names(container)
    return bool(there) and all(name in by_name and by_name[name] is None for name in there)


def _by_name(pod: Pod) -> dict[str, Any]:
    """The template of each claim of the pod; made once for all containers."""
    known: dict[str, Any] | None = pod.cache.get(_by_name)
    if known is None:
        claims = objects(pod.spec.get("resourceClaims"))
        known = {str(claim.get("name")): claim.get("resourceClaimTemplateName") for claim in claims}
        pod.cache[_by_name] = known
    return known


def _templates_of(names: Collection[str], by_name: Mapping[str, Any]) -> set[str]:
    return {template for name in names if isinstance(template := by_name.get(name), str)}


def claim_devices(pod: Pod, served: Sequence[Assignment], rulebook: Rulebook) -> Iterator[Edit]:
    """The edits that add each container's missing claims."""
    if not any(one.mode.claims for one in served):
        return
    by_name = _by_name(pod)
    taken = set(by_name)
    for one in served:
        container = one.asked.container
        there = _templates_of(claim_names(container), by_name) if one.mode.claims else set()
        rule = one.mode.claims[0].rule if one.mode.claims else ""
        wanted = claim_templates(one, rulebook)
        if one.mode.claims and not wanted:
            raise CannotExpressError("GPU301", f"{one.backend.name} has no template for this", "name one (gpu-claim)")
        for template in wanted:
            if template not in there:
                name = _name(container.name, template, taken)
                taken.add(name)
                entry = {"name": name, "resourceClaimTemplateName": template}
                yield Append(("spec", "resourceClaims"), entry, rule)
                yield Append((*container.path, "resources", "claims"), {"name": name}, rule)


def _name(container: str, template: str, taken: Collection[str]) -> str:
    """A DNS label for a claim of one container, unique in the pod."""
    text = f"{container}-{template.replace('.', '-')}"
    numbered = (f"{text[: _LONGEST - 7].rstrip('-')}-{number}" for number in count(len(taken) + 1))
    return next(name for name in chain([text[:_LONGEST].rstrip("-")], numbered) if name not in taken)
