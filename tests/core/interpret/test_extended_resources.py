"""Pods in the words of a back end: whose they are, what they hold, and what they cannot talk their way out of."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.edited import edited
from webhook.cli.explanation import explain
from webhook.core.kube import pod
from webhook.core.mutate import mutate
from webhook.core.plan import plan
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

SHIPPED = builders.rulebook(builders.shipped_files())
SHARING = "nvidia.com/gpu.sharing-strategy"


def _cluster(*backends: str, device: str | None = None) -> Rulebook:
    cluster = replace(SHIPPED.cluster, backends=backends, tiers={}, whole=None, part=None, device=device)
    indexed = rulebook.index(cluster, SHIPPED.backends, SHIPPED.devices, SHIPPED.digest)
    return replace(indexed, workloads=SHIPPED.workloads)


def _planned(raw: Mapping[str, Any], rulebook: Rulebook) -> plan.Plan:
    return plan.make(pod.read(raw), rulebook)


def _selecting(operator: str) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": SHARING, "operator": operator}]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def test_a_slice_of_time_stays_on_nodes_that_slice_whatever_the_pod_says_of_them() -> None:
    raw = builders.pod(builders.container(limits={"nvidia.com/gpu": "1"}))
    raw["spec"] |= _selecting("Exists")

    after = edited(_planned(raw, _cluster("nvidia-time-slicing")).edits, raw)

    affinity = after["spec"]["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": SHARING, "operator": "Exists"},
                {"key": SHARING, "operator": "In", "values": ["time-slicing"]},
            ]
        }
    ]


def test_a_resource_of_a_system_that_is_not_here_does_not_stand_beside_the_shorthand() -> None:
    raw = builders.pod(builders.container(limits={"habana.ai/gaudi": "1"}), labels={"gpu": "1"})

    [violation] = _planned(raw, SHIPPED).violations

    assert (violation.code, violation.message) == (
        "GPU405",
        "habana.ai/gaudi belongs to intel-gaudi, which this cluster does not enable, and stands beside the shorthand",
    )


def test_nothing_of_a_resource_beside_a_share_in_annotations_is_no_second_container() -> None:
    zero = builders.container("other", limits={"nvidia.com/gpu": "0"})
    raw = builders.pod(builders.container("main"), zero, labels={"gpu": "0.3"})
    rules = _cluster("kai")

    first = edited(_planned(raw, rules).edits, raw)

    assert first["metadata"]["annotations"]["gpu-fraction-container-name"] == "main"
    assert _planned(first, rules).violations == []
    assert validate(builders.creating(first), rules).allowed


@pytest.mark.parametrize(("fraction", "let"), [("0.3", True), ("0.1", False)])
def test_a_replica_that_lacks_a_back_end_hears_what_its_annotations_give(fraction: str, *, let: bool) -> None:
    raw = builders.pod(labels={"gpu": "0.3"})
    translated = edited(_planned(raw, _cluster("kai")).edits, raw)
    translated["metadata"]["annotations"]["gpu-fraction"] = fraction

    assert validate(builders.creating(translated), _cluster("nvidia-gpu")).allowed is let


def test_a_slice_asked_for_by_size_counts_as_the_slice() -> None:
    rules = _cluster("hami-mig", device="A100-40GB")
    raw = builders.pod(
        builders.container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}),
        annotations={"nvidia.com/vgpu-mode": "mig"},
    )

    [explanation] = explain({"kind": "Pod", **raw}, rules)

    assert explanation.charges == {"main": Fraction(1, 7)}


def test_no_gpu_in_a_containers_resources_stays_said_when_they_are_gone() -> None:
    raw = builders.pod(builders.container(limits={"gpu": "0"}), labels={"gpu-memory": "8Gi"})

    first = edited(_planned(raw, SHIPPED).edits, raw)

    assert first["metadata"]["annotations"]["gpu.gpu-webhook.io/main"] == "none"
    assert _planned(first, SHIPPED).edits == []
    assert validate(builders.creating(first), SHIPPED).allowed


def test_who_names_a_back_end_cannot_keep_off_its_nodes_and_count_as_there() -> None:
    elsewhere = _selecting("DoesNotExist")
    whole = builders.container(limits={"nvidia.com/gpu": "1"})
    rules = _cluster("nvidia-time-slicing", "nvidia-gpu")
    said = {"gpu-backend": "nvidia-time-slicing"}

    named = mutate(builders.creating(builders.pod(whole, labels=said, **elsewhere)), rules)

    assert [violation.code for violation in named.violations] == ["GPU502"]
    assert mutate(builders.creating(builders.pod(whole, **elsewhere)), rules).allowed


@tables.rows
def test_more_decimals_than_a_system_has_are_refused_in_its_own_unit(fraction: str, fix: str) -> None:
    raw = builders.pod(annotations={"gpu-fraction": fraction})

    (violation,) = mutate(builders.creating(raw), rulebook.with_only("kai", SHIPPED)).violations

    assert (violation.code, violation.path, violation.fix) == ("GPU402", "metadata.annotations.gpu-fraction", fix)
    assert violation.message == f"annotation gpu-fraction: {fraction} has more than 9 decimals"
