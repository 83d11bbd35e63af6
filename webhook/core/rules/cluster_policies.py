"""Policies and exemptions as they are read from a cluster: objects, each of which may be broken by itself.

The definitions in manifests/base/crds let no object pass that has a wrong form. What remains are names: a model that
no catalogue has, a back end that no rule defines, perhaps only since the rules have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from webhook.core.forms.document import Location, Problem, of_json
from webhook.core.forms.form import Form
from webhook.core.rules import index
from webhook.core.rules.exemption import EXEMPTION, Exemption
from webhook.core.rules.names import Known
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TENANT_POLICY, TenantPolicy

T = TypeVar("T")

KINDS: Final = {"tenantpolicies": "TenantPolicy", "exemptions": "Exemption"}
"""Our own kinds of objects that people write, by their resources."""


@dataclass(frozen=True, slots=True)
class Broken(Generic[T]):
    """An object that cannot be used, and what stands in for it: for a policy one that denies all devices.

    The stand-in selects the same namespaces with the same priority, as far as these can be read, so that
    a broken policy sets no tenant free. A broken exemption has no stand-in, None.
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
    known = Known(
        backends=rulebook.backends.keys(),
        enabled=rulebook.cluster.backends,
        devices=rulebook.devices,
        asking=index.asking(rulebook.backends.values()),
    )
    return _each(objects, "TenantPolicy", TENANT_POLICY, denying, known)


def exemptions_from(objects: Iterable[Mapping[str, Any]], _: Rulebook) -> FromCluster[Exemption]:
    """Decoded Exemption objects; they name nothing that rules define, and are asked for like policies."""
    return _each(objects, "Exemption", EXEMPTION, lambda *_: None)


def _each(
    objects: Iterable[Mapping[str, Any]],
    kind: str,
    form: Form[T],
    instead: Callable[[T, tuple[Problem, ...]], T | None],
    known: Known | None = None,
) -> FromCluster[T]:
    fine: dict[str, T] = {}
    broken: dict[str, Broken[T]] = {}
    for one in objects:
        name = one["metadata"]["name"]
        problems: list[Problem] = []
        made = form.of(name, of_json(one.get("spec") or {}, Location(f"{kind}/{name}", 0)), problems, known)
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
