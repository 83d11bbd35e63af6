"""Cards by the names that vendors' labellers, drivers and people give them.

NVIDIA: `nvidia.com/gpu.product` of GPU feature discovery, the driver's name with dashes (NVIDIA/k8s-device-plugin,
internal/lm/resource.go), with `-SHARED` or `-MIG-<profile>` behind it; `cloud.google.com/gke-accelerator` is another.
AMD: `amd.com/gpu.product-name` of the node labeller (ROCm/k8s-device-plugin, cmd/k8s-node-labeller: main_test.go,
amdgpu.ids; docs/user-guide/installation.md), spaces as underscores. Huawei: `node.kubernetes.io/npu.chip.name` of
Ascend Device Plugin (Ascend/mind-cluster, docs, Kubernetes objects). Intel: `gpu.intel.com/product` of the NFD rules
of intel/intel-device-plugins-for-kubernetes. Amazon: `karpenter.k8s.aws/instance-accelerator-name` of Karpenter.
Intel's Gaudi has no label with a name, and the other vendors' plugins document none. HAMi: `nvidia.com/use-gputype`
takes the driver's name.
"""

import pytest

from tests import builders, tables
from webhook.core.backends import cards
from webhook.core.mutate import mutate
from webhook.core.rules.catalog import Card

RULES = builders.rulebook(builders.shipped_files())


def _read(name: str) -> list[str]:
    return [card.model for card in cards.read_model(name, RULES)]


@tables.rows
def test_what_nvidias_feature_discovery_writes_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@tables.rows
def test_what_amds_node_labeller_writes_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@tables.rows
def test_what_ascend_device_plugin_writes_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    ("name", "model"),
    [("Flex_140", "Flex-140"), ("Flex_170", "Flex-170"), ("Max_1100", "Max-1100"), ("Max_1550", "Max-1550")],
)
def test_what_intels_node_features_write_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    ("name", "model"), [("inferentia", "Inferentia"), ("inferentia2", "Inferentia2"), ("trainium", "Trainium")]
)
def test_what_karpenter_writes_of_neuron_devices_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@tables.rows
def test_capitals_spaces_and_dashes_make_no_difference(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    "card", {card.model: card for card in RULES.devices.values()}.values(), ids=lambda c: c.model
)
def test_every_product_name_of_every_catalogue_is_read(card: Card) -> None:
    for name in card.names:
        for written in (name, name.lower(), name.replace(" ", "-"), name.replace(" ", "_")):
            assert card.model in _read(written)


@tables.rows
def test_a_name_without_a_size_is_every_size(name: str, sizes: list[str]) -> None:
    assert _read(name) == sizes


@pytest.mark.parametrize("name", ["", "A", "nvidia", "tesla", "AMD-T4", "A100-99GB", "T44"])
def test_other_names_are_no_cards(name: str) -> None:
    assert _read(name) == []


def test_an_amount_that_needs_one_size_lists_the_sizes() -> None:
    pod = builders.pod(labels={"gpu": "0.5", "gpu-model": "A100", "gpu-backend": "tencent-qgpu"})

    (violation,) = mutate(builders.creating(pod), RULES).violations

    assert violation.message.endswith("depends on the card, and A100-40GB and A100-80GB have different memory")
    assert violation.fix == "ask for gpu-model: A100-40GB, A100-80GB, or add gpu-memory: 8Gi"


@tables.rows
def test_where_there_are_no_partitions_the_memory_of_one_is_asked_for(labels: dict[str, str], fix: str) -> None:
    (violation,) = mutate(builders.creating(builders.pod(labels=labels)), RULES).violations

    assert violation.fix == fix


def test_a_name_that_nobody_knows_gets_the_nearest_cards_that_this_cluster_can_serve() -> None:
    pod = builders.pod(labels={"gpu": "1", "gpu-model": "MI300Z"})

    (violation,) = mutate(builders.creating(pod), RULES).violations

    assert violation.fix.startswith("ask for one of: MI300X, A10, A100-40GB, ")
    assert "Ascend" not in violation.fix
