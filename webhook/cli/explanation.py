"""One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from webhook.cli import api_server
from webhook.core import pod_templates
from webhook.core.backends import charge
from webhook.core.decision import UNTOUCHED, Decision, Reservation, denied
from webhook.core.interpret.interpret import ContainerRequest
from webhook.core.kube import patch, pod
from webhook.core.kube.quantity import Fraction
from webhook.core.mutate import translate
from webhook.core.plan import choose
from webhook.core.plan.choose import Candidate
from webhook.core.plan.plan import Plan
from webhook.core.pod_templates import NOBODY, Found, Named
from webhook.core.policy import totals, usage
from webhook.core.policy.membership import member, undecided
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ask, Ledger, fitting, reserve
from webhook.core.quota.tally import Tally
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Quota, Tenancy, TenantPolicy
from webhook.core.validate import validate
from webhook.core.violations import Action, Refusal, Violation

# Whether pods would be within the quota of their tenant, and what would be left: by a ledger that is only read.

Ledgers = Mapping[str, Ledger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One thing that is counted: what is used, what all of the pods ask, and the limit, None where there is none."""

    key: str
    used: Fraction
    asked: Fraction
    limit: Fraction | None

    @property
    def left(self) -> Fraction | None:
        """What is left beside them; less than nothing where they ask too much."""
        return None if self.limit is None else self.limit - self.used - self.asked

    def plain(self) -> dict[str, float | None]:
        """The numbers for JSON: bytes are whole, and of devices the nearest there is."""
        amounts = {"used": self.used, "asked": self.asked, "limit": self.limit, "left": self.left}
        return {key: None if each is None else tally.plain(each) for key, each in amounts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a policy and its ledger say to `pods` pods that are alike.

    `fit` is how many of them the quota admits as things stand, None if it limits nothing that they ask; `action` is
    what becomes of the others, None without a quota, and `lifted`: an exemption holds, and nothing becomes of them.
    `amounts` is empty for pods that count nothing.
    """

    tenant: str
    rule: str
    namespace: str
    pods: int
    fit: int | None
    action: Action | None
    lifted: bool = False
    amounts: tuple[Amount, ...] = ()

    def contract(self) -> dict[str, Any]:
        """The form of `tenant` in `explain -o json`."""
        return {
            "name": self.tenant,
            "policy": self.rule,
            "namespace": self.namespace,
            "pods": self.pods,
            "fit": self.fit,
            "enforcementAction": self.action,
            "lifted": self.lifted,
            "totals": {amount.key: amount.plain() for amount in self.amounts},
        }


class Foreseen(NamedTuple):
    """The decision with the word of the ledger, what is behind it, and the ledgers if the pods were created."""

    decision: Decision
    prospect: Prospect | None
    ledgers: Ledgers


def foresee(
    decision: Decision,
    pods: int,
    namespace: str,
    tenancy: Tenancy,
    ledgers: Ledgers,
    *,
    imagined: bool = False,
) -> Foreseen:
    """The result for so many copies of a pod that was judged so.

    `imagined`: nobody counts anything meanwhile, so a ledger that is not there, or does not count the namespace,
    holds nothing there; else a pod would have to wait for it.
    """
    policy = member(namespace, tenancy).policy
    if policy is None:
        return Foreseen(decision, None, ledgers)
    wanted, quota = decision.reservation, policy.quota
    if wanted is None or quota is None or not pods:
        return Foreseen(decision, _prospect(policy, namespace, pods), ledgers)
    ledger = replace(ledgers.get(policy.name, Ledger()), hard=quota.hard, advances={})
    if imagined:
        ledger = replace(ledger, view=ledger.view or 1, held={namespace: tally.NOTHING, **ledger.held})
    if not ledger.view:
        answered = _answered(decision, wanted, ledger, pods, None)
        return Foreseen(answered, _prospect(policy, namespace, pods), ledgers)
    fit = fitting(ledger, wanted.ask.amount)
    prospect = replace(
        _prospect(policy, namespace, pods),
        fit=fit,
        lifted=wanted.action != quota.action,
        amounts=tuple(_amounts(ledger, quota, _times(wanted.ask.amount, pods))),
    )
    entering = pods if fit is None or not wanted.ask.enforced else min(pods, fit)
    known = {**ledgers, policy.name: _with(ledger, wanted.ask, entering)}
    return Foreseen(_answered(decision, wanted, ledger, pods, fit), prospect, known)


def _prospect(policy: TenantPolicy, namespace: str, pods: int) -> Prospect:
    action = policy.quota.action if policy.quota else None
    return Prospect(tenant=policy.name, rule=policy.rule, namespace=namespace, pods=pods, fit=None, action=action)


def _answered(decision: Decision, wanted: Reservation, ledger: Ledger, pods: int, fit: int | None) -> Decision:
    _, [first] = reserve(ledger, [wanted.ask])
    answered = totals.reserved(decision, wanted, first, ledger)._replace(reservation=None)
    if first.verdict != "admit" or first.exceeded or fit is None or fit >= pods:
        return answered
    full = _with(ledger, wanted.ask, fit)
    _, [next_one] = reserve(full, [wanted.ask])
    then = {"deny": "the others will be refused", "warn": "the others are over the quota"}.get(wanted.action)
    over = totals.over(wanted, full, next_one.exceeded) if then else ()
    said = [f"of its {pods} pods {fit} fit, and {then}: [GPU104] {violation.message}" for violation in over]
    return answered._replace(warnings=[*answered.warnings, *said])


def _with(ledger: Ledger, ask: Ask, pods: int) -> Ledger:
    """The ledger once so many pods of an ask live; they are held, as imagined pods have no names to be pending by."""
    if ask.namespace not in ledger.held:
        return ledger
    held = tally.plus(ledger.held[ask.namespace], _times(ask.amount, pods))
    return replace(ledger, held={**ledger.held, ask.namespace: held})


def _times(amount: Tally, pods: int) -> Tally:
    return {key: pods * each for key, each in amount.items()}


def _amounts(ledger: Ledger, quota: Quota, asked: Tally) -> list[Amount]:
    used = ledger.used
    zero = Fraction(0)
    return [
        Amount(key=key, used=used.get(key, zero), asked=asked.get(key, zero), limit=quota.hard.get(key))
        for key in sorted({*quota.hard, tally.DEVICES}, key=lambda key: ("/" in key, key))
    ]


# The inputs of an answer that nobody gave, each with what it may change.


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


class Judged(NamedTuple):
    """A pod that may get a GPU, as far as it was judged; `placed`: somebody said its namespace."""

    namespace: str
    placed: bool
    decision: Decision
    prospect: Prospect | None


def missing_inputs(judged: Judged, tenancy: Tenancy, ledgers: Ledgers, setting: Setting) -> Iterator[Missing]:
    """Everything that is missing for a final answer about a pod."""
    if tenancy.silent:
        if judged.decision.allowed and not setting.whole:
            yield Missing("TenantPolicy", "no TenantPolicy was given: one may refuse this pod, or give it defaults")
        return
    if not judged.placed and not setting.namespace:
        effect = f"no namespace was given, and {judged.namespace} was assumed: another may have another policy"
        yield Missing("namespace", effect)
    yield from _labels(judged.namespace, tenancy, setting)
    yield from _user(judged.namespace, tenancy, setting)
    yield from _usage(judged, ledgers)
    if judged.decision.findings and not (judged.decision.allowed or tenancy.exemptions or setting.whole):
        yield Missing("Exemption", "no Exemption was given: one may lift what refuses this pod")


def _labels(namespace: str, tenancy: Tenancy, setting: Setting) -> Iterator[Missing]:
    if namespace in tenancy.labels:
        return
    names = " and ".join(policy.rule for policy in undecided(namespace, tenancy))
    where = f"the cluster has no namespace {namespace}" if setting.whole else f"no Namespace {namespace} was given"
    if names:
        effect = f"{where}: its labels decide whether {names} is for it"
        yield Missing("Namespace", effect)


def _user(namespace: str, tenancy: Tenancy, setting: Setting) -> Iterator[Missing]:
    for one in () if setting.user else _for_some(namespace, tenancy.exemptions, setting.at):
        lifted = " and ".join(sorted(one.lifts))
        users = " and ".join(one.users)
        yield Missing("user", f"no user was given: for {users} the exemption {one.rule} lifts {lifted}")


def _for_some(namespace: str, exemptions: Sequence[Exemption], at: float) -> Iterator[Exemption]:
    return (one for one in exemptions if one.users and one.covers(namespace) and at < one.expires)


def _usage(judged: Judged, ledgers: Ledgers) -> Iterator[Missing]:
    prospect = judged.prospect
    if prospect is None or prospect.lifted or not prospect.amounts:
        return
    ledger = ledgers.get(prospect.tenant, Ledger())
    if not ledger.view:
        effect = (
            f"no TenantUsage of {prospect.tenant} was given: nothing is counted as used, and its quota may refuse"
        )
        yield Missing("TenantUsage", f"{effect} this pod")
    elif judged.namespace not in ledger.held:
        effect = f"the TenantUsage of {prospect.tenant} does not count {judged.namespace} yet"
        yield Missing("TenantUsage", f"{effect}: GPU pods wait there for the settler")


# One object explained: the pods it would make, what each asks, who serves it and why, and what it becomes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What would become of one pod. `title` names the object, `before` and `after` are the pod.

    `named` is the object that has it, or makes it. `converted` is how the pod was understood in the words of another
    system, if it is rewritten for this one. There are `pods` like this at a time, and `prospect` is what the quota of
    their tenant says to them, if it was asked. `missing` are the inputs that nobody gave, with what each may change.
    So many back ends are `disabled` that nothing was asked of.
    """

    title: str
    decision: Decision
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    planned: Plan | None = None
    candidates: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)
    charges: Mapping[str, Fraction] = field(default_factory=dict)
    converted: Plan | None = None
    namespace: str = "default"
    named: Named = NOBODY
    pods: int = 1
    prospect: Prospect | None = None
    missing: Sequence[Missing] = ()
    disabled: int = 0


def contract(found: Sequence[Explanation]) -> Any:
    """The form of `explain -o json`, which scripts rely on: of one pod an object, of several a list."""
    contracts = [
        {
            "object": {"kind": one.named.kind, "namespace": one.namespace, "name": one.named.name or None},
            "allowed": one.decision.allowed,
            "code": int(one.decision.code),
            "violations": [
                {"code": v.code, "path": v.path, "message": v.message, "rule": v.rule, "fix": v.fix}
                for v in one.decision.violations
            ],
            "warnings": list(one.decision.warnings),
            "backends": dict(one.decision.backends),
            "patch": [dict(operation) for operation in one.decision.patch],
            "pod": one.after,
            "tenant": one.prospect.contract() if one.prospect else None,
            "missing": [each._asdict() for each in one.missing],
        }
        for one in found
    ]
    return contracts[0] if len(contracts) == 1 else contracts


def explain(document: Mapping[str, Any], rulebook: Rulebook, setting: Setting = NOWHERE) -> list[Explanation]:
    """Explain every pod that a document has, or why that cannot be said; an empty list for a kind without pods."""
    return [_explain_found(each, rulebook, setting) for each in pod_templates.pods(document, rulebook.workloads)]


def _explain_found(found: Found, rulebook: Rulebook, setting: Setting) -> Explanation:
    namespace = setting.namespace or found.namespace
    if found.wrong is not None:
        bare = Explanation(title=found.title, decision=denied([found.wrong]), before=found.pod, after=found.pod)
        return replace(bare, namespace=namespace, named=found.named)
    explained = explain_pod(found.title, found.pod, namespace, rulebook, setting)
    decision = explained.decision
    hints = () if decision.backends else found.hints
    warnings = [*decision.warnings, *([found.note] if found.note else ()), *hints]
    decision = decision._replace(warnings=warnings)
    return replace(explained, pods=found.number, named=found.named, decision=decision)


def foreseen(
    found: Iterable[Explanation],
    tenancy: Tenancy,
    ledgers: Ledgers = MappingProxyType({}),
    setting: Setting = NOWHERE,
) -> Iterator[Explanation]:
    """The explanations, each with the word of its tenant's ledger, as if all of it were created one after another.

    A tenant uses nothing yet whose ledger is not there.
    """
    known = ledgers
    for one in found:
        decision, prospect, after = foresee(one.decision, one.pods, one.namespace, tenancy, known, imagined=True)
        known = after if decision.allowed and one.decision.reservation else known
        shown = one.after if decision.allowed else one.before
        told = replace(one, decision=decision, prospect=prospect, after=shown)
        if _concerns_gpus(told):
            judged = Judged(one.namespace, one.named.placed, decision, prospect)
            told = replace(told, missing=[*missing_inputs(judged, tenancy, ledgers, setting)])
        yield told


def _concerns_gpus(one: Explanation) -> bool:
    asking = one.planned is not None and any(asked.anything for asked in one.planned.interpretation.asked)
    return asking or bool(one.decision.findings)


def explain_pod(
    title: str, raw: Mapping[str, Any], namespace: str, rulebook: Rulebook, setting: Setting = NOWHERE
) -> Explanation:
    """Explain one pod; a `title` that does not begin with `Pod ` is of something that makes pods."""
    review = creating(raw, "explain", namespace, setting.at)._replace(user=setting.user)
    return replace(explain_review(title, review, rulebook), namespace=namespace)


def explain_review(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """Explain what both webhooks make of a pod that is created, as the review says by whom, where and when."""
    found = foretell(title, review, rulebook)
    if found.planned is None:
        return found
    charges = _charges(found.planned, found.after, rulebook)
    disabled = 0 if rulebook.trial else len(rulebook.backends) - len(rulebook.enabled)
    return with_candidates(replace(found, charges=charges, disabled=disabled), rulebook)


def with_candidates(explained: Explanation, rulebook: Rulebook) -> Explanation:
    """The explanation with the back ends that may serve each container."""
    asked = explained.planned.interpretation.asked if explained.planned else ()
    candidates = {one.container.name: _candidates(one, rulebook) for one in asked if one.anything}
    return replace(explained, candidates=candidates)


def foretell(title: str, review: AdmissionRequest, rulebook: Rulebook) -> Explanation:
    """What both webhooks and the API server make of a pod, without the reasons: as little work as theirs."""
    raw = review.pod or {}
    if not isinstance(raw.get("spec"), Mapping):
        wrong = Violation(code="GPU001", path="spec", message="the pod has no spec", fix="write its spec")
        return Explanation(title=title, decision=denied([wrong]), before=raw, after=raw)
    if rulebook.cluster.exempts(review.namespace):
        exempt = f"{title} (exempt: {review.namespace})"
        return Explanation(title=exempt, decision=UNTOUCHED, before=raw, after=raw)
    decision, planned = translate(review, rulebook)
    after = patch.applied(decision.patch, raw) if decision.patch else raw
    if decision.allowed:
        decision = _judged(decision, review._replace(pod=after), rulebook)
    stored = after if decision.allowed else raw
    if title.startswith("Pod "):
        refused = [*api_server.of_a_pod(review, stored, decision)]
    else:
        refused = [*api_server.of_a_template(review, decision, rulebook)]
    if refused:
        decision, stored = denied([*decision.violations, *refused], decision.warnings, decision.findings), raw
    return Explanation(title=title, decision=decision, before=raw, after=stored, planned=planned)


def _charges(planned: Plan, after: Mapping[str, Any], rulebook: Rulebook) -> dict[str, Fraction]:
    """What each container that is served is charged: what the stored pod counts, as far as it would be stored."""
    held = usage.holdings(pod.read(after), rulebook)
    counted = {holding.container.name: holding.measure.devices for holding in held}
    return {
        one.demand.container.name: counted.get(one.demand.container.name, charge.charge(one.request, one.card))
        for one in planned.assignments
    }


def _judged(mutated: Decision, stored: AdmissionRequest, rulebook: Rulebook) -> Decision:
    """The answer to a pod that was translated, after it was judged as it would be stored."""
    judged = validate(stored, rulebook)
    warnings = [*mutated.warnings, *judged.warnings]
    if not judged.allowed:
        return judged._replace(warnings=warnings, reservation=None)
    findings = [*mutated.findings, *judged.findings]
    return mutated._replace(warnings=warnings, reservation=judged.reservation, findings=findings)


def _candidates(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Candidate]:
    try:
        return list(choose.candidates(asked, rulebook))
    except Refusal:
        return []
