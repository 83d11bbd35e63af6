"""`explain --to`: a pod of one system, rewritten for another; exact for the pairs listed here."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import builders
from webhook.core.reports import convert

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

    assert _limits(after) == {HAMI: "1", f"{HAMI}mem-percentage": "30", f"{HAMI}cores": "30"}
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
