"""The plan of a pod: everything the webhook would do to it, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook.core.backends.amounts import CannotExpressError, as_text
from webhook.core.backends.translate import find_card
from webhook.core.interpret import locations
from webhook.core.interpret.interpret import MOST, ContainerRequest, Interpretation, interpret
from webhook.core.kube import quantity
from webhook.core.kube.patch import Edit, Put, Remove
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import choose, inject
from webhook.core.plan.choose import Assignment
from webhook.core.plan.inject import NodeSelection
from webhook.core.request import FieldValue, GpuRequest
from webhook.core.rules.rulebook import Rulebook, Surroundings
from webhook.core.violations import Refusal, Violation


@dataclass(slots=True)
class Plan:
    """The requests, the back end of each container, and the edits. With a violation no edit is made."""

    interpretation: Interpretation
    served: list[Assignment] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def backends(self) -> Mapping[str, str]:
        """The back end of each container that has a GPU, by the container's name."""
        return {one.asked.container.name: one.backend.name for one in self.served}

    @property
    def unknown(self) -> bool:
        """Whether the pod names a model or profile that no catalogue has; then nothing is translated."""
        return any(violation.code == "GPU303" for violation in self.interpretation.violations)


def make(
    pod: Pod,
    rulebook: Rulebook,
    preferred: str | None = None,
    lets: Callable[[Assignment], bool] | None = None,
    interpretation: Interpretation | None = None,
) -> Plan:
    """Plan the translation of a pod.

    `preferred` is the back end that its tenant prefers. `lets` says whether its policy allows a candidate; others are
    taken only if no allowed one can serve. `interpretation` is that of the pod, if one is made already.
    """
    interpretation = interpretation or interpret(pod, rulebook)
    plan = Plan(interpretation, warnings=list(interpretation.warnings), violations=list(interpretation.violations))
    reach = NodeSelection(pod, rulebook)

    def suitable(served: Assignment) -> bool:
        return (lets is None or lets(served)) and reach.leaves(served)

    for asked in interpretation.asked:
        if len(plan.violations) > MOST:
            break
        plan.edits += _without(asked.container, locations.RESOURCES)
        served = _serve(asked, plan, rulebook, preferred, suitable, reach)
        zeros = _zeros(asked, served, rulebook)
        plan.edits += _without(asked.container, zeros)
        done = {*zeros, *(served.amounts if served else ())}
        plan.edits += [repair for name, repair in asked.extended.repairs.items() if name not in done]
    _inject(reach, plan)
    plan.violations += inject.check_requirements(pod, plan.served)
    plan.edits += _notes(pod, plan)
    plan.edits += _card(pod, plan, rulebook)
    return plan


def _inject(reach: NodeSelection, plan: Plan) -> None:
    try:
        for injected in inject.inject(reach, plan.served):
            if isinstance(injected, Violation):
                plan.violations.append(injected)
            else:
                plan.edits.append(injected)
        plan.edits += inject.claim_devices(reach.pod, plan.served, reach.rulebook)
    except CannotExpressError as reason:
        violation = Violation(code=reason.code, path="spec", message=reason.message, fix=reason.fix)
        plan.violations.append(violation)


def _serve(
    asked: ContainerRequest,
    plan: Plan,
    rulebook: Rulebook,
    preferred: str | None,
    suitable: Callable[[Assignment], bool],
    reach: NodeSelection,
) -> Assignment | None:
    if not asked.anything or plan.unknown:
        return None
    try:
        served = choose.choose(asked, rulebook, preferred, suitable, reach.stays_with if reach.selects else None)
    except Refusal as refusal:
        plan.violations += refusal.violations
        return None
    if served is None:
        plan.warnings += _not_enabled(asked, rulebook)
        return None
    plan.served.append(served)
    plan.warnings += [each for each in (*served.warnings, *_elsewhere(served, reach)) if each not in plan.warnings]
    plan.edits += _resources(served)
    return served


def _elsewhere(served: Assignment, reach: NodeSelection) -> Iterator[str]:
    """A warning for a share in a back end's own resources, in a pod that keeps off the nodes with such shares."""
    own = served.asked.request is None and "gpu-backend" not in served.asked.stated
    if own and served.request.devices == "part" and not reach.leaves(served):
        nodes = " and ".join(map(str, reach.pool(served)))
        yield (
            f"only nodes {nodes} give this share, and the pod excludes them; "
            f'the container "{served.asked.container.name}" counts as what other nodes give'
        )


def _not_enabled(asked: ContainerRequest, rulebook: Rulebook) -> Iterator[str]:
    for name in asked.extended.amounts:
        known = ", ".join(owner.name for owner in rulebook.resources[name].known)
        yield f"{name} belongs to {known}, which this cluster does not enable; it is left as it is"


def _without(container: Container, names: Collection[str], rule: str = "") -> Iterator[Edit]:
    """Remove resources from limits and requests."""
    for section, present in (("limits", container.limits), ("requests", container.requests)):
        for name in present:
            if name in names:
                yield Remove((*container.path, "resources", section, name), rule)


def _resources(served: Assignment) -> Iterator[Edit]:
    """The limits that are missing or differ. Kubernetes sets missing requests to the limits."""
    container, fraction = served.asked.container, served.asked.fraction
    for name, output in served.mode.limits.items():
        number = served.amounts.get(name)
        if number is None:
            continue
        value, rule = as_text(output, number), output.rule
        if name not in container.limits or not quantity.same(container.limits[name], value):
            yield Put((*container.path, "resources", "limits", name), value, rule)
        if name in container.requests and not quantity.same(container.requests[name], value):
            yield Put((*container.path, "resources", "requests", name), value, rule)
    if fraction is not None and fraction not in served.amounts:
        yield from _without(container, {fraction}, served.backend.rule)


def _zeros(asked: ContainerRequest, served: Assignment | None, rulebook: Rulebook) -> Collection[str]:
    """The resources to remove as they are 0: that asks for nothing, and a vendor may take it for no limit.

    On a container without a GPU a number of devices stays.
    """
    zeros = asked.extended.zeros
    if served is not None:
        return (zeros & served.backend.owns) - served.amounts.keys()
    known = [rulebook.resources[name] for name in zeros] if not asked.anything else ()
    return {resource.name for resource in known if resource.owners and not resource.counts}


def _notes(pod: Pod, plan: Plan) -> Iterator[Edit]:
    """Annotations that keep the request, so that every later reader of the pod understands the same."""
    wanted: dict[str, str] = {}
    translated = [served for served in plan.served if served.asked.request is not None]
    for asked in plan.interpretation.asked:
        for key, stated in asked.persist.items() if asked.request is not None or asked.overrides else ():
            wanted.setdefault(locations.annotation(key, asked.container.name), _text(stated))
    if translated:
        wanted[locations.NOTE] = _note(translated)
    if plan.interpretation.chosen is not None and translated:
        wanted[locations.CONTAINER] = plan.interpretation.chosen
    for key, text in wanted.items():
        if pod.annotations.get(key) != text and (key == locations.NOTE or key not in pod.annotations):
            yield Put(("metadata", "annotations", key), text)


def _card(pod: Pod, plan: Plan, rulebook: Rulebook) -> Iterator[Edit]:
    """Note the card that only the present nodes tell, and remove a note of the pod's author.

    What the pod counts must not change with the nodes later. The card is noted only if it is the same for all
    containers that name no model: one annotation cannot name two cards.
    """
    cards = rulebook.surroundings.cards
    present = pod.annotations.get(locations.CARD)
    if not cards and present is None:
        return
    bare = replace(rulebook, surroundings=Surroundings())
    open_ones = [one.backend for one in plan.served if "gpu-model" not in one.asked.stated]
    found = [cards.get(each.name) for each in open_ones if find_card(GpuRequest(), bare, each) is None]
    models = {card.model if card else None for card in found}
    model = next(iter(models)) if len(models) == 1 else None
    if model is not None and present != model:
        yield Put(("metadata", "annotations", locations.CARD), model)
    elif model is None and present is not None and any(asked.anything for asked in plan.interpretation.asked):
        yield Remove(("metadata", "annotations", locations.CARD))


def _text(stated: FieldValue) -> str:
    """The value of a container's resource, in the form of an annotation."""
    match stated.value:
        case int():
            return quantity.show_size(stated.value)
        case Fraction():
            return quantity.show(stated.value)
        case None:
            return "none"
        case value:
            return str(value)


def _note(translated: Sequence[Assignment]) -> str:
    if len(translated) == 1:
        return f"{translated[0].asked.request} -> {translated[0].backend.name}"
    return "; ".join(
        f"{served.asked.container.name}: {served.asked.request} -> {served.backend.name}" for served in translated
    )
