"""The rules of a policy: what it allows and forbids, its ceilings, and what its quota needs to count."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import floor
from operator import add
from typing import Final, NamedTuple

from webhook.core.backends.charge import counted
from webhook.core.decision import Form, Reservation
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube import quantity
from webhook.core.kube.pod import Pod, effective
from webhook.core.kube.quantity import MIB, Fraction, show, show_size
from webhook.core.plan import choose, plan
from webhook.core.policy import unknown_devices
from webhook.core.policy.usage import Holding, PodUsage, pod_usage
from webhook.core.quota import tally
from webhook.core.quota.tally import Ask
from webhook.core.request import ASKING, FieldValue, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import RULES, Ceiling, Kinds, Quota, TenantPolicy
from webhook.core.violations import Action, Breach, Violation

UNSAID: Final = "and neither the pod nor the cluster says which"


def _breach(name: str, rule: Ceiling | Kinds | Quota, code: str, path: str, message: str, fix: str) -> Breach:
    """A breach of one rule of a policy."""
    return Breach(name, rule.action, Violation(code=code, path=path, message=message, fix=fix, rule=rule.rule))


def _unknown_size(name: str, rule: Ceiling | Quota, holding: Holding, limit: str) -> Breach:
    """The breach (GPU107) where a limit depends on the memory of an unknown card; `limit` says which limit."""
    text = f'the container "{holding.container.name}" asks for {counted(holding.measure.devices)}'
    path, message = holding.path("gpu-memory", "gpu"), f"{limit}, and {text} of an unknown card"
    fix = f"add gpu-model with the name of the card, or ask for gpu-memory: 8Gi{holding.instead}"
    return _breach(name, rule, "GPU107", path, message, fix)


# Which back ends, vendors, models, ways of sharing and partitions a policy allows or forbids.


class Respect(NamedTuple):
    """One of the lists of a policy: its field there, its name for people, and the key of the shorthand."""

    field: str
    name: str
    word: str
    optional: bool = False


RESPECTS: Final = (
    Respect("backends", "back end", "gpu-backend"),
    Respect("vendors", "vendor", "gpu-model"),
    Respect("models", "model", "gpu-model"),
    Respect("sharing", "sharing", "gpu-sharing"),
    Respect("profiles", "profile", "gpu-profile", optional=True),
)
"""A container without a profile passes a list of profiles."""

LISTED: Final = 6
"""How many names a message lists."""


def check_allowed(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for everything that the policy does not allow or forbids, or that is unknown."""
    lists = [("allowed", policy.allowed), ("forbidden", policy.forbidden)]
    judged = [(name, kinds) for name, kinds in lists if kinds is not None]
    for holding in held:
        use = _use(holding.backend, holding.request, holding.demand.stated, holding.models, holding.vendor)
        who = f'the container "{holding.container.name}"'
        for list_name, kinds in judged:
            allows = list_name == "allowed"
            for respect in RESPECTS:
                listed: frozenset[str] = getattr(kinds, respect.field)
                names = use[respect.field]
                if not listed or (respect.optional and not names):
                    continue
                bad = names - listed if allows else names & listed
                if names and not bad:
                    continue
                if bad:
                    certain = "gets" if names == bad else "may get"
                    code = "GPU101"
                    message = f'{who} {certain} the {respect.name} {_names(bad)}, which the policy "{policy.name}" '
                    message += "does not allow" if allows else "forbids"
                    fix = _other_kind(respect, names, listed, holding, rulebook, allows=allows)
                else:
                    code, wanted = "GPU107", _names(listed)
                    verb = "allows only" if allows else "forbids"
                    message = f'the policy "{policy.name}" {verb} the {respect.name} {wanted}, {UNSAID} {who} gets'
                    fix = f"add {respect.word}"
                    if respect.field == "vendors":
                        fix += f" with the name of a card of {'' if allows else 'another vendor than '}{wanted}"
                    else:
                        fix += f": {wanted}" if allows else f" with the name of another {respect.name} than {wanted}"
                yield _breach(list_name, kinds, code, holding.path(respect.word), message, fix)


def allows(policy: TenantPolicy, served: choose.Assignment, rulebook: Rulebook) -> bool:
    """Whether a policy allows how a back end serves a container, as far as that is known.

    Rules with `enforcementAction: dryrun` are not applied.
    """
    vendor = served.card.vendor if served.card else None
    others = choose.lookalike_cards(served.request.models, [served.mode], rulebook)
    models = [*served.request.models, *(card.model for card in others)]
    use = _use(served.backend, served.request, served.demand.stated, models, vendor)
    allowed, forbidden = (
        Kinds() if kinds is None or kinds.action == "dryrun" else kinds
        for kinds in (policy.allowed, policy.forbidden)
    )
    for field, names in use.items():
        listed: frozenset[str] = getattr(allowed, field)
        if (listed and not names <= listed) or not names.isdisjoint(getattr(forbidden, field)):
            return False
    return True


def _use(
    backend: Backend, request: GpuRequest, stated: Mapping[str, FieldValue], models: Sequence[str], vendor: str | None
) -> Mapping[str, frozenset[str]]:
    """What one container uses in each respect. If that is not certain, all that it may use; empty: unknown.

    The pod's `gpu-sharing` counts only if its devices may be shared so.
    """
    kinds = {"profile": {"partitioned"}, "whole": {"exclusive"}}.get(request.devices, set())
    sharing = backend.sharing & kinds or backend.sharing - {"exclusive", "partitioned"} or backend.sharing
    if "gpu-sharing" in stated and stated["gpu-sharing"].value in sharing:
        sharing = frozenset({stated["gpu-sharing"].value})
    return {
        "backends": frozenset({backend.name}),
        "vendors": frozenset({vendor} if vendor else backend.vendors),
        "models": frozenset(models),
        "sharing": sharing,
        "profiles": frozenset({request.profile} if request.profile else ()),
    }


def _names(names: frozenset[str]) -> str:
    ordered = sorted(names)
    if len(ordered) > LISTED:
        return f"{', '.join(ordered[:LISTED])}, ..."
    return " or ".join([", ".join(ordered[:-1]), ordered[-1]] if len(ordered) > 1 else ordered)


def _other_kind(
    respect: Respect,
    names: frozenset[str],
    listed: frozenset[str],
    holding: Holding,
    rulebook: Rulebook,
    *,
    allows: bool,
) -> str:
    """What the pod's author can ask for instead of `names`, with its key."""
    if respect.field == "vendors":
        return f"ask for a model of {_names(listed) if allows else 'another vendor'} (gpu-model)"
    # All back ends or ways of sharing of this cluster; of the other lists not all are known.
    there: frozenset[str] = frozenset()
    if respect.field == "backends":
        there = frozenset(backend.name for backend in rulebook.enabled)
    elif respect.field == "sharing":
        there = frozenset(kind for backend in rulebook.enabled for kind in backend.sharing)
    may = (names & listed or listed) if allows else (names - listed or there - listed)
    may = may & there or may
    if not allows:  # some systems take a name for a part of another
        may = frozenset(name for name in may if not any(name in other for other in listed)) or may
    if respect.field != "sharing":
        return f"ask for {respect.word}: {_names(may)}" if may else f"ask for another {respect.name} ({respect.word})"

    # What to ask for, so that an allowed way of sharing is possible.
    fitting = may - {"partitioned", "exclusive"}
    if fitting and holding.request.devices == "part":
        return f"ask for gpu-sharing: {_names(fitting)}"
    if "exclusive" in may:
        return f'ask for whole devices, as gpu: "1"{holding.instead}'
    if fitting:
        return f'ask for gpu: "0.5" and gpu-sharing: {_names(fitting)}{holding.instead}'
    return "ask for a partition of a device (gpu-profile)" if may else "ask for no GPU here"


# Ceilings: the most that one container, and one pod, may ask for.


def check_ceilings(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for each amount of a ceiling that a container, or the pod, exceeds."""
    groups = [("container", policy.container, [holding]) for holding in held if policy.container is not None]
    for scope, ceiling, group in [*groups, ("pod", policy.pod, held)]:
        if ceiling is None or not group:
            continue
        code = "GPU102" if scope == "container" else "GPU103"
        asks = f'the container "{group[0].container.name}" asks for' if scope == "container" else "the pod asks for"
        whose = f'the policy "{policy.name}" lets a {scope} have'
        count = sum(holding.request.count for holding in group)
        of_each = " of each device" if count > 1 else ""
        instead = group[0].instead if len(group) == 1 else ""
        together = pod_usage(group).tally

        devices = together.get(tally.DEVICES, Fraction(0))
        if ceiling.devices is not None and devices > ceiling.devices:
            path = max(group, key=lambda holding: holding.measure.devices).path("gpu")
            reasons = dict.fromkeys(why for holding in group for why in holding.gaps.values())
            unless = f", as {' and '.join(reasons)}" if reasons else ""
            message = f"{asks} {counted(devices)}{unless}, and {whose} {show(ceiling.devices)}"
            yield _breach(scope, ceiling, code, path, message, _fewer(ceiling.devices, group))

        memory, most = together.get(tally.MEMORY, Fraction(0)), ceiling.memory
        unsized = [holding for holding in group if holding.measure.unsized]
        if most is not None and unsized:
            limit = f"{whose} {f'{show_size(most)} of' if most else 'no'} memory"
            yield _unknown_size(scope, ceiling, unsized[0], limit)
        elif most is not None and memory > most:
            path = max(group, key=lambda holding: holding.measure.memory).path("gpu-memory")
            message = (
                f"{asks} {show_size(floor(memory))} of memory, and {whose} {show_size(most) if most else 'none'}"
            )
            size = floor(Fraction(most, count) / MIB) * MIB
            fix = "ask for no GPU here: the policy lets nobody have any of its memory"
            if size:
                fix = f"ask for gpu-memory: {show_size(size)} or less{of_each}{instead}"
                if len(group) == 1 and not _is_served(group[0], {"gpu-memory": show_size(size)}, rulebook):
                    fix = f"ask an operator of the cluster for an Exemption that lifts {scope}"
            yield _breach(scope, ceiling, code, path, message, fix)

        compute = effective(((holding.container, holding.compute) for holding in group), add, max, Fraction(0))
        if ceiling.cores is not None and compute > ceiling.cores:
            path = max(group, key=lambda holding: holding.compute).path("gpu-cores", "gpu")
            unless = ", as nothing limits it to less" if any(holding.is_unlimited for holding in group) else ""
            message = f"{asks} {show(compute)} % of a device's compute{unless}, and {whose} {show(ceiling.cores)} %"
            fix = _fewer(ceiling.cores / 100, group)
            if percent := floor(ceiling.cores / count):
                limited = all(any("cores" in mode.verbs for mode in holding.backend.modes) for holding in group)
                limiting = "" if limited else ", from a back end that limits compute"
                fix = f'ask for gpu-cores: "{percent}" or less{of_each}{instead}{limiting}'
            yield _breach(scope, ceiling, code, path, message, fix)


def _is_served(holding: Holding, words: Mapping[str, str], rulebook: Rulebook) -> bool:
    """Whether some back end serves what a container holds in these words instead."""
    gone = dict.fromkeys([*ASKING, "gpu-backend", "gpu-sharing"], "")
    bare = replace(holding.demand, extended=extended_resources.NO_RESOURCES)
    demand = choose.reworded(bare, {**gone, **words})
    attempts = [choose.attempt(demand, backend, rulebook) for backend in rulebook.enabled] if demand else []
    return any(isinstance(candidate, choose.Assignment) for candidate in attempts)


def _fewer(most: Fraction, held: Sequence[Holding]) -> str:
    """An amount that would be allowed, in shorthand."""
    if most == 0:
        return "ask for no GPU here: the policy lets nobody have one"
    in_all = " in all" if len(held) > 1 else ""
    if most >= 1:
        return f"ask for {floor(most)} or fewer{in_all}"
    share = Fraction(floor(most * 100), 100)
    return f"ask for {show(share)} or less of one device{in_all}, of its memory and of its compute"


# The quota of a tenant: what a pod needs of it, and what nothing can count there.

NAMED: Final = 3
"""How many claims a message names."""

_JUDGED: Final = {
    "container": "hold what a container may have",
    "pod": "hold what a pod may have",
    "allowed": "are of what it allows",
    "forbidden": "are of what it forbids",
}


def judged_by_class(policy: TenantPolicy | None, rulebook: Rulebook) -> bool:
    """Whether the API server refuses each claim that is made, by its device classes, and not we a pod that has some.

    A template may be another one by the time of the claim. Where a policy does more or less than refuse all claims
    that nothing counts, its pods are judged.
    """
    listed = any(glob.startswith(extended_resources.DEVICE_CLASS) for glob in rulebook.cluster.other_devices)
    if not listed or policy is None or policy.broken:
        return listed
    return policy.quota is not None and unknown_devices.action(policy, rulebook.cluster) == "deny"


def claimed(pod: Pod, policy: TenantPolicy | None, rulebook: Rulebook) -> Sequence[str]:
    """The resource claims of a pod by name, and the device classes that it asks for as extended resources.

    Without the claims that are made for it if these are judged by class, and the classes listed as no GPUs.
    """
    made = judged_by_class(policy, rulebook)
    claims = pod.spec.get("resourceClaims") or ()
    names = [str(claim.get("name", "")) for claim in claims if not (made and "resourceClaimTemplateName" in claim)]
    classes = (
        name
        for container in pod.containers
        for section in (container.limits, container.requests)
        for name in section
        if name.startswith(extended_resources.DEVICE_CLASS) and not unknown_devices.is_another(name, rulebook)
    )
    return [*names, *dict.fromkeys(classes)]


def check_claims(
    policy: TenantPolicy, pod: Pod, held: Sequence[Holding], claims: Sequence[str], uncounted: Action
) -> Iterator[Breach]:
    """A breach for each rule of the policy that cannot judge or count the claims of a pod.

    `uncounted` is what becomes of a pod with claims under a quota.
    """
    if not claims:
        return
    # Claims that are the translation of a container's shorthand are judged like any other request.
    own = [plan.claim_names(holding.container) for holding in held if not holding.demand.extended.amounts]
    judged = all(len(names) == 1 for names in own) and set(claims) == {name for names in own for name in names}
    listed = ", ".join([*map(quantity.shown, claims[:NAMED]), *(["..."] if claims[NAMED:] else [])])
    fix = 'ask for gpu: "1" instead of its claims'
    if any(holding.demand.extended.amounts for holding in held):
        fix = "remove the claims; if they hold no GPU, an administrator lists their device classes (otherDevices)"
    elif locations.NOTE in pod.annotations:
        fix = (
            "have the webhook that made claims of the request leave the namespace alone, or have the policy say "
            "unknownDevices: warn, and nothing counts them"
        )
    for name in RULES:
        rule: Ceiling | Kinds | Quota | None = getattr(policy, name)
        if rule is None or (judged and name != "quota"):
            continue
        action, why = uncounted, f'the quota of the tenant "{policy.name}" cannot count what they hold'
        if name != "quota":
            action, why = rule.action, f'whether they {_JUDGED[name]} the policy "{policy.name}" cannot tell'
        message = f"the pod has resource claims ({listed}), and {why}"
        violation = Violation(code="GPU108", path="spec.resourceClaims", message=message, fix=fix, rule=rule.rule)
        yield Breach(name, action, violation)


def check_countable(policy: TenantPolicy, held: Sequence[Holding], usage: PodUsage) -> Iterator[Breach]:
    """A breach for what the policy's quota cannot count, because a card is unknown."""
    quota = policy.quota
    if quota is None:
        return
    whose = f'the quota of the tenant "{policy.name}" counts'
    if usage.unsized and any(tally.parts(key)[0] == tally.MEMORY for key in quota.hard):
        first = next(holding for holding in held if holding.measure.unsized)
        yield _unknown_size("quota", quota, first, f"{whose} memory")
    models = tally.models(quota.hard) if usage.unknown else ()
    if models:
        first = next(holding for holding in held if not holding.models)
        who = f'the container "{first.container.name}"'
        message = f"{whose} {' and '.join(models)} apart, {UNSAID} model {who} gets"
        fix = f"add gpu-model: {models[0]}, or another model"
        yield _breach("quota", quota, "GPU107", first.path("gpu-model", "gpu"), message, fix)


def check_growth(policy: TenantPolicy, path: str, before: tally.Tally, after: tally.Tally) -> Iterator[Breach]:
    """A breach (GPU109) for each limit of the policy's quota by which an update of a field lets a pod count more."""
    quota = policy.quota or Quota(hard=tally.NOTHING)
    for key in quota.hard:
        had, has = (amounts.get(key, Fraction(0)) for amounts in (before, after))
        if has > had:
            counts, would_count = tally.rounded(key, had), tally.rounded(key, has)
            message = (
                f'in the quota of the tenant "{policy.name}" the pod counts {counts} of {key}, and on the nodes that '
                f"it would select {would_count}: no update may make it count more"
            )
            fix = "create another pod that selects these nodes from the start, and delete this one"
            yield _breach("quota", quota, "GPU109", path, message, fix)


def check_termination(policy: TenantPolicy, pod: Pod, held: Sequence[Holding]) -> Iterator[Breach]:
    """A breach (GPU117) if the pod may run long after a forced deletion, or has no time, so that it leaves at once.

    A kubelet grants a pod that is gone its own period, or 1 s (pkg/kubelet/pod_workers.go).
    """
    key = "terminationGracePeriodSeconds"
    most, given = policy.max_termination_grace_period_seconds, pod.spec.get(key)
    seconds, quota = 30 if given is None else given, policy.quota  # Kubernetes' default
    if quota and held and not 0 < seconds <= most:
        message = f'the pod has {seconds} s to end, and the policy "{policy.name}" lets it have 1 to {most} s, as it'
        message += " may run so long after a forced deletion has freed its quota"
        fix = f"write {most} or less" if seconds > most else "write 1"
        yield _breach("quota", quota, "GPU117", f"spec.{key}", message, fix)


def reservation(policy: TenantPolicy, held: Sequence[Holding], usage: PodUsage, namespace: str) -> Reservation | None:
    """What the ledger of the tenant has to reserve for the pod; None without a quota, or if the pod holds nothing."""
    if policy.quota is None or not usage.tally:
        return None
    action = policy.quota.action
    largest = max(held, key=lambda holding: holding.measure.devices)
    form: Form = ""
    if len(held) == 1:
        sized = largest.card is not None or largest.models
        if largest.request.profile is not None:
            form = "partition" if sized else "partition of any card"
        elif largest.request.memory is None and not largest.gaps and largest.measure.devices == largest.request.count:
            form = "whole"
    return Reservation(
        tenant=policy.name,
        ask=Ask(namespace=namespace, amount=usage.tally, enforced=action == "deny", hard=policy.quota.hard),
        path=largest.path("gpu"),
        rule=policy.quota.rule,
        action=action,
        count=largest.request.count if len(held) == 1 else 1,
        form=form,
        gaps={key: why for holding in held for key, why in holding.gaps.items()},
    )
