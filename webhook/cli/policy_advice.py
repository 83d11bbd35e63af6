"""What the author of a TenantPolicy or an Exemption is told when it is applied, and what `check` and `explain` say.

Only an object of a wrong form is refused, and not if it had the same mistakes before: it may be half of a repair.
Everything else is a warning, as its author may know better.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Final

import orjson

from webhook.cli.table import several
from webhook.core.backends import cards
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.forms.document import nearest
from webhook.core.kube.quantity import Fraction, duration, shown
from webhook.core.policy import device_access, in_force
from webhook.core.policy.limits import RESPECTS
from webhook.core.policy.membership import ACCOUNT, Membership, member, selects, undecided
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.load import POLICY_KINDS, Broken, exemptions_from, policies_from
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Kinds, Namespaces, Tenancy, TenantPolicy
from webhook.core.violations import ACTIONS, Action, Violation

# The answer to a review of POST /policies

LARGEST: Final = 128 * 1024
"""The largest spec that is read, in bytes of JSON: that takes 0.2 s [measured]."""

UNREAD: Final = "its spec is larger, or nested deeper, than what is read while reviews wait, so nothing is said of it"


def warn(
    request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> Decision:
    """The answer to an object that is created, changed or deleted; the rulebook has the policies in force before.

    `ledgers` are those that are known, by tenant.
    """
    kind, name = POLICY_KINDS.get(request.resource, ""), request.object_name or request.name
    if not kind or not name or request.subresource:
        return UNTOUCHED
    before, warnings = rulebook.tenancy, list[str]()
    others = [policy for policy in before.policies if policy.name != name]
    policy = None if request.pod is None else _read(kind, name, request.pod, rulebook)
    if request.pod is None:  # it is deleted
        after = replace(rulebook, tenancy=replace(before, policies=others))
        for gone in before.policies if kind == "TenantPolicy" and not before.unknown else ():
            if gone.name == name:
                warnings += _told(gone, losses(name, before, after))
    elif policy is None:
        warnings.append(f"{kind}/{name}: {UNREAD}")
    elif isinstance(policy, Broken):
        old = None if request.old_pod is None else _read(kind, name, request.old_pod, rulebook)
        former = {*old.problems} if isinstance(old, Broken) else set()
        if any(not problem.unknown and problem not in former for problem in policy.problems):
            fix = f"kubectl explain {kind}.spec shows its form"
            wrong = Violation(code="GPU006", path="", message="", fix=fix, rule=f"{kind}/{name}")
            return denied([replace(wrong, path=problem.path, message=problem.message) for problem in policy.problems])
        fate = f"each GPU pod of its namespaces is {_outcome('deny', rulebook)}"
        none = fate if kind == "TenantPolicy" else "it lifts nothing"
        unusable = f"until that is mended, the last form that was right holds; if there was none, {none}"
        warnings += [*map(str, policy.problems), f"{kind}/{name}: {unusable}"]
    else:  # it is about to be in force beside those that are
        if before.unknown:
            warnings.append(f"{policy.rule}: {before.unknown}, so it was compared with no other")
            before, others = replace(before, policies=(), labels={}), []
        if isinstance(policy, Exemption):
            warnings += _told(policy, advice_on_exemption(policy, replace(rulebook, tenancy=before), request.at))
        elif any(other.name == name and other.rule != policy.rule for other in before.policies):
            warnings.append(f"{policy.rule}: {in_force.TAKEN.message}")
        else:
            after = replace(rulebook, tenancy=replace(before, policies=[*others, policy]))
            warnings += _told(policy, losses(name, before, after))
            warnings += _told(policy, advice_on_policy(policy, after, ledgers.get(name)))
    return Decision(allowed=True, warnings=warnings) if warnings else UNTOUCHED


def _read(
    kind: str, name: str, raw: Mapping[str, Any], rulebook: Rulebook
) -> TenantPolicy | Exemption | Broken[Any] | None:
    """What an object says, or why it cannot be used; None of one that is too large to be read."""
    try:
        if len(orjson.dumps(raw.get("spec"))) > LARGEST:
            return None
    except TypeError:  # it is nested deeper than orjson writes
        return None
    read = policies_from if kind == "TenantPolicy" else exemptions_from
    result = read([{"metadata": {"name": name}, "spec": raw.get("spec")}], rulebook)
    return result.broken.get(name) or result.read[name]


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
        yield from _told(policy, advice_on_policy(policy, rulebook, ledgers.get(policy.name)))
    for exemption in tenancy.exemptions:
        if own is None or exemption.rule in own:
            yield from _told(exemption, advice_on_exemption(exemption, rulebook, at))


def _told(about: TenantPolicy | Exemption, advice: Iterable[str]) -> Iterator[str]:
    return (f"{about.rule} {text}" for text in advice)


# What a TenantPolicy says that contradicts itself, or that its cluster does not have. Each sentence begins with the
# key that it is about.

CORES: Final = "cores"
OUTCOMES: Final[Mapping[Action, str]] = {
    "deny": "refused",
    "warn": "admitted with a warning",
    "dryrun": "admitted, and only logged",
}
"""What becomes of a pod that breaks a rule, by the action of the rule."""


def _outcome(action: Action, rulebook: Rulebook) -> str:
    return OUTCOMES["warn" if action == "deny" and rulebook.tenancy.observing else action]


def advice_on_policy(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None) -> Iterator[str]:
    """What is wrong with a policy of the rulebook; `ledger` is what its tenant uses, if known."""
    yield from advice_on_selection(policy, rulebook)
    hard = policy.quota.hard if policy.quota else tally.NOTHING

    # Of limits that hold together, those that are larger than the next.
    def larger(key: str, path: str, amount: Fraction, other: str, less: Fraction) -> str:
        amounts = f"{tally.text_of(key, amount)} is more than the {tally.text_of(key, less)} of {other}"
        return f"{path}: {amounts}, which is reached first; raise that, or lower this"

    ceilings = [
        (
            f"spec.ceilings.{name}",
            {tally.DEVICES: ceiling.devices, tally.MEMORY: ceiling.memory, CORES: ceiling.cores},
            ceiling.action,
        )
        for name, ceiling in (("container", policy.container), ("pod", policy.pod))
        if ceiling is not None
    ]
    action = policy.quota.action if policy.quota else policy.action
    for key in (tally.DEVICES, tally.MEMORY, CORES):
        limits = [
            *((path, amounts[key], does) for path, amounts, does in ceilings),
            ("spec.quota", hard.get(key), action),
        ]
        chain = [(f"{path}.{key}", Fraction(limit), does) for path, limit, does in limits if limit is not None]
        for (path, amount, does), (other, next_amount, next_does) in pairwise(chain):
            if amount > next_amount and ACTIONS.index(next_does) <= ACTIONS.index(does):
                yield larger(key, path, amount, other, next_amount)

    paths = {}  # of the limits of the quota
    for key, most in hard.items():
        what, model = tally.parts(key)
        paths[key] = f"spec.quota.models.{model}.{what}" if model else f"spec.quota.{what}"
        if model and most > hard.get(what, most):
            yield larger(what, paths[key], most, f"spec.quota.{what}", hard[what])

    yield from _advice_on_lists(policy, rulebook)

    # Limits below what the tenant uses, and above what the nodes have.
    used = ledger.used if ledger is not None and ledger.view > 0 else tally.NOTHING
    for key in tally.over(used, hard):
        limit, uses, over = (tally.text_of(key, amount) for amount in (hard[key], used[key], used[key] - hard[key]))
        less = f"{limit} is less than the {uses} that the tenant uses"
        more = f"{_outcome(action, rulebook)} before {over} are free"
        if rulebook.tenancy.observing:
            more = "admitted: the webhook only observes, and counts nothing"
        yield f"{paths[key]}: {less}: what runs stays, and more is {more}"
    for key, there in sorted(rulebook.surroundings.exists.items()):
        if hard.get(key, there) > there:
            limit, have = tally.text_of(key, hard[key]), tally.text_of(key, there)
            yield f"{paths[key]}: {limit} is more than the {have} that all nodes have, so it limits nothing now"

    # Limits on memory and on single models need to know the card, where pods may get one that nothing names.
    sized = [(path, action) for key, path in paths.items() if key != tally.DEVICES]
    sized += [
        (f"{path}.{tally.MEMORY}", does) for path, amounts, does in ceilings if amounts[tally.MEMORY] is not None
    ]
    has_defaults = policy.action != "dryrun"
    if (policy.defaults.model and has_defaults) or not sized:
        return
    device, around = rulebook.cluster.device, rulebook.surroundings
    unnamed = [
        backend.name
        for backend in rulebook.enabled
        if _leaves(policy, backend, rulebook, ("deny",))
        and not (device is not None and backend.serves(rulebook.devices[device.lower()]))
        and backend.card is None
        and backend.name not in around.cards
    ]
    if unnamed:
        unless = "" if around.present is not None else ", unless labels of all their nodes name one card"
        instead = "spec.defaults.model, or device:" if has_defaults else "device:"
        path, does = min(sized, key=lambda limit: ACTIONS.index(limit[1]))
        yield (
            f"{path}: set {instead} in the Cluster document if all cards are of one model; because nothing says"
            f" which card a pod of {several(unnamed, ', ')} gets, a share or a whole device without gpu-model is"
            f" {_outcome(does, rulebook)} (GPU107){unless}"
        )


def _advice_on_lists(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[str]:
    """What is wrong with what a policy allows, forbids, and means by default."""
    enabled, defaults = rulebook.enabled, policy.defaults
    allowed, forbidden = policy.allowed or Kinds(), policy.forbidden or Kinds()

    # What stands in both lists.
    for field in (respect.field for respect in RESPECTS):
        listed: frozenset[str] = getattr(allowed, field)
        if both := listed & getattr(forbidden, field):
            nothing = "" if listed - both else ", and nothing else is allowed"
            stands = f"{several(sorted(both), ', ')} stands in spec.forbidden.{field}, too, so a pod with it is"
            yield f"spec.allowed.{field}: {stands} {_outcome(forbidden.action, rulebook)}{nothing}"

    # What is allowed, or meant by default, and served by no enabled back end.
    if missing := allowed.backends - {backend.name for backend in enabled}:
        names = several(sorted(missing), ", ")
        yield f"spec.allowed.backends: {names} is not enabled in spec.backends of the Cluster document"
    served = {kind for backend in enabled for kind in backend.sharing}
    there = f"; the enabled ones serve {several(sorted(served), ', ')}"
    models = {
        model
        for model in filter(None, {*allowed.models, defaults.model})
        if any(backend.serves(rulebook.devices[model.lower()]) for backend in enabled)
    }
    for path, wanted, able, others in (
        ("spec.allowed.sharing", allowed.sharing, served, there),
        ("spec.defaults.sharing", {defaults.sharing}, served, there),
        ("spec.allowed.models", allowed.models, models, ""),
        ("spec.defaults.model", {defaults.model}, models, ""),
    ):
        if lacking := sorted({*filter(None, wanted)} - able):
            yield f"{path}: no enabled back end serves {several(lacking, ', ')}{others}"
    for number, action in enumerate(ACTIONS, 1):
        if not any(_leaves(policy, backend, rulebook, ACTIONS[:number]) for backend in enabled):
            yield (
                "spec.allowed: no enabled back end serves what spec.allowed and spec.forbidden leave, so each GPU pod"
                f" here is {_outcome(action, rulebook)}"
            )
            break

    # Defaults that the policy itself does not allow; in a dry run there are none.
    if policy.action == "dryrun":
        return
    for field, key, meant in (
        ("backends", "backend", defaults.backend),
        ("models", "model", defaults.model),
        ("sharing", "sharing", defaults.sharing),
    ):
        listed = getattr(allowed, field)
        is_forbidden = meant in getattr(forbidden, field)
        if meant is not None and (is_forbidden or (listed and meant not in listed)):
            why = f"stands in spec.forbidden.{field}" if is_forbidden else f"is not in spec.allowed.{field}"
            fate = _outcome((forbidden if is_forbidden else allowed).action, rulebook)
            yield f"spec.defaults.{key}: {meant} {why}, so a pod that does not name another {key} is {fate}"


def _leaves(policy: TenantPolicy, backend: Backend, rulebook: Rulebook, actions: Container[Action]) -> bool:
    """Whether a pod may get something of a back end, as far as each list of these actions says by itself."""
    allowed, forbidden = (
        kinds if kinds is not None and kinds.action in actions else Kinds()
        for kinds in (policy.allowed, policy.forbidden)
    )

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

Namespaced = Mapping[str, Mapping[str, str]]
"""Namespaces with their labels."""


def place(rulebook: Rulebook, globs: Iterable[str]) -> Namespaced:
    """The namespaces of the cluster; where none is known, made up of these patterns and those of all policies."""
    tenancy = rulebook.tenancy
    if tenancy.labels:
        return {name: tenancy.labels[name] for name in sorted(tenancy.labels)}
    every_glob = [*globs, *(glob for policy in tenancy.policies for glob in policy.namespaces.names)]
    return {name: {} for name in sorted({glob.replace("*", "a").replace("?", "a") for glob in every_glob})}


def advice_on_selection(policy: TenantPolicy, rulebook: Rulebook) -> Iterator[str]:
    """What is wrong with the namespaces of a policy of the rulebook."""
    around, made_up = place(rulebook, policy.namespaces.names), not rulebook.tenancy.labels
    yield from of_names("spec.namespaces.names", policy.namespaces.names, rulebook)
    own = selected(policy.namespaces, around)
    if own is None:
        yield f"spec.namespaces: {TOO_MANY}"
        return
    if not own and not made_up:
        yield f"spec.namespaces: it selects no namespace; the cluster has {len(around)}"
    if own and all(map(rulebook.cluster.exempts, own)):
        exempt = f"systemNamespaces of the Cluster document exempts {several(own, ', ')}, and it selects no other"
        yield f"spec.namespaces: {exempt}"

    # Where other policies of the same or a higher priority have its namespaces, too.
    memberships = {name: member(name, rulebook.tenancy) for name in judged(own, rulebook)}
    rivals = {name: {rival.name for rival in membership.rivals} for name, membership in memberships.items()}
    tied = [name for name in rivals if policy.name in rivals[name]]
    if tied:
        others = several(sorted({other for name in tied for other in rivals[name]} - {policy.name}), ", ")
        where = f"such as {tied[0]}" if made_up else several(tied, ", ")
        fate = f"each GPU pod is {_outcome('deny', rulebook)} where both select a namespace"
        same = f"it is {policy.priority}, as that of {others}, and {fate}"
        yield f"spec.priority: {same}, until that of the one that is to hold there is raised: {where}"
    holders = [membership.policy for membership in memberships.values()]
    higher = [holder for holder in holders if holder and holder.priority > policy.priority]
    # Of names that are made up, those that a selector selects are unknown.
    unsure = made_up and policy.namespaces.selector is not None
    if holders and len(higher) == len(holders) and not unsure:
        names = several(sorted({f"{holder.name} ({holder.priority})" for holder in higher}), ", ")
        yield f"spec.priority: policies of a higher priority have all of its namespaces: {names}"


def of_names(path: str, globs: Sequence[str], rulebook: Rulebook) -> Iterator[str]:
    """Names that no namespace has, the first SUGGESTED."""
    labels = rulebook.tenancy.labels
    missing = (glob for glob in globs if PATTERN.isdisjoint(glob) and glob not in labels)
    for glob in islice(missing, SUGGESTED) if labels else ():
        yield f"{path}: there is no namespace {glob}{nearest(glob, sorted(labels))}"


def selected(namespaces: Namespaces, labels: Namespaced) -> list[str] | None:
    """The namespaces that a selection selects; None if it has too many patterns to tell."""
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


def losses(name: str, before: Tenancy, rulebook: Rulebook) -> Iterator[str]:
    """The namespaces that get no GPU any more, as no policy selects them.

    `before` are the policies that are in force; in those of the rulebook the one of this `name` is another or gone.
    """
    after, around = rulebook.tenancy, place(rulebook, ())
    if not after.closed or after.observing or not after.labels:
        return
    names: set[str] = set()  # those that it selected, or that any policy does: all of them if that cannot be told
    for policy in before.policies if before.closed else after.policies:
        if policy.name == name or not before.closed:
            own = selected(policy.namespaces, around)
            names.update(around if own is None else own)
    if before.closed:
        lost = [namespace for namespace in judged(names, rulebook) if member(namespace, after) == Membership(None)]
    else:
        lost = [name for name in around if name not in names and not rulebook.cluster.exempts(name)]
    if lost and before.closed:
        yield f"spec.namespaces: no TenantPolicy selects {several(lost, ', ')} any more, so no pod there gets a GPU"
    elif lost:
        yield (
            "spec.namespaces: as the first TenantPolicy it takes GPUs from each namespace that it does not select"
            f" ({len(lost)}), unless the Cluster document says namespacesWithoutPolicy: open: {several(lost, ', ')}"
        )


# An Exemption that has ended, is misspelt, or lifts nothing

GROUPS: Final = ("system:serviceaccounts", "system:authenticated", "system:masters")
"""How names of groups begin that are taken for names of users."""


def advice_on_exemption(exemption: Exemption, rulebook: Rulebook, at: float) -> Iterator[str]:
    """What is wrong with an exemption at a time in seconds since 1970; the rulebook has all policies."""
    if exemption.expires <= at:
        ended = f"it ended {duration(at - exemption.expires)} ago and lifts nothing; write a later time, or delete it"
        yield f"spec.expires: {ended}"
    around, made_up = place(rulebook, exemption.namespaces), not rulebook.tenancy.labels
    yield from of_names("spec.namespaces", exemption.namespaces, rulebook)

    # Names of groups, and of service accounts that cannot be.
    for user in exemption.users[:SUGGESTED]:
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        if user.startswith(GROUPS):
            mistake = f"{shown(user)} is a group, and users are compared; write {ACCOUNT}<namespace>:*"
        elif not user.startswith(ACCOUNT) or "*" in namespace:
            continue
        elif not name:
            mistake = f"{shown(user)} has no name after its namespace; write {ACCOUNT}{shown(namespace)}:*"
        elif made_up or namespace in around:
            continue
        else:
            mistake = f"there is no namespace {shown(namespace)}{nearest(namespace, around)}"
        yield f"spec.users: {mistake}"

    # Rules that no policy of its namespaces has; of a broken one nothing is known.
    own = selected(Namespaces(names=exemption.namespaces), around)
    members = (member(name, rulebook.tenancy).policy for name in judged(own or (), rulebook))
    policies = {policy.name: policy for policy in members if policy is not None}

    def sets(policy: TenantPolicy, rule: str) -> bool:
        if rule == "deviceAccess":
            return device_access.action(policy, rulebook.cluster) is not None
        return getattr(policy, rule) is not None

    missing = sorted(
        rule
        for rule in exemption.lifts
        if not any(policy.broken or sets(policy, rule) for policy in policies.values())
    )
    if own is None:
        yield f"spec.namespaces: {TOO_MANY}"
    elif not own:
        yield f"spec.namespaces: it is for no namespace; the cluster has {len(around)}"
    elif not policies:
        # Labels that are not known here may decide; a policy of a moment ago is not known yet.
        if not (made_up and any(any(undecided(name, rulebook.tenancy)) for name in own)):
            nobody = f"no TenantPolicy that is known here is for {several(own, ', ')}"
            yield f"spec.namespaces: {nobody}; until one is, it lifts nothing"
    elif missing:
        names = several([policy.rule for policy in policies.values()], ", ")
        yield f"spec.lifts: {names} sets no {several(missing, ', ')}, so lifting that does nothing"
