"""Policies and exemptions as they are read from a cluster: objects, each of which may be broken by itself.

The definitions in manifests/base/crds let no object pass that has a wrong form. What remains are names: a model that
no catalogue has, a back end that no rule defines, perhaps only since the rules have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from webhook.core.document import Location, Node, Problem, of_json
from webhook.core.rulebook import Rulebook
from webhook.core.schema import exemptions, tenantpolicies
from webhook.core.tenancy.policy import Exemption, TenantPolicy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broken(Generic[T]):
    """An object that cannot be used, and what stands in for it: for a policy one that denies all devices.

    The stand-in selects the same namespaces with the same priority, as far as these can be read, so that nobody is
    free whose policy is broken. A broken exemption exempts nobody, None.
    """

    problems: tuple[Problem, ...]
    instead: T | None = None


@dataclass(frozen=True, slots=True)
class FromCluster(Generic[T]):
    """What objects say, by name: those that can be used, and those that cannot."""

    read: Mapping[str, T] = field(default_factory=dict)
    broken: Mapping[str, Broken[T]] = field(default_factory=dict)


def policies_from(objects: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> FromCluster[TenantPolicy]:
    """Decoded TenantPolicy objects; of each, only its name and spec are looked at."""
    known = tenantpolicies.known_to(rulebook)
    return _each(objects, "TenantPolicy", lambda *one: tenantpolicies.policy(one[0], one[1], known, one[2]), denying)


def exemptions_from(objects: Iterable[Mapping[str, Any]], _: Rulebook) -> FromCluster[Exemption]:
    """Decoded Exemption objects; they name nothing that rules define, and are asked for like policies."""
    return _each(objects, "Exemption", exemptions.exemption, lambda *_: None)


def _each(
    objects: Iterable[Mapping[str, Any]],
    kind: str,
    read: Callable[[str, Node, list[Problem]], T],
    instead: Callable[[T, tuple[Problem, ...]], T | None],
) -> FromCluster[T]:
    fine: dict[str, T] = {}
    broken: dict[str, Broken[T]] = {}
    for one in objects:
        name = one["metadata"]["name"]
        problems: list[Problem] = []
        made = read(name, of_json(one.get("spec") or {}, Location(f"{kind}/{name}", 0)), problems)
        if problems:
            said = tuple(sorted(set(problems)))
            broken[name] = Broken(said, instead(made, said))
        else:
            fine[name] = made
    return FromCluster(fine, broken)


def denying(policy: TenantPolicy, problems: tuple[Problem, ...]) -> TenantPolicy:
    """A policy for the same namespaces that admits no device, and says what is wrong with the one it stands for.

    A key that is misspelt is often why another is missing.
    """
    first = min(problems, key=lambda problem: "unknown key" not in problem.message)
    return TenantPolicy(
        name=policy.name,
        rule=policy.rule,
        namespaces=policy.namespaces,
        priority=policy.priority,
        broken=f"{first.path}: {first.message}",
    )
