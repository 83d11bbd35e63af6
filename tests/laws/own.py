"""A back end's own words, made up from its rule: every mode it reads, with amounts it may write."""

import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from tests.laws import clusters
from webhook.core.backends.translate import as_text
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Companions, Constant, Mode, Output
from webhook.core.rules.verbs import PERCENT, QUANTITY, TFLOPS, Amount

Object = dict[str, Any]
MIB = 1 << 20


def counts(backend: Backend) -> Sequence[str]:
    """The resources of the back end that count cards, not partitions of them."""
    modes = [mode for mode in backend.modes if mode.profile is None]
    limits = {name: output for mode in modes for name, output in mode.limits.items()}
    return sorted(name for name, output in limits.items() if isinstance(output, Amount) and output.what == "count")


def spoken(backend: Backend) -> Sequence[Mode]:
    """The modes that a pod can ask for in own words."""
    return [mode for mode in backend.modes if mode.amounts]


def first_only(backend: Backend) -> bool:
    """Whether own words in annotations or labels alone are about a pod's first container."""
    return any(mode.amounts and not mode.limits for mode in backend.modes)


@cache
def companions(backend: str) -> Sequence[Companions]:
    """What any mode of the back end needs of the rest of a pod."""
    return [mode.companions for mode in clusters.backend(backend).modes if mode.companions is not None]


def words(backend: Backend, card: Card, dice: random.Random) -> tuple[Mode, Mapping[str, str]]:
    """A mode, and what somebody might write for it: by resource, `annotation KEY` or `label KEY`."""
    having = [mode for mode in spoken(backend) if mode.profile is None or mode.profile in card.profiles]
    name = dice.choice(sorted({mode.name for mode in having}))
    mode = dice.choice([mode for mode in having if mode.name == name])
    low, high = mode.when.count
    count = dice.choice([number for number in (1, 1, 1, 2, 2, 3, 4) if low <= number <= (high or 4)] or [low])
    parts = {"memory": Fraction(dice.randint(1, 100), 100), "cores": Fraction(dice.randint(1, 100), 100)}
    said: dict[str, str] = {}
    for resource, output in mode.amounts.items():
        optional = isinstance(output, Amount) and output.absent is not None
        if not optional or dice.random() < 0.7:
            said[resource] = _text(output, count, mode, card, parts)
    first, output = next(iter(mode.amounts.items()))
    return mode, said or {first: _text(output, count, mode, card, parts)}


Parts = Mapping[str, Fraction]
"""The parts of a device that all amounts of a container agree on."""


def _text(output: Output, count: int, mode: Mode, card: Card, parts: Parts) -> str:
    if isinstance(output, Constant):
        return str(output.number)
    if output.what == "count":
        fitting = next((one for one in output.fit if one >= count), count)
        return str(-(-fitting // output.step) * output.step)
    whole = mode.when.devices == "whole" and output.what != "memory"
    part = Fraction(1) if whole else parts.get(output.what, parts["cores"])
    value = _value(output, part * _device(output, card))
    return as_text(output, value * (count if output.per_total else 1))


def _value(output: Amount, exact: Fraction) -> int:
    """A legal value near the exact one."""
    if output.fit:
        return min(output.fit, key=lambda option: abs(option - exact))
    step = MIB if output.unit_name == QUANTITY else output.step
    low = output.minimum or step
    return min(max(low, int(exact) // step * step), output.maximum or int(exact) + low)


def _device(output: Amount, card: Card) -> Fraction:
    """The value that stands for a whole device."""
    if output.unit_name == TFLOPS:
        return card.tflops or Fraction(100)
    whole = card.memory if output.what == "memory" and output.unit_name != PERCENT else 100
    return Fraction(whole) / output.unit


def say(said: tuple[Mode, Mapping[str, str]], pod: Object, container: Object) -> Iterator[tuple[str, str]]:
    """Write what is said in annotations and labels, and what they have to be beside; the rest are resources."""
    mode, texts = said
    for mark in mode.enforced | mode.when.annotated:
        key, _, value = mark.partition("=")
        pod["metadata"].setdefault("annotations", {})[key] = value
    for key, output in mode.outputs.annotations.items():
        if isinstance(output, Amount) and output.what == "container":
            pod["metadata"].setdefault("annotations", {})[key] = container["name"]
    for name, text in texts.items():
        section, spaced, key = name.partition(" ")
        if spaced:
            pod["metadata"].setdefault(f"{section}s", {})[key] = text
        else:
            yield name, text
