"""The plan of a pod: everything the webhook would do to it, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from webhook.core.backends.translate import as_text, find_card
from webhook.core.interpret import locations
from webhook.core.interpret.interpret import MOST, ContainerRequest, Interpretation, interpret
from webhook.core.kube import quantity
from webhook.core.kube.fields import Edit, Put, Remove
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import choose, inject
from webhook.core.plan.choose import Assignment, Preference
from webhook.core.plan.inject import NodeSelection
from webhook.core.request import GpuRequest
from webhook.core.rules.rulebook import Rulebook, Surroundings
from webhook.core.violations import Refusal, Violation


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

    @property
    def unknown(self) -> bool:
        """Whether the pod names a model or profile that no catalogue has; then nothing is translated."""
        return any(violation.code == "GPU303" for violation in self.interpretation.violations)


def make(
    pod: Pod,
    rulebook: Rulebook,
    tenant_default: str | None = None,
    policy_allows: Callable[[Assignment], bool] | None = None,
    interpretation: Interpretation | None = None,
) -> Plan:
    """Plan the translation of a pod.

    `tenant_default` and `policy_allows` are those of `Preference`. `interpretation` is that of the pod, if one is
    made already.
    """
    interpretation = interpretation or interpret(pod, rulebook)
    plan = Plan(interpretation, warnings=list(interpretation.warnings), violations=list(interpretation.violations))
    nodes = NodeSelection(pod, rulebook)
    preference = Preference(tenant_default, policy_allows)
    if nodes.selects:
        preference = Preference(tenant_default, policy_allows, nodes.allows, nodes.binds_to)

    # A back end and its resources for each container.
    unknown = bool(plan.violations) and plan.unknown
    for demand in interpretation.asked:
        if len(plan.violations) > MOST:
            break
        assignment = None
        if demand.anything and not unknown:
            try:
                assignment = choose.choose(demand, rulebook, preference)
            except Refusal as refusal:
                plan.violations += refusal.violations
            else:
                warnings = assignment.warnings if assignment is not None else ()
                if warnings or demand.request is None:
                    warnings = [*warnings, *_warnings(demand, assignment, nodes)]
                    plan.warnings += [warning for warning in warnings if warning not in plan.warnings]
        if assignment is not None:
            plan.assignments.append(assignment)
        plan.edits += _resources(demand, assignment, rulebook)

    # What the back ends need of the rest of the pod.
    for injected in inject.inject(nodes, plan.assignments):
        if isinstance(injected, Violation):
            plan.violations.append(injected)
        else:
            plan.edits.append(injected)
    plan.violations += inject.check_requirements(pod, plan.assignments)

    # Annotations that keep what later readers cannot tell from the resources.
    for key, text in _notes(plan).items():
        if pod.annotations.get(key) != text and (key == locations.NOTE or key not in pod.annotations):
            plan.edits.append(Put(("metadata", "annotations", key), text))
    if rulebook.surroundings.cards or locations.CARD in pod.annotations:
        plan.edits += _card(pod, plan, rulebook)
    return plan


def _warnings(demand: ContainerRequest, assignment: Assignment | None, nodes: NodeSelection) -> Iterator[str]:
    """What the author of a container with resources of back ends is told of the choice."""
    if assignment is None:
        for name in demand.extended.amounts:
            backends = ", ".join(owner.name for owner in nodes.rulebook.resources[name].known)
            yield f"{name} belongs to {backends}, which this cluster does not enable; it is left as it is"
        return
    alone = demand.request is None and "gpu-backend" not in demand.stated
    if alone and assignment.request.devices == "part" and not nodes.allows(assignment):
        labels = " and ".join(map(str, nodes.pool(assignment)))
        yield (
            f"only nodes {labels} give this share, and the pod excludes them; "
            f'the container "{demand.container.name}" counts as what other nodes give'
        )


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
    if zeros:
        edits += _removals(container, zeros)
    for name, repair in extended.repairs.items():
        if name not in zeros and name not in written:
            edits.append(repair)
    return edits


def _removals(container: Container, names: Collection[str], rule: str = "") -> list[Edit]:
    """Remove resources from limits and requests."""
    sections = (("limits", container.limits), ("requests", container.requests))
    return [
        Remove((*container.path, "resources", section, name), rule)
        for section, present in sections
        for name in present
        if name in names
    ]


def _notes(plan: Plan) -> Mapping[str, str]:
    """Annotations that keep the request, so that every later reader of the pod understands the same."""
    wanted: dict[str, str] = {}
    for demand in plan.interpretation.asked:
        for key, stated in demand.persist.items() if demand.request is not None or demand.overrides else ():
            match stated.value:
                case int():
                    text = quantity.show_size(stated.value)
                case Fraction():
                    text = quantity.show(stated.value)
                case None:
                    text = "none"
                case value:
                    text = str(value)
            wanted.setdefault(locations.annotation(key, demand.container.name), text)
    notes: list[str] = []
    for assignment in plan.assignments:
        if assignment.demand.request is not None:
            note = f"{assignment.demand.request} -> {assignment.backend.name}"
            notes.append(f"{assignment.demand.container.name}: {note}")
    if notes:
        wanted[locations.NOTE] = "; ".join(notes) if len(notes) > 1 else note
        if plan.interpretation.chosen is not None:
            wanted[locations.CONTAINER] = plan.interpretation.chosen
    return wanted


def _card(pod: Pod, plan: Plan, rulebook: Rulebook) -> list[Edit]:
    """Note the card that only the present nodes tell, and remove a note of the pod's author.

    What the pod counts must not change with the nodes later. The card is noted only if it is the same for all
    containers that name no model: one annotation cannot name two cards.
    """
    cards = rulebook.surroundings.cards
    present = pod.annotations.get(locations.CARD)
    bare = replace(rulebook, surroundings=Surroundings())
    backends = [assignment.backend for assignment in plan.assignments if "gpu-model" not in assignment.demand.stated]
    told = [cards.get(backend.name) for backend in backends if find_card(GpuRequest(), bare, backend) is None]
    models = {card.model if card else None for card in told}
    model = next(iter(models)) if len(models) == 1 else None
    path = ("metadata", "annotations", locations.CARD)
    if model is not None and present != model:
        return [Put(path, model)]
    if model is None and present is not None and any(demand.anything for demand in plan.interpretation.asked):
        return [Remove(path)]
    return []
