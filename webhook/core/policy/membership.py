"""Which policy applies to a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from webhook.core.forms.labels import Expression
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import Namespaces, TenantPolicy

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace, and that nobody can change."""

_INDEX: Final = "*"
"""The key of policies that select by pattern or label; no namespace is called so."""


class Membership(NamedTuple):
    """The policy of a namespace, or None. `rivals` are several policies of the same priority that select it."""

    policy: TenantPolicy | None
    rivals: Sequence[TenantPolicy] = ()


def member(namespace: str, tenancy: Tenancy) -> Membership:
    """The policy of the highest priority that selects the namespace; the answer is remembered."""
    found: Membership | None = tenancy.cache.get(namespace)
    if found is None:
        found = tenancy.cache[namespace] = _member(namespace, tenancy)
    return found


def _member(namespace: str, tenancy: Tenancy) -> Membership:
    labels = tenancy.labels.get(namespace, {NAME_LABEL: namespace})
    selecting = [
        policy for policy in _candidates(namespace, tenancy) if selects(policy.namespaces, namespace, labels)
    ]
    if not selecting:
        return Membership(None)
    highest = max(policy.priority for policy in selecting)
    best = [policy for policy in selecting if policy.priority == highest]
    return Membership(best[0]) if len(best) == 1 else Membership(None, best)


def is_of_one_tenant(policy: TenantPolicy, rulebook: Rulebook) -> bool:
    """Whether a policy is a tenant's alone: it has no system namespaces."""
    return all(member(each, rulebook.tenancy).policy is not policy for each in rulebook.cluster.system_namespaces)


def undecided(namespace: str, tenancy: Tenancy) -> Iterator[TenantPolicy]:
    """The policies that would be, or not be, for a namespace by its labels, if these are not known."""
    chosen = member(namespace, tenancy)
    best = (chosen.policy, *chosen.rivals)
    least = max((policy.priority for policy in best if policy is not None), default=None)
    for policy in _candidates(namespace, tenancy):
        if (least is None or policy.priority >= least or policy in best) and _depends(policy.namespaces, namespace):
            yield policy


def _depends(namespaces: Namespaces, name: str) -> bool:
    """Whether the labels of a namespace decide if it is selected, beside its name."""
    if namespaces.selector is None or any(fnmatchcase(name, glob) for glob in namespaces.names):
        return False
    by_name = [each for each in namespaces.selector if each.key == NAME_LABEL]
    rest = len(namespaces.selector) > len(by_name)
    return rest and all(_matches(each, {NAME_LABEL: name}) for each in by_name)


def _candidates(namespace: str, tenancy: Tenancy) -> Iterable[TenantPolicy]:
    """The policies that may select a namespace: those that name it, and those with a pattern or a selector."""
    index: dict[str, list[TenantPolicy]] | None = tenancy.cache.get(_INDEX)
    if index is None:
        index = tenancy.cache[_INDEX] = {_INDEX: []}
        for policy in tenancy.policies:
            for key in _keys(policy.namespaces):
                index.setdefault(key, []).append(policy)
    return (*index[_INDEX], *index.get(namespace, ()))


def _keys(namespaces: Namespaces) -> set[str]:
    """The names in a selection; `_INDEX` if it has a pattern or a selector."""
    if namespaces.selector is not None or any(set(name) & set("*?[") for name in namespaces.names):
        return {_INDEX}
    return {*namespaces.names}


def selects(namespaces: Namespaces, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a selection selects a namespace, by its name or by its labels."""
    if any(fnmatchcase(name, glob) for glob in namespaces.names):
        return True
    selector = namespaces.selector
    return selector is not None and all(_matches(expression, labels) for expression in selector)


def _matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    """As Kubernetes does (apimachinery/pkg/labels, Requirement.Matches): `NotIn` holds where the key is absent."""
    present = labels.get(expression.key)
    match expression.operator:
        case "In":
            return present is not None and present in expression.values
        case "NotIn":
            return present is None or present not in expression.values
        case "Exists":
            return present is not None
        case _:
            return present is None
