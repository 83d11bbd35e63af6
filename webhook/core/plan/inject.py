"""What a pod needs beside resources: runtime class, scheduler, env, tolerations, node affinity, labels, annotations.

Only pods that get a GPU are changed, and only as the back end's rule says. A value of the pod's author is kept,
unless the rule says `enforce`. If it cannot be kept without breaking the back end, the pod is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from webhook.core.backends import cards, translate
from webhook.core.backends.charge import charge
from webhook.core.backends.translate import CannotExpressError
from webhook.core.forms import labels
from webhook.core.kube.fields import Append, Edit, Path, Put, Remove, at, field_path, mapping, objects
from webhook.core.kube.pod import (
    INIT,
    SIDECAR,
    Bounds,
    Container,
    Pod,
    Requirement,
    node_bounds,
    require_nodes,
    selects_nodes,
)
from webhook.core.kube.quantity import Fraction, show_size
from webhook.core.plan.choose import Assignment
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Companions, Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import CONTAINER, SlotKind, holes
from webhook.core.violations import Violation

# The text that rules write into annotations, labels, env and node affinity.

_OF_MODELS: Final = frozenset({"product", "lookalikes", "model"})
"""Words that have no value if no model is asked for."""


def texts(output: Output, assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The values of an output, in order; empty if it is to be left out."""
    request = assignment.request
    if not isinstance(output, Constant):
        if output.is_number:
            number, _ = translate.express(output, request, assignment.card)
            return [] if number is None else [translate.as_text(output, number)]
        values = _words(output.what, output.form, assignment, rulebook)
        return [text for value in values for text in output.values.get(value, (value,))]
    filled: list[str] = []
    for template in output.texts:
        # A hole is filled with each product or model in turn; without any value the text is left out.
        variants = [template]
        open_holes = holes(template)
        for hole in dict.fromkeys(open_holes):
            words = _words(hole, "label", assignment, rulebook)
            if hole == "product" and "profile" in open_holes and not request.models:
                able = cards.card_served(assignment.backend, rulebook)
                names = [name for card in able if request.profile in card.profiles for name in card.names]
                words = [cards.as_label(name) for name in names]
            variants = [text.replace(f"{{{hole}}}", word) for text in variants for word in words]
        filled += [text for text in variants if text]
    return filled


def text(output: Output, assignment: Assignment, rulebook: Rulebook) -> str | None:
    """The values of an output joined by commas; None if it is to be left out."""
    if output.what in _OF_MODELS and not assignment.request.models:
        return None
    return ",".join(texts(output, assignment, rulebook)) or None


def _words(what: str, form: str, assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """What a word of a rule stands for in this request; empty if it has no value."""
    request = assignment.request
    match what:
        case "container":
            return (assignment.demand.container.name,)
        case "memory":
            return () if request.memory is None else (show_size(request.memory),)
        case "model":
            return request.models
        case "product":
            names = [name for model in request.models for name in rulebook.devices[model.lower()].names]
        case "lookalikes":
            names = [name for _, name in _lookalikes("product", request.models, rulebook)] if request.models else []
        case "profile" | "placement" | "claim":
            value = getattr(request, what)
            return () if value is None else (value,)
        case _:
            return ()
    return [cards.as_label(name) for name in names] if form == "label" else names


def taken_for(models: Sequence[str], modes: Iterable[Mode], rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a system with one of these modes may give, beside the models that it is asked for."""
    loosely = {mode.loosely for mode in modes if mode.loosely} if models else ()
    alike = (card for what in loosely for card, _ in _lookalikes(what, models, rulebook))
    return list({card.model: card for card in alike}.values())


def _lookalikes(what: str, models: Sequence[str], rulebook: Rulebook) -> list[tuple[Card, str]]:
    """Other cards and their products whose names contain a requested one, as `NVIDIA A100` contains `NVIDIA A10`.

    `what` is `product` or `model`: the names by which they are requested. The products of all cards are listed once
    for each rulebook, and those that are like a card once for each card.
    """
    products: list[tuple[Card, str]] | None = rulebook.cache.get(_lookalikes)
    if products is None:
        by_model = {card.model: card for card in rulebook.devices.values()}
        products = rulebook.cache[_lookalikes] = [(card, name) for card in by_model.values() for name in card.names]
    requested = {card.model: card for card in (rulebook.devices[model.lower()] for model in models)}
    vendors = {card.vendor for card in requested.values()}
    places: set[int] = set()
    for card in requested.values():
        alike: list[int] | None = rulebook.cache.get((_lookalikes, what, card.model))
        if alike is None:
            parts = [name.lower() for name in (card.names if what == "product" else [card.model])]
            names = [name.lower() for _, name in products]
            alike = [place for place, name in enumerate(names) if any(part in name for part in parts)]
            rulebook.cache[_lookalikes, what, card.model] = alike
        places.update(alike)
    others = (products[place] for place in sorted(places))
    return [(card, name) for card, name in others if card.vendor in vendors and card.model not in requested]


# On the nodes of which back ends a pod may run, by its own node selection.


class NodeSelection:
    """The nodes that one pod may run on. Answers are cached: it may have many containers and many terms.

    `selects` says whether the pod selects its nodes at all.
    """

    __slots__ = ("_allowed", "_bounds", "pod", "rulebook", "selects")

    def __init__(self, pod: Pod, rulebook: Rulebook) -> None:
        self.pod = pod
        self.rulebook = rulebook
        self.selects = selects_nodes(pod)
        self._allowed: dict[object, bool] = {}
        self._bounds: Bounds | None = None

    def allows(self, assignment: Assignment) -> bool:
        """Whether the pod's own node selection leaves any node of a back end, whatever card is asked for."""
        mode, request = assignment.mode, assignment.request
        if not mode.outputs.node_affinity or not self.selects:
            return True
        key = (assignment.backend.name, id(mode), request.models, request.profile)
        if key not in self._allowed:
            self._allowed[key] = not self.excludes(assignment, mode.outputs.node_affinity)
        return self._allowed[key]

    def excludes(self, assignment: Assignment, keys: Iterable[str]) -> bool:
        """Whether the pod excludes the nodes that the constants among these lines of a rule ask for."""
        lines = assignment.mode.outputs.node_affinity
        wanted = requirements(assignment, {key: lines[key] for key in keys if not lines[key].what}, self.rulebook)
        return any(isinstance(edit, Violation) for edit in require_nodes(self.pod, wanted))

    def binds_to(self, assignment: Assignment) -> bool:
        """Whether every node that the pod may run on is of the back end; False where no label tells its nodes."""
        return self.selects and self._within(self.pool(assignment))

    def binds_to_card(self, assignment: Assignment) -> bool:
        """Whether every node that the pod may run on has a card that is asked for; False if no label tells cards."""
        mode = assignment.mode
        lines = {key: line for key, line in mode.outputs.node_affinity.items() if key not in mode.pool}
        return self.selects and self._within(list(requirements(assignment, lines, self.rulebook)))

    def pool(self, assignment: Assignment) -> Sequence[Requirement]:
        """What tells the back end's nodes from those of others; empty if no label does."""
        return list(requirements(assignment, assignment.mode.pool, self.rulebook))

    def _within(self, wanted: Sequence[Requirement]) -> bool:
        if self._bounds is None:
            self._bounds = node_bounds(self.pod)
        bounds = self._bounds
        return bool(wanted) and all(requirement.holds_within(bounds) for requirement in wanted)


def requirements(assignment: Assignment, lines: Mapping[str, Output], rulebook: Rulebook) -> Iterator[Requirement]:
    """What these lines of a rule require of the nodes; a line without a value requires nothing."""
    for key, output in lines.items():
        values = texts(output, assignment, rulebook)
        if values or (isinstance(output, Constant) and output.value == ()):
            allowed = tuple(map(cards.as_label, values))
            yield Requirement(key, allowed, output.rule, assignment.demand.container.name)


# What a pod needs beside resources.

DEFAULT_SCHEDULER: Final = "default-scheduler"


def inject(nodes: NodeSelection, assignments: Sequence[Assignment]) -> list[Edit | Violation]:
    """The edits that the back ends' rules require, and a violation for each that cannot be made."""
    pod, rulebook = nodes.pod, nodes.rulebook
    injected: list[Edit | Violation] = []

    # One scheduler and one runtime class for the whole pod; a runtime class of its author stays.
    for field, attribute in (("schedulerName", "scheduler"), ("runtimeClassName", "runtime_class")):
        wanted: list[tuple[str, Constant]] = []
        for assignment in assignments:
            constant = getattr(assignment.backend.inject, attribute)
            if constant is not None and constant.value:
                wanted.append((assignment.backend.name, constant))
        present = pod.spec.get(field)
        if not wanted or (present and field == "runtimeClassName"):
            continue
        first, constant = wanted[0]
        for backend, other in wanted[1:]:
            if other.value != constant.value:
                message = (
                    f"two back ends of this pod want a different {field}: {first} wants {constant.value}, "
                    f"{backend} wants {other.value}"
                )
                fix = "name one back end for the whole pod with gpu-backend, or use two pods"
                injected.append(_refused("GPU501", ("spec", field), message, fix, other.rule))
        if present in {None, "", DEFAULT_SCHEDULER}:
            injected.append(Put(("spec", field), constant.value, constant.rule))
        elif present != constant.value:
            message = f"{first} works only with the scheduler {constant.value}; the pod names {present}"
            fix = f"leave schedulerName out, or name {constant.value}"
            injected.append(_refused("GPU501", ("spec", field), message, fix, constant.rule))

    tolerations = [*(pod.spec.get("tolerations") or ())]
    for assignment in assignments:
        for toleration, rule in assignment.backend.inject.tolerations:
            for present in tolerations:
                if _tolerates(present, toleration):
                    break
            else:
                tolerations.append(toleration)
                injected.append(Append(("spec", "tolerations"), dict(toleration), rule))
    try:
        for assignment in assignments:
            if assignment.mode.outputs.env:
                injected += _env(assignment, rulebook)
        injected += _metadata(pod.annotations, "annotation", assignments, rulebook)
        injected += _metadata(pod.labels, "label", assignments, rulebook)

        # A pod with the back end's own resources may choose other nodes, and counts what they give. A pod that names
        # the back end or the card may not: the name decides what it is charged.
        affinity: list[Requirement] = []
        dropped: dict[int, set[str]] = {}
        for assignment in assignments:
            mode, demand = assignment.mode, assignment.demand
            lines = mode.outputs.node_affinity
            if nodes.selects and demand.request is None and "gpu-backend" not in demand.stated:
                if id(mode) not in dropped:
                    constants = (key for key, line in lines.items() if not line.words)
                    dropped[id(mode)] = {key for key in constants if nodes.excludes(assignment, [key])}
                lines = {key: line for key, line in lines.items() if key not in dropped[id(mode)]}
            affinity += requirements(assignment, lines, rulebook)
        if affinity:
            injected += require_nodes(pod, affinity)
        injected += _claims(pod, assignments, rulebook)
    except CannotExpressError as reason:
        injected.append(_refused(reason.code, ("spec",), reason.message, reason.fix))
    return injected


def _refused(code: str, path: Path, message: str, fix: str, rule: str = "") -> Violation:
    return Violation(code=code, path=field_path(path), message=message, fix=fix, rule=rule)


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


def _env(assignment: Assignment, rulebook: Rulebook) -> Iterator[Edit]:
    """Each variable once. The author's own is kept, or with `enforce` replaced, whatever its source of a value."""
    container = assignment.demand.container
    path: Path = (*container.path, "env")
    for name, output in assignment.mode.outputs.env.items():
        value = text(output, assignment, rulebook)
        if value is None:
            continue
        wanted = {"name": name, "value": value}
        present = [index for index, variable in enumerate(container.env) if variable.get("name") == name]
        enforce = isinstance(output, Constant) and output.enforce
        if not present:
            yield Append(path, wanted, output.rule)
        elif enforce and [container.env[index] for index in present] != [wanted]:
            yield Put((*path, present[0]), wanted, output.rule)
            for index in reversed(present[1:]):
                yield Remove((*path, index), output.rule)


def _metadata(
    present: Mapping[str, Any], kind: SlotKind, assignments: Sequence[Assignment], rulebook: Rulebook
) -> Iterator[Edit | Violation]:
    """Labels or annotations. The author's own constant is kept; a value that contradicts the request is refused."""
    section = f"{kind}s"
    written: dict[str, tuple[str, str]] = {}
    for assignment in assignments:
        container, mode = assignment.demand.container.name, assignment.mode
        for ruled, output in getattr(mode.outputs, section).items():
            slot = f"{kind} {ruled}"  # the text of a `Slot`, by which amounts are known
            if slot in mode.amounts and (
                slot not in assignment.amounts or slot in assignment.demand.extended.amounts
            ):
                continue  # nobody asks for it; or it is there, perhaps in other digits
            value = text(output, assignment, rulebook)
            if value is None:
                continue
            key = ruled.replace(CONTAINER, container)
            path: Path = ("metadata", section, key)
            if section == "labels" and not labels.is_value(value):
                backend = assignment.backend.name
                message = f'{backend} would set {field_path(path)} to "{value[:80]}", which no label can hold'
                yield _refused("GPU503", path, message, "ask for less at once, as for one model", output.rule)
                continue
            first, before = written.setdefault(key, (container, value))
            if before != value:
                who, fix = f'the containers "{first}" and "{container}" need', "ask for the same, or use two pods"
            elif key not in present:
                if first == container:
                    yield Put(path, value, output.rule)
                continue
            elif present[key] != value and (output.what or output.enforce):
                before = present[key]
                who, fix = f'the pod and its container "{container}" want', f"remove {key} from the pod"
            else:
                continue
            message = f'{who} different values of {field_path(path)}: "{before}", and "{value}"'
            yield _refused("GPU503", path, message, fix, output.rule)


# What a back end requires of the rest of a pod, or forbids, and what the webhook never writes itself.


def check_requirements(pod: Pod, assignments: Sequence[Assignment]) -> list[Violation]:
    """A violation (GPU503) for each required field that is missing and each forbidden one, once for each back end."""
    groups: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        if assignment.mode.companions is not None:
            groups.setdefault(assignment.mode.companions.rule, []).append(assignment)
    violations: list[Violation] = []
    for group in groups.values():
        companions, backend = group[0].mode.companions or Companions(), group[0].backend
        wrong: list[tuple[Path, str, str]] = []
        for path, what in missing(companions.requires, pod, group):
            wrong.append((path, f"{backend.name} needs {what}", f"write {what}, if your cluster allows it"))
        for path, what, fix in forbidden(companions.forbids, pod, group):
            wrong.append((path, f"{backend.name} does not work with {what}", fix))
        for key in sorted(pod.annotations) if companions.reserved else ():
            if companions.reserves(key):
                message = f"the annotation {key} is written by the scheduler of {backend.name}, and by nobody else"
                wrong.append((("metadata", "annotations", key), message, f"remove {key}"))
        if len(assignments) > 1:
            sharing = [assignment for assignment in assignments if not backend.owns.isdisjoint(assignment.amounts)]
            wrong += _together(sharing, companions)
        for path, message, fix in wrong:
            violations.append(_refused("GPU503", path, message, fix, companions.rule))
    return violations


def missing(requires: Mapping[str, str], pod: Pod, group: Sequence[Assignment]) -> Iterator[tuple[Path, str]]:
    """The path and the name of what words of `requires:` want and the pod lacks."""
    for word, value in requires.items():
        match word:
            case "hostIPC":
                if pod.spec.get("hostIPC") is not True:
                    yield ("spec", "hostIPC"), "hostIPC: true"
            case "runAsUser":
                general = mapping(pod.spec, "securityContext").get("runAsUser")
                for container in (assignment.demand.container for assignment in group):
                    if str(mapping(container.raw, "securityContext").get("runAsUser", general)) != value:
                        path: Path = (*container.path, "securityContext", "runAsUser")
                        yield path, f"securityContext.runAsUser: {value}"
            case "hostPath":
                volumes = objects(pod.spec.get("volumes"))
                names = {str(volume.get("name")) for volume in volumes if at(volume, "hostPath", "path") == value}
                for container in (assignment.demand.container for assignment in group):
                    mounts = objects(container.raw.get("volumeMounts"))
                    there = (str(mount.get("name")) for mount in mounts if mount.get("mountPath") == value)
                    if names.isdisjoint(there):
                        path = (*container.path, "volumeMounts")
                        yield path, f"the hostPath volume {value}, mounted at the same path"
            case _:
                raise KeyError(word)


def forbidden(words: Sequence[str], pod: Pod, group: Sequence[Assignment]) -> Iterator[tuple[Path, str, str]]:
    """The path, the name and the fix of what the pod has and words of `forbids:` exclude."""
    for word in words:
        match word:
            case "privileged":
                for container in pod.containers:
                    security = container.raw.get("securityContext")
                    if security and mapping(security).get("privileged") is True:
                        path: Path = (*container.path, "securityContext", "privileged")
                        yield path, f'the privileged container "{container.name}"', "leave privileged out"
            case "nodeName":
                if pod.spec.get("nodeName"):
                    fix = "leave nodeName out; a node affinity on kubernetes.io/hostname selects a node, too"
                    yield ("spec", "nodeName"), "spec.nodeName, which passes its scheduler by", fix
            case "initContainers":
                for container in (assignment.demand.container for assignment in group):
                    if container.kind in {INIT, SIDECAR}:
                        what = f'init containers, and "{container.name}" is one'
                        yield container.path, what, "ask in a container"
            case _:
                raise KeyError(word)


def _together(group: Sequence[Assignment], companions: Companions) -> Iterator[tuple[Path, str, str]]:
    """The path, the message and the fix where the containers of a back end break a limit on all of them together."""
    containers = " and ".join(assignment.demand.container.name for assignment in group)
    if companions.containers is not None and len(group) > companions.containers:
        most = f"{companions.containers} container{'s' if companions.containers > 1 else ''} of a pod"
        message = f"{group[0].backend.name} serves {most}; {containers} ask for a GPU"
        yield group[-1].demand.container.path, message, "use a pod for each of them"
    if companions.one_device and len(group) > 1:
        sized = [(assignment.request, assignment.card) for assignment in group if assignment.card is not None]
        card = sized[0][1] if sized else None
        memory = sum(assignment.request.memory or 0 for assignment in group)
        devices = sum((charge(request, own) for request, own in sized), Fraction(0))
        amount = f"{float(devices):.2f} devices".replace(".00", "")
        if card is not None and memory > card.memory:
            amount = f"{show_size(memory)}, and {card.model} has {show_size(card.memory)}"
        elif devices <= 1:
            return
        backend = group[0].backend.name
        message = f"all containers of a pod share one device of {backend}, and {containers} together ask for {amount}"
        yield ("spec", "containers"), message, "ask for less, or use two pods"


# Resource claims (Kubernetes DRA): a container gets devices by the name of a template instead of a quantity.

_LONGEST: Final = 63

_LEGAL: Final = str.maketrans("+_", ".-")
"""Characters of a profile that no object's name can have: 1g.10gb+me is claimed as 1g.10gb.me."""


def claim_templates(assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The names of the templates that a container's request becomes."""
    names = (text(claim, assignment, rulebook) for claim in assignment.mode.claims)
    return [name.lower().translate(_LEGAL) for name in names if name is not None]


def claim_names(container: Container) -> set[str]:
    """The claims that a container has, by their names within the pod."""
    return {str(claim.get("name")) for claim in objects(at(container.raw, "resources", "claims"))}


def used_claims(pod: Pod, container: Container) -> set[str]:
    """The templates that a container claims."""
    names = claim_names(container)
    templates = _claims_of_pod(pod) if names else {}
    return {template for name in names if isinstance(template := templates.get(name), str)}


def made_for(pod: Pod, container: Container) -> bool:
    """Whether a container has claims, and each is an object by its name: a webhook may have made it of resources."""
    templates, names = _claims_of_pod(pod), claim_names(container)
    return bool(names) and all(name in templates and templates[name] is None for name in names)


def _claims_of_pod(pod: Pod) -> dict[str, Any]:
    """The template of each claim of the pod, by the claim's name; made once for all containers."""
    templates: dict[str, Any] | None = pod.cache.get(_claims_of_pod)
    if templates is None:
        claims = objects(pod.spec.get("resourceClaims"))
        templates = {str(claim.get("name")): claim.get("resourceClaimTemplateName") for claim in claims}
        pod.cache[_claims_of_pod] = templates
    return templates


def _claims(pod: Pod, assignments: Sequence[Assignment], rulebook: Rulebook) -> Iterator[Edit]:
    """The edits that add each container's missing claims. Raises CannotExpressError if no template has a name."""
    taken: set[str] | None = None
    for assignment in assignments:
        if not assignment.mode.claims:
            continue
        container, rule = assignment.demand.container, assignment.mode.claims[0].rule
        taken = set(_claims_of_pod(pod)) if taken is None else taken
        present = used_claims(pod, container)
        wanted = claim_templates(assignment, rulebook)
        if not wanted:
            message = f"{assignment.backend.name} has no template for this"
            raise CannotExpressError("GPU301", message, "name one (gpu-claim)")
        for template in wanted:
            if template in present:
                continue
            # A DNS label for a claim of one container, unique in the pod.
            label = f"{container.name}-{template.replace('.', '-')}"
            name = label[:_LONGEST].rstrip("-")
            numbers = count(len(taken) + 1)
            while name in taken:
                name = f"{label[: _LONGEST - 7].rstrip('-')}-{next(numbers)}"
            taken.add(name)
            yield Append(("spec", "resourceClaims"), {"name": name, "resourceClaimTemplateName": template}, rule)
            yield Append((*container.path, "resources", "claims"), {"name": name}, rule)
