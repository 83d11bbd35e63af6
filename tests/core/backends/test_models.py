"""Cards by the names that vendors' labellers, drivers and people give them; other plugins document no such label."""

from dataclasses import replace

import pytest

from tests import builders, tables
from webhook.core.backends import cards
from webhook.core.kube.quantity import Fraction
from webhook.core.mutate import mutate
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Surroundings, with_only

RULES = builders.rulebook(builders.shipped_files())


def _read(name: str) -> list[str]:
    return [card.model for card in cards.read_model(name, RULES)]


@tables.rows
def test_a_name_is_read_as_the_cards_that_it_may_be_of(name: str, models: list[str]) -> None:
    assert _read(name) == models


@pytest.mark.parametrize(
    "card", {card.model: card for card in RULES.devices.values()}.values(), ids=lambda c: c.model
)
def test_every_product_name_of_every_catalogue_is_read(card: Card) -> None:
    for name in card.names:
        for written in (name, name.lower(), name.replace(" ", "-"), name.replace(" ", "_")):
            assert card.model in _read(written)


def test_an_amount_that_needs_one_size_lists_the_sizes() -> None:
    pod = builders.pod(labels={"gpu": "0.5", "gpu-model": "A100", "gpu-backend": "tencent-qgpu"})

    (violation,) = mutate(builders.creating(pod), RULES).violations

    assert violation.message.endswith("depends on the card, and A100-40GB and A100-80GB have different memory")
    assert violation.fix == "ask for gpu-model: A100-40GB or A100-80GB, or add gpu-memory: 8Gi"


@tables.rows
def test_where_there_are_no_partitions_the_memory_of_one_is_asked_for(labels: dict[str, str], fix: str) -> None:
    (violation,) = mutate(builders.creating(builders.pod(labels=labels)), RULES).violations

    assert violation.fix == fix


@tables.rows
def test_a_name_that_nobody_knows_gets_the_nearest_cards_that_this_cluster_can_serve(
    name: str, backend: str, fix: str
) -> None:
    rules = with_only(backend, RULES) if backend else RULES
    pod = builders.pod(labels={"gpu": "1", "gpu-model": name})

    (violation,) = mutate(builders.creating(pod), rules).violations

    assert violation.fix == fix


def test_a_name_that_is_near_none_gets_the_cards_of_the_nodes() -> None:
    exists = {"devices/T4": Fraction(4), "devices/A10": Fraction(1), "devices": Fraction(5)}
    rules = replace(RULES, surroundings=Surroundings(exists=exists))
    pod = builders.pod(labels={"gpu": "1", "gpu-model": "Zzz9"})

    (violation,) = mutate(builders.creating(pod), rules).violations

    assert violation.fix == "write A10 or T4"
