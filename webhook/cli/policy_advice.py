"""What the author of a TenantPolicy or an Exemption is told when it is applied, and what `check` and `explain` say.

Only an object of a wrong form is refused, and not if it had the same mistakes before: it may be half of a repair.
Everything else is a warning, as its author may know better.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from webhook.cli.checkup import several
from webhook.core.backends import cards
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.forms.document import Problem, nearest
from webhook.core.kube.fields import duration
from webhook.core.kube.quantity import Fraction, shown
from webhook.core.policy import membership
from webhook.core.policy.limits import RESPECTS
from webhook.core.policy.membership import Membership, member, selects
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.load import POLICY_KINDS, Broken, exemptions_from, policies_from
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Ceiling, Exemption, Kinds, Namespaces, Tenancy, TenantPolicy
from webhook.core.violations import Violation

# What a TenantPolicy says that contradicts itself, or that its cluster does not have: advice for its author.

CORES: Final = "cores"
NOBODY: Final = "no enabled back end serves what spec.allowed and spec.forbidden leave, so no pod here gets a GPU"


class Advice(NamedTuple):
    """One thing that the author of an object should know; `path` is the key that it is about."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def advice_on_terms(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None) -> Iterator[Advice]:
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

    able = cards.card_served(backend, rulebook)
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


# Whom a TenantPolicy or an Exemption is for, and which namespaces lose their GPUs by it: advice for its author.

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


def advice_on_selection(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[Advice]:
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


# An Exemption that has ended, is misspelt, or lifts nothing: advice for its author.

ACCOUNT: Final = "system:serviceaccount:"
GROUPS: Final = ("system:serviceaccounts", "system:authenticated", "system:masters")
"""How names of groups begin that are taken for names of users."""


def advice_on_exemption(exemption: Exemption, rulebook: Rulebook, at: float) -> Iterator[Advice]:
    """What is wrong with an exemption at a time in seconds since 1970; the rulebook has all policies."""
    if exemption.expires <= at:
        ended = f"it ended {duration(at - exemption.expires)} ago and lifts nothing; write a later time, or delete it"
        yield Advice("spec.expires", ended)
    around = place(rulebook, exemption.namespaces)
    yield from of_names("spec.namespaces", exemption.namespaces, around)
    yield from _users(exemption, around)
    yield from _lifted(exemption, around, rulebook)


def _users(exemption: Exemption, around: Place) -> Iterator[Advice]:
    """Names of groups, and of service accounts that cannot be."""
    for user in exemption.users[:SUGGESTED]:
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        if user.startswith(GROUPS):
            said = f"{shown(user)} is a group, and users are compared; write {ACCOUNT}<namespace>:*"
        elif not user.startswith(ACCOUNT) or "*" in namespace:
            continue
        elif not name:
            said = f"{shown(user)} has no name after its namespace; write {ACCOUNT}{shown(namespace)}:*"
        elif around.made_up or namespace in around.labels:
            continue
        else:
            said = f"there is no namespace {shown(namespace)}{nearest(namespace, around.labels)}"
        yield Advice("spec.users", said)


def _lifted(exemption: Exemption, around: Place, rulebook: Rulebook) -> Iterator[Advice]:
    """Rules that no policy of its namespaces has."""
    selection = Namespaces(names=exemption.namespaces)
    own = selected(selection, around)
    found = (member(name, rulebook.tenancy).policy for name in judged(own or (), rulebook))
    policies = {policy.name: policy for policy in found if policy is not None}
    if own is None:
        yield Advice("spec.namespaces", TOO_MANY)
    elif not own:
        yield Advice("spec.namespaces", f"it is for no namespace; the cluster has {len(around.labels)}")
    elif not policies:
        yield Advice("spec.namespaces", f"no TenantPolicy is for {several(own, ', ')}, so it lifts nothing")
    elif missing := sorted(rule for rule in exemption.lifts if not _have(rule, [*policies.values()])):
        names = several([policy.rule for policy in policies.values()], ", ")
        yield Advice("spec.lifts", f"{names} sets no {several(missing, ', ')}, so lifting that does nothing")


def _have(rule: str, policies: Sequence[TenantPolicy]) -> bool:
    """Whether one of them has the rule, or may have: of a broken one nothing is known."""
    return any(policy.broken or getattr(policy, rule) is not None for policy in policies)


# What the author of a TenantPolicy or an Exemption is told when it is applied, and what `check` and `explain` say.

Object = Mapping[str, Any]

LARGEST: Final = 128 * 1024
"""The largest spec that is read, in bytes of JSON: that takes 0.2 s [measured]."""

UNREAD: Final = "its spec is larger, or nested deeper, than what is read while reviews wait, so nothing is said of it"
UNUSABLE: Final = "until that is mended, the last form that was right holds; if there was none, {then}"
THEN: Final = {"TenantPolicy": "its namespaces get no GPU", "Exemption": "it lifts nothing"}


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """The answer to an object that is created, changed or deleted; the rulebook has the policies in force before.

    `ledgers` are those that are known, by tenant.
    """
    kind, name = POLICY_KINDS.get(request.resource, ""), request.object_name or request.name
    if not kind or not name or request.subresource:
        return UNTOUCHED
    if request.pod is None:
        return _warned(_deleted(name, rulebook) if kind == "TenantPolicy" else ())
    if _is_large(request.pod):
        return _warned([f"{kind}/{name}: {UNREAD}"])
    found = _read(kind, name, request.pod, rulebook)
    if isinstance(found, Broken):
        old = request.old_pod
        before = None if old is None or _is_large(old) else _read(kind, name, old, rulebook)
        known = {*before.problems} if isinstance(before, Broken) else set()
        if any(not problem.unknown and problem not in known for problem in found.problems):
            return denied([*map(_violation, found.problems)])
        unusable = f"{kind}/{name}: {UNUSABLE.format(then=THEN[kind])}"
        return _warned([*map(str, found.problems), unusable])
    return _warned(_applied(found, rulebook, ledgers, request.at))


def _is_large(raw: Object) -> bool:
    try:
        return len(orjson.dumps(raw.get("spec"))) > LARGEST
    except TypeError:  # it is nested deeper than orjson writes
        return True


def _warned(warnings: Iterable[str]) -> Decision:
    told = [*warnings]
    return Decision(allowed=True, warnings=told) if told else UNTOUCHED


def _read(kind: str, name: str, raw: Object, rulebook: Rulebook) -> TenantPolicy | Exemption | Broken[Any]:
    """What an object says, or why it cannot be used."""
    read = policies_from if kind == "TenantPolicy" else exemptions_from
    found = read([{"metadata": {"name": name}, "spec": raw.get("spec")}], rulebook)
    return found.broken.get(name) or found.read[name]


def _violation(problem: Problem) -> Violation:
    fix = f"kubectl explain {problem.at.file.partition('/')[0]}.spec shows its form"
    return Violation(code="GPU006", path=problem.path, message=problem.message, fix=fix, rule=problem.at.file)


def _applied(
    found: TenantPolicy | Exemption, rulebook: Rulebook, ledgers: Mapping[str, Ledger], at: float
) -> Iterator[str]:
    """What is said of an object that is about to be in force beside those that are."""
    before = rulebook.tenancy
    if before.unknown:
        yield f"{found.rule}: {before.unknown}, so it was compared with no other"
        before = replace(before, policies=(), labels={})
    if isinstance(found, Exemption):
        yield from _told(found, advice_on_exemption(found, replace(rulebook, tenancy=before), at))
        return
    others = [policy for policy in before.policies if policy.name != found.name]
    if any(policy.name == found.name and policy.rule != found.rule for policy in before.policies):
        yield f"{found.rule}: {membership.TAKEN.message}"
        return
    after = replace(rulebook, tenancy=replace(before, policies=[*others, found]))
    yield from _told(found, losses(found.name, before, after))
    yield from of_policy(found, after, ledgers.get(found.name))


def _deleted(name: str, rulebook: Rulebook) -> Iterator[str]:
    """What is said when a policy is deleted."""
    before = rulebook.tenancy
    rest = replace(before, policies=[policy for policy in before.policies if policy.name != name])
    for policy in before.policies:
        if policy.name == name and not before.unknown:
            yield from _told(policy, losses(name, before, replace(rulebook, tenancy=rest)))


def of_policy(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None = None) -> Iterator[str]:
    """What is said of a policy of the rulebook; `ledger` is what its tenant uses, if that is known."""
    yield from _told(policy, advice_on_selection(policy, rulebook))
    yield from _told(policy, advice_on_terms(policy, rulebook, ledger))


def every(
    rulebook: Rulebook,
    at: float,
    ledgers: Mapping[str, Ledger] = MappingProxyType({}),
    *,
    own: Container[str] | None = None,
    before: Tenancy | None = None,
) -> Iterator[str]:
    """What is said of policies and exemptions of a rulebook, at a time in seconds since 1970.

    `own` are those that it is said of, as `TenantPolicy/vision`, None: all; `before` is what holds without them.
    """
    tenancy = rulebook.tenancy
    policies = [policy for policy in tenancy.policies if own is None or policy.rule in own]
    if before is not None:
        for policy in policies if before.closed else policies[:1]:
            yield from _told(policy, losses(policy.name, before, rulebook))
    for policy in policies:
        yield from of_policy(policy, rulebook, ledgers.get(policy.name))
    for exemption in tenancy.exemptions:
        if own is None or exemption.rule in own:
            yield from _told(exemption, advice_on_exemption(exemption, rulebook, at))


def _told(about: TenantPolicy | Exemption, advice: Iterable[Advice]) -> Iterator[str]:
    return (f"{about.rule} {each}" for each in advice)
