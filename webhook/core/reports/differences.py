"""What a pod gets otherwise of another back end: each difference is a sentence that names both sides.

Rounding, compute that nobody limits and amounts that are only counted are said by the translation itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from webhook.core.backends import cards
from webhook.core.kube import node_affinity
from webhook.core.kube.paths import field
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import show, show_size, shown
from webhook.core.plan import constraints, text
from webhook.core.plan.choose import Assignment
from webhook.core.plan.constraints import Unread
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.vocabulary import METADATA

ALL: Final = Fraction(1)
"""All of a device's memory."""

LISTED: Final = 6
"""How many models a warning names."""


def between(
    before: Sequence[Assignment], after: Sequence[Assignment], lost: Iterable[Unread], rulebook: Rulebook
) -> Iterator[str]:
    """What differs of what each container gets; `lost` is what its pod said and nothing says any more."""
    there = {one.asked.container.name: one for one in after}
    for one in before:
        other = there.get(one.asked.container.name)
        if other is not None:
            yield from _cards(one, other, rulebook)
            yield from _amounts(one, other)
            yield from _isolation(one, other)
    names = " and ".join(dict.fromkeys(one.backend.name for one in after))
    yield from (f"{one} is lost: {names} has nothing that says it" for one in lost)


# Cards


def promised(served: Assignment, rulebook: Rulebook) -> tuple[str, ...]:
    """The models that a container gets though it names none: those of its mode, or of a back end with one kind."""
    if served.mode.when.models:
        return tuple(rulebook.devices[name].model for name in sorted(served.mode.when.models))
    return (served.backend.card.model,) if served.backend.card is not None else ()


def _cards(before: Assignment, after: Assignment, rulebook: Rulebook) -> Iterator[str]:
    one, other = _possible(before, rulebook), _possible(after, rulebook)
    yield from _virtual(one, other, after)
    if other.keys() <= one.keys():
        return
    vendors = [sorted({card.vendor for card in each.values()}) for each in (one, other)]
    src, dst = before.backend.name, after.backend.name
    if not set(vendors[1]) <= set(vendors[0]):
        yield (
            f"{dst} has cards of {_listed(vendors[1])}, {src} of {_listed(vendors[0])}: "
            "programs for the ones may not run on the others"
        )
        return
    more = {model: card for model, card in other.items() if model not in one}
    yield f"{src} gives {_named(one)}; {dst} may give {_named(more)}"


def _virtual(one: Mapping[str, Card], other: Mapping[str, Card], after: Assignment) -> Iterator[str]:
    if all(card.virtual for card in other.values()) and not all(card.virtual for card in one.values()):
        yield f"a device of {after.backend.name} is a virtual card: it shares the compute of a card with neighbours"


def _possible(served: Assignment, rulebook: Rulebook) -> Mapping[str, Card]:
    """The cards that a container may get, by model."""
    asked = served.request.models or promised(served, rulebook)
    named = [rulebook.devices[model.lower()] for model in asked]
    named += text.taken_for(served.request.models, [served.mode], rulebook)
    able = named or cards.served(served.backend, rulebook)
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
    if before.asked.request is not None:
        return
    both = "share" in after.mode.verbs and before.request.cores is not None
    if both and before.request.cores != 100 * (before.request.memory_share or 0):
        yield f"{after.backend.name} gives one part of memory and compute: the larger of both"
    limited = "share" in after.mode.verbs or "cores" in _written(after) or after.request.profile is not None
    if before.request.devices == "part" and before.request.cores is None and limited:
        src, dst = before.backend.name, after.backend.name
        yield f"{src} does not limit compute here, and {dst} does{_limit(after)}"


def _written(served: Assignment) -> set[str]:
    return {output.what for name, output in served.mode.amounts.items() if name in served.amounts}


def _limit(served: Assignment) -> str:
    return f": to {show(served.request.cores)}%" if served.request.cores is not None else ""


def _isolation(before: Assignment, after: Assignment) -> Iterator[str]:
    """A hardware partition that becomes a share."""
    if _is_cut(before) and not _is_cut(after) and after.request.devices == "part":
        src, dst = before.backend.name, after.backend.name
        yield f"a share of {dst} is no hardware partition, by which {src} keeps memory and compute apart"


def _is_cut(served: Assignment) -> bool:
    """Whether a container has a hardware partition."""
    kinds = served.backend.sharing - {"exclusive"}
    return served.mode.when.devices == "profile" or (served.request.devices == "part" and kinds == {"partitioned"})


# What stays on the pod, and what both systems have


def has_as_well(said: Unread, before: Sequence[Assignment], rulebook: Rulebook) -> bool:
    """Whether the other back end reads the same annotation or label in the same way."""
    if any(constraints.constrains(said.key, target) for target in rulebook.enabled):
        return True
    lines = [mode.outputs.annotations.get(said.key) for target in rulebook.enabled for mode in target.modes]
    without = not any(one.request.models for one in before)
    return without and any(line is not None and constraints.is_about_models(line) for line in lines)


def left(after: Pod, planned: Sequence[Assignment], rulebook: Rulebook) -> Iterator[str]:
    """What stays on the pod and only other back ends read: keys of annotations, labels and node labels."""
    own = _keys(one.backend for one in planned)
    others = _all_keys(rulebook)
    for section, _ in METADATA:
        for key, value in getattr(after, section).items():
            if key in others and key not in own:
                readers = _listed(others[key])
                yield f"{field(('metadata', section, key))}: {shown(str(value))} stays, which only {readers} reads"
    for key in node_affinity.keys(after):
        if key in others and key not in own:
            yield f"the pod still selects nodes by {key}, as {_listed(others[key])} does"


def _keys(backends: Iterable[Backend]) -> Mapping[str, Sequence[str]]:
    """The annotations, labels and node labels that rules write, each with the back ends that do."""
    found: dict[str, dict[str, Any]] = {}
    for backend in backends:
        for mode in backend.modes:
            outputs = mode.outputs
            for key in (*outputs.annotations, *outputs.labels, *outputs.node_affinity):
                found.setdefault(key, {})[backend.name] = None
    return {key: [*names] for key, names in found.items()}


def _all_keys(rulebook: Rulebook) -> Mapping[str, Sequence[str]]:
    """The keys of every loaded rule; made once for each rulebook."""
    known: Mapping[str, Sequence[str]] | None = rulebook.cache.get(_all_keys)
    if known is None:
        known = rulebook.cache[_all_keys] = _keys(rulebook.backends.values())
    return known
