"""One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from webhook.cli import api_server
from webhook.core import pod_templates
from webhook.core.backends import charge
from webhook.core.decision import UNTOUCHED, Decision, Reservation, denied
from webhook.core.kube import fields, pod
from webhook.core.kube.quantity import Fraction
from webhook.core.mutate import mutate_with_plan
from webhook.core.plan.plan import Plan
from webhook.core.policy import quota_words, usage
from webhook.core.policy.membership import member, undecided
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger, fitting, reserve
from webhook.core.quota.tally import Ask
from webhook.core.request import is_key
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy, TenantPolicy
from webhook.core.validate import validate
from webhook.core.violations import Action, Violation

Ledgers = Mapping[str, Ledger]


class Setting(NamedTuple):
    """By whom and when a pod is created, in seconds since 1970; and where, unless it says so itself.

    `whole`: policies, exemptions and namespaces are those of a cluster, and none is missing.
    """

    namespace: str = ""
    user: str = ""
    at: float = 0.0
    whole: bool = False


NOWHERE: Final = Setting()


class Missing(NamedTuple):
    """An input that nobody gave, and what it may change."""

    input: Literal["TenantPolicy", "Exemption", "TenantUsage", "Namespace", "namespace", "user"]
    effect: str


class Amount(NamedTuple):
    """One thing that is counted: what is used, what all of the pods request, and the limit, None without one."""

    key: str
    used: Fraction
    requested: Fraction
    limit: Fraction | None

    @property
    def left(self) -> Fraction | None:
        """What is left beside them; less than nothing where they request too much."""
        return None if self.limit is None else self.limit - self.used - self.requested


class Prospect(NamedTuple):
    """What a policy and its ledger say to pods that are alike.

    `fit` is how many of them the quota admits as things stand, None if it limits nothing that they ask; `action` is
    what becomes of the others, None without a quota; nothing does if `lifted` names the exemption that lifts it.
    `amounts` is empty for pods that count nothing.
    """

    policy: TenantPolicy
    action: Action | None
    fit: int | None = None
    lifted: str = ""
    amounts: Sequence[Amount] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What would become of one pod. `title` names the object, `before` and `after` are the pod.

    `presumed` says of containers why they are charged whole devices for parts. `rulebook` is what was asked.

    `named` is the object that has it, or makes it. `converted` is how the pod was understood in the words of another
    system, if it is rewritten for this one. There are `pods` like this at a time, and `prospect` is what the quota of
    their tenant says to them, if it was asked. `missing` are the inputs that nobody gave, with what each may change.
    `assembled`: somebody puts the containers of the pod together of an object's fields.
    """

    title: str
    decision: Decision
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    planned: Plan | None = None
    rulebook: Rulebook | None = None
    charges: Mapping[str, Fraction] = field(default_factory=dict)
    presumed: Mapping[str, str] = field(default_factory=dict)
    converted: Plan | None = None
    namespace: str = "default"
    named: pod_templates.Named = pod_templates.NOBODY
    pods: int = 1
    prospect: Prospect | None = None
    missing: Sequence[Missing] = ()
    assembled: bool = False


def contract(explanations: Sequence[Explanation]) -> Any:
    """The form of `explain -o json`, which scripts rely on: of one pod an object, of several a list."""
    contracts = []
    for explanation in explanations:
        decision, named, prospect = explanation.decision, explanation.named, explanation.prospect
        amounts = {}  # bytes are whole, and of devices the nearest there is
        for amount in prospect.amounts if prospect else ():
            numbers = {"used": amount.used, "asked": amount.requested, "limit": amount.limit, "left": amount.left}
            amounts[amount.key] = {
                key: None if number is None else tally.plain(number) for key, number in numbers.items()
            }
        contracts.append(
            {
                "object": {"kind": named.kind, "namespace": explanation.namespace, "name": named.name or None},
                "allowed": decision.allowed,
                "code": int(decision.code),
                "violations": [
                    {"code": v.code, "path": v.path, "message": v.message, "rule": v.rule, "fix": v.fix}
                    for v in decision.violations
                ],
                "warnings": list(decision.warnings),
                "backends": dict(decision.backends),
                "exemptions": sorted({finding.exemption for finding in decision.findings if finding.exemption}),
                "patch": [dict(operation) for operation in decision.patch],
                "pod": explanation.after,
                "tenant": prospect
                and {
                    "name": prospect.policy.name,
                    "policy": prospect.policy.rule,
                    "namespace": explanation.namespace,
                    "pods": explanation.pods,
                    "fit": prospect.fit,
                    "enforcementAction": prospect.action,
                    "lifted": bool(prospect.lifted),
                    "totals": amounts,
                },
                "missing": [missing._asdict() for missing in explanation.missing],
            }
        )
    return contracts[0] if len(contracts) == 1 else contracts


def explain(document: Mapping[str, Any], rulebook: Rulebook, setting: Setting = NOWHERE) -> list[Explanation]:
    """Explain every pod that a document has, or why that cannot be said; an empty list for a kind without pods."""
    explanations = []
    for made in pod_templates.pods(_stored(document), rulebook.workloads):
        namespace = setting.namespace or made.namespace
        if made.wrong is not None:
            decision = denied([made.wrong])
            if made.strange and not _mentions_gpus(made.pod, rulebook):
                decision = Decision(allowed=True, warnings=[f"{made.wrong.message}; it mentions no GPU"])
            explanation = Explanation(title=made.title, decision=decision, before=made.pod, after=made.pod)
        else:
            explanation = explain_pod(made.title, made.pod, namespace, rulebook, setting)
            decision = explanation.decision
            notes = [made.note] if made.note else []
            warnings = [*decision.warnings, *notes, *(() if decision.backends else made.hints)]
            decision = decision._replace(warnings=warnings)
            explanation = replace(explanation, pods=made.number, decision=decision, assembled=made.assembled)
        explanations.append(replace(explanation, named=made.named, namespace=namespace))
    return explanations


_NULLS: Final = {"labels": "", "annotations": "", "limits": "0", "requests": "0"}


def _stored(value: Any, key: str = "") -> Any:
    """An object as the API server stores its nulls [measured]: kubectl create sends them, apply leaves them out."""
    if isinstance(value, list):
        return [_stored(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _NULLS.get(key) if inner is None else _stored(inner, name) for name, inner in value.items()}


def _mentions_gpus(value: Any, rulebook: Rulebook) -> bool:
    """Whether a key anywhere in an object is of the shorthand, or is one in which a back end is asked."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        own = any(key in rulebook.resources or is_key("label", key) or is_key("annotation", key) for key in keys)
        return own or any(_mentions_gpus(inner, rulebook) for inner in value.values())
    return isinstance(value, list) and any(_mentions_gpus(inner, rulebook) for inner in value)


def explain_pod(
    title: str, raw: Mapping[str, Any], namespace: str, rulebook: Rulebook, setting: Setting = NOWHERE
) -> Explanation:
    """Explain what both webhooks make of one pod; a `title` without `Pod ` is of something that makes pods."""
    review = creating(raw, "explain", namespace, setting.at)._replace(user=setting.user)
    explanation = replace(foretell(title, review, rulebook), namespace=namespace)
    if explanation.planned is None:
        return explanation
    # What each container that is served is charged: what the stored pod counts, as far as it would be stored.
    charges = {
        served.demand.container.name: charge.charge(served.request, served.card)
        for served in explanation.planned.assignments
    }
    presumed: dict[str, str] = {}
    for holding in usage.holdings(pod.read(explanation.after), rulebook):
        if holding.container.name in charges:
            charges[holding.container.name] = holding.measure.devices
            presumed[holding.container.name] = " and ".join(holding.gaps.values())
    return replace(explanation, charges=charges, presumed=presumed, rulebook=rulebook)


def foretell(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """What both webhooks and the API server make of a pod, without the reasons: as little work as theirs."""
    raw = review.pod or {}
    if not isinstance(raw.get("spec"), Mapping):
        bare = Violation(code="GPU001", path="spec", message="the pod has no spec", fix="write its spec")
        return Explanation(title=title, decision=denied([bare]), before=raw, after=raw)
    if rulebook.cluster.exempts(review.namespace):
        return Explanation(title=f"{title} (exempt: {review.namespace})", decision=UNTOUCHED, before=raw, after=raw)
    decision, planned = mutate_with_plan(review, rulebook)
    stored = after = fields.applied(decision.patch, raw) if decision.patch else raw
    if decision.allowed:  # by the first webhook; the second judges the pod as it would be stored
        judged = validate(review._replace(pod=after), rulebook)
        warnings = [*decision.warnings, *judged.warnings]
        if judged.allowed:
            findings = [*decision.findings, *judged.findings]
            decision = decision._replace(warnings=warnings, reservation=judged.reservation, findings=findings)
        else:
            decision = judged._replace(warnings=warnings, reservation=None)
    if not decision.allowed:
        stored = raw
    refusals = api_server.refusals(review, stored if title.startswith("Pod ") else None, decision, rulebook)
    if refusals:
        decision = denied([*decision.violations, *refusals], decision.warnings, decision.findings)
        stored = raw
    return Explanation(title=title, decision=decision, before=raw, after=stored, planned=planned)


# Whether pods would be within the quota of their tenant, and what would be left: by a ledger that is only read.


def foresee(
    decision: Decision, pods: int, namespace: str, tenancy: Tenancy, ledgers: Ledgers, *, imagined: bool = False
) -> tuple[Decision, Prospect | None, Ledgers]:
    """The decision on so many copies of a pod with the word of the ledger, why, and the ledgers if they are created.

    `imagined`: nobody counts anything meanwhile, so a ledger that is not there, or does not count the namespace,
    holds nothing there; else a pod would have to wait for it.
    """
    policy = member(namespace, tenancy).policy
    if policy is None:
        return decision, None, ledgers
    reservation, quota = decision.reservation, policy.quota
    prospect = Prospect(policy, quota.action if quota else None)
    if reservation is None or quota is None or not pods:
        return decision, prospect, ledgers
    ledger = replace(ledgers.get(policy.name, Ledger()), hard=quota.hard, advances={})
    if imagined:
        ledger = replace(ledger, view=ledger.view or 1, held={namespace: tally.NOTHING, **ledger.held})
    _, [answer] = reserve(ledger, [reservation.ask])
    answered = quota_words.after_ledger(decision, reservation, answer, ledger)._replace(reservation=None)
    if not ledger.view:
        return answered, prospect, ledgers

    # The totals with all of the pods, and how many of them fit.
    amount, used, zero = reservation.ask.amount, ledger.used, Fraction(0)
    fit = fitting(ledger, amount)
    amounts = [
        Amount(key, used.get(key, zero), requested=pods * amount.get(key, zero), limit=quota.hard.get(key))
        for key in sorted({*quota.hard, tally.DEVICES}, key=lambda key: ("/" in key, key))
    ]
    prospect = prospect._replace(fit=fit, lifted=reservation.exemption, amounts=amounts)

    # The first pod is admitted, and not all of the others fit: what is said to the first that does not.
    if answer.verdict == "admit" and not answer.exceeded and fit is not None and fit < pods:
        fate = {"deny": "the others will be refused", "warn": "the others are over the quota"}
        if reservation.action in fate:
            full = holding(ledger, reservation.ask, fit)
            _, [refused] = reserve(full, [reservation.ask])
            over = f"of its {pods} new pods {fit} fit, and {fate[reservation.action]}: [GPU104] "
            violations = quota_words.over(reservation, full, refused.exceeded)
            warnings = [over + violation.message for violation in violations]
            answered = answered._replace(warnings=[*answered.warnings, *warnings])
    entering = pods if fit is None or not reservation.ask.enforced else min(pods, fit)
    return answered, prospect, {**ledgers, policy.name: holding(ledger, reservation.ask, entering)}


def holding(ledger: Ledger, ask: Ask, pods: int) -> Ledger:
    """With so many more pods, or fewer; they are held, as imagined pods have no names to be pending by."""
    held = ledger.held.get(ask.namespace)
    if held is None:
        return ledger
    added = {key: max(held.get(key, Fraction(0)) + pods * number, Fraction(0)) for key, number in ask.amount.items()}
    return replace(ledger, held={**ledger.held, ask.namespace: {**held, **added}})


def released(ledgers: Ledgers, reservation: Reservation) -> Ledgers:
    """The ledgers without a pod that they count."""
    return {**ledgers, reservation.tenant: holding(ledgers[reservation.tenant], reservation.ask, -1)}


def foreseen(
    explanations: Iterable[Explanation],
    tenancy: Tenancy,
    ledgers: Ledgers = MappingProxyType({}),
    setting: Setting = NOWHERE,
) -> Iterator[Explanation]:
    """The explanations, each with the word of its tenant's ledger, as if all of it were created one after another.

    A tenant uses nothing yet whose ledger is not there. A pod that exists is in it already, and is taken out first.
    """
    counted = ledgers
    for explanation in explanations:
        present, reservation = counted, explanation.decision.reservation
        exists = explanation.pods and fields.at(explanation.before, "metadata", "uid")
        if exists and reservation is not None and reservation.tenant in ledgers:
            present = released(counted, reservation)
        decision, prospect, after = foresee(
            explanation.decision, explanation.pods, explanation.namespace, tenancy, present, imagined=True
        )
        if decision.allowed and explanation.decision.reservation:
            counted = after
        stored = explanation.after if decision.allowed else explanation.before
        explained = replace(explanation, decision=decision, prospect=prospect, after=stored)
        demands = explained.planned.interpretation.asked if explained.planned else ()
        if decision.findings or any(demand.anything for demand in demands):
            explained = replace(explained, missing=[*_missing(explained, tenancy, ledgers, setting)])
        yield explained


def _missing(explanation: Explanation, tenancy: Tenancy, ledgers: Ledgers, setting: Setting) -> Iterator[Missing]:
    """Everything that is missing for a final answer about a pod that may get a GPU."""
    namespace, decision, prospect = explanation.namespace, explanation.decision, explanation.prospect
    if tenancy.silent:
        if decision.allowed and not setting.whole:
            yield Missing("TenantPolicy", "no TenantPolicy was given: one may refuse this pod, or give it defaults")
        return
    if not explanation.named.placed and not setting.namespace:
        effect = f"no namespace was given, and {namespace} was assumed: another may have another policy"
        yield Missing("namespace", effect)
    policies = () if namespace in tenancy.labels else undecided(namespace, tenancy)
    if names := " and ".join(policy.rule for policy in policies):
        where = (
            f"the cluster has no namespace {namespace}" if setting.whole else f"no Namespace {namespace} was given"
        )
        yield Missing("Namespace", f"{where}: its labels decide whether {names} is for it")
    for exemption in tenancy.exemptions:
        if exemption.users and not setting.user and exemption.covers(namespace) and setting.at < exemption.expires:
            users, lifted = " and ".join(exemption.users), " and ".join(sorted(exemption.lifts))
            effect = f"no user was given: for {users} the exemption {exemption.rule} lifts {lifted}"
            yield Missing("user", effect)
    if prospect is not None and prospect.amounts and not prospect.lifted:
        tenant = prospect.policy.name
        ledger = ledgers.get(tenant, Ledger())
        if not ledger.view:
            effect = f"no TenantUsage of {tenant} was given: nothing is counted as used"
            yield Missing("TenantUsage", f"{effect}, and its quota may refuse this pod")
        elif namespace not in ledger.held:
            effect = f"the TenantUsage of {tenant} does not count {namespace} yet"
            yield Missing("TenantUsage", f"{effect}: GPU pods wait there for the settler")
    if decision.findings and not (decision.allowed or tenancy.exemptions or setting.whole):
        yield Missing("Exemption", "no Exemption was given: one may lift what refuses this pod")
