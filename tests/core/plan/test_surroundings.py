"""What the nodes decide: ties, sizes of cards, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests import builders, tables
from tests.core import acme
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.rules.rulebook import Surroundings


@tables.rows
def test_of_back_ends_that_are_as_good_as_each_other_one_with_nodes_is_taken(
    cluster: str, present: list[str], labels: Mapping[str, str], serves: str
) -> None:
    """`tied` they are as good as each other, `ranked` the cluster says which comes first."""
    tied = "backends: [nvidia-gpu, [tencent-qgpu, hami-vgpu]], defaults: {whole: nvidia-gpu}"
    clusters = {
        "tied": tied,
        "ranked": tied.replace("[tencent-qgpu, hami-vgpu]", "tencent-qgpu, hami-vgpu"),
        "tied with a default": tied.replace("whole: nvidia-gpu", "part: tencent-qgpu"),
    }
    book = builders.rulebook({**builders.shipped_files(), "cluster.yaml": builders.cluster(clusters[cluster])})
    book = replace(book, surroundings=Surroundings(present=frozenset(present)))

    planned = plan.make(pod.read(builders.pod(labels=labels)), book)

    assert [served.backend.name for served in planned.assignments] == [serves]


REQUIRED = """
nodes: {required: true}
modes:
- when: {devices: whole}
  limits: {acme.example/card: count}
"""


@pytest.mark.parametrize(
    ("present", "serves"), [(None, ["acme"]), (frozenset(), []), (frozenset({"acme"}), ["acme"])]
)
def test_a_rule_that_requires_nodes_serves_only_if_one_is_known(
    present: frozenset[str] | None, serves: list[str]
) -> None:
    book = replace(acme.rulebook(REQUIRED), surroundings=Surroundings(present=present))

    planned = plan.make(pod.read(builders.pod(labels={"gpu": "1"})), book)

    assert [served.backend.name for served in planned.assignments] == serves
    assert [violation.message for violation in planned.violations] == (
        [] if serves else ["acme cannot serve gpu=1: no node of this cluster has it"]
    )


SIZED = """
modes:
- when: {devices: part}
  limits: {acme.example/card: count, acme.example/memory: {memory: {unit: MiB, round: up}}}
"""


def test_a_share_is_of_the_card_that_all_nodes_of_the_back_end_have() -> None:
    book = acme.rulebook(SIZED)
    known = replace(book, surroundings=Surroundings(cards={"acme": [book.devices["t4"]]}))

    [served] = plan.make(pod.read(builders.pod(labels={"gpu": "0.5"})), known).assignments

    assert served.amounts == {"acme.example/card": 1, "acme.example/memory": 7680}


def test_the_model_asked_for_counts_before_the_card_of_the_nodes() -> None:
    book = acme.rulebook(SIZED + "inject: {nodeAffinity: {acme.example/model: {model: {}}}}")
    known = replace(book, surroundings=Surroundings(cards={"acme": [book.devices["t4"]]}))

    [served] = plan.make(pod.read(builders.pod(labels={"gpu": "0.5", "gpu-model": "A100-40GB"})), known).assignments

    assert served.amounts["acme.example/memory"] == 20480


@tables.rows
def test_more_devices_than_a_node_has_are_warned_of(most: int, gpu: str, fix: str | None) -> None:
    book = replace(builders.rulebook(builders.shipped_files()), surroundings=Surroundings(most=most))

    planned = plan.make(pod.read(builders.pod(annotations={"gpu": gpu})), book)

    asked = gpu.partition("x")[0]
    where = "metadata.annotations.gpu"
    told = [f"{fix}: no node that is known has {asked} devices ({where})"] if fix else []
    assert [warning for warning in planned.warnings if "no node" in warning] == told
