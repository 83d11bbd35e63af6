"""What the author of a TenantPolicy or an Exemption is told when it is applied, and what `check` and `explain` say.

Only an object of a wrong form is refused, and not if it had the same mistakes before: it may be half of a repair.
Everything else is a warning, as its author may know better.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import orjson

from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.forms.document import Problem
from webhook.core.policy import status
from webhook.core.quota.ledger import Ledger
from webhook.core.reports import exemption_advice, policy_reach, policy_terms
from webhook.core.review import AdmissionRequest
from webhook.core.rules.cluster_policies import KINDS, Broken, exemptions_from, policies_from
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.violations import Violation

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
    kind, name = KINDS.get(request.resource, ""), request.object_name or request.name
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
        yield from _told(found, exemption_advice.advice(found, replace(rulebook, tenancy=before), at))
        return
    others = [policy for policy in before.policies if policy.name != found.name]
    if any(policy.name == found.name and policy.rule != found.rule for policy in before.policies):
        yield f"{found.rule}: {status.TAKEN.message}"
        return
    after = replace(rulebook, tenancy=replace(before, policies=[*others, found]))
    yield from _told(found, policy_reach.losses(found.name, before, after))
    yield from of_policy(found, after, ledgers.get(found.name))


def _deleted(name: str, rulebook: Rulebook) -> Iterator[str]:
    """What is said when a policy is deleted."""
    before = rulebook.tenancy
    rest = replace(before, policies=[policy for policy in before.policies if policy.name != name])
    for policy in before.policies:
        if policy.name == name and not before.unknown:
            yield from _told(policy, policy_reach.losses(name, before, replace(rulebook, tenancy=rest)))


def of_policy(policy: TenantPolicy, rulebook: Rulebook, ledger: Ledger | None = None) -> Iterator[str]:
    """What is said of a policy of the rulebook; `ledger` is what its tenant uses, if that is known."""
    yield from _told(policy, policy_reach.advice(policy, rulebook))
    yield from _told(policy, policy_terms.advice(policy, rulebook, ledger))


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
            yield from _told(policy, policy_reach.losses(policy.name, before, rulebook))
    for policy in policies:
        yield from of_policy(policy, rulebook, ledgers.get(policy.name))
    for exemption in tenancy.exemptions:
        if own is None or exemption.rule in own:
            yield from _told(exemption, exemption_advice.advice(exemption, rulebook, at))


def _told(about: TenantPolicy | Exemption, advice: Iterable[policy_terms.Advice]) -> Iterator[str]:
    return (f"{about.rule} {each}" for each in advice)
