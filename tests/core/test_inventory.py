"""What the choice of a back end is told of nodes, and what is kept of a node; transcripts show what nodes offer."""

from collections.abc import Mapping
from typing import Any

from tests import builders, tables
from tests.core import acme
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.core.rules.rulebook import Rulebook

T4 = {"nvidia.com/gpu.product": "Tesla-T4"}
MARKED: str = tables.table(__file__, "marked")

Object = dict[str, Any]


def node(
    resources: Mapping[str, Any], labels: Mapping[str, str] | None = None, name: str = "n1", **spec: Any
) -> Object:
    """A node that advertises these resources."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "pods": "110", **resources}},
    }


def cluster(*backends: str, **more: str) -> Rulebook:
    """A cluster with just these back ends: shipped ones, and those in `more`."""
    text = f"{acme.CLUSTER.partition('spec:')[0]}spec: {{backends: [{', '.join(backends)}]}}\n"
    files = {
        name: text
        for name, text in builders.shipped_files().items()
        if name.startswith("catalog-") or name.removesuffix(".yaml") in {"nvidia-gpu", *backends}
    }
    return builders.rulebook({**files, "cluster.yaml": text, **{f"{name}.yaml": text for name, text in more.items()}})


NVIDIA = cluster("nvidia-gpu", "hami-vgpu", "amd-gpu")
TWINS = cluster("nvidia-gpu", "twin", "amd-gpu", twin=MARKED.partition("  nodes:")[0].replace("marked}", "twin}"))


def test_a_node_belongs_to_all_back_ends_that_no_label_tells_apart_and_to_the_one_whose_mark_it_has() -> None:
    [unmarked] = inventory.read([node({"nvidia.com/gpu": "1"})], TWINS).nodes.values()
    [marked] = inventory.read([node({"nvidia.com/gpu": "40"}, T4 | {"gpu": "on"})], NVIDIA).nodes.values()

    assert (list(unmarked.offers), {*unmarked.belongs}) == (["nvidia-gpu"], {"nvidia-gpu", "twin"})
    assert (list(marked.offers), {*marked.belongs}) == (["hami-vgpu"], {"hami-vgpu"})


def test_a_node_cut_down_to_what_rules_ask_of_it_reads_the_same() -> None:
    labels = {**T4, "acme.example/shared": "yes", "kubernetes.io/hostname": "n1"}
    raw = node({"nvidia.com/gpu": "4"}, labels, unschedulable=True)
    raw["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "long"}]
    rulebook = cluster("nvidia-gpu", marked=MARKED)

    pruned = inventory.pruned(raw, cards.labels(rulebook), rulebook)

    assert pruned == {
        "metadata": {"name": "n1", "labels": {**T4, "acme.example/shared": "yes"}},
        "spec": {"unschedulable": True},
        "status": {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert inventory.read([pruned], rulebook) == inventory.read([raw], rulebook)
    assert inventory.pruned(node({}), cards.labels(rulebook), rulebook) is None


@tables.rows
def test_what_the_choice_is_told(twins: bool, nodes: list[Object], models: Object, present: list[str]) -> None:  # noqa: FBT001
    """The models that each back end is known to have, and the back ends that are there."""
    rulebook = TWINS if twins else NVIDIA
    surroundings = inventory.surroundings(inventory.read([node(**fields) for fields in nodes], rulebook))

    assert {name: " ".join(card.model for card in of) for name, of in surroundings.cards.items()} == models
    assert {*(surroundings.present or ())} == {*present}


def test_the_most_devices_of_a_node_are_known_if_those_of_every_node_are() -> None:
    whole = [node({"nvidia.com/gpu": number}, T4, name=number) for number in ("2", "8")]

    assert inventory.surroundings(inventory.read(whole, NVIDIA)).most == 8
    assert inventory.surroundings(inventory.read([], NVIDIA)).most == 0
