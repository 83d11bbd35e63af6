"""`explain --to`: a pod of one system, rewritten for another; exact for the pairs listed here."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import builders
from webhook.cli import convert

RULES = builders.rulebook(builders.shipped_files())

Spec = Mapping[str, Any]

QGPU = "tke.cloud.tencent.com/qgpu-"
KOORDINATOR = "koordinator.sh/gpu"
VOLCANO = "volcano.sh/vgpu-"
HAMI = "nvidia.com/gpu"


def _pod(limits: Mapping[str, Any], **metadata: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", **metadata},
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": {"limits": {"cpu": 2, **limits}}}]},
    }


def _converted(pod: Mapping[str, Any], source: str, target: str) -> dict[str, Any]:
    [explanation] = convert.convert(pod, target, RULES, source)
    assert explanation.decision.allowed, explanation.decision.violations
    return dict(explanation.after)


def _limits(pod: Mapping[str, Any]) -> dict[str, Any]:
    found = dict((pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {})
    assert found.pop("cpu") == 2
    return found


PAIRS = {
    "gpushare to HAMi": (
        ("aliyun-gpushare", {"aliyun.com/gpu-mem": 8}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem": "8192"}),
    ),
    "gpushare to Volcano": (
        ("aliyun-gpushare", {"aliyun.com/gpu-mem": 3}),
        ("volcano-vgpu", {f"{VOLCANO}number": "1", f"{VOLCANO}memory": "3072"}),
    ),
    "cGPU with compute to HAMi": (
        ("aliyun-cgpu", {"aliyun.com/gpu-mem": 5, "aliyun.com/gpu-core.percentage": 30}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem": "5120", f"{HAMI}cores": "30"}),
    ),
    "cGPU with compute to qGPU": (
        ("aliyun-cgpu", {"aliyun.com/gpu-mem": 5, "aliyun.com/gpu-core.percentage": 30}),
        ("tencent-qgpu", {f"{QGPU}core": "30", f"{QGPU}memory": "5"}),
    ),
    "qGPU to cGPU": (
        ("tencent-qgpu", {f"{QGPU}core": 30, f"{QGPU}memory": 5}),
        ("aliyun-cgpu", {"aliyun.com/gpu-mem": "5", "aliyun.com/gpu-core.percentage": "30"}),
    ),
    "qGPU to HAMi": (
        ("tencent-qgpu", {f"{QGPU}core": 45, f"{QGPU}memory": 7}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem": "7168", f"{HAMI}cores": "45"}),
    ),
    "whole cards of qGPU to the device plugin": (
        ("tencent-qgpu", {f"{QGPU}core": 200}),
        ("nvidia-gpu", {HAMI: "2"}),
    ),
    "vCUDA to qGPU": (
        ("tencent-vcuda", {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 32}),
        ("tencent-qgpu", {f"{QGPU}core": "30", f"{QGPU}memory": "8"}),
    ),
    "vCUDA to HAMi": (
        ("tencent-vcuda", {"tencent.com/vcuda-core": 33, "tencent.com/vcuda-memory": 3}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem": "768", f"{HAMI}cores": "33"}),
    ),
    "HAMi to Volcano": (
        ("hami-vgpu", {HAMI: 2, f"{HAMI}mem": 4096, f"{HAMI}cores": 50}),
        ("volcano-vgpu", {f"{VOLCANO}number": "2", f"{VOLCANO}memory": "4096", f"{VOLCANO}cores": "50"}),
    ),
    "HAMi by percent to Koordinator": (
        ("hami-vgpu", {HAMI: 1, f"{HAMI}mem-percentage": 30, f"{HAMI}cores": 30}),
        (
            "koordinator",
            {f"{KOORDINATOR}.shared": "1", f"{KOORDINATOR}-core": "30", f"{KOORDINATOR}-memory-ratio": "30"},
        ),
    ),
    "Volcano to HAMi": (
        ("volcano-vgpu", {f"{VOLCANO}number": 1, f"{VOLCANO}memory": 2000, f"{VOLCANO}cores": 25}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem": "2000", f"{HAMI}cores": "25"}),
    ),
    "Koordinator's own short form to HAMi": (
        ("koordinator", {KOORDINATOR: 50}),
        ("hami-vgpu", {HAMI: "1", f"{HAMI}mem-percentage": "50", f"{HAMI}cores": "50"}),
    ),
    "Elastic GPU to qGPU": (
        ("elastic-gpu", {"elasticgpu.com/gpu-core": 20, "elasticgpu.com/gpu-memory": 4096}),
        ("tencent-qgpu", {f"{QGPU}core": "20", f"{QGPU}memory": "4"}),
    ),
    "nos to gpushare": (
        ("nos-mps", {"nvidia.com/gpu-10gb": 1}),
        ("aliyun-gpushare", {"aliyun.com/gpu-mem": "10"}),
    ),
    "whole cards of the device plugin to Volcano": (
        ("nvidia-gpu", {HAMI: 4}),
        ("volcano-gpu-number", {"volcano.sh/gpu-number": "4"}),
    ),
}


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_the_resources_of_one_system_are_exactly_those_of_another(
    before: tuple[str, Spec], after: tuple[str, Spec]
) -> None:
    (source, limits), (target, wanted) = before, after
    pod = _pod(limits)
    if source == "nos-mps":
        pod["spec"] |= {"hostIPC": True, "securityContext": {"runAsUser": 1000}}

    assert _limits(_converted(pod, source, target)) == wanted


def test_a_share_in_annotations_becomes_resources() -> None:
    pod = _pod({}, annotations={"gpu-fraction": "0.3"}, labels={"kai.scheduler/queue": "team-a"})
    pod["spec"]["schedulerName"] = "kai-scheduler"

    after = _converted(pod, "kai", "hami-vgpu")

    assert _limits(after) == {HAMI: "1", f"{HAMI}mem-percentage": "30"}, "KAI limits no compute"
    assert after["spec"]["schedulerName"] == "hami-scheduler"
    assert after["metadata"] == {"name": "train", "labels": {"kai.scheduler/queue": "team-a"}}


def test_resources_become_a_share_in_annotations() -> None:
    after = _converted(_pod({HAMI: 1, f"{HAMI}mem": 2000}), "hami-vgpu", "kai")

    assert _limits(after) == {}
    assert after["metadata"]["annotations"] == {
        "gpu-memory": "2000",
        "gpu-fraction-num-devices": "1",
        "gpu-fraction-container-name": "main",
    }


def test_what_the_first_systems_scheduler_wrote_goes_and_what_the_author_added_stays() -> None:
    pod = _pod({"aliyun.com/gpu-mem": 8}, annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "team": "vision"})

    assert _converted(pod, "aliyun-gpushare", "hami-vgpu")["metadata"]["annotations"] == {"team": "vision"}


def test_a_card_that_node_labels_select_is_selected_in_the_other_systems_way() -> None:
    pod = _pod({"aliyun.com/gpu-mem": 8})
    pod["spec"]["nodeSelector"] = {"aliyun.accelerator/nvidia_name": "Tesla-T4", "disk": "ssd"}

    after = _converted(pod, "aliyun-cgpu", "hami-vgpu")

    assert after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert after["metadata"]["annotations"]["nvidia.com/use-gputype"] == "Tesla T4"


def test_a_pod_that_asks_in_shorthand_keeps_its_shorthand() -> None:
    pod = _pod({}, labels={"gpu": "0.3", "gpu-backend": "hami-vgpu"})

    after = _converted(pod, "hami-vgpu", "koordinator")

    assert after["metadata"]["labels"] == {"gpu": "0.3"} | after["metadata"]["labels"]
    assert "gpu-backend" not in after["metadata"]["labels"]
    assert _limits(after)[f"{KOORDINATOR}-core"] == "30"


def test_what_the_other_system_cannot_say_is_refused_with_its_reason() -> None:
    [explanation] = convert.convert(_pod({"aliyun.com/gpu-mem": 8}), "tencent-qgpu", RULES, "aliyun-gpushare")

    assert explanation.after == explanation.before
    assert [violation.message for violation in explanation.decision.violations] == [
        "tencent-qgpu cannot serve gpu-memory=8Gi: it needs to know gpu-cores as well"
    ]


def test_a_pod_of_a_workload_is_rewritten_in_its_template() -> None:
    template = {key: value for key, value in _pod({"aliyun.com/gpu-mem": 8}).items() if key in {"metadata", "spec"}}
    deployment = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}

    [explanation] = convert.convert(deployment, "hami-vgpu", RULES)

    assert (explanation.title, _limits(explanation.after)) == ("Deployment web", {HAMI: "1", f"{HAMI}mem": "8192"})


def test_a_pod_without_a_gpu_is_left_alone() -> None:
    pod = _pod({})

    assert [explanation.after for explanation in convert.convert(pod, "hami-vgpu", RULES)] == [pod]


def test_a_card_that_any_systems_node_labels_select_goes_along() -> None:
    pod = _pod({HAMI: 1})
    pod["spec"]["nodeSelector"] = {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}

    after = _converted(pod, "gke-gpu", "hami-vgpu")

    assert "nodeSelector" not in after["spec"]
    assert after["metadata"]["annotations"]["nvidia.com/use-gputype"] == "Tesla T4"


# What stands beside the resources, and what the other back end gives otherwise


def _told(pod: Mapping[str, Any], source: str | None, target: str) -> tuple[dict[str, Any], list[str]]:
    """The limits of the converted pod, and the warnings."""
    [explanation] = convert.convert(pod, target, RULES, source)
    assert explanation.decision.allowed, explanation.decision.violations
    return _limits(explanation.after), list(explanation.decision.warnings)


def _refused(pod: Mapping[str, Any], source: str | None, target: str) -> str:
    [explanation] = convert.convert(pod, target, RULES, source)
    assert explanation.after == explanation.before
    [violation] = explanation.decision.violations
    return str(violation)


def _on_nodes(limits: Mapping[str, Any], **selector: str) -> dict[str, Any]:
    pod = _pod(limits)
    pod["spec"]["nodeSelector"] = {_NODE_LABELS[key]: value for key, value in selector.items()}
    return pod


_GKE = "cloud.google.com/gke-"
_NODE_LABELS = {
    "partition": f"{_GKE}gpu-partition-size",
    "accelerator": f"{_GKE}accelerator",
    "strategy": f"{_GKE}gpu-sharing-strategy",
    "clients": f"{_GKE}max-shared-clients-per-gpu",
    "product": "nvidia.com/gpu.product",
    "memory": "nvidia.com/gpu.memory",
    "virtual": "nvidia.com/vgpu.present",
}
_ONE = {HAMI: 1}


def test_a_slice_of_gke_that_stands_in_the_node_selection_stays_a_slice_of_that_card() -> None:
    pod = _on_nodes(_ONE, partition="1g.5gb", accelerator="nvidia-tesla-a100")

    after = _converted(pod, "gke-mig", "nvidia-mig-mixed")

    assert _limits(after) == {"nvidia.com/mig-1g.5gb": "1"}
    assert "nodeSelector" not in after["spec"]
    assert _selected(after) == {"nvidia.com/gpu.product": ["NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"]}


def _selected(pod: Mapping[str, Any]) -> dict[str, Any]:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def test_nodes_tell_whose_slice_it_is_where_nobody_says_the_source() -> None:
    by_gke = _on_nodes(_ONE, partition="1g.5gb", accelerator="nvidia-tesla-a100")
    by_product = _on_nodes(_ONE, product="NVIDIA-A30-MIG-1g.6gb")

    assert _told(by_gke, None, "nvidia-mig-mixed") == ({"nvidia.com/mig-1g.5gb": "1"}, [])
    assert _told(by_product, None, "nvidia-mig-mixed") == ({"nvidia.com/mig-1g.6gb": "1"}, [])


def test_a_slice_becomes_no_whole_card() -> None:
    assert _refused(_on_nodes(_ONE, partition="1g.5gb"), "gke-mig", "hami-vgpu").startswith(
        "[GPU301] hami-vgpu cannot serve gpu-profile=1g.5gb: it serves only: whole cards; a part of each card"
    )
    assert _refused(_pod(_ONE), "gke-mig", "nvidia-gpu").startswith(
        f"[GPU405] which partition a device of gke-mig is says the node label {_GKE}gpu-partition-size, "
        "and the pod does not select it"
    )


def test_the_size_of_a_virtual_card_that_stands_in_the_node_selection_is_its_memory() -> None:
    pod = _on_nodes({HAMI: 2}, memory="8192", virtual="true")

    assert _limits(_converted(pod, "nvidia-grid", "hami-vgpu")) == {HAMI: "2", f"{HAMI}mem": "8192"}


def test_a_share_among_other_clients_than_the_rule_has_is_refused() -> None:
    pod = _on_nodes(_ONE, strategy="mps", clients="3")

    nodes = (
        f"with {_GKE}gpu-sharing-strategy=time-sharing or mps and with {_GKE}max-shared-clients-per-gpu=2 "
        f"and without the label {_GKE}gpu-partition-size"
    )
    assert _refused(pod, "gke-sharing", "hami-vgpu").splitlines() == [
        f"[GPU405] a device of gke-sharing is on nodes {nodes}, and the pod selects others",
        '  at   spec.containers[0].resources.limits["nvidia.com/gpu"]',
        "  rule gke-sharing (gke-sharing.yaml:17)",
        "  fix  set the parameters of the rule in the Cluster document as those nodes are, or name another back end",
    ]


def test_node_labels_of_another_back_end_that_stay_are_named() -> None:
    pod = _on_nodes(_ONE, clients="3")

    assert _told(pod, None, "hami-vgpu") == (
        {HAMI: "1"},
        [f"the pod still selects nodes by {_GKE}max-shared-clients-per-gpu, as gke-gpu, gke-sharing does"],
    )


def test_a_card_that_only_some_alternatives_select_stays_and_is_named() -> None:
    terms = [[{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["Tesla-T4"]}]]
    terms += [[{"key": "zone", "operator": "In", "values": ["x"]}]]
    required = {"nodeSelectorTerms": [{"matchExpressions": each} for each in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    pod = _pod({"nvidia.com/gpu": 1})
    pod["spec"]["affinity"] = affinity

    limits, told = _told(pod, "nvidia-gpu", "koordinator")

    assert limits["koordinator.sh/gpu.shared"] == "1"
    assert _converted(pod, "nvidia-gpu", "koordinator")["spec"]["affinity"] == affinity
    assert [line[:55] for line in told] == ["the pod still selects nodes by nvidia.com/gpu.product, "]


def test_a_template_stays_with_its_chip() -> None:
    small = _pod({"huawei.com/Ascend910A": 1, "huawei.com/Ascend910A-memory": 2000})
    large = _pod({"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 6144})

    assert _refused(small, "hami-ascend-910a", "ascend-vnpu-static").startswith(
        "[GPU303] ascend-vnpu-static cannot serve gpu-profile=vir02 gpu-model=Ascend910A: Ascend910A is not one of"
    )
    assert _refused(large, "hami-ascend-310p", "hami-ascend-910a").startswith(
        "[GPU303] hami-ascend-910a cannot serve gpu-profile=vir02 gpu-model=Ascend310P: Ascend310P is not one of"
    )
    assert _limits(_converted(large, "hami-ascend-310p", "ascend-vnpu-static")) == {"huawei.com/Ascend310P-2c": "1"}


def test_a_list_of_parts_of_names_is_all_models_that_are_called_so() -> None:
    pod = _pod({HAMI: 1}, annotations={"nvidia.com/use-gputype": "A100,V100"})

    [done] = convert.convert(pod, "koordinator", RULES, "hami-vgpu")

    assert done.converted is not None
    [was] = done.converted.assignments
    assert was.request.models == ("A100-40GB", "A100-80GB", "V100-16GB", "V100-32GB")
    assert {one.partition("-")[2][:4] for one in _selected(done.after)["node.koordinator.sh/gpu-model"]} == {
        "A100",
        "V100",
    }
    [warning] = done.decision.warnings
    assert warning == (
        'metadata.annotations["nvidia.com/use-gputype"] is read as A100-40GB, A100-80GB, V100-16GB, V100-32GB; '
        "44 other models whose names hold a part of it are left out"
    )


def test_an_exclusion_that_the_other_system_cannot_say_is_named() -> None:
    pod = _pod({HAMI: 1}, annotations={"nvidia.com/nouse-gputype": "A10", "nvidia.com/nouse-gpuuuid": "GPU-1"})

    after, warnings = _told(pod, "hami-vgpu", "koordinator")

    assert after == {f"{KOORDINATOR}.shared": "1", f"{KOORDINATOR}-core": "100", f"{KOORDINATOR}-memory-ratio": "100"}
    assert warnings == [
        'metadata.annotations["nvidia.com/nouse-gputype"]: A10 is lost: koordinator has nothing that says it',
        'metadata.annotations["nvidia.com/nouse-gpuuuid"]: GPU-1 is lost: koordinator has nothing that says it',
    ]


def test_what_both_systems_read_in_the_same_way_stays() -> None:
    said = {"nvidia.com/nouse-gputype": "A10", "nvidia.com/nouse-gpuuuid": "GPU-1"}

    [done] = convert.convert(_pod({HAMI: 1}, annotations=said), "hami-vgpu", RULES, "hami-vgpu")

    assert done.after["metadata"]["annotations"] == said
    assert done.decision.warnings == []


def test_models_that_are_excluded_are_none_of_those_that_are_asked() -> None:
    said = {
        "nvidia.com/use-gputype": "A100",
        "nvidia.com/nouse-gputype": "NVIDIA A100-SXM4-40GB,NVIDIA A100-PCIE-40GB",
    }

    after = _converted(_pod({HAMI: 1}, annotations=said), "hami-vgpu", "koordinator")

    assert _selected(after) == {"node.koordinator.sh/gpu-model": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]}


def test_a_resource_that_no_rule_knows_stays_behind_on_no_container() -> None:
    pod = _pod({f"{KOORDINATOR}-shared": 1, f"{KOORDINATOR}-core": 50, f"{KOORDINATOR}-memory-ratio": 50})

    assert _refused(pod, "koordinator", "hami-vgpu").splitlines()[0] == (
        f'[GPU114] the container "main" asks for {KOORDINATOR}-shared, which looks like a GPU, and no rule knows it, '
        "so nothing counts it"
    )


def test_cards_of_another_vendor_are_named() -> None:
    assert _told(_pod({HAMI: 1}), "nvidia-gpu", "amd-gpu") == (
        {"amd.com/gpu": "1"},
        ["amd-gpu has cards of amd, nvidia-gpu of nvidia: programs for the ones may not run on the others"],
    )


def test_another_card_of_the_same_vendor_is_named_with_its_size() -> None:
    assert _told(_pod({"huawei.com/Ascend910A": 1}), "hami-ascend-910a", "hami-ascend-310p") == (
        {"huawei.com/Ascend310P": "1"},
        ["hami-ascend-910a gives Ascend910A (32Gi); hami-ascend-310p may give Ascend310P (21527Mi)"],
    )


def test_memory_in_percent_with_open_compute_leaves_compute_open() -> None:
    pod = _pod({HAMI: 1, f"{HAMI}mem-percentage": 40})

    assert _told(pod, "hami-vgpu", "koordinator") == (
        {f"{KOORDINATOR}.shared": "1", f"{KOORDINATOR}-memory-ratio": "40"},
        [],
    )


def test_compute_that_was_open_and_is_limited_is_named() -> None:
    pod = _pod({"aliyun.com/gpu-mem": 1})
    pod["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "Tesla-T4"}

    assert _told(pod, "aliyun-gpushare", "nvidia-mps") == (
        {HAMI: "1"},
        [
            "nvidia.com/gpu: 6.67% becomes 10%, rounded up by nvidia-mps",
            "aliyun-gpushare does not limit compute here, and nvidia-mps does: to 10%",
        ],
    )


def test_compute_alone_keeps_all_of_the_memory() -> None:
    pod = _pod({HAMI: 1, f"{HAMI}cores": 40})

    assert _limits(_converted(pod, "hami-vgpu", "koordinator")) == {
        f"{KOORDINATOR}.shared": "1",
        f"{KOORDINATOR}-core": "40",
        f"{KOORDINATOR}-memory-ratio": "100",
    }


def test_a_whole_card_that_becomes_a_virtual_one_is_named() -> None:
    _, warnings = _told(_pod({HAMI: 1}), "nvidia-gpu", "nvidia-grid")

    assert warnings == ["a device of nvidia-grid is a virtual card: it shares the compute of a card with neighbours"]


def test_a_label_that_tells_the_chip_is_read_as_the_chip() -> None:
    pod = _pod({"huawei.com/Ascend910": 1}, labels={"ring-controller.atlas": "ascend-910"})
    chips = ["Ascend910A (32Gi)", "Ascend910ProA (32Gi)", "Ascend910ProB (32Gi)"]

    assert _limits(_converted(pod, "ascend-910", "hami-ascend-910a")) == {"huawei.com/Ascend910A": "1"}
    assert _told(pod, "ascend-910", "hami-ascend-910b4")[1] == [
        f"ascend-910 gives {', '.join(chips)}; hami-ascend-910b4 may give Ascend910B4 (32Gi)"
    ]


def test_one_part_for_memory_and_compute_is_named() -> None:
    pod = _pod(
        {f"huawei.com/Ascend910B3{name}": value for name, value in (("", 1), ("-memory", 3000), ("-core", 50))}
    )
    pod["metadata"]["annotations"] = {"huawei.com/vnpu-mode": "hami-core"}

    assert _told(pod, "hami-ascend-soft", "ascend-vnpu-dynamic-910b") == (
        {"huawei.com/npu-core": "10"},
        ["ascend-vnpu-dynamic-910b gives one part of memory and compute: the larger of both"],
    )


def test_a_hardware_partition_that_becomes_a_share_is_named() -> None:
    pod = _pod({"huawei.com/npu-core": 2}, labels={"ring-controller.atlas": "ascend-310P"})

    assert (
        "a share of hami-vgpu is no hardware partition, by which ascend-vnpu-dynamic keeps memory and compute apart"
        in (_told(pod, "ascend-vnpu-dynamic", "hami-vgpu")[1])
    )
