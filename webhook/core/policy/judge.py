"""The judgement of a policy on a pod as it would be stored: violations, warnings, and the reservation it needs.

It is made from the resources on the containers, so shorthand and a back end's own resources are judged alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import Final, NamedTuple

from webhook.core.decision import Finding, Reservation
from webhook.core.kube import pod
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import DAY, HOUR, duration, shown
from webhook.core.policy import defaults, device_access, limits, totals, unknown_devices, updates
from webhook.core.policy.device_access import Bypass
from webhook.core.policy.membership import member
from webhook.core.policy.unknown_devices import UnknownDevice
from webhook.core.policy.usage import Holding, PodUsage, holdings, pod_usage
from webhook.core.review import AdmissionRequest, line
from webhook.core.rules.protection import Access
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import LIFTED, MAX_PRIORITY, RULES, Exemption, Tenancy, TenantPolicy
from webhook.core.violations import LATER_FIX, Action, Breach, Violation

SOON: Final = 7 * DAY
"""How long before its end an exemption makes a warning, in seconds."""

MOST: Final = 50
"""How many ways to other devices are told."""

LISTED: Final = 3
"""How many unknown devices are looked for: one is enough for a refusal, and a hostile pod may have thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a policy says of one pod: violations, warnings for its author, and findings for logs and metrics.

    `reservation` is made only if the pod has no violation and the request is no dry run. `exemptions` are those that
    the pod needs.
    """

    violations: Sequence[Violation] = ()
    warnings: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    reservation: Reservation | None = None
    exemptions: Sequence[Exemption] = ()

    def audit(self) -> Mapping[str, str]:
        """The audit annotations for the API server's log."""
        notes: dict[str, str] = {}
        if self.findings:
            notes["policy"] = ", ".join(
                dict.fromkeys(f"{finding.policy}: {finding.code} {finding.action}" for finding in self.findings)
            )
        if self.exemptions:
            notes["exemptions"] = ", ".join(
                f"{exemption.rule}, owner {exemption.owner}" for exemption in self.exemptions
            )
        return notes


NOTHING: Final = Judgement()


def judge(pod: Pod, held: Sequence[Holding], request: AdmissionRequest, rulebook: Rulebook) -> Judgement:
    """Judge a pod that is about to be created, by what its containers hold."""
    tenancy = rulebook.tenancy
    bypasses = _bypasses(pod, held, request, rulebook)
    asks = _Asks(pod, held, totals.claimed(pod, rulebook), _unknown_devices(pod, rulebook), bypasses)
    if tenancy.silent or not (asks.devices or bypasses):
        return _of_the_cluster(asks, rulebook)
    if asks.devices and (why := _not_now(pod.namespace, tenancy)):
        return Judgement(violations=[_later(why)])
    membership = member(pod.namespace, tenancy)
    policy = membership.policy
    if policy is None:
        # The judgement where no policy is for the namespace.
        tolerated = rulebook.cluster.unknown_devices == "warn" and not asks.held and not asks.claims
        if tolerated or not asks.devices or not (membership.rivals or rulebook.tenancy.closed):
            return _of_the_cluster(asks, rulebook)
        namespace = asks.pod.namespace
        if membership.rivals:
            return _refused(
                _ambiguous(namespace, membership.rivals), " and ".join(rival.name for rival in membership.rivals)
            )
        may_be = "" if asks.held else f"; {asks.devices[0]} may give the pod a GPU"
        violation = Violation(
            code="GPU105",
            path="metadata.namespace",
            message=f"no TenantPolicy selects the namespace {namespace}, and without one no pod there gets a GPU "
            f"({_closed(rulebook.tenancy)}){may_be}",
            fix="use a namespace of a tenant, or ask an operator of the cluster to add it to spec.namespaces of a "
            "TenantPolicy",
        )
        return _refused(violation, "")
    if policy.broken:
        return _refused(_unusable(policy), policy.name)
    usage = pod_usage(held)
    case = _Case(policy, [*_in_force(request, pod.namespace, tenancy)], request.at)
    reservation = totals.reservation(policy, held, usage, pod.namespace)
    return case.judged(_breaches(policy, asks, usage, rulebook), reservation)


def judge_update(request: AdmissionRequest, rulebook: Rulebook) -> Judgement:
    """Judge an update of a pod, pruned, by the ways to other devices that it adds."""
    old, new = (pod.read(raw or {}, request.namespace) for raw in (request.old_pod, request.pod))
    policy = member(request.namespace, rulebook.tenancy).policy if rulebook.tenancy.policies else None
    access = device_access.action(policy, rulebook.cluster)
    if access is None:
        return NOTHING
    violations = device_access.added(old, new, device_access.served(holdings(new, rulebook)), rulebook)
    if updates.is_of_the_platform(request, rulebook):
        violations = (
            violation for violation in violations if violation.path[0] != "metadata"
        )  # which schedulers and device plugins write
    bypasses = [*islice(violations, MOST)]
    if policy is None:
        return _of_the_cluster(_Asks(new, (), (), (), bypasses), rulebook)
    case = _Case(policy, [*_in_force(request, request.namespace, rulebook.tenancy)], request.at)
    return case.judged(_accesses(bypasses, access), None)


class _Asks(NamedTuple):
    """A pod, and what in it may be for a GPU."""

    pod: Pod
    held: Sequence[Holding]
    claims: Sequence[str]
    unknown: Sequence[UnknownDevice]
    bypasses: Sequence[Bypass] = ()

    @property
    def devices(self) -> Sequence[str]:
        """What in it is for a GPU, or may be."""
        named = [bypass.said for bypass in self.bypasses if not bypass.of_node]
        held = [shown(holding.container.name) for holding in self.held]
        return [
            *held,
            *(f"the claim {shown(claim)}" for claim in self.claims),
            *(shown(device.name) for device in self.unknown),
            *named,
        ]


def _bypasses(pod: Pod, held: Sequence[Holding], request: AdmissionRequest, rulebook: Rulebook) -> Sequence[Bypass]:
    """The ways of a pod to other devices, the first MOST; a pod that runs already cannot be kept from them."""
    if device_access.is_mirrored(pod, request.user):
        return ()
    return [*islice(device_access.find(pod, device_access.served(held), rulebook), MOST)]


def _unknown_devices(pod: Pod, rulebook: Rulebook) -> Sequence[UnknownDevice]:
    """The unknown devices of a pod, the first LISTED."""
    devices = chain(unknown_devices.find(pod, rulebook), unknown_devices.find_disabled(pod, rulebook))
    return [*islice(devices, LISTED)]


def _breaches(policy: TenantPolicy, asks: _Asks, usage: PodUsage, rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for each rule of a policy that the pod breaks."""
    pod, held, claims, unknown, bypasses = asks
    if held:
        yield from (Breach("", policy.action, violation) for violation in defaults.check_placement(pod, policy))
    yield from limits.check_allowed(policy, held, rulebook)
    yield from limits.check_ceilings(policy, held)
    uncounted = unknown_devices.action(policy, rulebook.cluster)
    yield from totals.check(policy, pod, held, usage, claims, uncounted)
    ruled = any(getattr(policy, name) is not None for name in RULES)
    uncovered = [device for device in unknown if not ruled or device.name not in claims]
    rule = policy.quota.rule if policy.quota else policy.rule
    for violation in unknown_devices.violations(uncovered, pod, rule):
        yield Breach("quota", uncounted, violation)
    yield from _accesses(bypasses, device_access.action(policy, rulebook.cluster))


def _accesses(bypasses: Iterable[Bypass], access: Access | None) -> Iterator[Breach]:
    """A breach for each way to other devices; what /mutate has left of those that it removes is refused."""
    action: Action = "warn" if access == "warn" else "deny"
    yield from (Breach("deviceAccess", action, device_access.violation(bypass)) for bypass in bypasses if access)


@dataclass(slots=True)
class _Case:
    """One pod and one policy: breaches are sorted by exemption and enforcement action."""

    policy: TenantPolicy
    exemptions: Sequence[Exemption]
    at: float
    violations: list[Violation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    needed: dict[str, str] = field(default_factory=dict)

    def judged(self, breaches: Iterable[Breach], reservation: Reservation | None) -> Judgement:
        """The judgement from all breaches. An exemption from the quota makes a reservation that is never refused."""
        exempted = exempted_rules(self.exemptions)
        for breach in breaches:
            if breach.rule_name in exempted:
                self.needed.setdefault(breach.rule_name, line(breach.violation))
            else:
                self._note(breach)
        if reservation is not None and "quota" in exempted:
            reservation = totals.unenforced(reservation)
            self.needed.setdefault("quota", f'the quota of the tenant "{self.policy.name}" holds')
        needed = [exemption for exemption in self.exemptions if not exemption.lifts.isdisjoint(self.needed)]
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
                message = next(text for name, text in self.needed.items() if name in exemption.lifts)
                ends = f"ends in {duration(max(left, HOUR))}"
                yield f"the exemption {exemption.rule} of {exemption.owner} {ends}; then {message}"


def _in_force(request: AdmissionRequest, namespace: str, tenancy: Tenancy) -> Iterator[Exemption]:
    """The exemptions that are in force for a pod."""
    for exemption in tenancy.exemptions:
        whose = not exemption.users or any(fnmatchcase(request.user, glob) for glob in exemption.users)
        if exemption.covers(namespace) and whose and request.at < exemption.expires:
            yield exemption


def exempted_rules(exemptions: Iterable[Exemption]) -> frozenset[str]:
    """The rules that all these exemptions lift."""
    lifts = [exemption.lifts for exemption in exemptions]
    return frozenset(LIFTED).intersection(*lifts) if lifts else frozenset()


def _not_now(namespace: str, tenancy: Tenancy) -> str:
    """Why policies cannot be applied now; empty if they can."""
    if tenancy.unknown:
        return tenancy.unknown
    if tenancy.watched and namespace not in tenancy.labels:
        return f"the namespace {namespace} is new, and not known here yet"
    return ""


def _later(why: str) -> Violation:
    message = f"what policies say of this pod cannot be told now: {why}"
    return Violation(code="GPU111", path="metadata.namespace", message=message, fix=LATER_FIX)


def _of_the_cluster(asks: _Asks, rulebook: Rulebook) -> Judgement:
    """The judgement of the Cluster document alone: on unknown devices, and on ways to other ones."""
    cluster = rulebook.cluster
    unknown = unknown_devices.violations(asks.unknown, asks.pod) if asks.unknown else ()
    judged: list[tuple[Action, Violation]] = [(unknown_devices.action(None, cluster), device) for device in unknown]
    judged += ((breach.action, breach.violation) for breach in _accesses(asks.bypasses, cluster.device_access))
    if not judged:
        return NOTHING
    return Judgement(
        violations=[violation for action, violation in judged if action == "deny"],
        warnings=[line(violation) for action, violation in judged if action != "deny"],
        findings=[Finding("", violation.rule, violation.code, action) for action, violation in judged],
    )


def _closed(tenancy: Tenancy) -> str:
    """Why a namespace needs a policy."""
    if tenancy.without_policy == "deny":
        return "namespacesWithoutPolicy: deny"
    return f"the cluster has {len(tenancy.policies)} for other namespaces"


def _refused(violation: Violation, policy: str) -> Judgement:
    return Judgement(violations=[violation], findings=[Finding(policy, violation.rule, violation.code, "deny")])


def _unusable(policy: TenantPolicy) -> Violation:
    message = f'the policy "{policy.name}" cannot be used, so its namespaces get no GPU: {policy.broken}'
    fix = "show this to the author of the policy"
    return Violation(code="GPU113", path="metadata.namespace", message=message, fix=fix, rule=policy.rule)


def _ambiguous(namespace: str, rivals: Sequence[TenantPolicy]) -> Violation:
    names = " and ".join(policy.rule for policy in rivals)
    highest = rivals[0].priority
    message = f"the policies {names} select the namespace {namespace} with the same priority {highest}, so no pod "
    message += "there gets a GPU"
    other = highest + 1 if highest < MAX_PRIORITY else highest - 1
    fix = f"ask an operator of the cluster to write spec.priority: {other} in one of them"
    return Violation(code="GPU106", path="metadata.namespace", message=message, fix=fix, rule=rivals[0].rule)
