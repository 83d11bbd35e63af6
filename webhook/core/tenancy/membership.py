"""Which policy holds for a namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from webhook.core.tenancy.policy import Expression, Namespaces, Tenancy, TenantPolicy


class Membership(NamedTuple):
    """The policy of a namespace; without one, the `rivals` of one priority that both select it, if any do."""

    policy: TenantPolicy | None
    rivals: Sequence[TenantPolicy] = ()


def member(namespace: str, tenancy: Tenancy) -> Membership:
    """The policy of the highest priority that selects the namespace."""
    labels = tenancy.labels.get(namespace, {})
    selecting = [policy for policy in tenancy.policies if selects(policy.namespaces, namespace, labels)]
    if not selecting:
        return Membership(None)
    highest = max(policy.priority for policy in selecting)
    best = [policy for policy in selecting if policy.priority == highest]
    return Membership(best[0]) if len(best) == 1 else Membership(None, best)


def selects(namespaces: Namespaces, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a namespace is meant, by its name or by its labels."""
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
