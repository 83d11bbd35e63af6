"""Which back ends, vendors, models, ways of sharing and partitions a policy allows or forbids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.core.plan import text
from webhook.core.plan.choose import Assignment
from webhook.core.policy.holdings import UNSAID, Holding
from webhook.core.request.request import FieldValue, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Kinds, TenantPolicy
from webhook.core.violations import Breach, Violation


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


def check(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for everything that the policy does not allow or forbids, or that is unknown."""
    both = (("allowed", policy.allowed), ("forbidden", policy.forbidden))
    lists = [List(name, policy.name, kinds) for name, kinds in both if kinds is not None]
    for holding in held:
        use = _use(holding.backend, holding.request, holding.asked.stated, holding.models, holding.vendor)
        for one in lists:
            for respect in RESPECTS:
                for violation in _judge(one, respect, use, holding, rulebook):
                    yield Breach(one.name, one.kinds.action, violation)


def lets(policy: TenantPolicy, served: Assignment, rulebook: Rulebook) -> bool:
    """Whether a policy allows how a back end serves a container, as far as that is known.

    Rules with `enforcementAction: dryrun` are not applied.
    """
    vendor = served.card.vendor if served.card else None
    others = text.taken_for(served.request.models, [served.mode], rulebook)
    models = [*served.request.models, *(card.model for card in others)]
    use = _use(served.backend, served.request, served.asked.stated, models, vendor)
    allowed, forbidden = _in_force(policy.allowed), _in_force(policy.forbidden)
    for respect in RESPECTS:
        found: frozenset[str] = getattr(use, respect.field)
        listed: frozenset[str] = getattr(allowed, respect.field)
        if (listed and not found <= listed) or not found.isdisjoint(getattr(forbidden, respect.field)):
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
    said = stated.get("gpu-sharing")
    return frozenset({said.value}) if said is not None and said.value in possible else possible


def _judge(one: List, respect: Respect, use: Use, holding: Holding, rulebook: Rulebook) -> Iterator[Violation]:
    listed: frozenset[str] = getattr(one.kinds, respect.field)
    found: frozenset[str] = getattr(use, respect.field)
    if not listed or (respect.optional and not found):
        return
    if not found:
        yield _unknown(one, respect, listed, holding)
        return
    bad = found - listed if one.allows else found & listed
    if bad:
        certain = "gets" if found == bad else "may get"
        yield Violation(
            code="GPU101",
            path=holding.path(respect.word),
            message=f'the container "{holding.container.name}" {certain} the {respect.name} {_names(bad)}, '
            f'which the policy "{one.policy}" {"does not allow" if one.allows else "forbids"}',
            fix=_fix(one, respect, use, holding, rulebook),
            rule=one.kinds.rule,
        )


def _names(names: frozenset[str]) -> str:
    shown = sorted(names)
    if len(shown) > LISTED:
        return f"{', '.join(shown[:LISTED])}, ..."
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _fix(one: List, respect: Respect, use: Use, holding: Holding, rulebook: Rulebook) -> str:
    """What the pod's author can ask for instead, with its key."""
    listed: frozenset[str] = getattr(one.kinds, respect.field)
    if respect.field == "vendors":
        return f"ask for a model of {_names(listed) if one.allows else 'another vendor'} (gpu-model)"
    found: frozenset[str] = getattr(use, respect.field)
    there = _others(respect, rulebook)
    may = (found & listed or listed) if one.allows else (found - listed or there - listed)
    may = may & there or may
    if not one.allows:  # some systems take a name for a part of another
        may = frozenset(name for name in may if not any(name in other for other in listed)) or may
    if respect.field == "sharing":
        return _shared(may, holding)
    return f"ask for {respect.word}: {_names(may)}" if may else f"ask for another {respect.name} ({respect.word})"


def _shared(may: frozenset[str], holding: Holding) -> str:
    """What to ask for, so that an allowed way of sharing is possible."""
    part = holding.request.devices == "part"
    fitting = may - {"partitioned", "exclusive"}
    if part and fitting:
        return f"ask for gpu-sharing: {_names(fitting)}"
    if "exclusive" in may:
        return f'ask for whole devices, as gpu: "1"{holding.instead}'
    if fitting:
        return f'ask for gpu: "0.5" and gpu-sharing: {_names(fitting)}{holding.instead}'
    return "ask for a partition of a device (gpu-profile)" if may else "ask for no GPU here"


def _others(respect: Respect, rulebook: Rulebook) -> frozenset[str]:
    """All back ends or ways of sharing of this cluster; empty for the other lists."""
    if respect.field == "backends":
        return frozenset(backend.name for backend in rulebook.enabled)
    if respect.field == "sharing":
        return frozenset(kind for backend in rulebook.enabled for kind in backend.sharing)
    return frozenset()


def _unknown(one: List, respect: Respect, listed: frozenset[str], holding: Holding) -> Violation:
    names = _names(listed)
    return Violation(
        code="GPU107",
        path=holding.path(respect.word),
        message=f'the policy "{one.policy}" {"allows only" if one.allows else "forbids"} the {respect.name} {names}, '
        f'{UNSAID} the container "{holding.container.name}" gets',
        fix=f"add {respect.word}{_such(one, respect, names)}",
        rule=one.kinds.rule,
    )


def _such(one: List, respect: Respect, names: str) -> str:
    """The value to add, or which it may be."""
    if respect.field == "vendors":
        return f" with the name of a card of {names if one.allows else f'another vendor than {names}'}"
    return f": {names}" if one.allows else f" with the name of another {respect.name} than {names}"
