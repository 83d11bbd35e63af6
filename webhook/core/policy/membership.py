"""Which policy applies to a namespace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from webhook.core.forms.labels import Expression
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace, and that nobody can change."""

ACCOUNT: Final = "system:serviceaccount:"
"""How the users begin that are service accounts; their namespace follows."""

_INDEX: Final = "*"
"""The key of policies that select by pattern or label; no namespace is called so."""


class Membership(NamedTuple):
    """The policy of a namespace, or None. `rivals` are several policies of the same priority that select it."""

    policy: TenantPolicy | None
    rivals: Sequence[TenantPolicy] = ()


def member(namespace: str, tenancy: Tenancy) -> Membership:
    """The policy of the highest priority that selects the namespace, or the default; the answer is remembered."""
    membership: Membership | None = tenancy.cache.get(namespace)
    if membership is not None:
        return membership
    labels = tenancy.labels.get(namespace, {NAME_LABEL: namespace})
    candidates = _candidates(namespace, tenancy)
    selecting = [policy for policy in candidates if selects(policy.namespaces, namespace, labels)]
    highest = max((policy.priority for policy in selecting), default=0)
    best = [policy for policy in selecting if policy.priority == highest]
    membership = Membership(best[0]) if len(best) == 1 else Membership(None if best else tenancy.default, best or ())
    tenancy.cache[namespace] = membership
    return membership


def undecided(namespace: str, tenancy: Tenancy) -> Iterator[TenantPolicy]:
    """The policies that would be, or not be, for a namespace by its labels, if these are not known."""
    chosen = member(namespace, replace(tenancy, without_policy=None))
    best = [policy for policy in (chosen.policy, *chosen.rivals) if policy is not None]
    least = max((policy.priority for policy in best), default=None)
    for policy in _candidates(namespace, tenancy):
        names, selector = policy.namespaces.names, policy.namespaces.selector or ()
        if not (least is None or policy.priority >= least or policy in best):
            continue
        # Labels other than its name decide if it is selected.
        by_name = [expression for expression in selector if expression.key == NAME_LABEL]
        rest = len(selector) > len(by_name) and not any(fnmatchcase(namespace, glob) for glob in names)
        if rest and all(_matches(expression, {NAME_LABEL: namespace}) for expression in by_name):
            yield policy


def _candidates(namespace: str, tenancy: Tenancy) -> Iterable[TenantPolicy]:
    """The policies that may select a namespace: those that name it, and those with a pattern or a selector."""
    index: dict[str, list[TenantPolicy]] | None = tenancy.cache.get(_INDEX)
    if index is None:
        index = tenancy.cache[_INDEX] = {_INDEX: []}
        for policy in tenancy.policies:
            names, selector = policy.namespaces.names, policy.namespaces.selector
            is_open = selector is not None or any(set(name) & set("*?[") for name in names)
            for key in {_INDEX} if is_open else {*names}:
                index.setdefault(key, []).append(policy)
    return (*index[_INDEX], *index.get(namespace, ()))


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


def unselected(rulebook: Rulebook) -> list[str]:
    """The namespaces that no policy selects, without those that are exempt."""
    tenancy, exempt = replace(rulebook.tenancy, without_policy=None), rulebook.cluster.system_namespaces
    return [name for name in sorted(tenancy.labels.keys() - exempt) if member(name, tenancy) == Membership(None)]


def platform_accounts(rulebook: Rulebook) -> list[str]:
    """The users, as globs, that are of the platform beside parts of Kubernetes."""
    namespaces = sorted(rulebook.cluster.system_namespaces)
    writers = [writer for backend in rulebook.enabled for writer in backend.writers]
    return [*(f"{ACCOUNT}{name}:*" for name in namespaces), *rulebook.cluster.platform_accounts, *writers]


def is_of_the_platform(user: str, rulebook: Rulebook) -> bool:
    """Whether a user is a part of Kubernetes, or listed: whose namespace it is says nothing, as tenants make some."""
    part = user.startswith("system:") and not user.startswith((ACCOUNT, "system:anonymous"))
    return part or any(fnmatchcase(user, glob) for glob in platform_accounts(rulebook))
