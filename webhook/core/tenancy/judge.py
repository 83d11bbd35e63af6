"""What policies say of a pod as it would be stored: what is wrong with it, and what the ledger has to hold for it.

Read from the resources on the containers, so who writes a back end's own is judged as who writes the shorthand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from webhook.core.decision import Finding, Reservation
from webhook.core.pod import Pod
from webhook.core.quantity import shown
from webhook.core.review import AdmissionRequest, line
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy import ceilings, confine, counting, kinds, totals
from webhook.core.tenancy.breach import Breach
from webhook.core.tenancy.counting import Holding
from webhook.core.tenancy.membership import Membership, member
from webhook.core.tenancy.policy import RULES, Exemption, Tenancy, TenantPolicy
from webhook.core.violations import LATER_FIX, Violation

_DAY: Final = 86_400
SOON: Final = 7 * _DAY
"""How long before its end people are told of an exemption that they rely on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What policies say: why to refuse the pod, what to tell its author anyway, and what to note.

    `reservation` counts only if nothing else is wrong with the pod, and it is really about to be created.
    `exemptions` are those that the pod needs.
    """

    violations: Sequence[Violation] = ()
    warnings: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    reservation: Reservation | None = None
    exemptions: Sequence[Exemption] = ()

    def audit(self) -> Mapping[str, str]:
        """What the audit log of the API server should keep of it."""
        said: dict[str, str] = {}
        if self.findings:
            said["policy"] = ", ".join(
                dict.fromkeys(f"{one.policy}: {one.code} {one.action}" for one in self.findings)
            )
        if self.exemptions:
            said["exemptions"] = ", ".join(f"{one.rule}, owner {one.owner}" for one in self.exemptions)
        return said


NOTHING: Final = Judgement()


def judge(seen: Pod, request: AdmissionRequest, rulebook: Rulebook) -> Judgement:
    """Judge a pod that is about to be created; the rulebook's tenancy is not silent."""
    tenancy = rulebook.tenancy
    held = counting.holdings(seen, rulebook)
    claims = totals.claimed(seen)
    if not held and not claims:
        return NOTHING
    if why := _not_now(seen.namespace, tenancy):
        return Judgement(violations=[_later(why)])
    found = member(seen.namespace, tenancy)
    if found.policy is None:
        return _without_policy(seen.namespace, found, tenancy, claims if not held else ())
    if found.policy.broken:
        return _refused(_unusable(found.policy), found.policy.name)
    breaches = [*_breaches(found.policy, seen, held, claims, rulebook)]
    return _Case(found.policy, list(_holding(request, seen.namespace, tenancy)), request.at).judged(
        breaches, seen, held
    )


def _breaches(
    policy: TenantPolicy, seen: Pod, held: Sequence[Holding], claims: Sequence[str], rulebook: Rulebook
) -> Iterator[Breach]:
    for violation in confine.check(seen, policy) if held else ():
        yield Breach("", policy.action, violation)
    yield from kinds.check(policy, held, rulebook)
    yield from ceilings.check(policy, held)
    yield from totals.check(policy, held, claims)


@dataclass(slots=True)
class _Case:
    """One pod before one policy: what is found is sorted by what becomes of it."""

    policy: TenantPolicy
    exemptions: Sequence[Exemption]
    at: float
    violations: list[Violation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    needed: dict[str, str] = field(default_factory=dict)

    def judged(self, breaches: Iterable[Breach], seen: Pod, held: Sequence[Holding]) -> Judgement:
        """What comes of all that was found."""
        lifted = lifting(self.exemptions)
        for breach in breaches:
            if breach.lift in lifted:
                self.needed.setdefault(breach.lift, line(breach.violation))
            else:
                self._note(breach)
        reservation = totals.reservation(self.policy, held, seen, lifted="quota" in lifted)
        if reservation is not None and "quota" in lifted:
            self.needed.setdefault("quota", f'the quota of the tenant "{self.policy.name}" holds')
        needed = [one for one in self.exemptions if not one.lifts.isdisjoint(self.needed)]
        return Judgement(
            violations=self.violations,
            warnings=[*self.warnings, *self._ending(needed)],
            findings=[*dict.fromkeys(self.findings)],
            reservation=reservation,
            exemptions=needed,
        )

    def _note(self, breach: Breach) -> None:
        violation = breach.violation
        self.findings.append(Finding(self.policy.name, violation.rule, violation.code, breach.action))
        if breach.action == "deny":
            self.violations.append(violation)
        elif breach.action == "warn":
            self.warnings.append(line(violation))

    def _ending(self, needed: Sequence[Exemption]) -> Iterator[str]:
        for exemption in needed:
            left = exemption.expires - self.at
            if left <= SOON:
                message = next(text for lift, text in self.needed.items() if lift in exemption.lifts)
                yield f"the exemption {exemption.rule} of {exemption.owner} ends in {_in_words(left)}; then {message}"


def _in_words(seconds: float) -> str:
    number, unit = (int(seconds // _DAY), "day") if seconds >= _DAY else (max(1, int(seconds // 3600)), "hour")
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _holding(request: AdmissionRequest, namespace: str, tenancy: Tenancy) -> Iterator[Exemption]:
    """The exemptions that hold for a pod."""
    for exemption in tenancy.exemptions:
        there = any(fnmatchcase(namespace, glob) for glob in exemption.namespaces)
        whose = not exemption.users or any(fnmatchcase(request.user, glob) for glob in exemption.users)
        if there and whose and request.at < exemption.expires:
            yield exemption


def lifting(exemptions: Iterable[Exemption]) -> frozenset[str]:
    """The rules that are lifted: those that every one of them lifts."""
    each = [exemption.lifts for exemption in exemptions]
    return frozenset(RULES).intersection(*each) if each else frozenset()


def _not_now(namespace: str, tenancy: Tenancy) -> str:
    """Why nothing can be said now, if so."""
    if tenancy.unknown:
        return tenancy.unknown
    if tenancy.watched and namespace not in tenancy.labels:
        return f"the namespace {namespace} is new, and not known here yet"
    return ""


def _later(why: str) -> Violation:
    return Violation(
        code="GPU111",
        path="metadata.namespace",
        message=f"what policies say of this pod cannot be told now: {why}",
        fix=LATER_FIX,
    )


def _without_policy(namespace: str, found: Membership, tenancy: Tenancy, only_claims: Sequence[str]) -> Judgement:
    if found.rivals:
        return _refused(_ambiguous(namespace, found.rivals), " and ".join(one.name for one in found.rivals))
    if not tenancy.closed:
        return NOTHING
    may_be = f", and the claim {shown(only_claims[0])} of the pod may be for one" if only_claims else ""
    violation = Violation(
        code="GPU105",
        path="metadata.namespace",
        message=f"no TenantPolicy is for the namespace {namespace}, and without one no GPU may be used there{may_be}",
        fix="use a namespace of a tenant, or ask whoever runs the cluster to add this one to a TenantPolicy",
    )
    return _refused(violation, "")


def _refused(violation: Violation, policy: str) -> Judgement:
    return Judgement(violations=[violation], findings=[Finding(policy, violation.rule, violation.code, "deny")])


def _unusable(policy: TenantPolicy) -> Violation:
    return Violation(
        code="GPU113",
        path="metadata.namespace",
        message=f'the policy "{policy.name}" cannot be used, so its namespaces get no GPU: {policy.broken}',
        fix="show this to whoever wrote the policy",
        rule=policy.rule,
    )


def _ambiguous(namespace: str, rivals: Sequence[TenantPolicy]) -> Violation:
    names = " and ".join(policy.rule for policy in rivals)
    return Violation(
        code="GPU106",
        path="metadata.namespace",
        message=f"{len(rivals)} policies of priority {rivals[0].priority} are for the namespace {namespace}: {names}",
        fix="ask whoever runs the cluster to give one of them a higher priority",
        rule=rivals[0].rule,
    )
