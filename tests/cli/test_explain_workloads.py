"""`gpu-webhook explain` of everything that makes pods: one object of each kind that a shipped document is about."""

import copy
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.cli.program import SHIPPED as SHIPPED_RULES
from tests.cli.program import Ran, run
from webhook.cli import explanation

MANIFEST = Path(__file__).with_name("workloads") / "every-kind.yaml"
OBJECTS: list[Any] = list(yaml.safe_load_all(MANIFEST.read_text()))
SHIPPED = builders.rulebook(builders.shipped_files())

CARDS = {
    "RayCluster cluster": "1x1 64x8 8x1",
    "RayJob job": "1x1 2x4 1x1",
    "RayCronJob nightly": "1x1 2x4 1x1",
    "RayService service": "1x1 3x2",
    "PyTorchJob torch": "1x8 3x8",
    "TFJob tensors": "4x2",
    "XGBoostJob trees": "2x1",
    "PaddleJob paddle": "2x1",
    "JAXJob jax": "2x1",
    "MPIJob mpi": "1x1 16x8",
    "TrainJob trainer": "4x8",
    "ClusterTrainingRuntime torch": "0x1",
    "TrainingRuntime torch": "0x1",
    "Notebook notebook": "1x1",
    "SparkApplication spark": "1x1 5x2",
    "JobSet set": "8x8",
    "LeaderWorkerSet groups": "4x1 28x8",
    "LeaderWorkerSet alike": "6x8",
    "Job volcano": "1x1 8x8",
    "AscendJob ascend": "1x1 7x1",
    "InferenceService model": "2x8 4x8 1x1 2x1",
    "ServingRuntime runtime": "0x1",
    "ClusterServingRuntime runtime": "0x1",
    "LLMInferenceService llm": "2x8 6x8 3x4 3x4",
    "PodCliqueSet cliques": "6x1 40x8",
    "Workflow flow-": "1x1 1x2",
    "WorkflowTemplate flow": "0x1",
    "ClusterWorkflowTemplate flow": "0x1",
    "CronWorkflow flow": "1x1",
    "TaskRun task": "1x2",
}
"""By object, how many pods of each template there are, and how many devices each is charged."""


def test_every_pod_of_every_kind_is_explained() -> None:
    found: dict[str, str] = {}
    for raw in OBJECTS:
        explained = explanation.explain(raw, SHIPPED)
        assert [one.decision.violations for one in explained] == [()] * len(explained)
        pods = " ".join(f"{one.pods}x{sum(one.charges.values(), Fraction())}" for one in explained)
        metadata = raw["metadata"]
        found[f"{raw['kind']} {metadata.get('name') or metadata['generateName']}"] = pods

    assert found == CARDS


def test_every_kind_that_a_shipped_document_says_pods_of_stands_in_the_manifest() -> None:
    known = {key for key, each in SHIPPED.workloads.items() if each.pods and each.name}
    there = {(raw["apiVersion"].rpartition("/")[0], raw["kind"]) for raw in OBJECTS}

    assert there == known


def test_every_shipped_document_with_pods_says_where_its_kind_is_defined() -> None:
    sources = {each.name: each.source for each in SHIPPED.workloads.values() if each.pods and each.name}

    assert [name for name, source in sources.items() if not source.startswith("https://github.com/")] == []


OTHERS: tuple[Any, ...] = (0, "many", [], {}, None, True, -1, 2.5, [[]], {"a": 1}, [{"name": 5}], 10**30)


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*place, key)
        yield from _places(inner, (*place, key))


def _changed(value: Any, place: tuple[str | int, ...], other: Any) -> Any:
    if not place:
        return other
    changed = copy.copy(value)
    changed[place[0]] = _changed(value[place[0]], place[1:], other)
    return changed


@pytest.mark.parametrize("raw", OBJECTS, ids=lambda raw: str(raw["kind"]))
def test_whatever_stands_anywhere_in_an_object_it_is_explained_or_refused_with_a_path(raw: Any) -> None:
    for count, place in enumerate(place for place in _places(raw) if place[0] not in {"apiVersion", "kind"}):
        for other in (OTHERS[count % len(OTHERS)], OTHERS[-count % len(OTHERS)]):
            for one in explanation.explain(_changed(raw, place, other), SHIPPED):
                assert all(violation.path for violation in one.decision.violations)


def shipped(text: str, *options: str) -> Ran:
    return run("explain", "-", "--rules", SHIPPED_RULES, *options, given=text)


POLICY = """
---
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {name: vision}
spec: {namespaces: {names: [default]}, quota: {devices: 600}}
"""


def test_sixty_four_workers_of_eight_cards_are_512_in_a_forecast() -> None:
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    limits = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    worker = {"replicas": 64, "template": {"spec": {"containers": [{"name": "worker", "image": "ray", **limits}]}}}
    spec = {"headGroupSpec": head, "workerGroupSpecs": [worker, worker]}
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "train"}, "spec": spec}

    ran = shipped(yaml.safe_dump(cluster) + POLICY, "-o", "json")

    tenants = [one["tenant"] for one in ran.json]
    assert [tenant["totals"].get("devices") for tenant in tenants] == [
        None,
        {"used": 0, "asked": 512, "limit": 600, "left": 88},
        {"used": 512, "asked": 512, "limit": 600, "left": -424},
    ]
    assert [(tenant["pods"], tenant["fit"]) for tenant in tenants] == [(1, None), (64, 75), (64, 11)]


def test_a_template_of_which_there_are_no_pods_asks_nothing_of_a_full_quota() -> None:
    runtime = next(raw for raw in OBJECTS if raw["kind"] == "TrainingRuntime")

    ran = shipped(yaml.safe_dump(runtime) + POLICY.replace("600", "0"), "-o", "json")

    assert (ran.code, ran.json["allowed"], ran.json["tenant"]["pods"]) == (0, True, 0)


def test_an_unknown_kind_beside_others_is_said_and_is_exit_code_1() -> None:
    pod = "{kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}]}}"
    unknown = "{apiVersion: acme.example/v1, kind: Training, metadata: {name: b}, spec: {template: {spec: {}}}}"

    ran = shipped(f"{pod}\n---\n{unknown}\n")

    assert ran.code == 1
    assert ran.out.partition("Training b\n")[2] == (
        "  denied\n"
        "    [GPU004] no rule says whether a Training of acme.example/v1 holds pods\n"
        "      at   kind\n"
        "      fix  write a Workload document for it, which may say that there are none (rules/README.md)\n"
    )
