"""Resources that look like GPUs and that no rule knows: refused where a quota would have to count them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import Fate
from webhook.core.policy import membership, unknown_devices
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Kinds
from webhook.core.validate import validate

STRANGE = "nvidia.com/gpu-foo"

CLASS = "deviceclass.resource.kubernetes.io/"
QUOTA = tenants.quota(devices=4)
COUNTED = tenants.rules(tenants.policy(quota=QUOTA))


def _fate(name: str, rulebook: Rulebook, namespace: str = "vision-dev", **pod: Any) -> Fate:
    return tenants.fate(builders.pod(builders.container(limits={name: "1"}), **pod), rulebook, namespace)


def _with_cluster(rulebook: Rulebook, **fields: Any) -> Rulebook:
    return replace(rulebook, cluster=replace(rulebook.cluster, **fields))


def test_a_quota_refuses_what_it_cannot_count_and_names_the_nearest_rule_and_the_way_out() -> None:
    assert _fate(STRANGE, COUNTED).said == (
        '[GPU114] the container "main" asks for nvidia.com/gpu-foo, which looks like a GPU, and no rule knows it, so '
        "nothing counts it\n"
        '  at   spec.containers[0].resources.limits["nvidia.com/gpu-foo"]\n'
        "  rule vision (tenants.yaml:41)\n"
        "  fix  ask for nvidia.com/gpu instead, or have it listed in the Cluster document under otherDevices "
        "if it is no GPU"
    )


def test_of_a_back_end_that_is_not_enabled_the_fix_says_so() -> None:
    assert (
        "once spec.backends of the Cluster document enables ascend-910, or"
        in _fate("huawei.com/Ascend999", COUNTED).said
    )


@tables.rows
def test_a_domain_of_a_back_end_or_a_word_of_the_name_makes_a_gpu(name: str) -> None:
    assert _fate(name, COUNTED).codes == ["GPU114"]


@tables.rows
def test_what_a_catalogue_lists_is_a_gpu_though_no_back_end_is_asked_by_that_name(name: str) -> None:
    crowd = {f"example.com/thing-{number}": "1" for number in range(2000)}
    crowded = builders.pod(builders.container(limits={**crowd, name: "1"}))
    strict = _with_cluster(tenants.rules(tenants.policy()), unknown_devices="deny")

    assert _fate(name, strict).codes == ["GPU114"]
    assert tenants.fate(crowded, strict).codes == ["GPU003"]


@pytest.mark.parametrize("name", ["nvidia.com/rdma_gpu", "nvidia.com/sriov-vgpu", "amd.com/xilinx-gpu"])
def test_what_back_ends_list_as_no_gpu_is_one_where_its_wildcard_says_so(name: str) -> None:
    assert _fate(name, COUNTED).codes == ["GPU114"]
    assert _fate(name, _with_cluster(COUNTED, other_devices=("*/*",))).codes == []


@tables.rows
def test_what_is_no_gpu_is_left_alone_under_a_quota_that_denies_and_in_a_namespace_without_gpus(name: str) -> None:
    strict = _with_cluster(COUNTED, unknown_devices="deny")

    for namespace in ("vision-dev", "elsewhere"):
        fate = _fate(name, strict, namespace)
        assert (fate.codes, [*fate.mutated.warnings, *fate.validated.warnings]) == ([], [])


def test_what_a_site_lists_is_no_gpu() -> None:
    assert _fate(STRANGE, _with_cluster(COUNTED, other_devices=("nvidia.com/gpu-f*",))).codes == []


def test_none_of_it_is_nothing() -> None:
    pod = builders.pod(builders.container(limits={STRANGE: "0"}))

    assert tenants.fate(pod, COUNTED).codes == []


def test_resources_of_a_back_end_that_is_not_enabled_count() -> None:
    fate = _fate("volcano.sh/vgpu-number", COUNTED)

    assert fate.codes == []
    assert fate.validated.reservation is not None
    assert fate.validated.reservation.ask.amount == {"devices": 1}


@pytest.mark.parametrize(
    ("rulebook", "codes", "warned"),
    [
        pytest.param(tenants.rules(), [], True, id="no policy"),
        pytest.param(tenants.rules(tenants.policy()), [], True, id="no quota"),
        pytest.param(COUNTED, ["GPU114"], False, id="a quota"),
        pytest.param(tenants.rules(tenants.policy(quota=tenants.quota("warn"))), [], True, id="a quota that warns"),
        pytest.param(tenants.rules(tenants.policy(quota=tenants.quota("dryrun"))), [], False, id="one that is tried"),
        pytest.param(_with_cluster(COUNTED, unknown_devices="warn"), [], True, id="the cluster warns"),
        pytest.param(_with_cluster(tenants.rules(), unknown_devices="deny"), ["GPU114"], False, id="it denies"),
        pytest.param(
            tenants.rules(tenants.policy(unknown_devices="deny")), ["GPU114"], False, id="the policy denies"
        ),
        pytest.param(
            _with_cluster(tenants.rules(tenants.policy(quota=QUOTA, unknown_devices="warn")), unknown_devices="deny"),
            [],
            True,
            id="the policy warns, and wins over the cluster",
        ),
    ],
)
def test_the_policy_says_what_becomes_of_it_else_the_cluster_else_the_quota(
    rulebook: Rulebook, codes: list[str], *, warned: bool
) -> None:
    fate = _fate(STRANGE, rulebook)

    assert fate.codes == codes
    assert [warning[:9] for warning in fate.validated.warnings] == (["[GPU114] "] if warned else [])


def test_where_no_gpu_may_be_used_none_that_is_unknown_is_unless_the_cluster_only_warns() -> None:
    assert _fate(STRANGE, COUNTED, "elsewhere").codes == ["GPU105"]
    assert _fate(STRANGE, _with_cluster(COUNTED, unknown_devices="warn"), "elsewhere").codes == []


def test_an_exemption_from_the_quota_spares_the_devices_that_it_cannot_count() -> None:
    spared = tenants.rules(tenants.policy(quota=QUOTA), exemptions=(tenants.exemption("quota"),))

    assert _fate(STRANGE, spared).codes == []


def test_a_pod_that_another_replica_has_translated_comes_again_as_its_rules_may_be_newer() -> None:
    fate = _fate(STRANGE, COUNTED, annotations={"gpu-webhook.io/translated": "gpu=1 -> foo"})

    assert (fate.codes, fate.validated.code) == (["GPU111"], 503)


def test_a_device_class_is_treated_as_a_claim_under_a_quota_and_as_a_resource_elsewhere() -> None:
    assert _fate(CLASS + "gpu.acme.example", COUNTED).codes == ["GPU108"]
    free = _fate(CLASS + "gpu.acme.example", tenants.rules())
    assert (free.codes, len(free.validated.warnings)) == ([], 1)
    assert _fate(CLASS + "mig.nvidia.com", _with_cluster(tenants.rules(), unknown_devices="deny")).codes == ["GPU114"]


@tables.rows
def test_a_documented_name_that_no_rule_has_gets_a_warning_and_under_a_quota_a_refusal(name: str) -> None:
    free, counted = _fate(name, tenants.rules()), _fate(name, COUNTED)

    assert (free.codes, [line[:9] for line in free.validated.warnings]) == ([], ["[GPU114] "])
    assert counted.codes == ["GPU108" if name.startswith(CLASS) else "GPU114"]


@pytest.mark.parametrize("name", ["cambricon.com/mlu", "google.com/tpu", "furiosa.ai/rngd", "rebellions.ai/ATOM"])
def test_a_documented_name_of_a_back_end_that_is_not_enabled_counts_and_its_kind_is_judged(name: str) -> None:
    others = tenants.rules(
        tenants.policy(allowed=Kinds(vendors=frozenset({"nvidia"}), rule="vision (tenants.yaml:9)"))
    )
    counted = _fate(name, COUNTED).validated.reservation

    assert counted is not None
    assert counted.ask.amount["devices"] == 1
    assert _fate(name, others).codes == ["GPU101"]


def test_a_policy_that_warns_of_unknown_devices_warns_of_claims_which_no_quota_counts() -> None:
    pod = builders.pod(resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}])
    warning = tenants.rules(tenants.policy(quota=QUOTA, unknown_devices="warn"))

    assert tenants.fate(pod, COUNTED).codes == ["GPU108"]
    assert [line[:9] for line in tenants.fate(pod, warning).validated.warnings] == ["[GPU108] "]


def test_a_policys_first_quota_says_what_it_refuses_beside() -> None:
    policies = (
        tenants.policy("a", quota=QUOTA),
        tenants.policy("b"),
        tenants.policy("c", quota=tenants.quota("warn")),
        tenants.policy("d", quota=QUOTA, unknown_devices="deny"),
    )
    rulebook = tenants.rules(*policies)

    assert unknown_devices.refused_by_default(rulebook.tenancy, rulebook.cluster) == ["a"]
    assert (
        unknown_devices.refused_by_default(rulebook.tenancy, _with_cluster(rulebook, unknown_devices="deny").cluster)
        == []
    )
    [accepted, _] = membership.conditions_of([], None, strict=True)
    assert accepted == membership.VALID._replace(
        message="it is in force as it stands; its quota cannot count devices that no rule knows, so pods with one "
        "are refused; list what is no GPU under otherDevices of the Cluster document, or say unknownDevices: warn"
    )


FRACTION = {"gpu-fraction": "0.5"}
OF_MAIN = {"nvidia.com/container.main.gpu-memory.limit": "20Gi"}
STRICT = _with_cluster(tenants.rules(), unknown_devices="deny")


def _annotated(rulebook: Rulebook, annotations: Mapping[str, str] = FRACTION, **spec: Any) -> Fate:
    return tenants.fate(builders.pod(annotations=annotations, **spec), rulebook)


def test_an_annotation_that_asks_a_back_end_which_is_not_enabled_is_no_way_round_a_quota() -> None:
    assert _annotated(COUNTED, schedulerName="kai-scheduler").said == (
        "[GPU114] the annotation gpu-fraction asks for a GPU of kai or runai, which this cluster does not enable, so "
        "nothing counts it\n"
        "  at   metadata.annotations.gpu-fraction\n"
        "  rule vision (tenants.yaml:41)\n"
        '  fix  ask for gpu: "1" instead of the annotation gpu-fraction, or have spec.backends of the Cluster '
        'document enable kai or runai, or list "annotation gpu-fraction" there under otherDevices if nothing gives a '
        "GPU for it"
    )


@pytest.mark.parametrize(
    ("rulebook", "scheduler", "codes"),
    [
        pytest.param(STRICT, "kai-scheduler", ["GPU114"], id="of the scheduler that reads it"),
        pytest.param(STRICT, "our-own-kai", ["GPU114"], id="of one that may be it"),
        pytest.param(STRICT, "default-scheduler", [], id="of one that does not"),
        pytest.param(STRICT, "hami-scheduler", [], id="of one of an enabled back end"),
        pytest.param(tenants.rules(), "kai-scheduler", [], id="no quota"),
        pytest.param(
            _with_cluster(STRICT, other_devices=("annotation gpu-*",)), "kai-scheduler", [], id="listed as nothing"
        ),
    ],
)
def test_only_where_its_scheduler_may_read_it(rulebook: Rulebook, scheduler: str, codes: list[str]) -> None:
    assert _annotated(rulebook, schedulerName=scheduler).codes == codes


@tables.rows
def test_what_names_a_container_is_listed_as_nothing_with_a_star_for_its_name(listed: str, codes: list[str]) -> None:
    lenient = _with_cluster(STRICT, other_devices=(listed,))

    assert _annotated(lenient, OF_MAIN, schedulerName="kai-scheduler").codes == codes


def test_each_container_that_an_annotation_names_is_said() -> None:
    asks = {f"nvidia.com/container.{name}.gpu-memory.limit": "1Gi" for name in ("main", "gone")}
    fate = _annotated(
        STRICT, {**asks, "nvidia.com/container..gpu-memory.limit": "1Gi"}, schedulerName="kai-scheduler"
    )

    assert [violation.path for violation in fate.validated.violations] == [
        'metadata.annotations["nvidia.com/container.gone.gpu-memory.limit"]',
        'metadata.annotations["nvidia.com/container.main.gpu-memory.limit"]',
    ]


def test_without_a_quota_its_author_is_warned() -> None:
    [warning] = _annotated(tenants.rules(), schedulerName="kai-scheduler").validated.warnings

    assert warning.startswith("[GPU114] the annotation gpu-fraction asks for a GPU of kai or runai")


def test_where_its_back_end_is_enabled_it_counts() -> None:
    enabled = replace(rulebook.with_only("kai", COUNTED), tenancy=COUNTED.tenancy)

    reservation = _annotated(enabled, schedulerName="kai-scheduler").validated.reservation

    assert reservation is not None
    assert reservation.ask.amount == {"devices": Fraction(1, 2)}


@pytest.mark.parametrize("added", [FRACTION, OF_MAIN])
@pytest.mark.parametrize(("rulebook", "codes"), [(COUNTED, ["GPU109"]), (tenants.rules(), [])])
def test_nobody_adds_it_to_a_pod_that_exists(rulebook: Rulebook, codes: list[str], added: Mapping[str, str]) -> None:
    before, after = (
        builders.pod(annotations=annotations, schedulerName="kai-scheduler") for annotations in ({}, added)
    )
    update = builders.updating(before, after)._replace(namespace="vision-dev")

    assert [violation.code for violation in validate(update, rulebook).violations] == codes


@pytest.mark.parametrize("asked", [FRACTION, OF_MAIN])
def test_a_pod_that_is_over_the_budget_is_refused_for_it_too(asked: Mapping[str, str]) -> None:
    many = {f"note-{number}": "" for number in range(2000)}
    raw = builders.pod(annotations={**many, **asked}, schedulerName="kai-scheduler")

    assert tenants.fate(raw, STRICT).codes == ["GPU003"]
