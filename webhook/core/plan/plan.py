"""The plan of a pod: everything the webhook would do to it, with the reasons.

Only pods that get a GPU are changed, and only as the back end's rule says: resources, runtime class, scheduler, env,
tolerations, node affinity, labels, annotations. A value of the pod's author is kept, unless the rule says `enforce`.
If it cannot be kept without breaking the back end, the pod is refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from webhook.core.backends.cards import models_of_nodes
from webhook.core.backends.charge import charge
from webhook.core.backends.translate import CannotExpressError, as_text, find_card
from webhook.core.forms import labels
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.interpret import MOST, ContainerRequest, Interpretation, interpret
from webhook.core.kube import quantity
from webhook.core.kube.fields import Append, Edit, Path, Put, Remove, at, field_path, mapping, objects
from webhook.core.kube.pod import INIT, SIDECAR, Container, Pod, Requirement, require_nodes
from webhook.core.kube.quantity import Fraction, show_size
from webhook.core.plan import choose
from webhook.core.plan.choose import (
    MOST_TRIALS,
    Assignment,
    NodeSelection,
    Preference,
    Trials,
    requirements,
    rule_text,
)
from webhook.core.quota import tally
from webhook.core.request import KEYS, GpuRequest, pasteable
from webhook.core.rules.modes import Companions, Constant
from webhook.core.rules.rulebook import Resource, Rulebook, Surroundings
from webhook.core.rules.verbs import CONTAINER, SlotKind
from webhook.core.violations import Alternative, Refusal, Violation, joined

COST: Final = 10
"""What it costs to read a container again, in trials of one request. A label, annotation or amount costs a half."""


@dataclass(slots=True)
class Plan:
    """The requests, the back end of each container, and the edits. With a violation no edit is made."""

    interpretation: Interpretation
    assignments: list[Assignment] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def backends(self) -> Mapping[str, str]:
        """The back end of each container that has a GPU, by the container's name."""
        return {assignment.demand.container.name: assignment.backend.name for assignment in self.assignments}


def make(
    pod: Pod,
    rulebook: Rulebook,
    tenant_default: str | None = None,
    policy_allows: Callable[[Assignment], bool] | None = None,
    interpretation: Interpretation | None = None,
    most_trials: int = MOST_TRIALS,
) -> Plan:
    """Plan the translation of a pod.

    `tenant_default` and `policy_allows` are those of `Preference`. `interpretation` is that of the pod, if one is
    made already.
    """
    nodes = NodeSelection(pod, rulebook)
    by_nodes = (nodes.allows, nodes.binds_to) if nodes.selects else (None, None)
    preference = Preference(tenant_default, policy_allows, *by_nodes)
    trials = Trials(most_trials)
    plan = _make(nodes, interpretation or interpret(pod, rulebook), preference._replace(trials=trials))
    if any(violation.alternatives for violation in plan.violations):
        plan.violations = [_tried(violation, plan, nodes, preference, trials) for violation in plan.violations]
    return plan


def _tried(
    violation: Violation, plan: Plan, nodes: NodeSelection, preference: Preference, trials: Trials
) -> Violation:
    """The violation with a fix that was tried; if no alternative leads to a GPU, with the next reason and its fix."""
    groups = [group for group in violation.alternatives if group]
    before = {(other.code, other.path) for other in plan.violations if other is not violation}

    def new(plan: Plan) -> list[Violation]:
        """What is wrong in a plan that was not before."""
        return [wrong for wrong in plan.violations if (wrong.code, wrong.path) not in before]

    for group in groups:
        fixes: list[str] = []
        for alternative in group:
            if not _affords(trials, nodes.pod):
                return violation
            changed = _replanned(alternative, nodes, preference._replace(beside=alternative))
            if violation in changed.violations:
                return violation  # this is of what no reading changes, as a claim
            if all(need.code == "GPU503" for need in new(changed)) and (before or changed.assignments):
                needs = dict.fromkeys([alternative.text, *(need.fix for need in new(changed))])
                fixes.append("; ".join(needs))
        if fixes:
            unchanged = group is groups[0] and fixes == [alternative.text for alternative in group]
            return violation if unchanged else replace(violation, fix=joined(fixes))
    if not groups or not _affords(trials, nodes.pod):
        return violation
    alternative = groups[-1][0]
    remaining = new(_replanned(alternative, nodes, preference._replace(trials=trials, beside=alternative)))
    if not remaining or not remaining[0].code.startswith("GPU3"):
        return violation
    message = f"{violation.message}, and {remaining[0].message}"
    return replace(violation, message=message, fix=remaining[0].fix, notes=remaining[0].notes)


def _replanned(alternative: Alternative, nodes: NodeSelection, preference: Preference) -> Plan:
    """The plan of the pod as it is with one thing done."""
    return _make(nodes, interpret(nodes.pod, nodes.rulebook, instead=alternative.readings), preference)


def _affords(trials: Trials, pod: Pod) -> bool:
    """Whether a pod may be read once more, which is paid for: a hostile one has much to read."""
    if trials.left > 0:
        small = len(pod.annotations) + len(pod.labels) + sum(len(container.limits) for container in pod.containers)
        trials.left -= COST * len(pod.containers) + small // 2
    return trials.left > 0


def _disabled_warning(
    demand: ContainerRequest, resource: Resource, nodes: NodeSelection, preference: Preference
) -> str:
    """The warning about a resource of back ends that are not enabled; first what gives a GPU instead, if anything."""
    name, owners = resource.name, quantity.listed([owner.name for owner in resource.known], choose.MENTIONED)
    text = f"{name} belongs to {owners}, which this cluster does not enable; it is left as it is"
    wish = extended_resources.in_shorthand(demand.container, resource, demand.extended.texts[name])
    if wish is None or preference.trials is None or not _affords(preference.trials, nodes.pod):
        return text
    served = _replanned(wish, nodes, preference._replace(trials=None))
    return f"{wish.text}: {text}" if served.assignments and not served.violations else text


def _make(nodes: NodeSelection, interpretation: Interpretation, preference: Preference) -> Plan:
    """The plan, with the fix of each violation as it is."""
    pod, rulebook = nodes.pod, nodes.rulebook
    plan = Plan(interpretation, warnings=list(interpretation.warnings), violations=list(interpretation.violations))

    # A back end and its resources for each container.
    # Nothing is translated if the pod names a model or profile that no catalogue has.
    unknown = "GPU303" in [violation.code for violation in plan.violations]
    for demand in interpretation.asked:
        if len(plan.violations) > MOST:
            break
        assignment = None
        warnings: list[str] = []
        try:
            if demand.anything and not unknown:
                assignment = choose.choose(nodes.bind(demand), rulebook, preference)
                disabled = map(rulebook.resources.__getitem__, demand.extended.amounts if assignment is None else ())
                warnings += [_disabled_warning(demand, resource, nodes, preference) for resource in disabled]
        except Refusal as refusal:
            plan.violations += refusal.violations
        if assignment is not None:
            plan.assignments.append(assignment)
            warnings += [*assignment.warnings, *_beyond_nodes(demand, assignment.request, rulebook)]
            if key := nodes.excludes_models(assignment):
                model = demand.stated["gpu-model"]
                warnings.append(f"remove {model.path}, or the selection by {key}: its nodes have no {model.text}")
            alone = demand.request is None and "gpu-backend" not in demand.stated
            if alone and assignment.request.devices == "part" and not nodes.allows(assignment):
                pool = " and ".join(map(str, nodes.pool(assignment)))
                warnings.append(
                    f"only nodes {pool} give this share, and the pod excludes them; "
                    f'the container "{demand.container.name}" counts as what other nodes give'
                )
        plan.warnings += [warning for warning in warnings if warning not in plan.warnings]
        plan.edits += _resources(demand, assignment, rulebook)

    plan.warnings += _unheard(pod, [*plan.backends.values()], rulebook)

    # What the back ends need of the rest of the pod.
    for injected in inject(nodes, plan.assignments):
        if isinstance(injected, Violation):
            plan.violations.append(injected)
        else:
            plan.edits.append(injected)
    plan.violations += check_requirements(pod, plan.assignments)

    plan.edits += _annotations(nodes, plan)
    return plan


ON_A_NODE: Final = 16
"""The most devices of a node where none is known: so many are in a DGX-2, an Atlas 900 A3 and a trn1.32xlarge."""


def _beyond_nodes(demand: ContainerRequest, request: GpuRequest, rulebook: Rulebook) -> Iterator[str]:
    """Warnings if a container asks in shorthand for more devices than a node has, or for a card of none."""
    stated, most = demand.stated.get("gpu"), rulebook.surroundings.most or ON_A_NODE
    if stated is not None and request.count > most:
        fix = f"write {most} or fewer"
        if ON_A_NODE < request.count <= 100 and stated.value.share is None:
            part = quantity.show(Fraction(request.count, 100))
            fix = f"write {pasteable(stated.key, part)} if you mean {request.count} % of a device"
        yield f"{fix}: no node that is known has {request.count} devices ({stated.path})"
    model, exists = demand.stated.get("gpu-model"), rulebook.surroundings.exists
    present = [
        card for card in models_of_nodes(rulebook) if tally.key(tally.DEVICES, card) in exists
    ]  # if all are known
    if model is not None and present and set(present).isdisjoint(request.models):
        wish = f"write {model.key}: {' or '.join(present[:3])}"
        yield f"{wish}: no node that is known has {model.text} ({model.path})"


def _unheard(pod: Pod, serving: Sequence[str], rulebook: Rulebook) -> Iterator[str]:
    """A warning for each annotation that qualifies the request for other back ends than those that are `serving`."""
    heard: dict[str, dict[str, str]] | None = rulebook.cache.get(_unheard)
    if heard is None:
        heard = rulebook.cache[_unheard] = {}
        for backend in rulebook.backends.values():
            for mode in backend.modes:
                for key, output in mode.outputs.annotations.items():
                    for word in {*output.words} - {"lookalikes"}:  # which excludes models
                        named = "model" if word == "product" else word
                        heard.setdefault(key, {})[backend.name] = f"gpu-{named}"
    for key in pod.annotations if serving else ():
        others = heard.get(key, {})
        if others and not key.startswith(locations.BEGINNINGS) and others.keys().isdisjoint(serving):
            instead, who = next(iter(others.values())), " or ".join([*others][:2])
            fix = f"write {instead} instead of {key}" if instead in KEYS else f"remove {key}"
            path = field_path(("metadata", "annotations", key))
            yield f"{fix}: {who} reads it, and {' and '.join(dict.fromkeys(serving))} serves the pod ({path})"


def _resources(demand: ContainerRequest, assignment: Assignment | None, rulebook: Rulebook) -> list[Edit]:
    """The edits of a container's resources. Kubernetes sets missing requests to the limits."""
    container, extended = demand.container, demand.extended
    edits = _removals(container, locations.RESOURCES)
    written: Collection[str] = ()
    if assignment is not None:
        written = assignment.amounts.keys()
        for name, output in assignment.mode.limits.items():
            number = assignment.amounts.get(name)
            if number is None:
                continue
            text = as_text(output, number)
            for section, present in (("limits", container.limits), ("requests", container.requests)):
                missing = name not in present
                if section == "limits" if missing else not quantity.same(present[name], text):
                    edits.append(Put((*container.path, "resources", section, name), text, output.rule))
        if demand.fraction is not None and demand.fraction not in written:
            edits += _removals(container, {demand.fraction}, assignment.backend.rule)

    # A resource that is 0 asks for nothing, and a vendor may take it for no limit. On a container without a GPU a
    # number of devices stays.
    zeros: Collection[str] = ()
    if assignment is not None:
        zeros = (extended.zeros & assignment.backend.owns) - assignment.amounts.keys()
    elif not demand.anything:
        resources = [rulebook.resources[name] for name in extended.zeros]
        zeros = {resource.name for resource in resources if resource.owners and not resource.counts}
    repairs = [repair for name, repair in extended.repairs.items() if name not in zeros and name not in written]
    return [*edits, *_removals(container, zeros), *repairs]


def _removals(container: Container, names: Collection[str], rule: str = "") -> list[Edit]:
    """Remove resources from limits and requests."""
    return [
        Remove((*container.path, "resources", section, name), rule)
        for section, present in (("limits", container.limits), ("requests", container.requests))
        for name in present
        if name in names
    ]


def _annotations(nodes: NodeSelection, plan: Plan) -> list[Edit]:
    """The edits of annotations that keep the request, so that every later reader of the pod understands the same."""
    pod, rulebook = nodes.pod, nodes.rulebook
    wanted: dict[str, str] = {}
    for demand in plan.interpretation.asked:
        for key, stated in demand.persist.items() if demand.request is not None or demand.overrides else ():
            match stated.value:
                case int():
                    kept = quantity.show_size(stated.value)
                case Fraction():
                    kept = quantity.show(stated.value)
                case None:
                    kept = "none"
                case value:
                    kept = str(value)
            wanted.setdefault(locations.annotation(key, demand.container.name), kept)
    notes = {
        assignment.demand.container.name: f"{assignment.demand.request} -> {assignment.backend.name}"
        for assignment in plan.assignments
        if assignment.demand.request is not None
    }
    if notes:
        named = [f"{container}: {note}" for container, note in notes.items()]
        wanted[locations.NOTE] = "; ".join(named if len(notes) > 1 else notes.values())
        if plan.interpretation.chosen is not None:
            wanted[locations.CONTAINER] = plan.interpretation.chosen
    edits: list[Edit] = [
        Put(("metadata", "annotations", key), kept)
        for key, kept in wanted.items()
        if key not in pod.annotations or (key == locations.NOTE and pod.annotations[key] != kept)
    ]

    # The cards that only the present nodes tell: what the pod counts must not change with the nodes later. They are
    # noted only if they are the same for all containers that name no model, as one annotation is for all of them.
    cards, present = rulebook.surroundings.cards, pod.annotations.get(locations.CARD)
    if not cards and present is None:
        return edits
    bare: Rulebook | None = rulebook.cache.get(_annotations)  # kept, as it keeps the cards that back ends serve
    if bare is None:
        bare = rulebook.cache[_annotations] = replace(rulebook, surroundings=Surroundings())
    lists = {
        ",".join(nodes.models(assignment))
        for assignment in plan.assignments
        if "gpu-model" not in assignment.demand.stated and find_card((), bare, assignment.backend) is None
    }
    note = lists.pop() if len(lists) == 1 else ""
    path: Path = ("metadata", "annotations", locations.CARD)
    if 0 < len(note) <= locations.LONGEST_NOTE:
        edits += [Put(path, note)] if present != note else []
    elif present is not None:
        edits.append(Remove(path))  # a note of the pod's author
    return edits


# What a pod needs beside resources.

DEFAULT_SCHEDULER: Final = "default-scheduler"


def inject(nodes: NodeSelection, assignments: Sequence[Assignment]) -> list[Edit | Violation]:
    """The edits that the back ends' rules require, and a violation for each that cannot be made."""
    pod, rulebook = nodes.pod, nodes.rulebook
    injected: list[Edit | Violation] = []
    backends = [assignment.backend for assignment in assignments]

    # One scheduler and one runtime class for the whole pod; a runtime class of its author stays.
    for key, attribute in (("schedulerName", "scheduler"), ("runtimeClassName", "runtime_class")):
        named = [(backend.name, getattr(backend.inject, attribute)) for backend in backends]
        wanted = [(name, constant) for name, constant in named if constant and constant.value]
        present = pod.spec.get(key)
        if not wanted or (present and key == "runtimeClassName"):
            continue
        first, constant = wanted[0]
        for backend, other in wanted[1:]:
            if other.value != constant.value:
                message = (
                    f"two back ends of this pod want a different {key}: {first} wants {constant.value}, "
                    f"{backend} wants {other.value}"
                )
                fix = "name one back end for the whole pod with gpu-backend, or use two pods"
                injected.append(_refused("GPU501", ("spec", key), message, fix, other.rule))
        if present in {None, "", DEFAULT_SCHEDULER}:
            injected.append(Put(("spec", key), constant.value, constant.rule))
        elif present != constant.value:
            message = f"{first} works only with the scheduler {constant.value}; the pod names {present}"
            fix = f"leave schedulerName out, or name {constant.value}"
            injected.append(_refused("GPU501", ("spec", key), message, fix, constant.rule))

    tolerations = [*(pod.spec.get("tolerations") or ())]
    for toleration, rule in (line for backend in backends for line in backend.inject.tolerations):
        if not any(_tolerates(present, toleration) for present in tolerations):
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
    same = (wanted.get("operator") or "Equal") == "Equal" and present.get("value", "") == wanted.get("value", "")
    if operator == "Equal" and not same:
        return False
    forever = present.get("tolerationSeconds") in {None, wanted.get("tolerationSeconds")}
    return forever and present.get("effect") in {None, "", wanted.get("effect")}


def _env(assignment: Assignment, rulebook: Rulebook) -> Iterator[Edit]:
    """Each variable once. The author's own is kept, or with `enforce` replaced, whatever its source of a value."""
    container = assignment.demand.container
    path: Path = (*container.path, "env")
    for name, output in assignment.mode.outputs.env.items():
        value = rule_text(output, assignment, rulebook)
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
            is_there = slot in assignment.demand.extended.amounts
            if slot in mode.amounts and (is_there or slot not in assignment.amounts):
                continue  # nobody asks for it; or it is there, perhaps in other digits
            value = rule_text(output, assignment, rulebook)
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
        served = [assignment.demand.container for assignment in group]
        for path, what in missing(companions.requires, pod, served):
            wrong.append((path, f"{backend.name} needs {what}", f"write {what}, if your cluster allows it"))
        for path, what, fix in forbidden(companions.forbids, pod, served):
            wrong.append((path, f"{backend.name} does not work with {what}", fix))
        for key in sorted(pod.annotations) if companions.reserved else ():
            if companions.reserves(key):
                message = f"the annotation {key} is written by the scheduler of {backend.name}, and by nobody else"
                wrong.append((("metadata", "annotations", key), message, f"remove {key}"))

        # What holds for all its containers together.
        sharing = [assignment for assignment in assignments if not backend.owns.isdisjoint(assignment.amounts)]
        containers = " and ".join(assignment.demand.container.name for assignment in sharing)
        if companions.containers is not None and len(sharing) > companions.containers:
            most = f"{companions.containers} container{'s' if companions.containers > 1 else ''} of a pod"
            message = f"{backend.name} serves {most}; {containers} ask for a GPU"
            wrong.append((sharing[-1].demand.container.path, message, "use a pod for each of them"))
        if companions.one_device and len(sharing) > 1:
            sized = [(assignment.request, assignment.card) for assignment in sharing if assignment.card is not None]
            card = sized[0][1] if sized else None
            memory = sum(assignment.request.memory or 0 for assignment in sharing)
            devices = sum((charge(request, own) for request, own in sized), Fraction(0))
            amount = f"{float(devices):.2f} devices".replace(".00", "")
            too_large = card is not None and memory > card.memory
            if card is not None and too_large:
                amount = f"{show_size(memory)}, and {card.model} has {show_size(card.memory)}"
            if too_large or devices > 1:
                message = f"all containers of a pod share one device of {backend.name}, and {containers} together ask"
                wrong.append((("spec", "containers"), f"{message} for {amount}", "ask for less, or use two pods"))
        violations += [_refused("GPU503", path, message, fix, companions.rule) for path, message, fix in wrong]
    return violations


def missing(requires: Mapping[str, str], pod: Pod, served: Sequence[Container]) -> Iterator[tuple[Path, str]]:
    """The path and the name of what words of `requires:` want and the pod, or a container that is served, lacks."""
    for word, value in requires.items():
        match word:
            case "hostIPC":
                if pod.spec.get("hostIPC") is not True:
                    yield ("spec", "hostIPC"), "hostIPC: true"
            case "runAsUser":
                general = mapping(pod.spec, "securityContext").get("runAsUser")
                for container in served:
                    if str(mapping(container.raw, "securityContext").get("runAsUser", general)) != value:
                        path: Path = (*container.path, "securityContext", "runAsUser")
                        yield path, f"securityContext.runAsUser: {value}"
            case "hostPath":
                volumes = objects(pod.spec.get("volumes"))
                names = {str(volume.get("name")) for volume in volumes if at(volume, "hostPath", "path") == value}
                for container in served:
                    mounts = objects(container.raw.get("volumeMounts"))
                    there = (str(mount.get("name")) for mount in mounts if mount.get("mountPath") == value)
                    if names.isdisjoint(there):
                        path = (*container.path, "volumeMounts")
                        yield path, f"the hostPath volume {value}, mounted at the same path"
            case _:
                raise KeyError(word)


def forbidden(words: Sequence[str], pod: Pod, served: Sequence[Container]) -> Iterator[tuple[Path, str, str]]:
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
                for container in served:
                    if container.kind in {INIT, SIDECAR}:
                        yield container.path, f'init containers, and "{container.name}" is one', "ask in a container"
            case _:
                raise KeyError(word)


# Resource claims (Kubernetes DRA): a container gets devices by the name of a template instead of a quantity.

_LONGEST: Final = 63


def claim_templates(assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The names of the templates that a container's request becomes."""
    names = (rule_text(claim, assignment, rulebook) for claim in assignment.mode.claims)
    # Without characters of a profile that no object's name can have: 1g.10gb+me is claimed as 1g.10gb.me.
    return [name.lower().replace("+", ".").replace("_", "-") for name in names if name is not None]


def claim_names(container: Container) -> set[str]:
    """The claims that a container has, by their names within the pod."""
    return {str(claim.get("name")) for claim in objects(at(container.raw, "resources", "claims"))}


def used_claims(pod: Pod, container: Container) -> set[str]:
    """The templates that a container claims."""
    names = claim_names(container)
    return {template for name in names if isinstance(template := _claims_of_pod(pod).get(name), str)}


def has_claim_objects(pod: Pod, container: Container) -> bool:
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
