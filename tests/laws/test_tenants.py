"""What holds for every pod whatever the policy of its tenant."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.edited import edited
from tests.laws import clusters, every, tried
from tests.laws.asking import Asking
from webhook.core.kube import fields, pod
from webhook.core.mutate import mutate
from webhook.core.policy import defaults, judge
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import (
    RULES,
    Ceiling,
    Defaults,
    Exemption,
    Kinds,
    Namespaces,
    Quota,
    Tenancy,
    TenantPolicy,
)
from webhook.core.validate import validate
from webhook.core.violations import Refusal

NAMESPACE = "default"
CARDS = [None, clusters.CARD, "T4"]
LIMITS = [Fraction(0), Fraction(1, 4), Fraction(1), Fraction(4)]
NODES = [
    {"key": "pool", "operator": "In", "values": ["vision"]},
    {"key": "slow", "operator": "NotIn", "values": ["true"]},
    {"key": "old", "operator": "DoesNotExist"},
]


def _policy(draw: st.DrawFn, name: str = "vision") -> TenantPolicy:
    sharing = draw(st.sampled_from([None, "fractional", "exclusive", "partitioned"]))
    size = draw(st.sampled_from([None, 4 << 30, 20 << 30]))
    backend = draw(st.sampled_from([None, *clusters.names()]))
    forbidden = draw(st.frozensets(st.sampled_from(clusters.names()), max_size=3))
    return TenantPolicy(
        name=name,
        rule=name,
        namespaces=Namespaces(names=(NAMESPACE,)),
        defaults=Defaults(backend=backend, model=draw(st.sampled_from(CARDS)), sharing=sharing, memory=size),
        affinity=draw(st.lists(st.sampled_from(NODES), unique_by=str, max_size=3)),
        labels=draw(st.sampled_from([{}, {"queue": "vision"}])),
        annotations=draw(st.sampled_from([{}, {"team": "vision"}])),
        forbidden=Kinds(backends=forbidden),
        container=Ceiling(devices=draw(st.sampled_from(LIMITS))),
        pod=Ceiling(cores=100 * draw(st.sampled_from(LIMITS)), memory=draw(st.sampled_from([0, 16 << 30]))),
        quota=draw(st.sampled_from([None, Quota(hard={"devices": Fraction(4)})])),
    )


policies = st.composite(_policy)()


def _under(rulebook: Rulebook, policy: TenantPolicy, exemptions: Sequence[Exemption] = ()) -> Rulebook:
    return replace(rulebook, tenancy=Tenancy(policies=[policy], exemptions=exemptions))


@every.backend(16, least=2, also=[policies])
def test_a_pod_that_has_everything_of_its_policy_is_changed_no_more(asked: Asking, policy: TenantPolicy) -> bool:
    rulebook = _under(asked.rulebook, policy)
    decision = mutate(builders.creating(asked.pod), rulebook)
    if not decision.allowed:
        return False
    after = jsonpatch.apply_patch(asked.pod, decision.patch)
    for stored in (after, as_served(after)):
        again = mutate(builders.creating(stored), rulebook)
        assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)
    return bool(decision.patch)


@every.backend(8, least=2, also=[policies])
def test_what_is_refused_in_the_end_is_refused_by_a_rule_of_the_policy(asked: Asking, policy: TenantPolicy) -> bool:
    rulebook = _under(asked.rulebook, policy)
    decision = mutate(builders.creating(asked.pod), rulebook)
    if not decision.allowed:
        return False
    final = validate(builders.creating(as_served(jsonpatch.apply_patch(asked.pod, decision.patch))), rulebook)

    assert {violation.code for violation in final.violations} <= {"GPU101", "GPU102", "GPU103", "GPU107", "GPU108"}
    assert final.allowed == (not final.violations)
    return True


@every.backend(8, least=2, also=[policies])
def test_the_patch_and_the_edits_come_to_the_same_pod(asked: Asking, policy: TenantPolicy) -> bool:
    planned = defaults.plan_for_tenant(pod.read(asked.pod, NAMESPACE), _under(asked.rulebook, policy))

    patch = fields.to_patch(planned.edits, asked.pod)

    assert jsonpatch.apply_patch(asked.pod, patch) == edited(planned.edits, asked.pod)
    return bool(planned.edits)


@every.backend(8, least=2, also=[policies])
def test_observing_neither_changes_nor_refuses_anything(asked: Asking, policy: TenantPolicy) -> bool:
    rulebook = replace(asked.rulebook, tenancy=Tenancy(policies=[policy], observing=True))

    decisions = [ask(builders.creating(asked.pod), rulebook) for ask in (mutate, validate)]

    assert [(one.allowed, list(one.patch), one.reservation) for one in decisions] == [(True, [], None)] * 2
    return any(one.warnings for one in decisions)


LIFTING = partial(
    Exemption, name="e", rule="e", namespaces=("*",), owner="ada", reason="a test", expires=float("inf")
)
exemptions = st.lists(st.builds(LIFTING, lifts=st.frozensets(st.sampled_from(RULES))), min_size=1, max_size=3)


@tried(300)
@given(exemptions, exemptions)
def test_exemptions_intersect(some: list[Exemption], others: list[Exemption]) -> None:
    assert judge.exempted_rules([*some, *others]) == judge.exempted_rules(some) & judge.exempted_rules(others)


@every.backend(8, least=2, also=[policies, exemptions, exemptions])
def test_one_more_exemption_lifts_nothing_more(
    asked: Asking, policy: TenantPolicy, some: list[Exemption], more: list[Exemption]
) -> bool:
    found = [_codes(asked, _under(asked.rulebook, policy, one)) for one in (some, [*some, *more], [])]
    if any(one is None for one in found):
        return False
    few, many, none = [set(one or ()) for one in found]
    assert few <= many <= none
    return True


def _codes(asked: Asking, rulebook: Rulebook) -> list[Any] | None:
    try:
        planned = defaults.plan_for_tenant(pod.read(asked.pod, NAMESPACE), rulebook)
    except Refusal:
        return None
    if planned.violations:
        return None
    stored = as_served(edited(planned.edits, asked.pod))
    final = validate(builders.creating(stored), rulebook)
    return [(violation.code, violation.path) for violation in final.violations]
