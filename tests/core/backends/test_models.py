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

from tests import builders
from webhook.core.backends import cards
from webhook.core.mutate import mutate
from webhook.core.rules.catalog import Card

RULES = builders.rulebook(builders.shipped_files())


def _read(name: str) -> list[str]:
    return [card.model for card in cards.read_model(name, RULES)]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "A100-40GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("NVIDIA-H100-NVL", "H100-94GB"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-L40S", "L40S"),
        ("Tesla-T4", "T4"),
        ("Tesla-T4-SHARED", "T4"),
        ("Tesla-V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA-GeForce-RTX-4090", "RTX-4090"),
        ("NVIDIA-GeForce-RTX-5090", "RTX-5090"),
        ("NVIDIA-RTX-A6000", "RTX-A6000"),
        ("NVIDIA-RTX-6000-Ada-Generation", "RTX-6000-Ada"),
        ("NVIDIA-L2", "L2"),
        ("NVIDIA-L20", "L20"),
        ("NVIDIA-H20", "H20"),
        ("NVIDIA-H20-3e", "H20-3e"),
        ("Tesla-P4", "P4"),
        ("Tesla-P40", "P40"),
    ],
)
def test_what_nvidias_feature_discovery_writes_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("AMD_Instinct_MI300X", "MI300X"),
        ("AMD_Instinct_MI300X_HF", "MI300X"),
        ("AMD_Instinct_MI300A", "MI300A"),
        ("AMD_Instinct_MI308X", "MI308X"),
        ("AMD_Instinct_MI325X", "MI325X"),
        ("AMD_Instinct_MI350X", "MI350X"),
        ("AMD_Instinct_MI355X", "MI355X"),
        ("AMD_Instinct_MI210", "MI210"),
        ("Instinct_MI210", "MI210"),
        ("AMD_Instinct_MI250X", "MI250X"),
    ],
)
def test_what_amds_node_labeller_writes_is_read(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("910A", "Ascend910A"),
        ("910ProA", "Ascend910ProA"),
        ("910ProB", "Ascend910ProB"),
        ("910B2", "Ascend910B2"),
        ("910B3", "Ascend910B3"),
        ("910B4", "Ascend910B4"),
        ("310P3", "Ascend310P"),
    ],
)
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


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("nvidia a100 sxm4 80gb", "A100-80GB"),
        ("a100_80gb", "A100-80GB"),
        ("A100-SXM4-80GB", "A100-80GB"),
        ("Tesla T4", "T4"),
        ("nvidia-tesla-t4", "T4"),
        ("t4", "T4"),
        ("GeForce RTX 4090", "RTX-4090"),
        ("Instinct MI300X OAM", "MI300X"),
        ("ascend910b3", "Ascend910B3"),
    ],
)
def test_capitals_spaces_and_dashes_make_no_difference(name: str, model: str) -> None:
    assert _read(name) == [model]


@pytest.mark.parametrize(
    "card", {card.model: card for card in RULES.devices.values()}.values(), ids=lambda c: c.model
)
def test_every_product_name_of_every_catalogue_is_read(card: Card) -> None:
    for name in card.names:
        for written in (name, name.lower(), name.replace(" ", "-"), name.replace(" ", "_")):
            assert card.model in _read(written)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("A100", ["A100-40GB", "A100-80GB"]),
        ("v100", ["V100-16GB", "V100-32GB"]),
        ("H100", ["H100-80GB", "H100-94GB"]),
    ],
)
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


@pytest.mark.parametrize(
    ("labels", "fix"),
    [
        ({"gpu-profile": "1g.6gb"}, "ask for gpu-memory: 5836Mi instead of gpu-profile"),
        (
            {"gpu-profile": "1g.10gb", "gpu-model": "A100-40GB"},
            "ask for gpu-memory: 9856Mi instead of gpu-profile",
        ),
        ({"gpu-profile": "vir02"}, 'ask for gpu: "1" instead of gpu-profile'),
        ({"gpu-claim": "mine"}, 'ask for what the claim has, as gpu: "1", instead of gpu-claim'),
    ],
)
def test_where_there_are_no_partitions_the_memory_of_one_is_asked_for(labels: dict[str, str], fix: str) -> None:
    (violation,) = mutate(builders.creating(builders.pod(labels=labels)), RULES).violations

    assert violation.fix == fix


def test_a_name_that_nobody_knows_gets_the_nearest_cards_that_this_cluster_can_serve() -> None:
    pod = builders.pod(labels={"gpu": "1", "gpu-model": "MI300Z"})

    (violation,) = mutate(builders.creating(pod), RULES).violations

    assert violation.fix.startswith("ask for one of: MI300X, A10, A100-40GB, ")
    assert "Ascend" not in violation.fix
