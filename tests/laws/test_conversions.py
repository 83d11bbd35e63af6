"""Every pair of systems: a pod that is rewritten for another gets what it had, or it is told, or it is refused.

What a pod gets, and of which cards, is read by the vendors' documents (`vendors`), apart from every rule: before and
after. Each source's pods are those of its rule's examples and trials, as their author would have written them for the
system itself, and others with amounts drawn from its own words.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from tests import tables
from tests.edited import edited
from tests.laws import SOAK, asking, clusters, own, surroundings
from tests.laws.vendors import READINGS, selection
from tests.laws.vendors.seen import Given, Seen
from webhook.cli import explanation
from webhook.cli.convert import rewritten
from webhook.core import examples
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.request import PREFIX
from webhook.core.violations import Refusal

Pod = Mapping[str, Any]

PODS = 40 if SOAK else 1
"""So many pods for each pair, of the rule and of own words by turns."""

PARTITIONS = {
    *tables.table(__file__, "partitions"),
    *(name for name in READINGS if name.startswith(("hami-ascend", "volcano-ascend")) and not name.endswith("-soft")),
}
"""Systems whose parts of a card are cut in hardware."""

COUNTED: Sequence[str] = tables.table(__file__, "counted")
"""Systems that keep nobody from taking more than a part."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one container gets: the amounts, the card they were read on, and the cards that it may get."""

    backend: str
    given: Given
    model: str
    models: Sequence[str]
    is_cut: bool

    @property
    def whole(self) -> bool:
        return self.given.part == 1


def _held(backend: str, raw: Pod, container: str, first: str) -> Held | None:
    """What the vendor gives, on the first card if it may be that one; None where it takes no such pod."""
    models = selection.possible(backend, raw, clusters.catalogue())
    for model in sorted(models, key=lambda one: one != first):
        card = clusters.device(model)
        try:
            given = READINGS[backend](Seen(raw, container, card.model, card.memory, card.tflops))
        except (AssertionError, KeyError, ValueError, StopIteration):
            continue
        if model.startswith("GRID-"):  # a virtual card shares compute with its neighbours, whatever its memory
            given = replace(given, cores=None)
        return Held(backend, given, model, models, _is_cut(backend, raw))
    return None


def _is_cut(backend: str, raw: Pod) -> bool:
    """Whether a part of a card is a hardware partition, by its system or by its resource."""
    limits = [(one.get("resources") or {}).get("limits") or {} for one in raw["spec"]["containers"]]
    return backend in PARTITIONS or any(name.startswith("nvidia.com/mig-") for one in limits for name in one)


def unsaid(before: Held, after: Held, warnings: Sequence[str]) -> Iterator[str]:
    """What differs and no warning names."""
    told = "\n".join(warnings)
    same_card = before.model == after.model
    one, other = before.given, after.given
    if not set(after.models) <= set(before.models) and not _cards_are_named(before, after, told):
        yield f"cards: {sorted(set(after.models) - set(before.models))[:5]}"
    if other.devices != one.devices and "rounded up" not in told:
        yield f"devices: {one.devices} becomes {other.devices}"
    if other.devices < one.devices:
        yield f"fewer devices: {one.devices} becomes {other.devices}"
    if (
        other.memory < one.memory
        and other.part < one.part
        and (same_card or not _cards_are_named(before, after, told))
    ):
        yield f"memory: {one.memory} becomes {other.memory}"
    if (
        same_card
        and other.memory > one.memory
        and other.part > one.part
        and not any(words in told for words in ("becomes", "larger of both"))
    ):
        yield f"more memory: {one.memory} becomes {other.memory}"
    yield from _compute(before, after, told)
    yield from _isolation(before, after, told)


def _cards_are_named(before: Held, after: Held, told: str) -> bool:
    lines = [line for line in told.splitlines() if "may give" in line or "has cards of" in line]
    return any(before.backend in line and after.backend in line for line in lines) or " is lost" in told


def _compute(before: Held, after: Held, told: str) -> Iterator[str]:
    one, other = before.given.cores, after.given.cores
    if one is None and other is not None and other < 100 and "does not limit compute here" not in told:
        yield f"compute was open and is limited to {other}"
    if one is not None and other is None and not any(words in told for words in _OPEN):
        yield f"compute was {one} and nobody limits it"
    if one is not None and other is not None and other < one:
        yield f"compute: {one} becomes {other}"


_OPEN = ("does not limit compute", "is no hardware partition", "is a virtual card")
"""Words of warnings that tell of compute that nobody limits any more."""


def _isolation(before: Held, after: Held, told: str) -> Iterator[str]:
    if before.whole or after.whole:
        return
    if before.is_cut and not after.is_cut and "no hardware partition" not in told:
        yield "a hardware partition became a share"
    if not after.is_cut and after.backend in COUNTED and before.backend not in COUNTED and "only counts" not in told:
        yield "memory was guarded and is only counted"


# The pods of a system


@cache
def _of_the_rule(backend: str) -> Sequence[Pod]:
    """What becomes of the rule's examples and trials, without the words of the webhook."""
    alone = clusters.knowing(backend, None)
    made = [_native(raw, backend) for _, raw in examples.trials(clusters.backend(backend), alone)]
    found: list[Pod] = []
    found += [one for one in made if one is not None and one not in found]
    return found


def _native(raw: Pod, backend: str) -> Pod | None:
    try:
        planned = plan.make(pod.read(raw), clusters.knowing(backend, clusters.card(backend).model))
    except Refusal:
        return None
    if planned.violations or not planned.assignments:
        return None
    done = edited(planned.edits, raw)
    annotations = done["metadata"].get("annotations") or {}
    bare = {key: value for key, value in annotations.items() if PREFIX not in key and "gpu-webhook.io/" not in key}
    return {**done, "metadata": {**done["metadata"], "name": "train", "annotations": bare}}


def _pods(source: str, number: int) -> Iterator[Pod]:
    """Some pods of a system, other ones for each number."""
    ruled, spoken = _of_the_rule(source), own.spoken(clusters.backend(source))
    for turn in range(number * PODS, (number + 1) * PODS):
        if ruled and (turn % 2 or not spoken):
            yield ruled[turn // 2 % len(ruled)]
        elif spoken:
            # A container with amounts that its author might write, and whatever else there may be in a pod.
            dice = random.Random(f"{source} {turn} {random.random() if SOAK else ''}")  # noqa: S311  not a secret
            raw = surroundings.pod(dice.randrange(2**32) if dice.random() < 0.3 else 0)
            container = raw["spec"]["containers"][0]
            one = clusters.backend(source)
            asking.accompany(source, raw, container)
            for name, value in own.say(own.words(one, clusters.card(source), dice), raw, container):
                container.setdefault("resources", {}).setdefault("limits", {})[name] = value
            yield {**raw, "metadata": {"name": "train", **raw["metadata"]}}


# The law


@pytest.mark.large
@pytest.mark.parametrize("source", READINGS)
def test_a_pod_of_one_system_gets_no_less_of_any_other_or_is_told(source: str) -> None:
    judged = 0
    for number, target in enumerate(READINGS):
        for turn, raw in enumerate(_pods(source, number)):
            known = clusters.card(source).model if (number + turn) % 3 else None
            judged += _holds(source, target, raw, known)

    assert judged >= (1 if own.spoken(clusters.backend(source)) else 0)


def _holds(source: str, target: str, raw: Pod, known: str | None) -> bool:
    """Whether there was something to judge: a pod that the first vendor takes, and that was rewritten."""
    rules, raw = clusters.knowing(source, known), _prepared(raw, target)
    container = raw["spec"]["containers"][0]["name"]
    before = _held(source, raw, container, clusters.card(source).model)
    [understood] = explanation.explain(raw, rules)
    if before is None or not understood.planned or not understood.planned.assignments:
        return False
    done = rewritten(understood, rules, clusters.knowing(target, known))
    if not done.decision.allowed:
        assert done.after == raw
        return False
    there = selection.possible(target, done.after, clusters.catalogue())
    first = before.model if before.model in there else clusters.card(target).model
    after = _held(target, done.after, container, first)

    assert after is not None, f"{target} takes no such pod: {done.after}"
    found = list(unsaid(before, after, done.decision.warnings))
    assert not found, f"{source} to {target}: {found}\n{done.decision.warnings}\n{raw}\n{done.after}"
    return True


def _prepared(raw: Pod, target: str) -> Pod:
    """The pod with what its author has to write for the other system."""
    copied: dict[str, Any] = {**raw, "kind": "Pod", "spec": {**raw["spec"]}}
    first, *others = copied["spec"]["containers"]
    first = {**first}
    asking.accompany(target, copied, first)
    copied["spec"]["containers"] = [first, *others]
    return copied
