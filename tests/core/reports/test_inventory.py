"""What nodes offer and what pods ask, in one unit, whoever's nodes and pods they are."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests import builders
from tests.builders import container, pod
from tests.core import acme
from webhook.cli.inventory import Application, demand, overview
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.core.backends.charge import Measure
from webhook.core.inventory import Inventory, Offer
from webhook.core.rules.rulebook import Rulebook

GI = 1 << 30
MI = 1 << 20
T4 = {"nvidia.com/gpu.product": "Tesla-T4"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
HAMI = {"gpu": "on"}
MIXED = {"nvidia.com/mig.strategy": "mixed"}
QGPU_ENABLED = {"qgpu-device-enable": "enable"}

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


def cluster(*backends: str, more: Mapping[str, str] | None = None, **spec: str) -> Rulebook:
    """A cluster with just these shipped back ends, and those in `more`."""
    lines = "".join(f"  {key}: {value}\n" for key, value in spec.items())
    text = f"{acme.CLUSTER.partition('spec:')[0]}spec:\n  backends: [{', '.join(backends)}]\n{lines}"
    wanted = {f"{name}.yaml" for name in ("nvidia-gpu", *backends)}
    files = {
        name: text for name, text in builders.shipped_files().items() if name in wanted or name.startswith("catalog-")
    }
    return builders.rulebook({**files, "cluster.yaml": text, **(more or {})})


NVIDIA = cluster("nvidia-gpu", "hami-vgpu", "amd-gpu")
QGPU = cluster("tencent-qgpu")
MIG = cluster("nvidia-gpu", "nvidia-mig-mixed")


def one(raw: Object, rulebook: Rulebook) -> Offer:
    """The only offer of a node."""
    [found] = inventory.read([raw], rulebook).nodes.values()
    [offer] = found.offers.values()
    return offer


# Cards


@pytest.mark.parametrize(
    ("value", "model"),
    [
        ("Tesla-T4", "T4"),
        ("tesla-t4", "T4"),
        ("Tesla-T4-SHARED", "T4"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100-80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "A100-80GB"),
        ("Tesla-T4-SXM", None),
        ("", None),
    ],
)
def test_a_card_is_recognised_by_the_label_that_rules_select_it_by(value: str, model: str | None) -> None:
    offer = one(node({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.product": value}), NVIDIA)

    assert (offer.card.model if offer.card else None) == model


def test_a_card_is_not_guessed_from_its_memory() -> None:
    offer = one(node({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.memory": "15360"}), NVIDIA)

    assert offer == Offer(
        backend="nvidia-gpu",
        resources={"nvidia.com/gpu": 8},
        card=None,
        profile=None,
        devices=Fraction(8),
        memory=None,
    )


def test_where_no_label_names_the_card_the_cluster_document_does() -> None:
    offer = one(node({"nvidia.com/gpu": "8"}), cluster("nvidia-gpu", device="A100-80GB"))

    assert offer.card is not None
    assert (offer.card.model, offer.memory) == ("A100-80GB", 640 * GI)


def test_a_card_of_another_vendor_is_not_the_back_ends() -> None:
    nodes = [node({"nvidia.com/gpu": "1", "amd.com/gpu": "2"}, T4)]

    [found] = inventory.read(nodes, NVIDIA).nodes.values()

    models = {name: offer.card and offer.card.model for name, offer in found.offers.items()}
    assert models == {"nvidia-gpu": "T4", "amd-gpu": None}


ACCELERATOR = """
modes:
- name: whole cards
  when: {devices: whole}
  limits: {acme.example/card: count}
inject:
  nodeAffinity:
    acme.example/accelerator: {model: {values: {T4: acme-tesla-t4}}}
"""


def test_a_model_in_other_words_is_recognised_by_them() -> None:
    offer = one(
        node({"acme.example/card": 1}, {"acme.example/accelerator": "acme-tesla-t4"}), acme.rulebook(ACCELERATOR)
    )

    assert offer.card is not None
    assert offer.card.model == "T4"


# How many cards

PARTS = """
modes:
- limits:
    acme.example/slice: {share: {parts: 4, round: up}}
"""
MEMORY = """
modes:
- limits:
    acme.example/memory: {memory: {unit: GiB, round: up}}
nodes:
  devices: acme.example/cards
inject:
  nodeAffinity:
    acme.example/product: {product: {form: label}}
"""
A10 = {"acme.example/product": "NVIDIA-A10"}


@pytest.mark.parametrize(
    ("rulebook", "resources", "labels", "devices", "memory"),
    [
        pytest.param(NVIDIA, {"nvidia.com/gpu": "8"}, A100, 8, 640 * GI, id="a count"),
        pytest.param(NVIDIA, {"amd.com/gpu": "8"}, {}, 8, None, id="a count of unknown cards"),
        pytest.param(
            QGPU,
            {"tke.cloud.tencent.com/qgpu-core": "400", "tke.cloud.tencent.com/qgpu-memory": "60"},
            T4 | QGPU_ENABLED,
            4,
            60 * GI,
            id="percents of all cards",
        ),
        pytest.param(
            QGPU,
            {"tke.cloud.tencent.com/qgpu-core": "400", "tke.cloud.tencent.com/qgpu-memory": "60"},
            QGPU_ENABLED,
            4,
            60 * GI,
            id="the memory of unknown cards is what the node advertises",
        ),
        pytest.param(
            MIG, {"nvidia.com/mig-1g.10gb": "56"}, A100 | MIXED, 8, 640 * GI, id="eight cards, each in seven"
        ),
        pytest.param(
            MIG,
            {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-3g.40gb": "1"},
            A100 | MIXED,
            1,
            80 * GI,
            id="one card in four of three sizes",
        ),
        pytest.param(MIG, {"nvidia.com/mig-1g.5gb": "14"}, MIXED, 2, None, id="a partition that only one model has"),
        pytest.param(
            MIG, {"nvidia.com/mig-1g.10gb": "14"}, MIXED, None, None, id="a partition that several models have"
        ),
        pytest.param(
            NVIDIA,
            {"nvidia.com/gpu": "14"},
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
            2,
            160 * GI,
            id="partitions that only the label tells",
        ),
        pytest.param(acme.rulebook(PARTS), {"acme.example/slice": "32"}, {}, 8, None, id="slices of time"),
        pytest.param(
            acme.rulebook(MEMORY), {"acme.example/memory": "88"}, A10, 4, 4 * 23028 * MI, id="rounded memory"
        ),
        pytest.param(acme.rulebook(MEMORY), {"acme.example/memory": "88"}, {}, None, 88 * GI, id="memory alone"),
        pytest.param(
            acme.rulebook(MEMORY),
            {"acme.example/memory": "88"},
            {"acme.example/cards": "4"},
            4,
            88 * GI,
            id="the label that says it",
        ),
        pytest.param(
            acme.rulebook(MEMORY),
            {"acme.example/memory": "88", "acme.example/cards": "4"},
            {},
            4,
            88 * GI,
            id="the resource that says it",
        ),
    ],
)
def test_cards_are_counted_by_the_rule_read_backwards(
    rulebook: Rulebook,
    resources: Mapping[str, str],
    labels: Mapping[str, str],
    devices: int | None,
    memory: int | None,
) -> None:
    offer = one(node(resources, labels), rulebook)

    assert (offer.devices, offer.memory) == (devices, memory)


def test_without_allocatable_the_capacity_counts() -> None:
    raw = node({})
    raw["status"] = {"capacity": {"nvidia.com/gpu": "2"}}

    assert one(raw, NVIDIA).devices == 2


COUNTED = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Backend
metadata: {name: %s}
spec:
  description: cards that a label counts
  sharing: [exclusive]
  modes:
  - limits: {acme.example/%s: count}
  nodes: {devices: acme.example/cards}
  examples:
  - ask: {gpu: "1"}
    limits: {acme.example/%s: 1}
"""


def test_a_label_that_counts_the_cards_of_two_back_ends_is_not_counted_twice() -> None:
    more = {f"{name}.yaml": COUNTED % (name, name, name) for name in ("whole", "cut")}
    rulebook = cluster("whole", "cut", more=more)
    labels = {"acme.example/cards": "8"}

    alone = one(node({"acme.example/whole": "40"}, labels), rulebook)
    [both] = inventory.read(
        [node({"acme.example/whole": "5", "acme.example/cut": "3"}, labels)], rulebook
    ).nodes.values()

    assert alone.devices == 8
    assert {name: offer.devices for name, offer in both.offers.items()} == {"whole": 5, "cut": 3}


def test_a_label_that_only_marks_nodes_names_no_card() -> None:
    rulebook = acme.rulebook(
        """
        modes:
        - when: {models: [T4]}
          limits: {acme.example/card: count}
          nodeAffinity: {acme.example/enabled: "yes"}
        """
    )

    assert one(node({"acme.example/card": "1"}, {"acme.example/enabled": "yes"}), rulebook).card is None


# Whose nodes

SHARED = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Backend
metadata: {name: shared}
spec:
  extends: nvidia-gpu
  description: cards that are shared
  sharing: [exclusive]
  examples:
  - ask: {gpu: "1"}
    limits: {nvidia.com/gpu: 1}
  nodes:
    labels: {acme.example/shared: ["yes", "true"], acme.example/any: }
"""
TWINS = cluster(
    "nvidia-gpu", "twin", "amd-gpu", more={"twin.yaml": SHARED.partition("  nodes:")[0].replace("shared}", "twin}")}
)


@pytest.mark.parametrize(
    ("labels", "backend"),
    [
        ({}, "nvidia-gpu"),
        ({"acme.example/shared": "yes", "acme.example/any": "thing"}, "shared"),
        ({"acme.example/shared": "true", "acme.example/any": ""}, "shared"),
        ({"acme.example/shared": "no", "acme.example/any": "thing"}, "nvidia-gpu"),
        ({"acme.example/shared": "yes"}, "nvidia-gpu"),
    ],
)
def test_the_back_end_whose_labels_hold_has_the_resource_that_several_own(
    labels: Mapping[str, str], backend: str
) -> None:
    rulebook = cluster("nvidia-gpu", "shared", more={"shared.yaml": SHARED})

    assert one(node({"nvidia.com/gpu": "1"}, labels), rulebook).backend == backend


def test_where_labels_do_not_tell_the_clusters_order_does_and_the_node_belongs_to_both() -> None:
    [found] = inventory.read([node({"nvidia.com/gpu": "1"})], TWINS).nodes.values()

    assert list(found.offers) == ["nvidia-gpu"]
    assert found.belongs == {"nvidia-gpu", "twin"}


def test_a_node_marked_as_a_back_ends_is_not_one_of_those_that_need_no_mark() -> None:
    [found] = inventory.read([node({"nvidia.com/gpu": "40"}, T4 | HAMI)], NVIDIA).nodes.values()

    assert (list(found.offers), found.belongs) == (["hami-vgpu"], frozenset({"hami-vgpu"}))


def test_a_resource_that_nobody_claims_is_said() -> None:
    rulebook = cluster("shared", more={"shared.yaml": SHARED})

    [found] = inventory.read([node({"nvidia.com/gpu": "4"}), node({}, name="n2")], rulebook).nodes.values()

    assert (found.offers, found.unclaimed) == ({}, {"nvidia.com/gpu": 4})


@pytest.mark.parametrize(
    ("raw", "takes_pods"),
    [
        (node({"nvidia.com/gpu": "1"}), True),
        (node({"nvidia.com/gpu": "1"}, unschedulable=True), False),
        (
            node({"nvidia.com/gpu": "1"}) | {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            False,
        ),
    ],
)
def test_a_node_that_takes_no_pods_exists(raw: Object, *, takes_pods: bool) -> None:
    raw["status"] = {"allocatable": {"nvidia.com/gpu": "1"}, **raw["status"]}

    [found] = inventory.read([raw], NVIDIA).nodes.values()

    assert found.takes_pods == takes_pods
    assert found.offers["nvidia-gpu"].devices == 1


@pytest.mark.parametrize(
    "raw", [{}, {"metadata": None}, {"status": {"allocatable": {"nvidia.com/gpu": "many"}}}, {"status": []}]
)
def test_what_is_hardly_a_node_has_no_devices(raw: Object) -> None:
    assert inventory.read([raw], NVIDIA) == Inventory(nodes={}, others=1)


def test_a_node_cut_down_to_what_rules_ask_of_it_reads_the_same() -> None:
    labels = {**T4, "acme.example/shared": "yes", "kubernetes.io/hostname": "n1"}
    raw = node({"nvidia.com/gpu": "4"}, labels, unschedulable=True)
    raw["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "long"}]
    rulebook = cluster("nvidia-gpu", more={"shared.yaml": SHARED})

    pruned = inventory.pruned(raw, cards.labels(rulebook), rulebook)

    assert pruned == {
        "metadata": {"name": "n1", "labels": {**T4, "acme.example/shared": "yes"}},
        "spec": {"unschedulable": True},
        "status": {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert inventory.read([pruned], rulebook) == inventory.read([raw], rulebook)
    assert inventory.pruned(node({}), cards.labels(rulebook), rulebook) is None


# What the choice of a back end is told


def test_the_card_that_every_node_has_is_known_to_be_the_back_ends() -> None:
    nodes = [
        node({"nvidia.com/gpu": "1"}, T4, name="a"),
        node({"nvidia.com/gpu": "4"}, T4, name="b"),
        node({"amd.com/gpu": "4"}, name="c"),
    ]

    told = inventory.surroundings(inventory.read(nodes, TWINS))

    assert {name: card.model for name, card in told.cards.items()} == {"nvidia-gpu": "T4", "twin": "T4"}
    assert told.present == frozenset({"nvidia-gpu", "twin", "amd-gpu"})


def test_where_nodes_differ_no_card_is_known() -> None:
    nodes = [node({"nvidia.com/gpu": "1"}, T4, name="a"), node({"nvidia.com/gpu": "1"}, A100, name="b")]

    assert inventory.surroundings(inventory.read(nodes, NVIDIA)).cards == {}


def test_one_unknown_card_is_enough_to_know_none() -> None:
    nodes = [node({"nvidia.com/gpu": "1"}, T4, name="a"), node({"nvidia.com/gpu": "1"}, name="b")]

    assert inventory.surroundings(inventory.read(nodes, NVIDIA)).cards == {}


def test_a_pool_scaled_to_zero_is_nobodys_node() -> None:
    told = inventory.surroundings(inventory.read([node({})], NVIDIA))

    assert (told.cards, told.present) == ({}, frozenset())


# What pods ask


def placed(
    *containers: Object, on: str | None = "n1", phase: str = "Running", name: str = "train", **spec: Any
) -> Object:
    """A pod that is bound to a node, or waits for one."""
    raw = pod(*containers, **spec)
    raw["metadata"] = {"name": name, "namespace": "vision"}
    raw["status"] = {"phase": phase}
    if on is not None:
        raw["spec"]["nodeName"] = on
    return raw


def asked(raw: Object, nodes: Object, rulebook: Rulebook) -> dict[str, Measure]:
    """What a pod asks, by back end."""
    found = demand([raw], inventory.read([nodes], rulebook), rulebook)
    assert found.unread == []
    return {use.backend: use.asked for use in found.uses}


def measure(devices: str, memory: int, compute: int, unsized: str = "0") -> Measure:
    return Measure(devices=Fraction(devices), memory=memory, compute=Fraction(compute), unsized=Fraction(unsized))


QGPU_NODE = node({"tke.cloud.tencent.com/qgpu-core": "400"}, T4 | QGPU_ENABLED)
QGPU_PART = {"tke.cloud.tencent.com/qgpu-core": "30", "tke.cloud.tencent.com/qgpu-memory": "5"}


@pytest.mark.parametrize(
    ("rulebook", "on", "limits", "expected"),
    [
        pytest.param(
            NVIDIA,
            node({"nvidia.com/gpu": "8"}, T4),
            {"nvidia.com/gpu": "2"},
            {"nvidia-gpu": measure("2", 30 * GI, 200)},
            id="whole cards",
        ),
        pytest.param(
            NVIDIA,
            node({"nvidia.com/gpu": "8"}),
            {"nvidia.com/gpu": "2"},
            {"nvidia-gpu": measure("2", 0, 200, unsized="2")},
            id="whole cards nobody knows",
        ),
        pytest.param(
            NVIDIA,
            node({"nvidia.com/gpu": "8"}, T4),
            {"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "40", "nvidia.com/gpucores": "30"},
            {"hami-vgpu": measure("4/5", 12 * GI, 60)},
            id="shares, by percent",
        ),
        pytest.param(
            NVIDIA,
            node({"nvidia.com/gpu": "8"}, A100),
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"},
            {"hami-vgpu": measure("1/10", 8 * GI, 0)},
            id="shares, by size",
        ),
        pytest.param(
            QGPU, QGPU_NODE, QGPU_PART, {"tencent-qgpu": measure("1/3", 5 * GI, 30)}, id="the larger part is charged"
        ),
        pytest.param(
            QGPU,
            QGPU_NODE,
            {"tke.cloud.tencent.com/qgpu-core": "200"},
            {"tencent-qgpu": measure("2", 30 * GI, 200)},
            id="hundreds are whole cards",
        ),
        pytest.param(
            MIG,
            node({"nvidia.com/mig-3g.40gb": "2"}, A100 | MIXED),
            {"nvidia.com/mig-3g.40gb": "1"},
            {"nvidia-mig-mixed": Measure(devices=Fraction(1, 2), memory=40192 * MI, compute=Fraction(300, 7))},
            id="partitions",
        ),
        pytest.param(
            NVIDIA,
            node({"nvidia.com/gpu": "14"}, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}),
            {"nvidia.com/gpu": "1"},
            {
                "nvidia-gpu": Measure(devices=Fraction(1, 7), memory=9728 * MI, compute=Fraction(100, 7)),
            },
            id="partitions that only the node's label tells",
        ),
    ],
)
def test_what_a_pod_asks_is_in_one_unit(
    rulebook: Rulebook, on: Object, limits: Mapping[str, str], expected: Mapping[str, Measure]
) -> None:
    assert asked(placed(container(limits=limits)), on, rulebook) == expected


def test_containers_and_sidecars_add_up_and_each_init_container_runs_before_them() -> None:
    gpus = [{"nvidia.com/gpu": str(number)} for number in range(6)]
    raw = placed(
        container("a", limits=gpus[1]),
        container("b", limits=gpus[1]),
        initContainers=[
            container("first", limits=gpus[3]),
            container("sidecar", limits=gpus[2], restartPolicy="Always"),
            container("second", limits=gpus[3]),
        ],
    )

    assert asked(raw, node({"nvidia.com/gpu": "8"}, T4), NVIDIA)["nvidia-gpu"].devices == 5


def test_containers_of_two_systems_are_counted_apart() -> None:
    raw = placed(container("a", limits={"nvidia.com/gpu": "1"}), container("b", limits={"amd.com/gpu": "2"}))

    found = asked(raw, node({"nvidia.com/gpu": "1", "amd.com/gpu": "2"}, T4), NVIDIA)

    assert found == {"nvidia-gpu": measure("1", 15 * GI, 100), "amd-gpu": measure("2", 0, 200, unsized="2")}


def test_the_back_end_of_the_node_is_meant_where_several_could_be() -> None:
    rulebook = cluster("nvidia-gpu", "shared", more={"shared.yaml": SHARED})
    labels = {"acme.example/shared": "yes", "acme.example/any": ""}

    assert list(
        asked(placed(container(limits={"nvidia.com/gpu": "1"})), node({"nvidia.com/gpu": "1"}, labels), rulebook)
    ) == ["shared"]


def test_a_pod_that_asks_in_the_words_of_another_system_takes_from_whoever_has_the_node() -> None:
    known = inventory.read([node({"nvidia.com/gpu": "4"}, T4)], NVIDIA)
    raw = placed(container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1536"}))
    found = demand([raw], known, NVIDIA)

    [use] = found.uses
    assert (use.backend, use.holder, use.asked) == ("hami-vgpu", "nvidia-gpu", measure("1/10", 1536 * MI, 0))
    [row] = overview(known, found, NVIDIA).per_node
    assert row.free == measure("39/10", 60 * GI - 1536 * MI, 400)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_asks_nothing(phase: str) -> None:
    assert asked(placed(container(limits={"nvidia.com/gpu": "1"}), phase=phase), node({}), NVIDIA) == {}


def test_a_pod_that_waits_asks_of_the_card_that_every_node_has() -> None:
    waits = placed(container(limits={"nvidia.com/gpu": "1"}), on=None, phase="Pending")
    found = demand([waits], inventory.read([node({"nvidia.com/gpu": "1"}, T4)], NVIDIA), NVIDIA)

    [use] = found.uses
    assert (use.node, use.asked) == (None, measure("1", 15 * GI, 100))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"tke.cloud.tencent.com/qgpu-core": "33", "tke.cloud.tencent.com/qgpu-memory": "5"},
            "tke.cloud.tencent.com/qgpu-core: 33 is not a multiple of 5",
        ),
        ({"nvidia.com/gpu": "1"}, "no enabled back end owns nvidia.com/gpu"),
    ],
)
def test_a_pod_that_nobody_can_read_is_said_and_not_counted(limits: Mapping[str, str], message: str) -> None:
    found = demand([placed(container(limits=limits))], inventory.read([QGPU_NODE], QGPU), QGPU)

    assert found.uses == []
    assert [(one.namespace, one.pod, one.message) for one in found.unread] == [("vision", "train", message)]


@pytest.mark.parametrize(
    ("owners", "labels", "application"),
    [
        ([], {}, ("Pod", "train")),
        ([("ReplicaSet", "web-6d4cf56db6")], {"pod-template-hash": "6d4cf56db6"}, ("Deployment", "web")),
        ([("ReplicaSet", "web-6d4cf56db6")], {}, ("Deployment", "web")),
        ([("StatefulSet", "db")], {}, ("StatefulSet", "db")),
        ([("Job", "fit-1")], {}, ("Job", "fit-1")),
        ([("PyTorchJob", "fit")], {}, ("PyTorchJob", "fit")),
    ],
)
def test_a_pod_belongs_to_the_workload_that_controls_it(
    owners: list[tuple[str, str]], labels: Mapping[str, str], application: tuple[str, str]
) -> None:
    raw = placed(container(limits={"nvidia.com/gpu": "1"}))
    references = [{"kind": kind, "name": name, "controller": True} for kind, name in owners]
    raw["metadata"] |= {
        "labels": labels,
        "ownerReferences": [{"kind": "Team", "name": "vision"}, *references],
    }

    [use] = demand([raw], inventory.read([], NVIDIA), NVIDIA).uses

    assert use.application == Application("vision", *application)


# Together


def test_everything_comes_together_in_one_contract() -> None:
    nodes = [
        node({"nvidia.com/gpu": "4"}, T4, name="a"),
        node({"nvidia.com/gpu": "4"}, T4, name="b", unschedulable=True),
        node({}, name="c"),
    ]
    pods = [
        placed(container(limits={"nvidia.com/gpu": "3"}), on="a", name="one"),
        placed(container(limits={"nvidia.com/gpu": "1"}), on="b", name="two"),
        placed(container(limits={"nvidia.com/gpu": "1"}), on=None, name="three"),
    ]
    rulebook = cluster("nvidia-gpu")
    known = inventory.read(nodes, rulebook)

    contract = overview(known, demand(pods, known, rulebook), rulebook).contract()

    def plain(devices: int) -> Object:
        memory = devices * 15 * GI
        return {"devices": devices, "memoryBytes": memory, "computePercent": 100 * devices, "unsizedDevices": 0}

    both = {"exists": plain(8), "asked": plain(4), "free": plain(1)}
    assert contract["total"] == {**both, "waiting": plain(1)}
    assert contract["cards"] == [{"model": "T4", "nodes": 2, **both}]
    assert contract["backends"] == [{"name": "nvidia-gpu", "nodes": 2, **both}]
    assert [(row["node"], row["schedulable"], row["free"]) for row in contract["perNode"]] == [
        ("a", True, plain(1)),
        ("b", False, plain(0)),
    ]
    assert contract["applications"] == [
        {
            "namespace": "vision",
            "kind": "Pod",
            "name": name,
            "backends": ["nvidia-gpu"],
            "pods": 1,
            "asked": plain(asked),
            "waiting": plain(waiting),
        }
        for name, asked, waiting in (("one", 3, 0), ("three", 0, 1), ("two", 1, 0))
    ]
    assert (contract["nodes"], contract["nodesWithoutDevices"]) == (2, 1)
