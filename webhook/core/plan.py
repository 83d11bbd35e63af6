"""Everything the webhook would do to a pod, with the reasons: the whole of mutation, before it is an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from webhook.core import choice, claims, companions, inject, places, quantity
from webhook.core.amounts import CannotExpressError, as_text
from webhook.core.asked import Asked
from webhook.core.choice import Served
from webhook.core.edits import Edit, Put, Remove
from webhook.core.interpret import Interpretation, interpret
from webhook.core.pod import Container, Pod
from webhook.core.request import GpuRequest, Stated
from webhook.core.rulebook import Rulebook, Surroundings
from webhook.core.translate import find_card
from webhook.core.violations import Refusal, Violation


@dataclass(slots=True)
class Plan:
    """What is asked, who serves each container, and the edits; no edit counts where there is a violation."""

    interpretation: Interpretation
    served: list[Served] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def unknown(self) -> bool:
        """Whether the pod names a model or profile that nobody knows: whatever came of the rest would mislead."""
        return any(violation.code == "GPU303" for violation in self.interpretation.violations)


def make(
    pod: Pod,
    rulebook: Rulebook,
    preferred: str | None = None,
    lets: Callable[[Served], bool] | None = None,
    interpretation: Interpretation | None = None,
) -> Plan:
    """Plan the translation of a pod.

    `preferred` is the back end its tenant prefers, and what its policy does not let be is planned only where nothing
    else can serve. `interpretation` is that of the pod, where there is one already.
    """
    interpretation = interpretation or interpret(pod, rulebook)
    plan = Plan(interpretation, warnings=list(interpretation.warnings), violations=list(interpretation.violations))
    reachable = suitable = partial(inject.reachable, pod, rulebook, {})
    if lets is not None:
        suitable = partial(_suitable, reachable, lets)
    for asked in interpretation.asked:
        plan.edits += _without(asked.container, places.RESOURCES)
        served = _serve(asked, plan, rulebook, preferred, suitable)
        done = served.amounts if served else {}
        plan.edits += [repair for name, repair in asked.native.repairs.items() if name not in done]
    _inject(pod, plan, rulebook)
    plan.violations += companions.check(pod, plan.served)
    plan.edits += _notes(pod, plan)
    plan.edits += _card(pod, plan, rulebook)
    return plan


def _suitable(reachable: Callable[[Served], bool], lets: Callable[[Served], bool], served: Served) -> bool:
    return lets(served) and reachable(served)


def _inject(pod: Pod, plan: Plan, rulebook: Rulebook) -> None:
    try:
        for injected in inject.inject(pod, plan.served, rulebook):
            if isinstance(injected, Violation):
                plan.violations.append(injected)
            else:
                plan.edits.append(injected)
        plan.edits += claims.claim(pod, plan.served, rulebook)
    except CannotExpressError as reason:
        violation = Violation(code=reason.code, path="spec", message=reason.message, fix=reason.fix)
        plan.violations.append(violation)


def _serve(
    asked: Asked, plan: Plan, rulebook: Rulebook, preferred: str | None, suitable: Callable[[Served], bool]
) -> Served | None:
    if not asked.anything or plan.unknown:
        return None
    try:
        served = choice.choose(asked, rulebook, preferred, suitable)
    except Refusal as refusal:
        plan.violations += refusal.violations
        return None
    if served is None:
        plan.warnings += _not_enabled(asked, rulebook)
        return None
    plan.served.append(served)
    plan.warnings += served.warnings
    plan.edits += _resources(served)
    return served


def _not_enabled(asked: Asked, rulebook: Rulebook) -> Iterator[str]:
    for name in asked.native.amounts:
        known = ", ".join(owner.name for owner in rulebook.resources[name].known)
        yield f"{name} belongs to {known}, which this cluster does not enable; it is left as it is"


def _without(container: Container, names: Collection[str], rule: str = "") -> Iterator[Edit]:
    """Take resources away, from limits and requests."""
    for section, present in (("limits", container.limits), ("requests", container.requests)):
        for name in present:
            if name in names:
                yield Remove((*container.path, "resources", section, name), rule)


def _resources(served: Served) -> Iterator[Edit]:
    """The limits that are missing or differ. Requests follow by themselves, unless they are there already."""
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


def _notes(pod: Pod, plan: Plan) -> Iterator[Edit]:
    """Annotations that keep what was said, so the pod means the same to whoever sees it next."""
    wanted: dict[str, str] = {}
    translated = [served for served in plan.served if served.asked.request is not None]
    for asked in plan.interpretation.asked:
        for key, stated in asked.persist.items() if asked.request is not None or asked.overrides else ():
            wanted.setdefault(places.annotation(key, asked.container.name), _text(stated))
    if translated:
        wanted[places.NOTE] = _note(translated)
    if plan.interpretation.chosen is not None and translated:
        wanted[places.CONTAINER] = plan.interpretation.chosen
    for key, text in wanted.items():
        if pod.annotations.get(key) != text and (key == places.NOTE or key not in pod.annotations):
            yield Put(("metadata", "annotations", key), text)


def _card(pod: Pod, plan: Plan, rulebook: Rulebook) -> Iterator[Edit]:
    """Keep the card that only the nodes of now tell, and take away what an author says of it.

    What the pod counts must not change with the nodes. It is kept where it holds for all containers that name no
    model: one annotation cannot speak of two cards.
    """
    cards = rulebook.surroundings.cards
    present = pod.annotations.get(places.CARD)
    if not cards and present is None:
        return
    bare = replace(rulebook, surroundings=Surroundings())
    open_ones = [one.backend for one in plan.served if "gpu-model" not in one.asked.stated]
    found = [cards.get(each.name) for each in open_ones if find_card(GpuRequest(), bare, each) is None]
    models = {card.model if card else None for card in found}
    model = next(iter(models)) if len(models) == 1 else None
    if model is not None and present != model:
        yield Put(("metadata", "annotations", places.CARD), model)
    elif model is None and present is not None and any(asked.anything for asked in plan.interpretation.asked):
        yield Remove(("metadata", "annotations", places.CARD))


def _text(stated: Stated) -> str:
    """What a container's resource said, as its annotation says it."""
    match stated.value:
        case int():
            return quantity.show_size(stated.value)
        case Fraction():
            return quantity.show(stated.value)
        case None:
            return "none"
        case value:
            return str(value)


def _note(translated: Sequence[Served]) -> str:
    if len(translated) == 1:
        return f"{translated[0].asked.request} -> {translated[0].backend.name}"
    return "; ".join(
        f"{served.asked.container.name}: {served.asked.request} -> {served.backend.name}" for served in translated
    )
