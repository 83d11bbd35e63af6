"""The shipped catalogues: what they say of a card holds together, and every card people have is known."""

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
import yaml

from tests import builders, tables
from webhook.core.kube.quantity import MIB
from webhook.core.rules.catalog import Card, Profile

DEVICES = builders.rulebook(builders.shipped_files()).devices
CARDS = list({card.model: card for card in DEVICES.values()}.values())


UNSERVED = {"graphcore", "qualcomm", "tenstorrent"}
"""Vendors of whom only the names of resources are known."""


def cards_that(break_the_law: Callable[[Card], bool]) -> list[str]:
    """The cards of which this is true."""
    return [card.model for card in CARDS if break_the_law(card)]


def partitions_that(break_the_law: Callable[[Card, Profile], bool]) -> list[str]:
    """The partitions, each with its card, of which this is true."""
    return [
        f"{card.model} {profile.name}"
        for card in CARDS
        for profile in card.profiles.values()
        if break_the_law(card, profile)
    ]


def test_each_vendor_has_one_catalogue_named_after_it_and_vgpus_have_one_of_their_own() -> None:
    found = {name: yaml.safe_load(text) for name, text in builders.shipped_files().items() if name[:8] == "catalog-"}

    assert {(name, one["metadata"]["name"], one["spec"]["vendor"]) for name, one in found.items()} == {
        *((f"catalog-{vendor}.yaml", vendor, vendor) for vendor in {card.vendor for card in CARDS} | UNSERVED),
        ("catalog-nvidia-grid.yaml", "nvidia-grid", "nvidia"),
    }


def _spellings() -> Iterator[tuple[str, str]]:
    """Each spelling, in lower case, with the model it is of."""
    for name, text in builders.shipped_files().items():
        for card in yaml.safe_load(text)["spec"].get("devices", []) if name.startswith("catalog-") else ():
            spelt = [card["model"], *card.get("aliases", []), *card.get("names", [])]
            yield from ((spelling.lower(), card["model"]) for spelling in spelt)


def test_no_name_is_of_two_cards() -> None:
    models: dict[str, set[str]] = {}
    for spelling, model in _spellings():
        models.setdefault(spelling, set()).add(model)

    assert {spelling: of for spelling, of in models.items() if len(of) > 1} == {}


def test_a_driver_reports_no_more_than_a_card_has() -> None:
    assert cards_that(lambda card: card.memory > card.nominal) == []


def test_a_driver_reports_most_of_what_a_card_has() -> None:
    assert cards_that(lambda card: Fraction(card.memory, card.nominal) <= Fraction(85, 100)) == []


def test_a_card_has_slices_if_it_has_partitions() -> None:
    def contradicts(card: Card) -> bool:
        return {card.memory_slices > 0, card.compute_slices > 0} != {bool(card.profiles)}

    assert cards_that(contradicts) == []


def test_partitions_come_smallest_first() -> None:
    def disordered(card: Card) -> bool:
        sizes = [(profile.memory_slices, profile.compute_slices) for profile in card.profiles.values()]
        return sizes != sorted(sizes)

    assert cards_that(disordered) == []


def test_a_partition_fits_its_card() -> None:
    def larger(card: Card, profile: Profile) -> bool:
        return (
            profile.memory > card.memory
            or profile.memory_slices > card.memory_slices
            or profile.compute_slices > card.compute_slices
        )

    assert partitions_that(larger) == []


def test_a_partition_takes_no_more_memory_than_its_slices_are() -> None:
    def takes_more(card: Card, profile: Profile) -> bool:
        return profile.memory > Fraction(profile.memory_slices, card.memory_slices) * card.nominal

    assert partitions_that(takes_more) == []


def test_as_many_partitions_as_there_may_be_fit_the_card() -> None:
    def too_many(card: Card, profile: Profile) -> bool:
        return (
            profile.most * profile.memory_slices > card.memory_slices
            or profile.most * profile.compute_slices > card.compute_slices
        )

    assert partitions_that(too_many) == []


def test_a_larger_partition_has_no_less_memory() -> None:
    def has_less(card: Card, profile: Profile) -> bool:
        smaller = [other for other in card.profiles.values() if other.memory_slices <= profile.memory_slices]
        return max(other.memory for other in smaller) != profile.memory

    assert partitions_that(has_less) == []


KNOWN = {
    "nvidia": (
        "T4, V100-16GB, V100-32GB, P100, A2, A10, A10G, A16, A30, A40, A100-40GB, A100-80GB, A800-80GB, L4, L40, "
        "L40S, H100-80GB, H100-NVL, H800, H20, GH200-96GB, GH200-144GB, H200, B200, GB200, B300, GB300, RTX-4090, "
        "RTX-3090, RTX-PRO-6000, L2, L20, H20-3e, RTX-A6000, RTX-6000-Ada, RTX-5090, P4, P40, "
        "A100, A800, H100, V100, A100-SXM4-80GB, Tesla T4, NVIDIA A100 80GB PCIe"
    ),
    "amd": "MI210, MI250, MI250X, MI300X, MI300A, MI308X, MI325X, MI350X, MI355X",
    "habana": "Gaudi2, Gaudi3",
    "huawei": (
        "Ascend910A, Ascend910ProA, Ascend910ProB, Ascend910B2, Ascend910B3, Ascend910B4, Ascend910B4-1, Ascend910C, "
        "Ascend310P, Ascend310P3, 910B3"
    ),
    "kunlunxin": "P800",
    "moore-threads": "S4000, MTT-S4000, MTT S4000",
    "iluvatar": "BI-V100, BI-V150, BI-V150S, MR-V50, MR-V100",
    "cambricon": "MLU370-X8, MLU370-X4",
    "hygon": "K100_AI, K100-AI",
    "metax": "C500",
    "enflame": "S60",
    "biren": "Biren106M, Biren166M",
    "vastai": "VA16",
    "aws": "Inferentia, Inferentia2, Trainium, Trainium2",
    "intel": "Flex-140, Flex-170, Max-1100, Max-1550",
    "google": "TPU-v4, TPU-v5e, TPU-v5p, TPU-v6e, TPU-Trillium, TPU7x",
    "furiosa": "RNGD",
    "rebellions": "RBLN-CA02, RBLN-CA12, RBLN-CA22, RBLN-CA25, RBLN-CR13, ATOM, ATOM-Max, Rebel100",
}
"""Cards by the names people use, each with its vendor."""


@pytest.mark.parametrize("vendor", KNOWN)
def test_a_card_is_known_by_the_names_people_use(vendor: str) -> None:
    cards = {name: DEVICES.get(name.lower()) for name in KNOWN[vendor].split(", ")}

    assert [name for name, card in cards.items() if card is None or card.vendor != vendor] == []


def test_no_vendor_is_without_cards_that_are_looked_for() -> None:
    assert {card.vendor for card in CARDS} == KNOWN.keys()


@pytest.mark.parametrize("model", ["MI300X", "MI325X"])
def test_memory_in_four_parts_goes_only_with_a_partition_of_each_die(model: str) -> None:
    assert [name for name in DEVICES[model.lower()].profiles if "nps4" in name] == ["cpx_nps4"]


@pytest.mark.parametrize(
    ("model", "nominal", "usable", "tflops"),
    [
        ("T4", 16384, 15360, 65),
        ("A10", 24576, 23028, 125),
        ("A100-80GB", 81920, 81920, 312),
        ("H100-80GB", 81920, 81559, 756),
        ("H20", 98304, 97871, None),
        ("P4", 8192, 7680, None),
        ("P40", 24576, 23040, None),
        ("L2", 24576, 23034, None),
        ("L20", 49152, 46068, None),
        ("H20-3e", 144384, 143771, None),
        ("RTX-A6000", 49152, 49140, Fraction("154.8")),
        ("RTX-6000-Ada", 49152, 49140, None),
        ("RTX-5090", 32768, 32607, Fraction("209.5")),
        ("MI300X", 196608, 196592, 1307),
        ("MI308X", 196608, 196608, None),
        ("MI350X", 294912, 294912, None),
        ("MI250", 65536, 65520, 181),
        ("Ascend910A", 32768, 32768, None),
        ("Ascend910ProB", 32768, 32768, None),
        ("Ascend310P", 24576, 21527, 70),
        ("K100_AI", 65536, 65520, None),
        ("MLU370-X8", 49152, 49152, 96),
        ("MTT-S4000", 49152, 49152, None),
        ("BI-V150S", 32768, 32768, None),
        ("C500", 65536, 65536, None),
        ("S60", 49152, 49120, None),
        ("P800", 98304, 98304, None),
        ("TPU-v6e", 32768, 32768, 918),
        ("RBLN-CR13", 147456, 143360, None),
        ("Trainium2", 98304, 98304, 667),
        ("Inferentia2", 32768, 32768, 190),
        ("Gaudi3", 131072, 131072, None),
        ("Max-1100", 49152, 49152, None),
        ("Biren106M", 32768, 32512, None),
        ("VA16", 131072, 131072, None),
    ],
)
def test_what_a_card_has(model: str, nominal: int, usable: int, tflops: Fraction | None) -> None:
    card = DEVICES[model.lower()]

    assert (card.nominal // MIB, card.memory // MIB, card.tflops) == (nominal, usable, tflops)


@tables.rows
def test_what_a_partition_has(model: str, name: str, memory: int, slices: int, compute: int, most: int) -> None:
    expected = Profile(name=name, memory=memory * MIB, memory_slices=slices, compute_slices=compute, most=most)

    assert DEVICES[model.lower()].profiles[name] == expected
