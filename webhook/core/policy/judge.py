"""The judgement of a policy on a pod as it would be stored: violations, warnings, and the reservation it needs.

It is made from the resources on the containers, so shorthand and a back end's own resources are judged alike. In
observe mode nothing is changed or refused: pods' authors are warned of what would happen.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from webhook.core.backends.translate import as_text
from webhook.core.decision import UNTOUCHED, Decision, Finding, Reservation, denied
from webhook.core.kube import pod
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import DAY, HOUR, duration, shown
from webhook.core.plan import choose, plan
from webhook.core.policy import defaults, device_access, limits, unknown_devices
from webhook.core.policy.membership import is_of_the_platform, member
from webhook.core.policy.usage import Holding, PodUsage, holdings, pod_usage
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


def judge(pod: Pod, held: Sequence[Holding], request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Judge a pod that is about to be created, by what its containers hold."""
    tenancy, cluster, silent = rulebook.tenancy, rulebook.cluster, rulebook.tenancy.silent
    looking = chain(unknown_devices.find(pod, rulebook), unknown_devices.find_disabled(pod, rulebook))
    unknown = [*islice(looking, LISTED)]
    bypasses: list[device_access.Bypass] = []
    if not device_access.is_mirrored(pod, request.user):  # a pod that runs already cannot be kept from them
        bypasses += islice(device_access.find(pod, device_access.served(held), rulebook), MOST)
    policy = None if silent else member(pod.namespace, tenancy).policy
    claims = () if silent else limits.claimed(pod, policy, rulebook)
    if not (held or claims or unknown or bypasses):
        return UNTOUCHED
    if not silent and (refused := _ungoverned(pod.namespace, held, claims, unknown, bypasses, rulebook)):
        return refused

    uncounted, rule, reservation = unknown_devices.action(policy, cluster), "", None
    breaches: list[Breach] = []
    if policy is not None:
        usage, rule = pod_usage(held), policy.quota.rule if policy.quota else policy.rule
        placement = defaults.check_placement(pod, policy) if held else ()
        breaches += (Breach("", policy.action, violation) for violation in placement)
        breaches += _ruled(policy, held, usage, rulebook)
        breaches += limits.check_claims(policy, pod, held, claims, uncounted)
        breaches += limits.check_termination(policy, pod, held)
        if any(getattr(policy, name) is not None for name in RULES):
            unknown = [device for device in unknown if device.name not in claims]
        reservation = limits.reservation(policy, held, usage, pod.namespace)
    strange = unknown_devices.violations(unknown, pod, rule)
    breaches += (Breach("quota", uncounted, violation) for violation in strange)
    breaches += device_access.breaches(bypasses, device_access.action(policy, cluster))
    return _decision(policy, breaches, pod, request, tenancy, reservation)


def _ungoverned(
    namespace: str,
    held: Sequence[Holding],
    claims: Sequence[str],
    unknown: Sequence[unknown_devices.UnknownDevice],
    bypasses: Sequence[device_access.Bypass],
    rulebook: Rulebook,
) -> Decision | None:
    """The refusal of what is for a GPU, or may be, where no policy can be applied; None if one is, or none has to."""
    tenancy, (policy, rivals) = rulebook.tenancy, member(namespace, rulebook.tenancy)
    devices = [
        *(shown(holding.container.name) for holding in held),
        *(f"the claim {shown(claim)}" for claim in claims),
        *(shown(device.name) for device in unknown),
        *(bypass.holder for bypass in bypasses if not bypass.of_node),
    ]
    why, path = tenancy.unknown, "metadata.namespace"
    if not why and tenancy.watched and namespace not in tenancy.labels:
        why = f"the namespace {namespace} is new, and not known here yet"
    if devices and why:
        message = f"what policies say of this pod cannot be told now: {why}"
        return denied([Violation(code="GPU111", path=path, message=message, fix=LATER_FIX)])
    if policy or rivals:  # whichever of them held, it would count in a tenant's namespace
        devices += (bypass.holder for bypass in bypasses if bypass.of_node)
    tolerated = rulebook.cluster.unknown_devices == "warn" and not (held or claims or bypasses)
    nobody = policy.broken if policy else not tolerated and (rivals or tenancy.closed)
    if not devices or not nobody:
        return None

    # Why no pod of the namespace gets a GPU, and the policies behind it.
    names, rule = "", ""
    if policy is not None:
        code, names, rule = "GPU113", policy.name, policy.rule
        message = f'the policy "{policy.name}" cannot be used, so its namespaces get no GPU: {policy.broken}'
        fix = "show this to the author of the policy"
    elif rivals:
        code, names, rule = "GPU106", " and ".join(rival.name for rival in rivals), rivals[0].rule
        highest = rivals[0].priority
        raised = highest < MAX_PRIORITY
        other, whose = (highest + 1, "the policy") if raised else (highest - 1, "each but the policy")
        message = (
            f"the policies {' and '.join(rival.rule for rival in rivals)} select the namespace {namespace} "
            f"with the same priority {highest}, so no pod there gets a GPU"
        )
        fix = f"ask an operator of the cluster to write spec.priority: {other} in {whose} that is to hold there"
    else:
        closed = f"the cluster has {len(tenancy.policies)} for other namespaces"
        if isinstance(tenancy.without_policy, str):
            closed = f"namespacesWithoutPolicy: {tenancy.without_policy}"
        elif tenancy.without_policy:
            default = tenancy.without_policy["default"]
            closed = f"there is no TenantPolicy {default}, which namespacesWithoutPolicy names"
        code, may_be = "GPU105", "" if held else f"; {devices[0]} may give the pod a GPU"
        message = (
            f"no TenantPolicy selects the namespace {namespace}, and without one no pod there gets a GPU "
            f"({closed}){may_be}"
        )
        fix = "use a namespace of a tenant, or ask an operator of the cluster to add it to spec.namespaces of a "
        fix += "TenantPolicy"
    violation = Violation(code=code, path=path, message=message, fix=fix, rule=rule)
    return denied([violation], findings=[Finding(names, rule, code, "deny")])


def _ruled(policy: TenantPolicy, held: Sequence[Holding], usage: PodUsage, rulebook: Rulebook) -> Iterator[Breach]:
    """A breach for each rule of the policy that what the containers hold breaks, or that cannot judge it."""
    yield from limits.check_allowed(policy, held, rulebook)
    yield from limits.check_ceilings(policy, held, rulebook)
    yield from limits.check_countable(policy, held, usage)


def judge_update(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """Judge an update of a pod, pruned, by what it adds: ways to other devices, and what it holds on fewer nodes."""
    silent = rulebook.tenancy.silent
    policy = None if silent else member(request.namespace, rulebook.tenancy).policy
    access = device_access.action(policy, rulebook.cluster)
    if silent and access is None:
        return UNTOUCHED
    old, new = (pod.read(raw or {}, request.namespace) for raw in (request.old_pod, request.pod))
    after, breaches = holdings(new, rulebook), list[Breach]()
    if policy is not None and old.spec != new.spec:
        before = holdings(old, rulebook)
        had, has = pod_usage(before), pod_usage(after)
        path = "spec.affinity" if old.spec.get("affinity") != new.spec.get("affinity") else "spec.nodeSelector"
        kept = [*_ruled(policy, before, had, rulebook)]
        breaches += (breach for breach in _ruled(policy, after, has, rulebook) if breach not in kept)
        breaches += limits.check_growth(policy, path, had.tally, has.tally)
    added = device_access.added(old, new, device_access.served(after), rulebook)
    if is_of_the_platform(request.user, rulebook):  # schedulers and device plugins write metadata
        added = (bypass for bypass in added if bypass.path[0] != "metadata")
    bypasses = [*islice(added, MOST)]
    if not silent and (refused := _ungoverned(request.namespace, (), (), (), bypasses, rulebook)):
        return refused
    breaches += device_access.breaches(bypasses, access)
    return _decision(policy, breaches, new, request, rulebook.tenancy)


def _decision(
    policy: TenantPolicy | None,
    breaches: Sequence[Breach],
    pod: Pod,
    request: AdmissionRequest,
    tenancy: Tenancy,
    reservation: Reservation | None = None,
) -> Decision:
    """The decision from all breaches of a policy, by exemption and enforcement action, or of the Cluster document."""
    if not breaches and reservation is None:
        return UNTOUCHED
    exemptions = [
        exemption
        for exemption in tenancy.exemptions
        if policy and exemption.holds(pod.namespace, request.user, request.at)
    ]
    exempted, names = exempted_rules(exemptions), " and ".join(exemption.name for exemption in exemptions)
    tenant = policy.name if policy else ""
    violations: list[Violation] = []
    warnings: list[str] = []
    findings: dict[Finding, None] = {}
    lifted: dict[str, str] = {}  # what the pod breaks of each rule that is lifted
    for name, action, violation in breaches:
        if name in exempted:
            lifted.setdefault(name, warning_text(violation))
            findings[Finding(tenant, violation.rule, violation.code, "dryrun", names)] = None
            continue
        findings[Finding(tenant, violation.rule, violation.code, action)] = None
        if action == "deny":
            violations.append(violation)
        elif action == "warn":
            warnings.append(warning_text(violation))
    if reservation is not None and "quota" in exempted:
        # It counts, and is never refused.
        ask = reservation.ask._replace(enforced=False)
        reservation = replace(reservation, ask=ask, action="dryrun", exemption=names)
        lifted.setdefault("quota", f'the quota of the tenant "{tenant}" holds')
    owners: list[str] = []  # of the exemptions that the pod needs, for the API server's log
    for exemption in exemptions:
        if exemption.lifts.isdisjoint(lifted):
            continue
        owners.append(f"{exemption.rule}, owner {exemption.owner}")
        left = exemption.expires - request.at
        if left <= SOON:
            then = next(text for name, text in lifted.items() if name in exemption.lifts)
            ends = f"ends in {duration(max(left, HOUR))}"
            warnings.append(f"the exemption {exemption.rule} of {exemption.owner} {ends}; then {then}")
    audit = {"exemptions": ", ".join(owners)} if owners else {}
    if violations:
        return denied(violations, warnings, [*findings])._replace(audit=audit)
    return Decision(allowed=True, warnings=warnings, findings=[*findings], audit=audit, reservation=reservation)


def exempted_rules(exemptions: Iterable[Exemption]) -> frozenset[str]:
    """The rules that all these exemptions lift."""
    lifts = [exemption.lifts for exemption in exemptions]
    return frozenset(LIFTED).intersection(*lifts) if lifts else frozenset()


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
