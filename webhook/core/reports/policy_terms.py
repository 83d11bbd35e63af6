"""What a TenantPolicy says that contradicts itself, or that its cluster does not have: advice for its author."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

from webhook.core.backends import cards
from webhook.core.policy.allowed import RESPECTS
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.reports.checkup import several
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Ceiling, Kinds, TenantPolicy

CORES: Final = "cores"
NOBODY: Final = "no enabled back end serves what spec.allowed and spec.forbidden leave, so no pod here gets a GPU"


class Advice(NamedTuple):
    """One thing that the author of an object should know; `path` is the key that it is about."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def advice(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None) -> Iterator[Advice]:
    """What is wrong with the terms of a policy; `ledger` is what its tenant uses, None: that is not known."""
    yield from _limits(policy)
    yield from _forbidden(policy)
    yield from _unserved(policy, rulebook)
    yield from _defaults(policy)
    yield from _quota(policy, rulebook, ledger)
    yield from _cards(policy, rulebook)


def _limits(policy: TenantPolicy) -> Iterator[Advice]:
    """Of limits that hold together, those that are larger than the next."""
    hard = policy.quota.hard if policy.quota else tally.NOTHING
    limits = {
        "spec.ceilings.container": _amounts(policy.container),
        "spec.ceilings.pod": _amounts(policy.pod),
        "spec.quota": hard,
    }
    for key in (tally.DEVICES, tally.MEMORY, CORES):
        there = [(f"{path}.{key}", amounts[key]) for path, amounts in limits.items() if key in amounts]
        yield from (_larger(key, *one, *next_) for one, next_ in pairwise(there) if one[1] > next_[1])
    for key, amount in hard.items():
        what, model = tally.parts(key)
        if model and amount > hard.get(what, amount):
            yield _larger(what, f"spec.quota.models.{model}.{what}", amount, f"spec.quota.{what}", hard[what])


def _amounts(ceiling: Ceiling | None) -> Mapping[str, Fraction]:
    if ceiling is None:
        return {}
    memory = None if ceiling.memory is None else Fraction(ceiling.memory)
    amounts = {tally.DEVICES: ceiling.devices, tally.MEMORY: memory, CORES: ceiling.cores}
    return {key: amount for key, amount in amounts.items() if amount is not None}


def _larger(key: str, path: str, amount: Fraction, other: str, less: Fraction) -> Advice:
    amounts = f"{tally.text_of(key, amount)} is more than the {tally.text_of(key, less)} of {other}"
    return Advice(path, f"{amounts}, which is reached first; raise that, or lower this")


def _forbidden(policy: TenantPolicy) -> Iterator[Advice]:
    """What stands in both lists."""
    for field in (respect.field for respect in RESPECTS):
        allowed = _list(policy.allowed, field)
        if both := allowed & _list(policy.forbidden, field):
            nothing = "" if allowed - both else ", and nothing else is allowed: no pod here gets a GPU"
            stands = f"{_named(both)} stands in spec.forbidden.{field}, too, which wins{nothing}"
            yield Advice(f"spec.allowed.{field}", stands)


def _list(kinds: Kinds | None, field: str) -> frozenset[str]:
    found: frozenset[str] = getattr(kinds, field) if kinds else frozenset()
    return found


def _named(names: frozenset[str]) -> str:
    return several(sorted(names), ", ")


def _unserved(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[Advice]:
    """What is allowed, or meant by default, and served by no enabled back end."""
    enabled = rulebook.enabled
    served = frozenset(kind for backend in enabled for kind in backend.sharing)
    allowed, defaults = policy.allowed or Kinds(), policy.defaults
    if missing := allowed.backends - {backend.name for backend in enabled}:
        yield Advice(
            "spec.allowed.backends", f"{_named(missing)} is not enabled in spec.backends of the Cluster document"
        )
    for path, sharing in (
        ("spec.allowed.sharing", allowed.sharing),
        ("spec.defaults.sharing", frozenset(filter(None, [defaults.sharing]))),
    ):
        if missing := sharing - served:
            there = f"the enabled ones serve {_named(served)}"
            yield Advice(path, f"no enabled back end serves {_named(missing)}; {there}")
    for path, models in (
        ("spec.allowed.models", allowed.models),
        ("spec.defaults.model", frozenset(filter(None, [defaults.model]))),
    ):
        if missing := frozenset(model for model in models if not _is_served(model, rulebook)):
            yield Advice(path, f"no enabled back end serves {_named(missing)}")
    if not any(_leaves(policy, backend, rulebook) for backend in enabled):
        yield Advice("spec.allowed", NOBODY)


def _is_served(model: str, rulebook: Rulebook) -> bool:
    card = rulebook.devices[model.lower()]
    return any(backend.serves(card) for backend in rulebook.enabled)


def _leaves(policy: TenantPolicy, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether a pod may get something of a back end, as far as each list says by itself."""
    allowed, forbidden = policy.allowed or Kinds(), policy.forbidden or Kinds()

    def may(name: str, field: str) -> bool:
        listed: frozenset[str] = getattr(allowed, field)
        return (not listed or name in listed) and name not in getattr(forbidden, field)

    able = cards.served(backend, rulebook)
    return (
        may(backend.name, "backends")
        and any(may(kind, "sharing") for kind in backend.sharing)
        and (not able or any(may(card.vendor, "vendors") and may(card.model, "models") for card in able))
    )


def _defaults(policy: TenantPolicy) -> Iterator[Advice]:
    """Defaults that the policy itself does not allow."""
    defaults = policy.defaults
    for field, key, meant in (
        ("backends", "backend", defaults.backend),
        ("models", "model", defaults.model),
        ("sharing", "sharing", defaults.sharing),
    ):
        allowed = _list(policy.allowed, field)
        if meant is None:
            continue
        if meant in _list(policy.forbidden, field):
            yield _refused(key, meant, f"stands in spec.forbidden.{field}")
        elif allowed and meant not in allowed:
            yield _refused(key, meant, f"is not in spec.allowed.{field}")


def _refused(key: str, meant: str, why: str) -> Advice:
    return Advice(f"spec.defaults.{key}", f"{meant} {why}, so pods that do not name another {key} are refused")


def _quota(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None) -> Iterator[Advice]:
    """Limits below what the tenant uses, and above what the nodes have."""
    if policy.quota is None:
        return
    hard, exists = policy.quota.hard, rulebook.surroundings.exists
    used = ledger.used if ledger is not None and ledger.view > 0 else tally.NOTHING
    for key in tally.over(used, hard):
        limit, uses, over = (tally.text_of(key, each) for each in (hard[key], used[key], used[key] - hard[key]))
        less = f"{limit} is less than the {uses} that the tenant uses"
        yield Advice(_of_quota(key), f"{less}: what runs stays, and nothing more is admitted before {over} are free")
    for key, there in sorted(exists.items()):
        if hard.get(key, there) > there:
            limit, have = tally.text_of(key, hard[key]), tally.text_of(key, there)
            yield Advice(
                _of_quota(key), f"{limit} is more than the {have} that all nodes have, so it limits nothing now"
            )


def _of_quota(key: str) -> str:
    what, model = tally.parts(key)
    return f"spec.quota.models.{model}.{what}" if model else f"spec.quota.{what}"


def _cards(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[Advice]:
    """Limits that need to know the card, where pods may get one that nothing names."""
    if policy.defaults.model or not (paths := [*_by_card(policy)]):
        return
    leaves = [
        one for one in rulebook.enabled if _leaves(policy, one, rulebook) and not _knows_its_card(one, rulebook)
    ]
    if leaves:
        unless = (
            "" if rulebook.surroundings.present is not None else ", unless labels of all their nodes name one card"
        )
        yield Advice(
            paths[0],
            f"nothing says which card a pod of {several([one.name for one in leaves], ', ')} gets, so a share or a"
            f" whole device without gpu-model is refused (GPU107){unless}; set spec.defaults.model, or device: in the"
            " Cluster document if all cards are of one model",
        )


def _by_card(policy: TenantPolicy) -> Iterator[str]:
    """The keys of limits on memory, and on single models."""
    for key in policy.quota.hard if policy.quota else ():
        if key != tally.DEVICES:
            yield _of_quota(key)
    for name, ceiling in (("container", policy.container), ("pod", policy.pod)):
        if ceiling is not None and ceiling.memory is not None:
            yield f"spec.ceilings.{name}.memory"


def _knows_its_card(backend: Backend, rulebook: Rulebook) -> bool:
    device = rulebook.cluster.device
    said = device is not None and backend.serves(rulebook.devices[device.lower()])
    return said or backend.card is not None or backend.name in rulebook.surroundings.cards
