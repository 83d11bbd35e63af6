"""Ceilings: the most that one container, and one pod, may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor
from operator import add
from typing import Final

from webhook.core.backends.charge import counted
from webhook.core.kube.pod import effective
from webhook.core.kube.quantity import MIB, show, show_size
from webhook.core.policy.holdings import Holding, pod_usage, unknown_size
from webhook.core.quota import tally
from webhook.core.rules.tenant_policy import Ceiling, TenantPolicy
from webhook.core.violations import Breach, Violation

_ALL: Final = Fraction(100)


def check(policy: TenantPolicy, held: Sequence[Holding]) -> Iterator[Breach]:
    """A breach for each ceiling that a container or the pod exceeds."""
    if policy.container is not None:
        for holding in held:
            who = f'the container "{holding.container.name}"'
            yield from _each(policy.container, "container", [holding], who, policy)
    if policy.pod is not None and held:
        yield from _each(policy.pod, "pod", held, "the pod", policy)


def _each(ceiling: Ceiling, scope: str, held: Sequence[Holding], who: str, policy: TenantPolicy) -> Iterator[Breach]:
    whose = f'the policy "{policy.name}" lets a {scope} have'
    for judge in (_devices, _memory, _cores):
        for violation in judge(ceiling, scope, held, f"{who} asks for", whose):
            yield Breach(scope, ceiling.action, violation)


def _devices(ceiling: Ceiling, scope: str, held: Sequence[Holding], who: str, whose: str) -> Iterator[Violation]:
    most = ceiling.devices
    asked = pod_usage(held).tally.get(tally.DEVICES, Fraction(0))
    if most is None or asked <= most:
        return
    path = max(held, key=lambda holding: holding.measure.devices).path("gpu")
    message = f"{who} {counted(asked)}, and {whose} {show(most)}"
    yield _above(ceiling, scope, path, message, _fewer(most, held))


def _above(ceiling: Ceiling, scope: str, path: str, message: str, fix: str) -> Violation:
    code = "GPU102" if scope == "container" else "GPU103"
    return Violation(code=code, path=path, message=message, fix=fix, rule=ceiling.rule)


def _fewer(most: Fraction, held: Sequence[Holding]) -> str:
    """An amount that would be allowed, in shorthand."""
    if most == 0:
        return "ask for no GPU here: the policy lets nobody have one"
    if most >= 1:
        return f"ask for {floor(most)} or fewer{_in_all(held)}"
    share = Fraction(floor(most * 100), 100)
    return f"ask for {show(share)} or less of one device{_in_all(held)}, of its memory and of its compute"


def _instead(held: Sequence[Holding]) -> str:
    return held[0].instead if len(held) == 1 else ""


def _in_all(held: Sequence[Holding]) -> str:
    return " in all" if len(held) > 1 else ""


def _memory(ceiling: Ceiling, scope: str, held: Sequence[Holding], who: str, whose: str) -> Iterator[Violation]:
    most = ceiling.memory
    if most is None:
        return
    unsized = next((holding for holding in held if holding.measure.unsized), None)
    if unsized is not None:
        most_of = f"{show_size(most)} of" if most else "no"
        yield unknown_size(unsized, f"{whose} {most_of} memory", ceiling.rule)
        return
    asked = pod_usage(held).tally.get(tally.MEMORY, Fraction(0))
    if asked > most:
        path = max(held, key=lambda holding: holding.measure.memory).path("gpu-memory")
        limit = show_size(most) if most else "none"
        message = f"{who} {show_size(floor(asked))} of memory, and {whose} {limit}"
        yield _above(ceiling, scope, path, message, _less(most, held))


def _less(most: int, held: Sequence[Holding]) -> str:
    devices = sum(holding.request.count for holding in held)
    each = floor(Fraction(most, devices) / MIB) * MIB
    if not each:
        return "ask for no GPU here: the policy lets nobody have any of its memory"
    each_of = " of each device" if devices > 1 else ""
    return f"ask for gpu-memory: {show_size(each)} or less{each_of}{_instead(held)}"


def _cores(ceiling: Ceiling, scope: str, held: Sequence[Holding], who: str, whose: str) -> Iterator[Violation]:
    most = ceiling.cores
    asked = effective(((holding.container, _compute(holding)) for holding in held), add, max, Fraction(0))
    if most is None or asked <= most:
        return
    unlimited = any(_unlimited(holding) for holding in held)
    said = ", as nothing limits it to less" if unlimited else ""
    path = max(held, key=_compute).path("gpu-cores", "gpu")
    message = f"{who} {show(asked)} % of a device's compute{said}, and {whose} {show(most)} %"
    yield _above(ceiling, scope, path, message, _slower(most, held))


def _slower(most: Fraction, held: Sequence[Holding]) -> str:
    devices = sum(holding.request.count for holding in held)
    each = floor(most / devices)
    if not each:
        return _fewer(most / _ALL, held)
    limits = all(any("cores" in mode.verbs for mode in holding.backend.modes) for holding in held)
    of_each = " of each device" if devices > 1 else ""
    limiting = "" if limits else ", from a back end that limits compute"
    return f'ask for gpu-cores: "{each}" or less{of_each}{_instead(held)}{limiting}'


def _compute(holding: Holding) -> Fraction:
    """Percent of a device's compute; a part that nothing limits may take all of it."""
    if _unlimited(holding):
        return _ALL * holding.request.count
    return holding.measure.compute


def _unlimited(holding: Holding) -> bool:
    return holding.request.devices == "part" and holding.request.cores is None
