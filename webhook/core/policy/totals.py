"""What a pod needs of the quota of its tenant, and what cannot be usage there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.core.decision import Form, Reservation
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import shown
from webhook.core.plan.resource_claims import names as claimed_by
from webhook.core.policy import unknown_devices
from webhook.core.policy.holdings import UNSAID, Holding, PodUsage, unknown_size
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ask
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import RULES, Ceiling, Kinds, Quota, TenantPolicy
from webhook.core.violations import Action, Breach, Violation

NAMED: Final = 3
"""How many claims a message names."""

TEMPLATES: Final = "resourceclaimtemplates/"
"""What stands before the names of templates of resource claims where a site lists what is no GPU."""


def claimed(seen: Pod, rulebook: Rulebook) -> Sequence[str]:
    """The resource claims of a pod by name, and the device classes that it asks for as extended resources.

    Without the templates and the classes that are listed as no GPUs.
    """
    claims = [claim for claim in seen.spec.get("resourceClaims") or () if not _is_another(claim, rulebook)]
    names = [str(claim.get("name", "")) for claim in claims]
    classes = (
        name
        for container in seen.containers
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
    seen: Pod,
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
            yield Breach(name, action, _claims(claims, name, policy, rule.rule, _instead(seen, held)))
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


def _instead(seen: Pod, held: Sequence[Holding]) -> str:
    """The fix for claims: to ask in a way that can be judged, if the pod does not do so beside them."""
    if any(holding.asked.extended.amounts for holding in held):
        return "remove the claims; if they hold no GPU, an administrator lists their templates (otherDevices)"
    if locations.NOTE in seen.annotations:
        return (
            "have the webhook that made claims of the request leave the namespace alone, or have the policy say "
            "unknownDevices: warn, and nothing counts them"
        )
    return 'ask for gpu: "1" instead of its claims'


def _claims(claims: Sequence[str], name: str, policy: TenantPolicy, rule: str, fix: str) -> Violation:
    names = [*map(shown, claims[:NAMED]), *(["..."] if claims[NAMED:] else [])]
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
    known = held.card is not None or held.models
    if held.request.profile is not None:
        return "partition" if known else "partition of any card"
    if held.request.memory is not None:
        return "" if known else "size of any card"
    return "whole" if held.measure.devices == held.request.count else ""
