"""What the choice of a back end is told of nodes, and what is kept of a node; transcripts show what nodes offer."""

from collections.abc import Mapping
from typing import Any

from tests import builders, tables
from tests.core import acme
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.core.rules.rulebook import Rulebook

T4 = {"nvidia.com/gpu.product": "Tesla-T4"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
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


def told(rulebook: Rulebook, *nodes: Object) -> tuple[dict[str, str], set[str]]:
    """The models that each back end is known to have, and the back ends that are there."""
    surroundings = inventory.surroundings(inventory.read(nodes, rulebook))
    models = {name: " ".join(card.model for card in cards) for name, cards in surroundings.cards.items()}
    return models, {*(surroundings.present or ())}


def test_the_card_that_every_node_has_is_known_to_be_the_back_ends() -> None:
    nodes = [
        node({"nvidia.com/gpu": "1"}, T4, name="a"),
        node({"nvidia.com/gpu": "4"}, T4, name="b"),
        node({"amd.com/gpu": "4"}, name="c"),
    ]

    assert told(TWINS, *nodes) == ({"nvidia-gpu": "T4", "twin": "T4"}, {"nvidia-gpu", "twin", "amd-gpu"})


def test_where_nodes_differ_all_cards_are_known_and_where_one_is_unknown_none() -> None:
    known, other, unknown = (
        node({"nvidia.com/gpu": "1"}, labels, name=name) for name, labels in (("a", T4), ("b", A100), ("c", {}))
    )

    assert told(NVIDIA, known, other) == ({"nvidia-gpu": "A100-80GB T4"}, {"nvidia-gpu"})
    assert told(NVIDIA, known, other, unknown) == ({}, {"nvidia-gpu"})


def test_a_pool_scaled_to_zero_is_nobodys_node() -> None:
    assert told(NVIDIA, node({})) == ({}, set())


def test_the_most_devices_of_a_node_are_known_if_those_of_every_node_are() -> None:
    whole = [node({"nvidia.com/gpu": number}, T4, name=number) for number in ("2", "8")]

    assert inventory.surroundings(inventory.read(whole, NVIDIA)).most == 8
    assert inventory.surroundings(inventory.read([], NVIDIA)).most == 0
