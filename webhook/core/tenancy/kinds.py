"""What may be used: back ends, vendors, models, ways of sharing and partitions; and what must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.core.backend import Backend
from webhook.core.choice import Served
from webhook.core.request import GpuRequest, Stated
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy.breach import Breach, path
from webhook.core.tenancy.counting import Holding
from webhook.core.tenancy.policy import Kinds, TenantPolicy
from webhook.core.violations import Violation


class Use(NamedTuple):
    """What one container uses, in each respect all that it may be; nothing: nobody knows."""

    backends: frozenset[str]
    vendors: frozenset[str]
    models: frozenset[str]
    sharing: frozenset[str]
    profiles: frozenset[str]


class Respect(NamedTuple):
    """One respect in which kinds differ: its name in a policy, for people, and as a word of the shorthand."""

    field: str
    name: str
    word: str
    optional: bool = False


class List(NamedTuple):
    """A list of a policy; `lift` is its name there."""

    lift: str
    policy: str
    kinds: Kinds

    @property
    def allows(self) -> bool:
        """Whether it names what may be used, and not what must not."""
        return self.lift == "allowed"


RESPECTS: Final = (
    Respect("backends", "back end", "gpu-backend"),
    Respect("vendors", "vendor", "gpu-model"),
    Respect("models", "model", "gpu-model"),
    Respect("sharing", "sharing", "gpu-sharing"),
    Respect("profiles", "profile", "gpu-profile", optional=True),
)
"""Who uses no profile is not minded by a list of them."""

LISTED: Final = 6
"""How many names a message lists."""


def check(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """What of it the policy does not allow, or forbids, or cannot judge as nobody knows what it is."""
    both = (("allowed", policy.allowed), ("forbidden", policy.forbidden))
    lists = [List(lift, policy.name, kinds) for lift, kinds in both if kinds is not None]
    for holding in held:
        use = _of(holding)
        for one in lists:
            for respect in RESPECTS:
                for violation in _judge(one, respect, use, holding, rulebook):
                    yield Breach(one.lift, one.kinds.action, violation)


def lets(policy: TenantPolicy, served: Served) -> bool:
    """Whether a policy would not mind how a back end serves a container, as far as that is known.

    Rules that are only tried out (dryrun) change nothing.
    """
    vendor = served.card.vendor if served.card else None
    use = _use(served.backend, served.request, served.asked.stated, served.request.models, vendor)
    allowed, forbidden = _in_force(policy.allowed), _in_force(policy.forbidden)
    for respect in RESPECTS:
        found: frozenset[str] = getattr(use, respect.field)
        listed: frozenset[str] = getattr(allowed, respect.field)
        if (listed and not found <= listed) or not found.isdisjoint(getattr(forbidden, respect.field)):
            return False
    return True


def _in_force(kinds: Kinds | None) -> Kinds:
    return Kinds() if kinds is None or kinds.action == "dryrun" else kinds


def _of(holding: Holding) -> Use:
    return _use(holding.backend, holding.request, holding.asked.stated, holding.models, holding.vendor)


def _use(
    backend: Backend, request: GpuRequest, stated: Mapping[str, Stated], models: Sequence[str], vendor: str | None
) -> Use:
    return Use(
        backends=frozenset({backend.name}),
        vendors=frozenset({vendor} if vendor else backend.vendors),
        models=frozenset(models),
        sharing=_sharing(backend, request, stated),
        profiles=frozenset({request.profile} if request.profile else ()),
    )


def _sharing(backend: Backend, request: GpuRequest, stated: Mapping[str, Stated]) -> frozenset[str]:
    """How the devices of a container may be shared: what is said of it counts only where it can be true."""
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
            path=path(holding, respect.word),
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
    """What may be asked for instead, by the word that asks for it."""
    listed: frozenset[str] = getattr(one.kinds, respect.field)
    if respect.field == "vendors":
        return f"ask for a model of {_names(listed) if one.allows else 'another vendor'} (gpu-model)"
    found: frozenset[str] = getattr(use, respect.field)
    there = _others(respect, rulebook)
    may = (found & listed or listed) if one.allows else (found - listed or there - listed)
    may = may & there or may
    if respect.field == "sharing":
        return _shared(may, holding)
    return f"ask for {respect.word}: {_names(may)}" if may else f"ask for another {respect.name} ({respect.word})"


def _shared(may: frozenset[str], holding: Holding) -> str:
    """How to share as one may: what is asked for has to be what can be shared so."""
    part = holding.request.devices == "part"
    fitting = may - {"partitioned", "exclusive"}
    if part and fitting:
        return f"ask for gpu-sharing: {_names(fitting)}"
    if "exclusive" in may:
        return "ask for whole devices, as gpu: 1"
    if fitting:
        return f"ask for a part of a device, as gpu: 0.5 and gpu-sharing: {_names(fitting)}"
    return "ask for a partition of a device (gpu-profile)" if may else "ask for no GPU here"


def _others(respect: Respect, rulebook: Rulebook) -> frozenset[str]:
    """Everything that this cluster has in a respect, where that can be listed."""
    if respect.field == "backends":
        return frozenset(backend.name for backend in rulebook.enabled)
    if respect.field == "sharing":
        return frozenset(kind for backend in rulebook.enabled for kind in backend.sharing)
    return frozenset()


def _unknown(one: List, respect: Respect, listed: frozenset[str], holding: Holding) -> Violation:
    fix = f"say it: {respect.word}: {_names(listed)}" if one.allows else f"say which ({respect.word})"
    return Violation(
        code="GPU107",
        path=path(holding, respect.word),
        message=f'the policy "{one.policy}" {"allows only" if one.allows else "forbids"} the {respect.name} '
        f'{_names(listed)}, and nothing says which the container "{holding.container.name}" gets',
        fix="say the model (gpu-model)" if respect.field == "vendors" else fix,
        rule=one.kinds.rule,
    )
