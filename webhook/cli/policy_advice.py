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
from typing import Any, Final, NamedTuple

import orjson

from webhook.cli.table import several
from webhook.core.backends import cards
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.forms.document import nearest
from webhook.core.kube.quantity import Fraction, duration, shown
from webhook.core.policy import membership
from webhook.core.policy.limits import RESPECTS
from webhook.core.policy.membership import Membership, member, selects
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.load import POLICY_KINDS, Broken, exemptions_from, policies_from
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Kinds, Namespaces, Tenancy, TenantPolicy
from webhook.core.violations import Violation

Object = Mapping[str, Any]


class Advice(NamedTuple):
    """One thing that the author of an object should know; `path` is the key that it is about."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


# The answer to a review of POST /policies

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
        return _warned(_on_deletion(name, rulebook) if kind == "TenantPolicy" else ())
    policy = _read(kind, name, request.pod, rulebook)
    if policy is None:
        return _warned([f"{kind}/{name}: {UNREAD}"])
    if not isinstance(policy, Broken):
        return _warned(_on_change(policy, rulebook, ledgers, request.at))
    before = None if request.old_pod is None else _read(kind, name, request.old_pod, rulebook)
    former = {*before.problems} if isinstance(before, Broken) else set()
    if any(not problem.unknown and problem not in former for problem in policy.problems):
        return denied(
            [
                Violation(
                    code="GPU006",
                    path=problem.path,
                    message=problem.message,
                    fix=f"kubectl explain {problem.at.file.partition('/')[0]}.spec shows its form",
                    rule=problem.at.file,
                )
                for problem in policy.problems
            ]
        )
    return _warned([*map(str, policy.problems), f"{kind}/{name}: {UNUSABLE.format(then=THEN[kind])}"])


def _warned(warnings: Iterable[str]) -> Decision:
    texts = [*warnings]
    return Decision(allowed=True, warnings=texts) if texts else UNTOUCHED


def _read(kind: str, name: str, raw: Object, rulebook: Rulebook) -> TenantPolicy | Exemption | Broken[Any] | None:
    """What an object says, or why it cannot be used; None of one that is too large to be read."""
    try:
        if len(orjson.dumps(raw.get("spec"))) > LARGEST:
            return None
    except TypeError:  # it is nested deeper than orjson writes
        return None
    read = policies_from if kind == "TenantPolicy" else exemptions_from
    result = read([{"metadata": {"name": name}, "spec": raw.get("spec")}], rulebook)
    return result.broken.get(name) or result.read[name]


def _on_change(
    policy: TenantPolicy | Exemption, rulebook: Rulebook, ledgers: Mapping[str, Ledger], at: float
) -> Iterator[str]:
    """What is said of an object that is about to be in force beside those that are."""
    before = rulebook.tenancy
    if before.unknown:
        yield f"{policy.rule}: {before.unknown}, so it was compared with no other"
        before = replace(before, policies=(), labels={})
    if isinstance(policy, Exemption):
        yield from _told(policy, advice_on_exemption(policy, replace(rulebook, tenancy=before), at))
        return
    others = [other for other in before.policies if other.name != policy.name]
    if any(other.name == policy.name and other.rule != policy.rule for other in before.policies):
        yield f"{policy.rule}: {membership.TAKEN.message}"
        return
    after = replace(rulebook, tenancy=replace(before, policies=[*others, policy]))
    yield from _told(policy, losses(policy.name, before, after))
    yield from of_policy(policy, after, ledgers.get(policy.name))


def _on_deletion(name: str, rulebook: Rulebook) -> Iterator[str]:
    """What is said when a policy is deleted."""
    before = rulebook.tenancy
    rest = replace(before, policies=[policy for policy in before.policies if policy.name != name])
    for policy in before.policies:
        if policy.name == name and not before.unknown:
            yield from _told(policy, losses(name, before, replace(rulebook, tenancy=rest)))


def of_policy(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None = None) -> Iterator[str]:
    """What is said of a policy of the rulebook; `ledger` is what its tenant uses, if that is known."""
    yield from _told(policy, advice_on_selection(policy, rulebook))
    yield from _told(policy, advice_on_limits(policy, rulebook, ledger))


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
    return (f"{about.rule} {piece}" for piece in advice)


# What a TenantPolicy says that contradicts itself, or that its cluster does not have

CORES: Final = "cores"
NOBODY: Final = "no enabled back end serves what spec.allowed and spec.forbidden leave, so no pod here gets a GPU"


def advice_on_limits(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None) -> Iterator[Advice]:
    """What is wrong with the limits, lists and defaults of a policy; `ledger` is what its tenant uses, if known."""
    hard = policy.quota.hard if policy.quota else tally.NOTHING

    # Of limits that hold together, those that are larger than the next.
    def larger(key: str, path: str, amount: Fraction, other: str, less: Fraction) -> Advice:
        amounts = f"{tally.text_of(key, amount)} is more than the {tally.text_of(key, less)} of {other}"
        return Advice(path, f"{amounts}, which is reached first; raise that, or lower this")

    limits: dict[str, Mapping[str, Fraction | int | None]] = {
        f"spec.ceilings.{name}": {
            tally.DEVICES: ceiling.devices,
            tally.MEMORY: ceiling.memory,
            CORES: ceiling.cores,
        }
        for name, ceiling in (("container", policy.container), ("pod", policy.pod))
        if ceiling is not None
    }
    limits["spec.quota"] = hard
    for key in (tally.DEVICES, tally.MEMORY, CORES):
        amounts = ((f"{path}.{key}", amount.get(key)) for path, amount in limits.items())
        chain = [(path, Fraction(amount)) for path, amount in amounts if amount is not None]
        yield from (larger(key, *first, *next_) for first, next_ in pairwise(chain) if first[1] > next_[1])
    for key, amount in hard.items():
        what, model = tally.parts(key)
        if model and amount > hard.get(what, amount):
            yield larger(what, f"spec.quota.models.{model}.{what}", amount, f"spec.quota.{what}", hard[what])

    yield from _advice_on_lists(policy, rulebook)

    # Limits below what the tenant uses, and above what the nodes have.
    used = ledger.used if ledger is not None and ledger.view > 0 else tally.NOTHING
    for key in tally.over(used, hard):
        limit, uses, over = (tally.text_of(key, n) for n in (hard[key], used[key], used[key] - hard[key]))
        less = f"{limit} is less than the {uses} that the tenant uses"
        yield Advice(
            _quota_path(key), f"{less}: what runs stays, and nothing more is admitted before {over} are free"
        )
    for key, there in sorted(rulebook.surroundings.exists.items()) if policy.quota else ():
        if hard.get(key, there) > there:
            limit, have = tally.text_of(key, hard[key]), tally.text_of(key, there)
            more = f"{limit} is more than the {have} that all nodes have, so it limits nothing now"
            yield Advice(_quota_path(key), more)

    # Limits on memory and on single models need to know the card, where pods may get one that nothing names.
    paths = [_quota_path(key) for key in hard if key != tally.DEVICES]
    paths += [
        f"{path}.{tally.MEMORY}" for path in limits if path != "spec.quota" and limits[path][tally.MEMORY] is not None
    ]
    if policy.defaults.model or not paths:
        return
    device = rulebook.cluster.device
    unnamed = [
        backend.name
        for backend in rulebook.enabled
        if _leaves(policy, backend, rulebook)
        and not (device is not None and backend.serves(rulebook.devices[device.lower()]))
        and backend.card is None
        and backend.name not in rulebook.surroundings.cards
    ]
    if unnamed:
        unless = (
            "" if rulebook.surroundings.present is not None else ", unless labels of all their nodes name one card"
        )
        yield Advice(
            paths[0],
            f"nothing says which card a pod of {several(unnamed, ', ')} gets, so a share or a whole device without"
            f" gpu-model is refused (GPU107){unless}; set spec.defaults.model, or device: in the Cluster document if"
            " all cards are of one model",
        )


def _quota_path(key: str) -> str:
    what, model = tally.parts(key)
    return f"spec.quota.models.{model}.{what}" if model else f"spec.quota.{what}"


def _advice_on_lists(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[Advice]:
    """What is wrong with what a policy allows, forbids, and means by default."""
    enabled, defaults = rulebook.enabled, policy.defaults
    allowed, forbidden = policy.allowed or Kinds(), policy.forbidden or Kinds()

    # What stands in both lists.
    for field in (respect.field for respect in RESPECTS):
        listed: frozenset[str] = getattr(allowed, field)
        if both := listed & getattr(forbidden, field):
            nothing = "" if listed - both else ", and nothing else is allowed: no pod here gets a GPU"
            stands = f"{several(sorted(both), ', ')} stands in spec.forbidden.{field}, too, which wins{nothing}"
            yield Advice(f"spec.allowed.{field}", stands)

    # What is allowed, or meant by default, and served by no enabled back end.
    served = frozenset(kind for backend in enabled for kind in backend.sharing)
    if missing := allowed.backends - {backend.name for backend in enabled}:
        names = several(sorted(missing), ", ")
        yield Advice("spec.allowed.backends", f"{names} is not enabled in spec.backends of the Cluster document")
    for path, sharing in (("spec.allowed.sharing", allowed.sharing), ("spec.defaults.sharing", {defaults.sharing})):
        if missing := frozenset(filter(None, sharing)) - served:
            there = f"the enabled ones serve {several(sorted(served), ', ')}"
            yield Advice(path, f"no enabled back end serves {several(sorted(missing), ', ')}; {there}")
    for path, models in (("spec.allowed.models", allowed.models), ("spec.defaults.model", {defaults.model})):
        missing = frozenset(
            model
            for model in filter(None, models)
            if not any(backend.serves(rulebook.devices[model.lower()]) for backend in enabled)
        )
        if missing:
            yield Advice(path, f"no enabled back end serves {several(sorted(missing), ', ')}")
    if not any(_leaves(policy, backend, rulebook) for backend in enabled):
        yield Advice("spec.allowed", NOBODY)

    # Defaults that the policy itself does not allow.
    for field, key, meant in (
        ("backends", "backend", defaults.backend),
        ("models", "model", defaults.model),
        ("sharing", "sharing", defaults.sharing),
    ):
        if meant is None:
            continue
        if meant in getattr(forbidden, field):
            why = f"stands in spec.forbidden.{field}"
        elif getattr(allowed, field) and meant not in getattr(allowed, field):
            why = f"is not in spec.allowed.{field}"
        else:
            continue
        yield Advice(f"spec.defaults.{key}", f"{meant} {why}, so pods that do not name another {key} are refused")


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


# Whom a TenantPolicy or an Exemption is for, and which namespaces lose their GPUs by it

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
    every_glob = [*globs, *(glob for policy in tenancy.policies for glob in policy.namespaces.names)]
    names = {glob.replace("*", "a").replace("?", "a") for glob in every_glob}
    return Place({name: {} for name in sorted(names)}, made_up=True)


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

    # Where other policies of the same or a higher priority have its namespaces, too.
    memberships = {name: member(name, rulebook.tenancy) for name in judged(own, rulebook)}
    rivals = {name: {rival.name for rival in membership.rivals} for name, membership in memberships.items()}
    tied = [name for name in rivals if policy.name in rivals[name]]
    if tied:
        others = several(sorted({other for name in tied for other in rivals[name]} - {policy.name}), ", ")
        where = f"such as {tied[0]}" if around.made_up else several(tied, ", ")
        same = f"it is {policy.priority}, as that of {others}, and no pod gets a GPU where both select a namespace"
        yield Advice("spec.priority", f"{same}, until one of them is raised: {where}")
    holding = [
        holder
        for holder in (membership.policy for membership in memberships.values())
        if holder and holder.priority > policy.priority
    ]
    if memberships and len(holding) == len(memberships):
        names = several(sorted({f"{holder.name} ({holder.priority})" for holder in holding}), ", ")
        yield Advice("spec.priority", f"policies of a higher priority have all of its namespaces: {names}")


def of_names(path: str, globs: Sequence[str], around: Place) -> Iterator[Advice]:
    """Names that no namespace has, the first SUGGESTED."""
    missing = (glob for glob in globs if PATTERN.isdisjoint(glob) and glob not in around.labels)
    for glob in islice(missing, SUGGESTED) if not around.made_up else ():
        yield Advice(path, f"there is no namespace {glob}{nearest(glob, around.labels)}")


def selected(namespaces: Namespaces, around: Place) -> list[str] | None:
    """The namespaces that a selection selects; None if it has too many patterns to tell."""
    labels = around.labels
    if _patterns(namespaces) * len(labels) > SELECTIONS:
        return None
    names = {name for name in namespaces.names if name in labels}
    names.update(*(matching(labels, glob) for glob in namespaces.names if not PATTERN.isdisjoint(glob)))
    if namespaces.selector is not None:
        alone = replace(namespaces, names=())
        names |= {name for name, own_labels in labels.items() if selects(alone, name, own_labels)}
    return sorted(names)


def _patterns(namespaces: Namespaces) -> int:
    """With how many patterns and selectors of a selection a namespace is compared."""
    return sum(not PATTERN.isdisjoint(name) for name in namespaces.names) + (namespaces.selector is not None)


def judged(names: Iterable[str], rulebook: Rulebook) -> list[str]:
    """Those that are not exempt: the first of them, as many as may be compared with the patterns of all policies."""
    tenants = [name for name in sorted({*names}) if not rulebook.cluster.exempts(name)]
    patterns = sum(_patterns(policy.namespaces) for policy in rulebook.tenancy.policies)
    return tenants[: max(1, COMPARISONS // max(1, patterns))]


def losses(name: str, before: Tenancy, rulebook: Rulebook) -> Iterator[Advice]:
    """The namespaces that get no GPU any more, as no policy selects them.

    `before` are the policies that are in force; in those of the rulebook the one of this `name` is another or gone.
    """
    after, around = rulebook.tenancy, place(rulebook, ())
    if not after.closed or after.observing or around.made_up:
        return
    if before.closed:
        had = _selected_by([policy for policy in before.policies if policy.name == name], around)
        lost = [namespace for namespace in judged(had, rulebook) if member(namespace, after) == Membership(None)]
    else:
        has = _selected_by(after.policies, around)
        exempts = rulebook.cluster.exempts
        lost = [namespace for namespace in around.labels if namespace not in has and not exempts(namespace)]
    if lost:
        text = LEFT if before.closed else FIRST
        yield Advice("spec.namespaces", text.format(number=len(lost), names=several(lost, ", ")))


def _selected_by(policies: Iterable[TenantPolicy], around: Place) -> Collection[str]:
    """The namespaces that some of these policies select; all of them if that cannot be told."""
    names: set[str] = set()
    for policy in policies:
        own = selected(policy.namespaces, around)
        names.update(around.labels if own is None else own)
    return names


# An Exemption that has ended, is misspelt, or lifts nothing

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

    # Names of groups, and of service accounts that cannot be.
    for user in exemption.users[:SUGGESTED]:
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        if user.startswith(GROUPS):
            mistake = f"{shown(user)} is a group, and users are compared; write {ACCOUNT}<namespace>:*"
        elif not user.startswith(ACCOUNT) or "*" in namespace:
            continue
        elif not name:
            mistake = f"{shown(user)} has no name after its namespace; write {ACCOUNT}{shown(namespace)}:*"
        elif around.made_up or namespace in around.labels:
            continue
        else:
            mistake = f"there is no namespace {shown(namespace)}{nearest(namespace, around.labels)}"
        yield Advice("spec.users", mistake)

    # Rules that no policy of its namespaces has; of a broken one nothing is known.
    own = selected(Namespaces(names=exemption.namespaces), around)
    members = (member(name, rulebook.tenancy).policy for name in judged(own or (), rulebook))
    policies = {policy.name: policy for policy in members if policy is not None}
    missing = sorted(
        rule
        for rule in exemption.lifts
        if not any(policy.broken or getattr(policy, rule) is not None for policy in policies.values())
    )
    if own is None:
        yield Advice("spec.namespaces", TOO_MANY)
    elif not own:
        yield Advice("spec.namespaces", f"it is for no namespace; the cluster has {len(around.labels)}")
    elif not policies:
        yield Advice("spec.namespaces", f"no TenantPolicy is for {several(own, ', ')}, so it lifts nothing")
    elif missing:
        names = several([policy.rule for policy in policies.values()], ", ")
        yield Advice("spec.lifts", f"{names} sets no {several(missing, ', ')}, so lifting that does nothing")
