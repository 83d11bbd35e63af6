"""The shipped catalogues: what they say of a card holds together, and every card people have is known."""

from collections.abc import Callable, Mapping
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


def test_each_vendor_has_one_catalogue_named_after_it_and_vgpus_have_one_of_their_own() -> None:
    found = {name: yaml.safe_load(text) for name, text in builders.shipped_files().items() if name[:8] == "catalog-"}

    assert {(name, one["metadata"]["name"], one["spec"]["vendor"]) for name, one in found.items()} == {
        *((f"catalog-{vendor}.yaml", vendor, vendor) for vendor in {card.vendor for card in CARDS} | UNSERVED),
        ("catalog-nvidia-grid.yaml", "nvidia-grid", "nvidia"),
    }


def test_no_name_is_of_two_cards() -> None:
    models: dict[str, set[str]] = {}
    for name, text in builders.shipped_files().items():
        for card in yaml.safe_load(text)["spec"].get("devices", []) if name.startswith("catalog-") else ():
            for spelling in (card["model"], *card.get("aliases", []), *card.get("names", [])):
                models.setdefault(spelling.lower(), set()).add(card["model"])

    assert {spelling: of for spelling, of in models.items() if len(of) > 1} == {}


def _disordered(card: Card) -> bool:
    sizes = [(profile.memory_slices, profile.compute_slices) for profile in card.profiles.values()]
    return sizes != sorted(sizes)


OF_CARDS: Mapping[str, Callable[[Card], bool]] = {
    "a driver reports more than the card has": lambda card: card.memory > card.nominal,
    "a driver reports far less": lambda card: Fraction(card.memory, card.nominal) <= Fraction(85, 100),
    "slices without partitions, or partitions without slices": (
        lambda card: {card.memory_slices > 0, card.compute_slices > 0} != {bool(card.profiles)}
    ),
    "partitions do not come smallest first": _disordered,
}
OF_PARTITIONS: Mapping[str, Callable[[Card, Profile], bool]] = {
    "larger than the card": lambda card, part: (
        part.memory > card.memory
        or part.memory_slices > card.memory_slices
        or part.compute_slices > card.compute_slices
    ),
    "more memory than its slices are": lambda card, part: (
        part.memory > Fraction(part.memory_slices, card.memory_slices) * card.nominal
    ),
    "more of it than fit the card": lambda card, part: (
        part.most * part.memory_slices > card.memory_slices or part.most * part.compute_slices > card.compute_slices
    ),
    "less memory than a smaller one": lambda card, part: any(
        other.memory > part.memory for other in card.profiles.values() if other.memory_slices <= part.memory_slices
    ),
}


@pytest.mark.parametrize("wrong", OF_CARDS)
def test_what_is_said_of_a_card_holds_together(wrong: str) -> None:
    assert [card.model for card in CARDS if OF_CARDS[wrong](card)] == []


@pytest.mark.parametrize("wrong", OF_PARTITIONS)
def test_what_is_said_of_a_partition_holds_together(wrong: str) -> None:
    partitions = [(card, partition) for card in CARDS for partition in card.profiles.values()]

    assert [f"{card.model} {part.name}" for card, part in partitions if OF_PARTITIONS[wrong](card, part)] == []


@tables.rows
def test_a_card_is_known_by_the_names_people_use(vendor: str, names: str) -> None:
    cards = {name: DEVICES.get(name.lower()) for name in names.split(", ")}

    assert [name for name, card in cards.items() if card is None or card.vendor != vendor] == []


def test_no_vendor_is_without_cards_that_are_looked_for() -> None:
    looked_for = tables.table(__file__, "a card is known by the names people use")

    assert {card.vendor for card in CARDS} == {row["vendor"] for row in looked_for}


@pytest.mark.parametrize("model", ["MI300X", "MI325X"])
def test_memory_in_four_parts_goes_only_with_a_partition_of_each_die(model: str) -> None:
    assert [name for name in DEVICES[model.lower()].profiles if "nps4" in name] == ["cpx_nps4"]


@tables.rows
def test_what_a_card_has(model: str, nominal: int, usable: int, tflops: str | None) -> None:
    card = DEVICES[model.lower()]

    assert (card.nominal // MIB, card.memory // MIB, card.tflops) == (nominal, usable, tflops and Fraction(tflops))


@tables.rows
def test_what_a_partition_has(model: str, name: str, memory: int, slices: int, compute: int, most: int) -> None:
    expected = Profile(name=name, memory=memory * MIB, memory_slices=slices, compute_slices=compute, most=most)

    assert DEVICES[model.lower()].profiles[name] == expected
