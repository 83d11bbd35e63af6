"""What becomes of a pod under policies: what they refuse and in which words, put on it, count, lift, and tell.

In tables `pod` is what its author writes, `given` the cluster and its policies, and `becomes` all that is looked at.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import (
    NOW,
    Fate,
    ceiling,
    fate,
    policy,
    rulebook_of,
    rules,
)
from tests.fixes import corpus
from webhook.core.decision import Decision
from webhook.core.policy import in_force, unknown_devices
from webhook.core.validate import validate

Object = Mapping[str, Any]

NVIDIA = "nvidia.com/gpu"
QUEUE = "kai.scheduler/queue"
POOL = {"key": "pool", "operator": "In", "values": ["vision"]}
SLOW = {"key": "slow", "operator": "NotIn", "values": ["true"]}


def _fate(pod: Object, given: Object) -> Fate:
    namespace, rules = given.get("namespace", "vision-dev"), rulebook_of(given)
    if "unmutated" not in given:
        return fate(builders.written(pod), rules, namespace)
    review = builders.creating(builders.written(pod), namespace)._replace(at=NOW)
    return Fate(Decision(allowed=True), builders.written(pod), validate(review, rules))


def _check(pod: Object, given: Object, becomes: Object) -> None:
    seen = tenants.seen(_fate(pod, given))
    assert {key: seen[key]() for key in becomes} == becomes


@tables.rows
def test_a_policy_judges(pod: Object, given: Object, becomes: Object) -> None:
    _check(pod, given, becomes)


@tables.rows
def test_how_long_a_pod_may_take_to_end(pod: Object, given: Object, becomes: Object) -> None:
    _check(pod, given, becomes)


@tables.rows
def test_who_does_as_a_ceiling_says_is_admitted(asked: Object, follows: Object, most: Object) -> None:
    fates = [_fate({"labels": labels}, {"policy": {"container": most}}) for labels in (asked, follows)]

    assert [bool(found.codes) for found in fates] == [True, False]


def test_claims_that_another_webhook_made_of_the_request_get_a_fix_that_its_author_has_not_followed_yet() -> None:
    counted = rulebook_of({"policy": {"quota": {"devices": 4}}})
    warned = rulebook_of({"policy": {"quota": {"devices": 4}, "unknown_devices": "warn"}})
    stored = fate(builders.pod(labels={"gpu": "0.3"}), counted).stored
    main = {**stored["spec"]["containers"][0], "resources": {"claims": [{"name": "main-0"}]}}
    claim = {"name": "main-0", "resourceClaimName": "made"}
    swapped = {**stored, "spec": {**stored["spec"], "containers": [main], "resourceClaims": [claim]}}

    judged = [validate(builders.creating(swapped, "vision-dev"), rules) for rules in (counted, warned)]

    assert judged[0].violations[0].fix == (
        "have the webhook that made claims of the request leave the namespace alone, or have the policy say "
        "unknownDevices: warn, and nothing counts them"
    )
    assert judged[1].allowed


@tables.rows
def test_a_policy_puts_on_pods(pod: Object, given: Object, becomes: Object) -> None:
    _check(pod, given, becomes)


@tables.rows
def test_who_says_how_much_gets_that(pod: Object) -> None:
    assert _fate(pod, {"policy": {"defaults": {"memory": "8Gi"}}}).stored == _fate(pod, {"policy": {}}).stored


def test_a_default_that_nothing_can_serve_is_left_out() -> None:
    pod = {"labels": {"gpu": "1", "gpu-memory": "60Gi"}}

    assert _fate(pod, {"policy": {"defaults": {"model": "T4"}}}).stored == _fate(pod, {"policy": {}}).stored


def test_a_policy_that_is_only_tried_puts_nothing_on_any_pod() -> None:
    put = {"defaults": {"memory": "8Gi", "backend": "hami-vgpu"}, "labels": {QUEUE: "vision"}, "affinity": [POOL]}
    pod = {"labels": {"gpu": "1", QUEUE: "audio"}}

    assert _fate(pod, {"policy": {**put, "action": "dryrun"}}).stored == _fate(pod, {"policy": {}}).stored


STRICT: Object = tables.table(__file__, "strict")


@pytest.mark.parametrize("tenant", [STRICT, {"defaults": {"model": "T4", "memory": "8Gi"}}, {"affinity": [SLOW]}])
@tables.rows
def test_a_pod_that_has_it_all_is_changed_no_more(pod: Object, tenant: Object) -> None:
    first = _fate(pod, {"policy": tenant})
    again = fate(first.stored, rulebook_of({"policy": tenant}))

    assert first.codes == []
    assert (again.codes, list(again.mutated.patch), again.mutated.backends) == ([], [], first.mutated.backends)


@tables.rows
def test_only_what_every_exemption_lifts_is_lifted(pod: Object, given: Object, becomes: Object) -> None:
    _check(pod, given, becomes)


def test_no_pod_that_would_have_the_node_passes_a_policy_that_cannot_be_used() -> None:
    privileged = builders.pod(builders.container(securityContext={"privileged": True}))

    assert fate(privileged, rulebook_of({"policy": {"broken": "spec.quota: has no unit"}})).codes == ["GPU113"]


@tables.rows
def test_devices_that_no_rule_knows(pod: Object, given: Object, becomes: Object) -> None:
    _check(pod, given, becomes)


FREE: Object = {}
COUNTED = {"policy": {"quota": {"devices": 4}}}
DENYING = {"cluster": {"unknown_devices": "deny"}}
CLASS = "deviceclass.resource.kubernetes.io/"


def _asking(name: str, given: Object) -> Fate:
    return _fate({"limits": {name: "1"}}, given)


@tables.rows
def test_a_domain_of_a_back_end_or_a_word_of_the_name_makes_a_gpu(name: str) -> None:
    assert _asking(name, COUNTED).codes == ["GPU114"]


@tables.rows
def test_what_a_catalogue_lists_is_a_gpu_though_no_back_end_is_asked_by_that_name(name: str) -> None:
    crowd = {f"example.com/thing-{number}": "1" for number in range(2000)}

    assert _asking(name, {"policy": {}, **DENYING}).codes == ["GPU114"]
    assert _fate({"limits": {**crowd, name: "1"}}, {"policy": {}, **DENYING}).codes == ["GPU003"]


@pytest.mark.parametrize("name", ["nvidia.com/rdma_gpu", "nvidia.com/sriov-vgpu", "amd.com/xilinx-gpu"])
def test_what_back_ends_list_as_no_gpu_is_one_where_its_wildcard_says_so(name: str) -> None:
    assert _asking(name, COUNTED).codes == ["GPU114"]
    assert _asking(name, {**COUNTED, "cluster": {"other_devices": ["*/*"]}}).codes == []


@tables.rows
def test_what_is_no_gpu_is_left_alone_under_a_quota_that_denies_and_in_a_namespace_without_gpus(name: str) -> None:
    for namespace in ("vision-dev", "elsewhere"):
        found = _asking(name, {**COUNTED, **DENYING, "namespace": namespace})
        assert (found.codes, [*found.mutated.warnings, *found.validated.warnings]) == ([], [])


@tables.rows
def test_a_documented_name_that_no_rule_has_gets_a_warning_and_under_a_quota_a_refusal(name: str) -> None:
    free, counted = _asking(name, FREE), _asking(name, COUNTED)

    assert (free.codes, [line[:9] for line in free.validated.warnings]) == ([], ["[GPU114] "])
    assert counted.codes == ["GPU108" if name.startswith(CLASS) else "GPU114"]


@pytest.mark.parametrize("name", ["cambricon.com/mlu", "google.com/tpu", "furiosa.ai/rngd", "rebellions.ai/ATOM"])
def test_a_documented_name_of_a_back_end_that_is_not_enabled_counts_and_its_kind_is_judged(name: str) -> None:
    counted = _asking(name, COUNTED).validated.reservation

    assert counted is not None
    assert counted.ask.amount["devices"] == 1
    assert _asking(name, {"policy": {"allowed": {"vendors": ["nvidia"]}}}).codes == ["GPU101"]


def test_a_policys_first_quota_says_what_it_refuses_beside() -> None:
    policies = [
        {"name": "a", "quota": {"devices": 4}},
        {"name": "b"},
        {"name": "c", "quota": {"action": "warn"}},
        {"name": "d", "quota": {"devices": 4}, "unknown_devices": "deny"},
    ]
    rules, denying = rulebook_of({"policies": policies}), rulebook_of({"policies": policies, **DENYING})

    assert unknown_devices.refused_by_default(rules.tenancy, rules.cluster) == ["a"]
    assert unknown_devices.refused_by_default(rules.tenancy, denying.cluster) == []
    [accepted, _] = in_force.conditions_of([], None, strict=True)
    assert accepted == in_force.VALID._replace(
        message="it is in force as it stands; its quota cannot count devices that no rule knows, so pods with one "
        "are refused; list what is no GPU under otherDevices of the Cluster document, or say unknownDevices: warn"
    )


ANNOTATED = ({"gpu-fraction": "0.5"}, {"nvidia.com/container.main.gpu-memory.limit": "20Gi"})


@pytest.mark.parametrize("added", ANNOTATED)
@pytest.mark.parametrize(("given", "codes"), [(COUNTED, ["GPU109"]), (FREE, [])])
def test_nobody_adds_it_to_a_pod_that_exists(given: Object, codes: list[str], added: Mapping[str, str]) -> None:
    before, after = (builders.pod(annotations=each, schedulerName="kai-scheduler") for each in ({}, added))
    update = builders.updating(before, after)._replace(namespace="vision-dev")

    assert [violation.code for violation in validate(update, rulebook_of(given)).violations] == codes


@pytest.mark.parametrize("asked", ANNOTATED)
def test_a_pod_that_is_over_the_budget_is_refused_for_it_too(asked: Mapping[str, str]) -> None:
    many = {f"note-{number}": "" for number in range(2000)}

    assert _fate({"annotations": {**many, **asked}, "schedulerName": "kai-scheduler"}, DENYING).codes == ["GPU003"]


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        ("A100-80GB", "ask for gpu-memory: 64Gi or less"),
        ("MI300X", "ask an operator of the cluster for an Exemption that lifts container"),
    ],
)
def test_a_ceiling_names_no_part_of_a_card_that_nobody_shares(model: str, fix: str) -> None:
    """Where its back end would send the author back to a whole card, fixes went in a circle."""
    raw = builders.pod(labels={"gpu": "1", "gpu-model": model})

    refused = corpus.violations(raw, rules(policy(container=ceiling(memory=64 << 30))), "vision-dev")

    assert [violation.fix for violation in refused] == [fix]
