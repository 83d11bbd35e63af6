"""Whom a TenantPolicy or an Exemption is for, and which namespaces lose their GPUs by it: advice for its author.

Namespaces are compared with patterns: with its own at most SELECTIONS times, or not at all, and those that it selects
with those of other policies at most COMPARISONS times, so that of very many only the first are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from webhook.core.forms.document import nearest
from webhook.core.policy.membership import Membership, member, selects
from webhook.core.reports.checkup import several
from webhook.core.reports.policy_terms import Advice
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import Namespaces, TenantPolicy

T = TypeVar("T")

COMPARISONS: Final = 300_000
SELECTIONS: Final = 2_000_000
"""How often names are compared with patterns for one object: either takes 0.3 s [measured]. A definition takes 200
patterns, so that of 10,000 namespaces all are looked at."""

TOO_MANY: Final = "it has too many patterns to compare each namespace with them while reviews wait"

SUGGESTED: Final = 3
"""How many names without a namespace are named, each with the nearest."""

PATTERN: Final = frozenset("*?")
FIRST: Final = (
    "as the first TenantPolicy it takes GPUs from each namespace that it does not select ({number}), unless the "
    "Cluster document says namespacesWithoutPolicy: allow: {names}"
)
LEFT: Final = "no TenantPolicy selects {names} any more, so no pod there gets a GPU"


class Place(NamedTuple):
    """The namespaces that are known, with their labels; without any those that patterns name, which are `made_up`."""

    labels: Mapping[str, Mapping[str, str]]
    made_up: bool


def place(rulebook: Rulebook, globs: Iterable[str]) -> Place:
    """The namespaces of the cluster; `globs` are looked at beside those of all policies where none is known."""
    tenancy = rulebook.tenancy
    if tenancy.labels:
        return Place({name: tenancy.labels[name] for name in sorted(tenancy.labels)}, made_up=False)
    every = [*globs, *(glob for namespaces in _all(tenancy) for glob in namespaces.names)]
    found = {glob.replace("*", "a").replace("?", "a") for glob in every}
    return Place({name: {} for name in sorted(found)}, made_up=True)


def advice(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[Advice]:
    """What is wrong with the namespaces of a policy of the rulebook."""
    around = place(rulebook, policy.namespaces.names)
    yield from of_names("spec.namespaces.names", policy.namespaces.names, around)
    own = selected(policy.namespaces, around)
    if own is None:
        yield Advice("spec.namespaces", TOO_MANY)
        return
    if not own and not around.made_up:
        yield Advice("spec.namespaces", f"it selects no namespace; the cluster has {len(around.labels)}")
    if own and all(map(rulebook.cluster.exempts, own)):
        exempt = f"systemNamespaces of the Cluster document exempts {several(own, ', ')}, and it selects no other"
        yield Advice("spec.namespaces", exempt)
    yield from _of_others(policy, judged(own, rulebook), around, rulebook.tenancy)


def selected(namespaces: Namespaces, around: Place) -> list[str] | None:
    """The namespaces that a selection selects; None if it has too many patterns to tell."""
    patterns, labels = [name for name in namespaces.names if PATTERN & set(name)], around.labels
    if _patterns(namespaces) * len(labels) > SELECTIONS:
        return None
    found = {name for name in namespaces.names if name in labels}
    found.update(*(matching(labels, glob) for glob in patterns))
    if namespaces.selector is not None:
        alone = replace(namespaces, names=())
        found |= {name for name, each in labels.items() if selects(alone, name, each)}
    return sorted(found)


def _patterns(namespaces: Namespaces) -> int:
    """With how many patterns and selectors of a selection a namespace is compared."""
    return sum(not PATTERN.isdisjoint(name) for name in namespaces.names) + (namespaces.selector is not None)


def _few(names: Mapping[str, T], patterns: int) -> Mapping[str, T]:
    """The first names: as many as may be compared with so many patterns."""
    return dict(islice(names.items(), max(1, COMPARISONS // max(1, patterns))))


def of_names(path: str, globs: Sequence[str], around: Place) -> Iterator[Advice]:
    """Names that no namespace has, the first SUGGESTED."""
    missing = (glob for glob in globs if PATTERN.isdisjoint(glob) and glob not in around.labels)
    for glob in islice(missing, SUGGESTED) if not around.made_up else ():
        yield Advice(path, f"there is no namespace {glob}{nearest(glob, around.labels)}")


def judged(names: Iterable[str], rulebook: Rulebook) -> list[str]:
    """Those that are not exempt: the first of them, as many as may be compared with the patterns of all policies."""
    tenants = {name: None for name in sorted(names) if not rulebook.cluster.exempts(name)}
    return [*_few(tenants, sum(map(_patterns, _all(rulebook.tenancy))))]


def _of_others(policy: TenantPolicy, own: Sequence[str], around: Place, tenancy: Tenancy) -> Iterator[Advice]:
    """Where other policies of the same or a higher priority have its namespaces, too."""
    rivals = {name: {one.name for one in member(name, tenancy).rivals} for name in own}
    tied = [name for name in own if policy.name in rivals[name]]
    if tied:
        others = several(sorted({other for name in tied for other in rivals[name]} - {policy.name}), ", ")
        where = f"such as {tied[0]}" if around.made_up else several(tied, ", ")
        same = f"it is {policy.priority}, as that of {others}, and no pod gets a GPU where both select a namespace"
        yield Advice("spec.priority", f"{same}, until one of them is raised: {where}")
    holding = [
        one for one in (member(name, tenancy).policy for name in own) if one and one.priority > policy.priority
    ]
    if own and len(holding) == len(own):
        names = several(sorted({f"{one.name} ({one.priority})" for one in holding}), ", ")
        yield Advice("spec.priority", f"policies of a higher priority have all of its namespaces: {names}")


def _all(tenancy: Tenancy) -> Iterator[Namespaces]:
    return (policy.namespaces for policy in tenancy.policies)


def losses(name: str, before: Tenancy, rulebook: Rulebook) -> Iterator[Advice]:
    """The namespaces that get no GPU any more, as no policy selects them.

    `before` are the policies that are in force; in those of the rulebook the one of this `name` is another or gone.
    """
    after, around = rulebook.tenancy, place(rulebook, ())
    if not after.closed or after.observing or around.made_up:
        return
    if before.closed:
        had = _selected_by([policy for policy in before.policies if policy.name == name], around)
        lost = [each for each in judged(had, rulebook) if member(each, after) == Membership(None)]
    else:
        has = _selected_by(after.policies, around)
        lost = [each for each in around.labels if each not in has and not rulebook.cluster.exempts(each)]
    if lost:
        text = LEFT if before.closed else FIRST
        yield Advice("spec.namespaces", text.format(number=len(lost), names=several(lost, ", ")))


def _selected_by(policies: Iterable[TenantPolicy], around: Place) -> Collection[str]:
    """The namespaces that some of these policies select; all of them if that cannot be told."""
    found: set[str] = set()
    for policy in policies:
        own = selected(policy.namespaces, around)
        found.update(around.labels if own is None else own)
    return found
