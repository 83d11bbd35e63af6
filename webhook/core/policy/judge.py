"""The judgement of a policy on a pod as it would be stored: violations, warnings, and the reservation it needs.

It is made from the resources on the containers, so shorthand and a back end's own resources are judged alike. In
observe mode nothing is changed or refused: pods' authors are warned of what would happen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from webhook.core.backends.translate import as_text
from webhook.core.decision import Decision, Finding, Reservation, denied
from webhook.core.kube import pod
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import DAY, HOUR, duration, shown
from webhook.core.plan import choose, plan
from webhook.core.policy import defaults, device_access, limits, unknown_devices
from webhook.core.policy.membership import Membership, is_of_the_platform, member
from webhook.core.policy.usage import Holding, holdings, pod_usage
from webhook.core.review import AdmissionRequest, warning_text
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import LIFTED, MAX_PRIORITY, RULES, Exemption, Tenancy, TenantPolicy
from webhook.core.violations import LATER_FIX, Breach, Refusal, Violation

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
        owners = [f"{exemption.rule}, owner {exemption.owner}" for exemption in self.exemptions]
        return {"exemptions": ", ".join(owners)} if owners else {}


NOTHING: Final = Judgement()


def judge(pod: Pod, held: Sequence[Holding], request: AdmissionRequest, rulebook: Rulebook) -> Judgement:
    """Judge a pod that is about to be created, by what its containers hold."""
    tenancy, cluster, namespace = rulebook.tenancy, rulebook.cluster, pod.namespace
    looking = chain(unknown_devices.find(pod, rulebook), unknown_devices.find_disabled(pod, rulebook))
    unknown = [*islice(looking, LISTED)]
    bypasses: list[device_access.Bypass] = []
    if not device_access.is_mirrored(pod, request.user):  # a pod that runs already cannot be kept from them
        bypasses += islice(device_access.find(pod, device_access.served(held), rulebook), MOST)
    if tenancy.silent:
        return _by_cluster(pod, unknown, bypasses, rulebook)

    # Everything in the pod that is for a GPU, or may be.
    policy = member(namespace, tenancy).policy
    claims = limits.claimed(pod, policy, rulebook)
    refused = _ungoverned(namespace, held, claims, unknown, bypasses, rulebook)
    if policy is None or refused or not (held or claims or unknown or bypasses):
        return refused or _by_cluster(pod, unknown, bypasses, rulebook)

    uncounted = unknown_devices.action(policy, cluster)
    placement = defaults.check_placement(pod, policy) if held else ()
    ruled = any(getattr(policy, name) is not None for name in RULES)
    uncovered = [device for device in unknown if not ruled or device.name not in claims]
    rule = policy.quota.rule if policy.quota else policy.rule
    strange = unknown_devices.violations(uncovered, pod, rule)
    breaches = chain(
        (Breach("", policy.action, violation) for violation in placement),
        _ruled(policy, held, rulebook),
        limits.check_claims(policy, pod, held, claims, uncounted),
        limits.check_termination(policy, pod, held),
        (Breach("quota", uncounted, violation) for violation in strange),
        device_access.breaches(bypasses, device_access.action(policy, cluster)),
    )
    reservation = limits.reservation(policy, held, pod_usage(held), namespace)
    return _by_policy(policy, breaches, reservation, namespace, request, tenancy)


def _ungoverned(
    namespace: str,
    held: Sequence[Holding],
    claims: Sequence[str],
    unknown: Sequence[unknown_devices.UnknownDevice],
    bypasses: Sequence[device_access.Bypass],
    rulebook: Rulebook,
) -> Judgement | None:
    """The refusal of what is for a GPU, or may be, where no policy can be applied; None if one is, or none has to."""
    tenancy, membership = rulebook.tenancy, member(namespace, rulebook.tenancy)
    devices = [
        *(shown(holding.container.name) for holding in held),
        *(f"the claim {shown(claim)}" for claim in claims),
        *(shown(device.name) for device in unknown),
        *(bypass.holder for bypass in bypasses if not bypass.of_node),
    ]
    why = tenancy.unknown
    if not why and tenancy.watched and namespace not in tenancy.labels:
        why = f"the namespace {namespace} is new, and not known here yet"
    if devices and why:
        message = f"what policies say of this pod cannot be told now: {why}"
        later = Violation(code="GPU111", path="metadata.namespace", message=message, fix=LATER_FIX)
        return Judgement(violations=[later])
    policy = membership.policy
    if policy or membership.rivals:  # whichever of them held, it would count in a tenant's namespace
        devices += (bypass.holder for bypass in bypasses if bypass.of_node)
    tolerated = rulebook.cluster.unknown_devices == "warn" and not (held or claims or bypasses)
    nobody = policy.broken if policy else not tolerated and (membership.rivals or tenancy.closed)
    if not devices or not nobody:
        return None
    may_be = f"; {devices[0]} may give the pod a GPU" if policy is None and not held else ""
    violation, name = _unusable(membership, namespace, may_be, tenancy)
    return Judgement(violations=[violation], findings=[Finding(name, violation.rule, violation.code, "deny")])


def _ruled(policy: TenantPolicy, held: Sequence[Holding], rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for each rule of the policy that what the containers hold breaks, or that cannot judge it."""
    yield from limits.check_allowed(policy, held, rulebook)
    yield from limits.check_ceilings(policy, held, rulebook)
    yield from limits.check_countable(policy, held, pod_usage(held))


def judge_update(request: AdmissionRequest, rulebook: Rulebook) -> Judgement:
    """Judge an update of a pod, pruned, by what it adds: ways to other devices, and what it holds on fewer nodes."""
    silent = rulebook.tenancy.silent
    policy = None if silent else member(request.namespace, rulebook.tenancy).policy
    access = device_access.action(policy, rulebook.cluster)
    if silent and access is None:
        return NOTHING
    old, new = (pod.read(raw or {}, request.namespace) for raw in (request.old_pod, request.pod))
    after, grown = holdings(new, rulebook), list[Breach]()
    if policy is not None and old.spec != new.spec:
        before = holdings(old, rulebook)
        path = "spec.affinity" if old.spec.get("affinity") != new.spec.get("affinity") else "spec.nodeSelector"
        kept = [*_ruled(policy, before, rulebook)]
        grown = [breach for breach in _ruled(policy, after, rulebook) if breach not in kept]
        grown += limits.check_growth(policy, path, pod_usage(before).tally, pod_usage(after).tally)
    added = device_access.added(old, new, device_access.served(after), rulebook)
    if is_of_the_platform(request.user, rulebook):  # schedulers and device plugins write metadata
        added = (bypass for bypass in added if bypass.path[0] != "metadata")
    bypasses = [*islice(added, MOST)]
    refused = None if silent else _ungoverned(request.namespace, (), (), (), bypasses, rulebook)
    if policy is None or refused:
        return refused or _by_cluster(new, (), bypasses, rulebook)
    breaches = [*grown, *device_access.breaches(bypasses, access)]
    return _by_policy(policy, breaches, None, request.namespace, request, rulebook.tenancy)


def _by_policy(
    policy: TenantPolicy,
    breaches: Iterable[Breach],
    reservation: Reservation | None,
    namespace: str,
    request: AdmissionRequest,
    tenancy: Tenancy,
) -> Judgement:
    """The judgement from all breaches of a policy, by exemption and enforcement action."""
    exemptions = [
        exemption for exemption in tenancy.exemptions if exemption.holds(namespace, request.user, request.at)
    ]
    exempted, names = exempted_rules(exemptions), " and ".join(exemption.name for exemption in exemptions)
    violations: list[Violation] = []
    warnings: list[str] = []
    findings: dict[Finding, None] = {}
    lifted: dict[str, str] = {}  # what the pod breaks of each rule that is lifted
    for name, action, violation in breaches:
        if name in exempted:
            lifted.setdefault(name, warning_text(violation))
            findings[Finding(policy.name, violation.rule, violation.code, "dryrun", names)] = None
            continue
        findings[Finding(policy.name, violation.rule, violation.code, action)] = None
        if action == "deny":
            violations.append(violation)
        elif action == "warn":
            warnings.append(warning_text(violation))
    if reservation is not None and "quota" in exempted:
        # It counts, and is never refused.
        ask = reservation.ask._replace(enforced=False)
        reservation = replace(reservation, ask=ask, action="dryrun", exemption=names)
        lifted.setdefault("quota", f'the quota of the tenant "{policy.name}" holds')
    needed = [exemption for exemption in exemptions if not exemption.lifts.isdisjoint(lifted)]
    for exemption in needed:
        left = exemption.expires - request.at
        if left <= SOON:
            then = next(text for name, text in lifted.items() if name in exemption.lifts)
            ends = f"ends in {duration(max(left, HOUR))}"
            warnings.append(f"the exemption {exemption.rule} of {exemption.owner} {ends}; then {then}")
    return Judgement(
        violations=violations,
        warnings=warnings,
        findings=[*findings],
        reservation=reservation,
        exemptions=needed,
    )


def exempted_rules(exemptions: Iterable[Exemption]) -> frozenset[str]:
    """The rules that all these exemptions lift."""
    lifts = [exemption.lifts for exemption in exemptions]
    return frozenset(LIFTED).intersection(*lifts) if lifts else frozenset()


def _by_cluster(
    pod: Pod,
    unknown: Sequence[unknown_devices.UnknownDevice],
    bypasses: Sequence[device_access.Bypass],
    rulebook: Rulebook,
) -> Judgement:
    """The judgement of the Cluster document alone: on unknown devices, and on ways to other ones."""
    if not unknown and not bypasses:
        return NOTHING
    cluster, action = rulebook.cluster, unknown_devices.action(None, rulebook.cluster)
    breaches = [
        *(Breach("", action, violation) for violation in unknown_devices.violations(unknown, pod)),
        *device_access.breaches(bypasses, cluster.device_access),
    ]
    if not breaches:
        return NOTHING
    return Judgement(
        violations=[violation for _, action, violation in breaches if action == "deny"],
        warnings=[warning_text(violation) for _, action, violation in breaches if action != "deny"],
        findings=[Finding("", violation.rule, violation.code, action) for _, action, violation in breaches],
    )


def _unusable(membership: Membership, namespace: str, may_be: str, tenancy: Tenancy) -> tuple[Violation, str]:
    """Why no pod of a namespace gets a GPU, and the names of the policies behind it."""
    policy, rivals = membership
    path = "metadata.namespace"
    if policy is not None:
        message = f'the policy "{policy.name}" cannot be used, so its namespaces get no GPU: {policy.broken}'
        fix = "show this to the author of the policy"
        return Violation(code="GPU113", path=path, message=message, fix=fix, rule=policy.rule), policy.name
    if rivals:
        highest = rivals[0].priority
        raised = highest < MAX_PRIORITY
        other, whose = (highest + 1, "the policy") if raised else (highest - 1, "each but the policy")
        violation = Violation(
            code="GPU106",
            path=path,
            message=f"the policies {' and '.join(rival.rule for rival in rivals)} select the namespace {namespace} "
            f"with the same priority {highest}, so no pod there gets a GPU",
            fix=f"ask an operator of the cluster to write spec.priority: {other} in {whose} that is to hold there",
            rule=rivals[0].rule,
        )
        return violation, " and ".join(rival.name for rival in rivals)
    closed = f"the cluster has {len(tenancy.policies)} for other namespaces"
    if isinstance(tenancy.without_policy, str):
        closed = f"namespacesWithoutPolicy: {tenancy.without_policy}"
    elif tenancy.without_policy:
        closed = f"there is no TenantPolicy {tenancy.without_policy['default']}, which namespacesWithoutPolicy names"
    message = f"no TenantPolicy selects the namespace {namespace}, and without one no pod there gets a GPU ({closed})"
    fix = "use a namespace of a tenant, or ask an operator of the cluster to add it to spec.namespaces of a "
    fix += "TenantPolicy"
    return Violation(code="GPU105", path=path, message=f"{message}{may_be}", fix=fix), ""


# Observe mode: pods are neither changed nor refused; their authors are warned of what would happen.


def refused(refusal: Refusal, rulebook: Rulebook) -> Decision:
    """The denial for a refusal; as warnings in observe mode."""
    return decision_if_not_observing(denied(refusal.violations), rulebook)


def decision_if_not_observing(decision: Decision, rulebook: Rulebook) -> Decision:
    """A decision of /validate; as warnings in observe mode."""
    return as_warnings(decision) if rulebook.tenancy.observing else decision


def mutation_if_not_observing(
    decision: Decision, served: Sequence[choose.Assignment], rulebook: Rulebook
) -> Decision:
    """A decision of /mutate; as warnings in observe mode."""
    if not rulebook.tenancy.observing or not decision.allowed:
        return decision_if_not_observing(decision, rulebook)
    if not decision.patch:
        return decision
    becomes: list[str] = []
    for name, words in becoming(served, rulebook):
        whose = f'the container "{name}"' if name else "the pod"
        becomes.append(f"{whose} would become {words}")
    return decision._replace(patch=(), warnings=[*becomes, *decision.warnings])


def as_warnings(decision: Decision) -> Decision:
    """The decision, as warnings; nothing is reserved."""
    return Decision(
        allowed=True,
        warnings=[
            *(warning_text(violation, "would be refused: ") for violation in decision.violations),
            *decision.warnings,
        ],
        backends=decision.backends,
        audit=decision.audit,
        findings=[
            finding._replace(action="warn") if finding.action == "deny" else finding for finding in decision.findings
        ],
    )


def becoming(served: Sequence[choose.Assignment], rulebook: Rulebook) -> Iterator[tuple[str, str]]:
    """What the shorthand of each container becomes; the name is empty if only one container has a GPU.

    Containers with a back end's own resources are left out: these stay.
    """
    for assignment in served:
        if assignment.demand.request is None:
            continue
        lines = [  # `nvidia.com/gpu: 1`
            f"{name}: {as_text(output, number) if (output := assignment.mode.limits.get(name)) else number}"
            for name, number in assignment.amounts.items()
        ]
        lines += (f"a claim of {template}" for template in plan.claim_templates(assignment, rulebook))
        name = assignment.demand.container.name if len(served) > 1 else ""
        yield name, f"{', '.join(lines)} ({assignment.backend.name})"
