"""How many cards a node has, from the resources it advertises: the rules read backwards.

What a node advertises is what all of its cards have together: so many percent, bytes, partitions or devices. Where a
system advertises each card ten times over, a percentage tells the truth, and a count does not; so counts come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Final, NamedTuple

from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Mode
from webhook.core.rules.outputs import Constant, Output
from webhook.core.rules.verbs import Amount
from webhook.core.rules.vocabulary import PERCENT


class Advertised(NamedTuple):
    """One resource of a node, and a way in which a rule writes it."""

    value: int
    output: Output
    mode: Mode
    replicas: int = 1


def devices(
    resources: Mapping[str, int], backend: Backend, profile: str | None, cards: Sequence[Card]
) -> Fraction | None:
    """How many cards there are; None if nothing tells.

    `cards` are the models they can be of, and `profile` is the partition that all of them are cut into, if one is.
    """
    found = list(_advertised(resources, backend))
    if profile is not None:
        return _of_partitions({profile: max(resources.values())}, cards)
    return next(filter(None, (read(found, cards) for read in _READERS)), None)


def memory(resources: Mapping[str, int], backend: Backend, card: Card | None, devices: Fraction | None) -> int | None:
    """The memory of all of them: that of the card, else what the node advertises; None if neither is known."""
    if card is not None and devices is not None:
        return int(devices * card.memory)
    found = list(_advertised(resources, backend))
    sliced = sum(one.value * one.mode.size for one in found if one.mode.size)
    return sliced or max((size for one in found if (size := _bytes(one))), default=None)


def _advertised(resources: Mapping[str, int], backend: Backend) -> Iterator[Advertised]:
    named: dict[str, set[str | None]] = {}
    for mode in backend.modes:
        for name in mode.limits:
            named.setdefault(name, set()).add(mode.profile)
    for mode in backend.modes:
        for name, output in mode.limits.items():
            if name in resources:
                # A resource that goes with every partition is not the name of one.
                own = mode if len(named[name]) == 1 else replace(mode, profile=None)
                yield Advertised(resources[name], output, own, backend.nodes.replicas)


def _by_parts(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    """From percents, or slices of time: so much makes a device."""
    for one in found:
        output = one.output
        if isinstance(output, Amount) and (output.what in {"cores", "share"} or _is_percent(output)):
            return one.value * output.unit / 100
    return None


def _is_percent(output: Amount) -> bool:
    return output.what == "memory" and output.unit_name == PERCENT


def _by_partitions(found: Sequence[Advertised], cards: Sequence[Card]) -> Fraction | None:
    return _of_partitions({one.mode.profile: one.value for one in found if one.mode.profile}, cards)


def _of_partitions(profiles: Mapping[str, int], cards: Sequence[Card]) -> Fraction | None:
    """As many cards as these partitions take, if it is the same number on every card that has them."""
    fitting = [card for card in cards if profiles and profiles.keys() <= card.profiles.keys()]
    counts = {_cut(profiles, card) for card in fitting}
    return counts.pop() if len(counts) == 1 else None


def _cut(profiles: Mapping[str, int], card: Card) -> Fraction:
    def cards(slices: Callable[[Profile], int], of: int) -> int:
        return ceil(Fraction(sum(count * slices(card.profiles[name]) for name, count in profiles.items()), of or 1))

    by_memory = cards(lambda profile: profile.memory_slices, card.memory_slices)
    return Fraction(max(by_memory, cards(lambda profile: profile.compute_slices, card.compute_slices)))


def _by_size(found: Sequence[Advertised], cards: Sequence[Card]) -> Fraction | None:
    """From memory, where the card is known: a system rounds each card's down to its unit."""
    sliced = sum(one.value * one.mode.size for one in found if one.mode.size)
    if sliced and len(cards) == 1:
        return Fraction(ceil(Fraction(sliced, cards[0].memory)))
    for one in found:
        if isinstance(one.output, Amount) and _bytes(one) and len(cards) == 1:
            each = max(1, cards[0].memory // one.output.unit)
            return Fraction(max(1, round(Fraction(one.value, each))))
    return None


def _bytes(one: Advertised) -> int:
    """The memory that a value stands for; 0 where it stands for none."""
    if not isinstance(one.output, Amount) or one.output.what != "memory" or _is_percent(one.output):
        return 0
    return int(one.value * one.output.unit)


def _by_count(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    counted = (one for one in found if one.output.what == "count" and not (one.mode.profile or one.mode.size))
    return next((Fraction(one.value, one.replicas) for one in counted), None)


def _by_constant(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    """A rule that writes the same for every request: so much makes one."""
    for one in found:
        if isinstance(one.output, Constant) and one.output.number:
            return Fraction(one.value, one.output.number)
    return None


_READERS: Final = (_by_parts, _by_partitions, _by_size, _by_count, _by_constant)
