"""Which back ends, vendors, models, ways of sharing and partitions a policy allows or forbids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from operator import add
from typing import Final, NamedTuple

from webhook.core.backends.charge import counted
from webhook.core.kube.pod import effective
from webhook.core.kube.quantity import MIB, Fraction, show, show_size
from webhook.core.plan import choose
from webhook.core.plan.choose import Assignment
from webhook.core.policy.usage import UNSAID, Holding, pod_usage, unknown_size
from webhook.core.quota import tally
from webhook.core.request import FieldValue, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Ceiling, Kinds, TenantPolicy
from webhook.core.violations import Breach, Violation

# Which back ends, vendors, models, ways of sharing and partitions a policy allows or forbids.


class Use(NamedTuple):
    """What one container uses. If that is not certain, all that it may use; empty: unknown."""

    backends: frozenset[str]
    vendors: frozenset[str]
    models: frozenset[str]
    sharing: frozenset[str]
    profiles: frozenset[str]


class Respect(NamedTuple):
    """One of the lists of a policy: its field there, its name for people, and the key of the shorthand."""

    field: str
    name: str
    word: str
    optional: bool = False


class List(NamedTuple):
    """The `allowed` or `forbidden` part of a policy; `name` is its name."""

    name: str
    policy: str
    kinds: Kinds

    @property
    def allows(self) -> bool:
        """Whether it is `allowed`."""
        return self.name == "allowed"


RESPECTS: Final = (
    Respect("backends", "back end", "gpu-backend"),
    Respect("vendors", "vendor", "gpu-model"),
    Respect("models", "model", "gpu-model"),
    Respect("sharing", "sharing", "gpu-sharing"),
    Respect("profiles", "profile", "gpu-profile", optional=True),
)
"""A container without a profile passes a list of profiles."""

LISTED: Final = 6
"""How many names a message lists."""


def check_allowed(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for everything that the policy does not allow or forbids, or that is unknown."""
    both = (("allowed", policy.allowed), ("forbidden", policy.forbidden))
    lists = [List(name, policy.name, kinds) for name, kinds in both if kinds is not None]
    for holding in held:
        use = _use(holding.backend, holding.request, holding.asked.stated, holding.models, holding.vendor)
        for listing in lists:
            for respect in RESPECTS:
                for violation in _judge(listing, respect, use, holding, rulebook):
                    yield Breach(listing.name, listing.kinds.action, violation)


def allows(policy: TenantPolicy, served: Assignment, rulebook: Rulebook) -> bool:
    """Whether a policy allows how a back end serves a container, as far as that is known.

    Rules with `enforcementAction: dryrun` are not applied.
    """
    vendor = served.card.vendor if served.card else None
    others = choose.taken_for(served.request.models, [served.mode], rulebook)
    models = [*served.request.models, *(card.model for card in others)]
    use = _use(served.backend, served.request, served.demand.stated, models, vendor)
    allowed, forbidden = _in_force(policy.allowed), _in_force(policy.forbidden)
    for respect in RESPECTS:
        names: frozenset[str] = getattr(use, respect.field)
        listed: frozenset[str] = getattr(allowed, respect.field)
        if (listed and not names <= listed) or not names.isdisjoint(getattr(forbidden, respect.field)):
            return False
    return True


def _in_force(kinds: Kinds | None) -> Kinds:
    return Kinds() if kinds is None or kinds.action == "dryrun" else kinds


def _use(
    backend: Backend, request: GpuRequest, stated: Mapping[str, FieldValue], models: Sequence[str], vendor: str | None
) -> Use:
    return Use(
        backends=frozenset({backend.name}),
        vendors=frozenset({vendor} if vendor else backend.vendors),
        models=frozenset(models),
        sharing=_sharing(backend, request, stated),
        profiles=frozenset({request.profile} if request.profile else ()),
    )


def _sharing(backend: Backend, request: GpuRequest, stated: Mapping[str, FieldValue]) -> frozenset[str]:
    """How the devices of a container may be shared. The pod's `gpu-sharing` counts only if it is possible."""
    kinds = {"profile": {"partitioned"}, "whole": {"exclusive"}}.get(request.devices, set())
    possible = backend.sharing & kinds or backend.sharing - {"exclusive", "partitioned"} or backend.sharing
    sharing = stated.get("gpu-sharing")
    return frozenset({sharing.value}) if sharing is not None and sharing.value in possible else possible


def _judge(listing: List, respect: Respect, use: Use, holding: Holding, rulebook: Rulebook) -> Iterator[Violation]:
    listed: frozenset[str] = getattr(listing.kinds, respect.field)
    names: frozenset[str] = getattr(use, respect.field)
    if not listed or (respect.optional and not names):
        return
    if not names:
        yield _unknown(listing, respect, listed, holding)
        return
    bad = names - listed if listing.allows else names & listed
    if bad:
        certain = "gets" if names == bad else "may get"
        yield Violation(
            code="GPU101",
            path=holding.path(respect.word),
            message=f'the container "{holding.container.name}" {certain} the {respect.name} {_names(bad)}, '
            f'which the policy "{listing.policy}" {"does not allow" if listing.allows else "forbids"}',
            fix=_fix(listing, respect, use, holding, rulebook),
            rule=listing.kinds.rule,
        )


def _names(names: frozenset[str]) -> str:
    shown = sorted(names)
    if len(shown) > LISTED:
        return f"{', '.join(shown[:LISTED])}, ..."
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _fix(listing: List, respect: Respect, use: Use, holding: Holding, rulebook: Rulebook) -> str:
    """What the pod's author can ask for instead, with its key."""
    listed: frozenset[str] = getattr(listing.kinds, respect.field)
    if respect.field == "vendors":
        return f"ask for a model of {_names(listed) if listing.allows else 'another vendor'} (gpu-model)"
    names: frozenset[str] = getattr(use, respect.field)
    there = _others(respect, rulebook)
    may = (names & listed or listed) if listing.allows else (names - listed or there - listed)
    may = may & there or may
    if not listing.allows:  # some systems take a name for a part of another
        may = frozenset(name for name in may if not any(name in other for other in listed)) or may
    if respect.field == "sharing":
        # What to ask for, so that an allowed way of sharing is possible.
        part = holding.request.devices == "part"
        fitting = may - {"partitioned", "exclusive"}
        if part and fitting:
            return f"ask for gpu-sharing: {_names(fitting)}"
        if "exclusive" in may:
            return f'ask for whole devices, as gpu: "1"{holding.instead}'
        if fitting:
            return f'ask for gpu: "0.5" and gpu-sharing: {_names(fitting)}{holding.instead}'
        return "ask for a partition of a device (gpu-profile)" if may else "ask for no GPU here"
    return f"ask for {respect.word}: {_names(may)}" if may else f"ask for another {respect.name} ({respect.word})"


def _others(respect: Respect, rulebook: Rulebook) -> frozenset[str]:
    """All back ends or ways of sharing of this cluster; empty for the other lists."""
    if respect.field == "backends":
        return frozenset(backend.name for backend in rulebook.enabled)
    if respect.field == "sharing":
        return frozenset(kind for backend in rulebook.enabled for kind in backend.sharing)
    return frozenset()


def _unknown(listing: List, respect: Respect, listed: frozenset[str], holding: Holding) -> Violation:
    names, verb = _names(listed), "allows only" if listing.allows else "forbids"
    return Violation(
        code="GPU107",
        path=holding.path(respect.word),
        message=f'the policy "{listing.policy}" {verb} the {respect.name} {names}, '
        f'{UNSAID} the container "{holding.container.name}" gets',
        fix=f"add {respect.word}{_such(listing, respect, names)}",
        rule=listing.kinds.rule,
    )


def _such(listing: List, respect: Respect, names: str) -> str:
    """The value to add, or which it may be."""
    if respect.field == "vendors":
        return f" with the name of a card of {names if listing.allows else f'another vendor than {names}'}"
    return f": {names}" if listing.allows else f" with the name of another {respect.name} than {names}"


# Ceilings: the most that one container, and one pod, may ask for.

_ALL: Final = Fraction(100)


def check_ceilings(policy: TenantPolicy, held: Sequence[Holding]) -> Iterator[Breach]:
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
    devices = pod_usage(held).tally.get(tally.DEVICES, Fraction(0))
    if most is None or devices <= most:
        return
    path = max(held, key=lambda holding: holding.measure.devices).path("gpu")
    message = f"{who} {counted(devices)}, and {whose} {show(most)}"
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
    memory = pod_usage(held).tally.get(tally.MEMORY, Fraction(0))
    if memory > most:
        path = max(held, key=lambda holding: holding.measure.memory).path("gpu-memory")
        limit = show_size(most) if most else "none"
        message = f"{who} {show_size(floor(memory))} of memory, and {whose} {limit}"
        yield _above(ceiling, scope, path, message, _less(most, held))


def _less(most: int, held: Sequence[Holding]) -> str:
    devices = sum(holding.request.count for holding in held)
    size = floor(Fraction(most, devices) / MIB) * MIB
    if not size:
        return "ask for no GPU here: the policy lets nobody have any of its memory"
    each_of = " of each device" if devices > 1 else ""
    return f"ask for gpu-memory: {show_size(size)} or less{each_of}{_instead(held)}"


def _cores(ceiling: Ceiling, scope: str, held: Sequence[Holding], who: str, whose: str) -> Iterator[Violation]:
    most = ceiling.cores
    compute = effective(((holding.container, _compute(holding)) for holding in held), add, max, Fraction(0))
    if most is None or compute <= most:
        return
    unlimited = any(_unlimited(holding) for holding in held)
    unless = ", as nothing limits it to less" if unlimited else ""
    path = max(held, key=_compute).path("gpu-cores", "gpu")
    message = f"{who} {show(compute)} % of a device's compute{unless}, and {whose} {show(most)} %"
    yield _above(ceiling, scope, path, message, _slower(most, held))


def _slower(most: Fraction, held: Sequence[Holding]) -> str:
    devices = sum(holding.request.count for holding in held)
    percent = floor(most / devices)
    if not percent:
        return _fewer(most / _ALL, held)
    limits = all(any("cores" in mode.verbs for mode in holding.backend.modes) for holding in held)
    of_each = " of each device" if devices > 1 else ""
    limiting = "" if limits else ", from a back end that limits compute"
    return f'ask for gpu-cores: "{percent}" or less{of_each}{_instead(held)}{limiting}'


def _compute(holding: Holding) -> Fraction:
    """Percent of a device's compute; a part that nothing limits may take all of it."""
    if _unlimited(holding):
        return _ALL * holding.request.count
    return holding.measure.compute


def _unlimited(holding: Holding) -> bool:
    return holding.request.devices == "part" and holding.request.cores is None
