"""What a policy refuses, in which words, and what the ledger has to hold for what it lets be."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import NOW, ceiling, exemption, fate, policy, quota, shorthand, whole
from webhook.core.decision import Finding, Reservation
from webhook.core.quota.ledger import Ask
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Kinds, Namespaces, TenantPolicy
from webhook.core.validate import validate

GIB = 1 << 30
A100 = "A100-80GB"


def _kinds(action: Any = "deny", **lists: str) -> Kinds:
    sets = {name: frozenset(text.split()) for name, text in lists.items()}
    return Kinds(**sets, action=action, rule="vision (tenants.yaml:20)")


def test_what_a_pod_holds_is_to_be_reserved() -> None:
    pod = shorthand(gpu="0.5", model=A100)

    found = fate(pod, tenants.rules(policy(quota=quota(devices=4))))

    assert found.validated.allowed
    assert found.validated.reservation == Reservation(
        tenant="vision",
        ask=Ask(
            namespace="vision-dev",
            amount={
                "devices": Fraction(1, 2),
                "memory": Fraction(40 * GIB),
                f"devices/{A100}": Fraction(1, 2),
                f"memory/{A100}": Fraction(40 * GIB),
            },
        ),
        path="metadata.labels.gpu",
        rule="vision (tenants.yaml:41)",
    )


@pytest.mark.parametrize("pod", [whole(2), shorthand(gpu="2")], ids=["in the words of a plugin", "in shorthand"])
def test_who_skips_the_shorthand_is_counted_the_same(pod: dict[str, Any]) -> None:
    reservation = fate(pod, tenants.rules(policy(quota=quota(devices=4)))).validated.reservation

    assert reservation is not None
    assert reservation.ask.amount == {"devices": 2}


def test_nothing_is_reserved_for_what_is_refused() -> None:
    found = fate(whole(2), tenants.rules(policy(quota=quota(devices=4), pod=ceiling(devices=Fraction(1)))))

    assert (found.codes, found.validated.reservation) == (["GPU103"], None)


@pytest.mark.parametrize("action", ["warn", "dryrun"])
def test_a_quota_that_does_not_deny_is_reserved_and_not_enforced(action: Any) -> None:
    reservation = fate(whole(), tenants.rules(policy(quota=quota(action, devices=4)))).validated.reservation

    assert reservation is not None
    assert (reservation.action, reservation.ask.enforced) == (action, False)


@pytest.mark.parametrize("pod", [builders.pod(), shorthand(gpu="none"), shorthand(model="A100-80GB")])
def test_who_asks_for_no_gpu_is_never_touched(pod: dict[str, Any]) -> None:
    strict = policy(
        quota=quota(devices=0), labels={"queue": "vision"}, affinity=[{"key": "pool", "operator": "Exists"}]
    )

    found = fate(pod, tenants.rules(strict))

    assert (list(found.mutated.patch), list(found.mutated.violations)) == ([], [])
    assert (found.validated.allowed, found.validated.reservation, list(found.validated.findings)) == (True, None, [])


def test_system_namespaces_are_exempt_without_a_policy() -> None:
    found = fate(whole(), tenants.rules(policy()), namespace="kube-system")

    assert (found.mutated.allowed, found.validated.allowed) == (True, True)


def test_a_namespace_that_no_policy_is_for_may_use_nothing() -> None:
    found = fate(whole(), tenants.rules(policy()), namespace="elsewhere")

    assert found.said == (
        "[GPU105] no TenantPolicy selects the namespace elsewhere, and without one no pod there gets a GPU "
        "(the cluster has 1 for other namespaces)\n"
        "  at   metadata.namespace\n"
        "  fix  use a namespace of a tenant, or ask an operator of the cluster to add it to "
        "spec.namespaces of a TenantPolicy"
    )
    assert found.validated.code == 403


@pytest.mark.parametrize(
    ("policies", "without", "allowed"),
    [
        ([], None, True),
        ([], "allow", True),
        ([], "deny", False),
        ([policy()], None, False),
        ([policy()], "allow", True),
        ([policy()], "deny", False),
    ],
)
def test_a_namespace_without_a_policy_is_open_until_there_is_one_or_as_the_cluster_says(
    policies: list[TenantPolicy], without: Any, *, allowed: bool
) -> None:
    found = fate(whole(), tenants.rules(*policies, without_policy=without), namespace="elsewhere")

    assert found.validated.allowed == allowed


def test_two_policies_of_one_priority_let_nobody_in_and_say_so() -> None:
    found = fate(whole(), tenants.rules(policy(priority=3), policy("audio", priority=3), policy("low")))

    assert found.said == (
        "[GPU106] the policies vision (tenants.yaml:1) and audio (tenants.yaml:1) select the namespace vision-dev "
        "with the same priority 3, so no pod there gets a GPU\n"
        "  at   metadata.namespace\n"
        "  rule vision (tenants.yaml:1)\n"
        "  fix  ask an operator of the cluster to write spec.priority: 4 in one of them"
    )


@pytest.mark.parametrize("tenancy", [{"unknown": "policies were never read"}, {"watched": True}])
def test_what_is_not_known_yet_is_asked_for_again(tenancy: dict[str, Any]) -> None:
    found = fate(whole(), tenants.rules(policy(), **tenancy))

    assert (found.codes, found.validated.code) == (["GPU111"], 503)


def test_all_that_is_wrong_is_said_at_once() -> None:
    strict = policy(
        container=ceiling(devices=Fraction(1), memory=40 * GIB, cores=Fraction(50)),
        pod=ceiling("vision (tenants.yaml:10)", devices=Fraction(3)),
        allowed=_kinds(backends="hami-vgpu", models="H100-80GB", sharing="fractional"),
        forbidden=_kinds(vendors="nvidia"),
        quota=quota(devices=4),
    )
    pod = shorthand(gpu="4", model=A100, backend="nvidia-gpu")

    found = fate(pod, tenants.rules(strict))

    assert [violation.message for violation in found.validated.violations] == [
        'the container "main" gets the back end nvidia-gpu, which the policy "vision" does not allow',
        'the container "main" gets the model A100-80GB, which the policy "vision" does not allow',
        'the container "main" gets the sharing exclusive, which the policy "vision" does not allow',
        'the container "main" gets the vendor nvidia, which the policy "vision" forbids',
        'the container "main" asks for 4 devices, and the policy "vision" lets a container have 1',
        'the container "main" asks for 320Gi of memory, and the policy "vision" lets a container have 40Gi',
        (
            'the container "main" asks for 400 % of a device\'s compute, '
            'and the policy "vision" lets a container have 50 %'
        ),
        'the pod asks for 4 devices, and the policy "vision" lets a pod have 3',
    ]
    assert found.validated.code == 403


def test_what_cannot_be_understood_makes_it_no_matter_of_policy_alone() -> None:
    untranslated = builders.pod(
        builders.container(limits={"nvidia.com/gpu": "2"}), labels={"gpu": "4", "gpu-backend": "nvidia-gpu"}
    )
    review = builders.creating(untranslated, "vision-dev")._replace(at=NOW)
    decision = validate(review, tenants.rules(policy(pod=ceiling(devices=Fraction(1)))))

    assert ([violation.code for violation in decision.violations], decision.code) == (["GPU602", "GPU103"], 422)


@pytest.mark.parametrize("model", ["a100-80gb", "A100-80GB", "A100-80gb"])
def test_a_model_is_the_same_in_any_spelling(model: str) -> None:
    pod = shorthand(gpu="1", model=model)

    assert fate(pod, tenants.rules(policy(forbidden=_kinds(models=A100)))).codes == ["GPU101"]
    assert fate(pod, tenants.rules(policy(allowed=_kinds(models=A100)))).codes == []


def test_of_several_models_each_has_to_be_allowed() -> None:
    both = builders.pod(labels={"gpu": "1"}, annotations={"gpu-webhook.io/model": f"{A100},H100-80GB"})
    found = fate(both, tenants.rules(policy(allowed=_kinds(models=A100))))

    assert found.said == (
        '[GPU101] the container "main" may get the model H100-80GB, which the policy "vision" does not allow\n'
        '  at   metadata.annotations["gpu-webhook.io/model"]\n'
        "  rule vision (tenants.yaml:20)\n"
        "  fix  ask for gpu-model: A100-80GB"
    )


@pytest.mark.parametrize(
    "judged",
    [
        {"allowed": _kinds(models=A100)},
        {"forbidden": _kinds(models=A100)},
        {"quota": quota(**{f"devices/{A100}": 4})},
    ],
)
def test_where_models_count_the_model_has_to_be_said(judged: dict[str, Any]) -> None:
    assert fate(whole(), tenants.rules(policy(**judged))).codes == ["GPU107"]


def test_a_quota_of_memory_needs_to_know_the_card() -> None:
    found = fate(shorthand(gpu="0.5"), tenants.rules(policy(quota=quota(memory=1 << 40))))

    assert found.said == (
        '[GPU107] the quota of the tenant "vision" counts memory, and the container "main" asks for 0.5 devices '
        "of an unknown card\n"
        "  at   metadata.labels.gpu\n"
        "  rule vision (tenants.yaml:41)\n"
        "  fix  add gpu-model with the name of the card, or ask for gpu-memory: 8Gi"
    )


@tables.rows
def test_how_devices_are_shared_is_told_from_what_is_asked_and_not_from_what_is_said(
    said: dict[str, str], allowed: str, fix: str
) -> None:
    found = fate(shorthand(**said), tenants.rules(policy(allowed=_kinds(sharing=allowed))))

    assert [(violation.code, violation.fix) for violation in found.validated.violations] == [("GPU101", fix)]


def test_a_back_end_that_is_forbidden_is_not_chosen_where_another_can_serve() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(policy(forbidden=_kinds(backends="nvidia-gpu"))))

    assert (found.codes, found.mutated.backends) == ([], {"main": "hami-vgpu"})


def test_a_back_end_that_is_only_tried_to_be_forbidden_is_chosen() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(policy(forbidden=_kinds("dryrun", backends="nvidia-gpu"))))

    assert (found.codes, found.mutated.backends) == ([], {"main": "nvidia-gpu"})
    assert tenants.names(found.validated.findings) == [("GPU101", "dryrun")]


def test_a_back_end_of_ones_own_choice_is_refused_where_it_is_forbidden() -> None:
    pod = shorthand(gpu="1", backend="nvidia-gpu")

    found = fate(pod, tenants.rules(policy(forbidden=_kinds(backends="nvidia-gpu"))))

    (violation,) = found.validated.violations
    assert (violation.code, violation.path) == ("GPU101", "metadata.labels.gpu-backend")
    assert violation.fix == "ask for gpu-backend: amd-gpu, hami-vgpu or tencent-qgpu"


def test_a_pod_with_resource_claims_is_refused_where_there_is_a_quota() -> None:
    pod = builders.pod(resourceClaims=[{"name": "card", "resourceClaimTemplateName": "one"}])

    assert fate(pod, tenants.rules(policy(quota=quota(devices=4)))).said == (
        '[GPU108] the pod has resource claims (card), and the quota of the tenant "vision" cannot count what '
        "they hold\n"
        "  at   spec.resourceClaims\n"
        "  rule vision (tenants.yaml:41)\n"
        '  fix  ask for gpu: "1" instead of its claims'
    )
    assert fate(pod, tenants.rules(policy())).codes == []


CHANNEL = {"name": "channel", "resourceClaimTemplateName": "imex-channel-0"}


def _beside(*claims: dict[str, str]) -> dict[str, Any]:
    """A pod with a device of a resource and claims beside it."""
    there = builders.container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100"})
    return builders.pod(there, resourceClaims=list(claims))


def test_claims_beside_resources_get_a_fix_that_is_not_there_already() -> None:
    found = fate(_beside(CHANNEL), tenants.rules(policy(quota=quota(devices=4))))

    (violation,) = found.validated.violations
    assert violation.code == "GPU108"
    assert violation.fix == (
        "remove the claims; if they hold no GPU, an administrator lists their templates (otherDevices)"
    )


def test_claims_that_another_webhook_made_of_the_request_get_a_fix_that_its_author_has_not_followed_yet() -> None:
    claim = {"name": "main-0", "resourceClaimName": "made"}
    counted = tenants.rules(policy(quota=quota(devices=4)))
    stored = fate(shorthand(gpu="0.3"), counted).stored
    main = {**stored["spec"]["containers"][0], "resources": {"claims": [{"name": "main-0"}]}}
    swapped = {**stored, "spec": {**stored["spec"], "containers": [main], "resourceClaims": [claim]}}
    warned = tenants.rules(policy(quota=quota(devices=4), unknown_devices="warn"))

    judged = [validate(builders.creating(swapped, "vision-dev"), rules) for rules in (counted, warned)]

    assert judged[0].violations[0].fix == (
        "have the webhook that made claims of the request leave the namespace alone, or have the policy say "
        "unknownDevices: warn, and nothing counts them"
    )
    assert judged[1].allowed


def test_claims_of_a_template_that_the_site_lists_as_none_of_gpus_are_left_alone() -> None:
    cluster = replace(tenants.RULES.cluster, other_devices=("resourceclaimtemplates/imex-channel*",))
    rules = tenants.rules(policy(quota=quota(devices=4)), rulebook=replace(tenants.RULES, cluster=cluster))

    assert fate(_beside(CHANNEL), rules).codes == []
    assert fate(_beside(CHANNEL, {"name": "card", "resourceClaimTemplateName": "gpu"}), rules).codes == ["GPU108"]
    assert fate(_beside({"name": "channel", "resourceClaimName": "imex-channel-0"}), rules).codes == ["GPU108"]


@pytest.mark.parametrize("rule", ["container", "pod", "allowed", "forbidden"])
def test_so_is_one_that_would_pass_by_any_other_rule(rule: str) -> None:
    judged = ceiling(devices=Fraction(1)) if rule in {"container", "pod"} else _kinds(vendors="nvidia")
    fields: dict[str, Any] = {rule: judged}
    pod = builders.pod(resourceClaims=[{"name": "card", "resourceClaimTemplateName": "eight"}])

    found = fate(pod, tenants.rules(policy(**fields)))

    assert [(violation.code, violation.rule) for violation in found.validated.violations] == [("GPU108", judged.rule)]
    assert fate(pod, tenants.rules(policy(**fields), exemptions=[exemption(rule)])).codes == []


def test_and_one_in_a_namespace_without_a_policy_as_a_claim_may_be_for_a_gpu() -> None:
    pod = builders.pod(resourceClaims=[{"name": "card", "resourceClaimTemplateName": "eight"}])

    (violation,) = fate(pod, tenants.rules(policy()), "elsewhere").validated.violations

    assert violation.message == (
        "no TenantPolicy selects the namespace elsewhere, and without one no pod there gets a GPU "
        "(the cluster has 1 for other namespaces); the claim card may give the pod a GPU"
    )


def _claiming(**fields: Any) -> Rulebook:
    return tenants.rules(policy(**fields), rulebook=rulebook.with_only("dra-claim-template", tenants.RULES))


def test_a_claim_that_the_shorthand_became_is_judged_like_any_other() -> None:
    pod = shorthand(gpu="1")

    assert fate(pod, _claiming(pod=ceiling(devices=Fraction(1)))).codes == []
    assert fate(pod, _claiming(pod=ceiling(devices=Fraction(0)))).codes == ["GPU103"]
    assert fate(pod, _claiming(quota=quota(devices=4))).codes == ["GPU108"]


def test_so_is_one_that_one_that_asks_for_a_device_class_like_for_a_resource() -> None:
    pod = builders.pod(builders.container(limits={"deviceclass.resource.kubernetes.io/unheard-of": "1"}))

    assert fate(pod, tenants.rules(policy(quota=quota(devices=4)))).codes == ["GPU108"]


def test_warnings_reach_the_author_and_dry_runs_only_the_log() -> None:
    lenient = policy(
        container=replace(ceiling(devices=Fraction(1)), action="warn"),
        pod=replace(ceiling(devices=Fraction(1)), action="dryrun"),
    )

    decision = fate(whole(2), tenants.rules(lenient)).validated

    assert decision.allowed
    assert decision.warnings == [
        (
            '[GPU102] the container "main" asks for 2 devices, and the policy "vision" lets a container have 1; '
            "ask for 1 or fewer"
        )
    ]
    assert decision.findings == [
        Finding("vision", "vision (tenants.yaml:9)", "GPU102", "warn"),
        Finding("vision", "vision (tenants.yaml:9)", "GPU103", "dryrun"),
    ]
    assert decision.audit == {"policy": "vision: GPU102 warn, vision: GPU103 dryrun"}


def test_the_labels_of_a_namespace_choose_its_policy_and_not_those_of_the_pod() -> None:
    selecting = policy(
        namespaces=Namespaces(selector=[tenants.labelled("team", "vision")]), pod=ceiling(devices=Fraction(1))
    )
    rules = tenants.rules(selecting, labels={"a": {"team": "vision"}, "b": {}}, without_policy="allow")
    pod = builders.pod(builders.container(limits={"nvidia.com/gpu": "2"}), labels={"team": "vision"})

    assert (fate(pod, rules, "a").codes, fate(pod, rules, "b").codes) == (["GPU103"], [])
