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
    for holding in held if policy.allowed or policy.forbidden else ():
        use = _of(holding)
        for lift, kinds in (("allowed", policy.allowed), ("forbidden", policy.forbidden)):
            for respect in RESPECTS if kinds else ():
                for violation in _judge(lift, kinds, respect, use, holding, policy, rulebook) if kinds else ():
                    yield Breach(lift, kinds.action, violation)


def lets(policy: TenantPolicy, served: Served) -> bool:
    """Whether a policy would not mind how a back end serves a container, as far as that is known."""
    use = _use(
        served.backend, served.request, served.asked.stated, served.request.models, served.card and served.card.vendor
    )
    for respect in RESPECTS:
        found = getattr(use, respect.field)
        allowed: frozenset[str] = getattr(policy.allowed, respect.field, frozenset())
        forbidden: frozenset[str] = getattr(policy.forbidden, respect.field, frozenset())
        if (allowed and not found <= allowed) or not found.isdisjoint(forbidden):
            return False
    return True


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


def _judge(
    lift: str, kinds: Kinds, respect: Respect, use: Use, holding: Holding, policy: TenantPolicy, rulebook: Rulebook
) -> Iterator[Violation]:
    listed: frozenset[str] = getattr(kinds, respect.field)
    found: frozenset[str] = getattr(use, respect.field)
    if not listed or (respect.optional and not found):
        return
    if not found:
        yield _unknown(respect, listed, lift, holding, policy, kinds)
        return
    bad = found - listed if lift == "allowed" else found & listed
    if bad:
        verb = "does not allow" if lift == "allowed" else "forbids"
        yield Violation(
            code="GPU101",
            path=path(holding, respect.word),
            message=f'the container "{holding.container.name}" {_gets(respect, found, bad)}, '
            f'which the policy "{policy.name}" {verb}',
            fix=_fix(lift, respect, listed, found - bad, rulebook),
            rule=kinds.rule,
        )


def _gets(respect: Respect, found: frozenset[str], bad: frozenset[str]) -> str:
    certain = "gets" if found == bad else "may get"
    return f"{certain} the {respect.name} {_names(bad, 'or')}"


def _names(names: frozenset[str], word: str) -> str:
    shown = sorted(names)
    if len(shown) > LISTED:
        return f"{', '.join(shown[:LISTED])}, ..."
    return f" {word} ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _fix(lift: str, respect: Respect, listed: frozenset[str], left: frozenset[str], rulebook: Rulebook) -> str:
    """What may be asked for instead, by the word that asks for it."""
    if respect.field == "vendors":
        instead = f"of {_names(listed, 'or')}" if lift == "allowed" else "of another vendor"
        return f"ask for a model {instead} (gpu-model)"
    may = left or (listed if lift == "allowed" else _others(respect, rulebook) - listed)
    if respect.field == "backends":
        may &= {backend.name for backend in rulebook.enabled}
    if not may:
        return f"ask for another {respect.name} ({respect.word})"
    return f"ask for {respect.word}: {_names(may, 'or')}"


def _others(respect: Respect, rulebook: Rulebook) -> frozenset[str]:
    if respect.field == "backends":
        return frozenset(backend.name for backend in rulebook.enabled)
    if respect.field == "sharing":
        return frozenset(kind for backend in rulebook.enabled for kind in backend.sharing)
    return frozenset()


def _unknown(
    respect: Respect, listed: frozenset[str], lift: str, holding: Holding, policy: TenantPolicy, kinds: Kinds
) -> Violation:
    what = "allows only" if lift == "allowed" else "forbids"
    fix = f"say it: {respect.word}: {_names(listed, 'or')}" if lift == "allowed" else f"say which ({respect.word})"
    if respect.field == "vendors":
        fix = "say the model (gpu-model)"
    return Violation(
        code="GPU107",
        path=path(holding, respect.word),
        message=f'the policy "{policy.name}" {what} the {respect.name} {_names(listed, "or")}, and nothing says '
        f'which the container "{holding.container.name}" gets',
        fix=fix,
        rule=kinds.rule,
    )
