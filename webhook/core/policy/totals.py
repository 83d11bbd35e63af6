"""What a pod needs of the quota of its tenant, and what cannot be usage there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any, Final

from webhook.core.decision import Decision, Finding, Form, Reservation, denied
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube import quantity
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import GIB, MIB, Fraction, show, show_size
from webhook.core.plan.plan import claim_names as claimed_by
from webhook.core.policy import unknown_devices
from webhook.core.policy.usage import UNSAID, Holding, PodUsage, unknown_size
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ask, Ledger, Outcome, fitting
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import RULES, Ceiling, Kinds, Quota, TenantPolicy
from webhook.core.violations import LATER_FIX, QUOTA, TAKEN, Action, Breach, Violation

# What a pod needs of the quota of its tenant, and what cannot be usage there.

NAMED: Final = 3
"""How many claims a message names."""

TEMPLATES: Final = "resourceclaimtemplates/"
"""What stands before the names of templates of resource claims where a site lists what is no GPU."""


def claimed(pod: Pod, rulebook: Rulebook) -> Sequence[str]:
    """The resource claims of a pod by name, and the device classes that it asks for as extended resources.

    Without the templates and the classes that are listed as no GPUs.
    """
    claims = [claim for claim in pod.spec.get("resourceClaims") or () if not _is_another(claim, rulebook)]
    names = [str(claim.get("name", "")) for claim in claims]
    classes = (
        name
        for container in pod.containers
        for section in (container.limits, container.requests)
        for name in section
        if name.startswith(extended_resources.DEVICE_CLASS) and not unknown_devices.is_another(name, rulebook)
    )
    return [*names, *dict.fromkeys(classes)]


def _is_another(claim: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether a claim is made of a template that is listed as one without GPUs."""
    template = claim.get("resourceClaimTemplateName")
    return isinstance(template, str) and unknown_devices.is_another(f"{TEMPLATES}{template}", rulebook)


def check(
    policy: TenantPolicy,
    pod: Pod,
    held: Sequence[Holding],
    usage: PodUsage,
    claims: Sequence[str],
    uncounted: Action,
) -> Iterator[Breach]:
    """A breach for what the policy's quota cannot count, and for claims of a pod that its rules cannot judge.

    `usage` is what the containers hold together, `uncounted` what becomes of a pod with claims under a quota.
    """
    for name in RULES:
        rule: Ceiling | Kinds | Quota | None = getattr(policy, name)
        if rule is not None and claims and (name == "quota" or not _accounted(held, claims)):
            action = uncounted if name == "quota" else rule.action
            yield Breach(name, action, _claims(claims, name, policy, rule.rule, _instead(pod, held)))
    if policy.quota is not None:
        for violation in _uncounted(policy, policy.quota, held, usage):
            yield Breach("quota", policy.quota.action, violation)


def _accounted(held: Sequence[Holding], claims: Sequence[str]) -> bool:
    """Whether each claim is the translation of a container's shorthand, which is judged like any other request."""
    given = [claimed_by(holding.container) for holding in held if not holding.asked.extended.amounts]
    return all(len(names) == 1 for names in given) and set(claims) == {name for names in given for name in names}


_JUDGED: Final = {
    "container": "hold what a container may have",
    "pod": "hold what a pod may have",
    "allowed": "are of what it allows",
    "forbidden": "are of what it forbids",
}


def _instead(pod: Pod, held: Sequence[Holding]) -> str:
    """The fix for claims: to ask in a way that can be judged, if the pod does not do so beside them."""
    if any(holding.asked.extended.amounts for holding in held):
        return "remove the claims; if they hold no GPU, an administrator lists their templates (otherDevices)"
    if locations.NOTE in pod.annotations:
        return (
            "have the webhook that made claims of the request leave the namespace alone, or have the policy say "
            "unknownDevices: warn, and nothing counts them"
        )
    return 'ask for gpu: "1" instead of its claims'


def _claims(claims: Sequence[str], name: str, policy: TenantPolicy, rule: str, fix: str) -> Violation:
    names = [*map(quantity.shown, claims[:NAMED]), *(["..."] if claims[NAMED:] else [])]
    why = f'the quota of the tenant "{policy.name}" cannot count what they hold'
    if name != "quota":
        why = f'whether they {_JUDGED[name]} the policy "{policy.name}" cannot tell'
    message = f"the pod has resource claims ({', '.join(names)}), and {why}"
    return Violation(code="GPU108", path="spec.resourceClaims", message=message, fix=fix, rule=rule)


def _uncounted(policy: TenantPolicy, quota: Quota, held: Sequence[Holding], usage: PodUsage) -> Iterator[Violation]:
    if usage.unsized and any(tally.parts(key)[0] == tally.MEMORY for key in quota.hard):
        first = next(holding for holding in held if holding.measure.unsized)
        yield unknown_size(first, f'the quota of the tenant "{policy.name}" counts memory', quota.rule)
    if usage.unknown and tally.models(quota.hard):
        yield _unknown(held, policy, quota)


def _unknown(held: Sequence[Holding], policy: TenantPolicy, quota: Quota) -> Violation:
    first = next(holding for holding in held if not holding.models)
    models = tally.models(quota.hard)
    return Violation(
        code="GPU107",
        path=first.path("gpu-model", "gpu"),
        message=f'the quota of the tenant "{policy.name}" counts {" and ".join(models)} apart, {UNSAID} '
        f'model the container "{first.container.name}" gets',
        fix=f"add gpu-model: {models[0]}, or another model",
        rule=quota.rule,
    )


def reservation(policy: TenantPolicy, held: Sequence[Holding], usage: PodUsage, namespace: str) -> Reservation | None:
    """What the ledger of the tenant has to reserve for the pod; None without a quota, or if the pod holds nothing."""
    if policy.quota is None or not usage.tally:
        return None
    action = policy.quota.action
    largest = max(held, key=lambda holding: holding.measure.devices)
    return Reservation(
        tenant=policy.name,
        ask=Ask(namespace=namespace, amount=usage.tally, enforced=action == "deny"),
        path=largest.path("gpu"),
        rule=policy.quota.rule,
        action=action,
        count=largest.request.count if len(held) == 1 else 1,
        form=_form(largest) if len(held) == 1 else "",
    )


def unenforced(reservation: Reservation) -> Reservation:
    """The reservation of a pod that an exemption spares the quota: it counts, and is never refused."""
    return replace(reservation, ask=reservation.ask._replace(enforced=False), action="dryrun")


def _form(held: Holding) -> Form:
    is_sized = held.card is not None or held.models
    if held.request.profile is not None:
        return "partition" if is_sized else "partition of any card"
    if held.request.memory is not None:
        return "" if is_sized else "size of any card"
    return "whole" if held.measure.devices == held.request.count else ""


# The words of a quota's refusal: what is used, asked and left, which namespaces hold it, and what would fit.

NAMED_NAMESPACES: Final = 5
"""How many namespaces a message names, the largest holders first."""

_LONG: Final = 6
_PERCENT: Final = 100


def over(reservation: Reservation, ledger: Ledger, exceeded: Iterable[str]) -> list[Violation]:
    """A violation (GPU104) for each limit that the pod would exceed.

    `ledger` may hold the pod's own reservation already, or not.
    """
    before = _without(reservation, ledger)
    return [_over(reservation, before, key) for key in exceeded]


def admitted_over(reservation: Reservation, ledger: Ledger, exceeded: Iterable[str]) -> list[str]:
    """A warning for each limit that the pod exceeds, where the quota only warns."""
    before = _without(reservation, ledger)
    return [
        f"[GPU104] {_message(reservation, before, key)}; it is admitted, as the policy only warns" for key in exceeded
    ]


def again(reservation: Reservation, why: str) -> Violation:
    """The answer (GPU111) while it is unknown whether the pod is within the quota; the client retries."""
    message = f'the quota of the tenant "{reservation.tenant}" cannot be asked now: {why}'
    return Violation(code="GPU111", path=reservation.path, message=message, fix=LATER_FIX, rule=reservation.rule)


def taken(reservation: Reservation) -> Violation:
    """The answer (GPU115) to a pod whose name another pod has, in the words of the API server."""
    return Violation(
        code=TAKEN,
        path="metadata.name",
        message=f'pods "{reservation.ask.name}" already exists',
        fix="take another name, or delete that pod first",
    )


def _without(reservation: Reservation, ledger: Ledger) -> Ledger:
    """The ledger without the reservations of this pod's name, which only one pod can have."""
    name = f"{reservation.ask.namespace}/{reservation.ask.name}"
    if name not in ledger.pending:
        return ledger
    return replace(ledger, pending={other: by_uid for other, by_uid in ledger.pending.items() if other != name})


def _over(reservation: Reservation, ledger: Ledger, key: str) -> Violation:
    message = _message(reservation, ledger, key)
    fix = _fix(reservation, ledger, key)
    return Violation(code=QUOTA, path=reservation.path, message=message, fix=fix, rule=reservation.rule)


def _message(reservation: Reservation, ledger: Ledger, key: str) -> str:
    used, amount = ledger.used.get(key, Fraction(0)), reservation.ask.amount.get(key, Fraction(0))
    limit = ledger.hard[key]
    return (
        f'tenant "{reservation.tenant}" is over its GPU quota: uses {shown(key, used)}, '
        f"asks {shown(key, amount)}, limit {shown(key, limit)}{_unit(key, limit)}"
    )


def _fix(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """What would be admitted now, and which namespaces could free some."""
    left = ledger.hard[key] - ledger.used.get(key, Fraction(0))
    fits = _fewer(reservation, ledger, key) or _refusal_instead(reservation.form, key, left)
    # `namespace vision-dev holds 9, vision-ci 5`, the largest first; reservations are included.
    held = ledger.by_namespace
    holding = {namespace: amount[key] for namespace, amount in held.items() if amount.get(key)}
    ranked = sorted(holding, key=lambda namespace: (-holding[namespace], namespace))
    first, *others = [f"{namespace} holds {shown(key, holding[namespace])}" for namespace in ranked[:1]] or [""]
    others = [f"{namespace} {shown(key, holding[namespace])}" for namespace in ranked[1:NAMED_NAMESPACES]]
    more = f" and {len(ranked) - NAMED_NAMESPACES} more" if len(ranked) > NAMED_NAMESPACES else ""
    holders = f"namespace {', '.join([first, *others])}{more}" if first else ""
    free = f"free some: {holders}" if holders else ""
    if fits and free:
        return f"{fits}, or {free}"
    if fits:
        return f"{fits}: nobody holds any now"
    return free or "ask the operators of the quota for more: it is zero"


def _fewer(reservation: Reservation, ledger: Ledger, key: str) -> str:
    """How many of the requested devices would fit; empty if none, or if each counts as 1 device of the quota."""
    per_device = {name: amount / reservation.count for name, amount in reservation.ask.amount.items()}
    if tally.parts(key)[0] == tally.DEVICES and per_device[key] == 1:
        return ""
    fit = fitting(ledger, per_device)
    counts = f"as each counts {shown(key, per_device[key])}"
    return f"ask for {fit} of them instead of {reservation.count}, {counts}" if fit else ""


def _refusal_instead(form: Form, key: str, left: Fraction) -> str:
    """What to ask for instead, in the form of the request; empty if nothing would fit."""
    most, in_memory = _most(key, left), tally.parts(key)[0] == tally.MEMORY
    if form == "partition of any card" or (form == "size of any card" and not in_memory):
        return "add gpu-model: without it this counts as on the smallest card"
    if form == "partition" and most:
        return f"take a smaller partition, as {shown(key, left)} is left"
    if form == "whole" and most and (left < 1 or in_memory):
        return f"ask for {most}, if devices are shared here"
    return f"ask for {most}" if most else ""


def _most(key: str, left: Fraction) -> str:
    """The most that fits into what is left, in round numbers; empty if that is nothing."""
    what, model = tally.parts(key)
    of_model = f" of {model}" if model else ""
    if what == tally.MEMORY:
        unit = GIB if left >= GIB else MIB
        size = floor(left / unit) * unit
        return f"{show_size(size)}{of_model} or less" if size > 0 else ""
    if left >= 1:
        return f"{floor(left)}{of_model} or fewer"
    share = Fraction(floor(left * _PERCENT), _PERCENT)
    return f"{show(share)}{of_model} or less" if share > 0 else ""


def shown(key: str, amount: Fraction) -> str:
    """An amount, exact if that is short: `14`, `0.3`, `8Gi`, `about 0.33`, `about 12.4Gi`."""
    if tally.parts(key)[0] != tally.MEMORY:
        exact = show(amount)
        return exact if len(exact) <= _LONG and "/" not in exact else f"about {float(amount):.2f}"
    size = show_size(floor(amount)) if amount else "0"
    return size if len(size) <= _LONG + 2 else f"about {float(amount / GIB):.1f}Gi"


def _unit(key: str, limit: Fraction) -> str:
    what, model = tally.parts(key)
    if what == tally.MEMORY:
        return f" of memory{f' on {model}' if model else ''}"
    return f" {model + ' ' if model else ''}device{'' if limit == 1 else 's'}"


def reserved(decision: Decision, wanted: Reservation, outcome: Outcome, ledger: Ledger) -> Decision:
    """The final decision about a pod, after the ledger's outcome."""
    if outcome.verdict in ("again", "wait"):
        return denied([again(wanted, outcome.why)], decision.warnings)
    if outcome.verdict == "taken":
        return denied([taken(wanted)], decision.warnings)
    breach = Finding(policy=wanted.tenant, rule=wanted.rule, code=QUOTA, action=wanted.action)
    findings = [*decision.findings, breach] if outcome.exceeded else decision.findings
    if outcome.verdict == "over":
        violations = over(wanted, ledger, outcome.exceeded)
        return denied(violations, decision.warnings)._replace(findings=findings)
    if wanted.action != "warn" or not outcome.exceeded:
        return decision._replace(findings=findings)
    warnings = [*decision.warnings, *admitted_over(wanted, ledger, outcome.exceeded)]
    return decision._replace(warnings=warnings, findings=findings)
