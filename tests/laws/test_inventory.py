"""What a pod asks, read back from what stands on it, is what it was charged when it was admitted, or rounded up."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import pytest

from tests import builders
from webhook.cli.explanation import Explanation, explain
from webhook.cli.inventory import demand
from webhook.core import inventory
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook

COMPUTE = {"gpu-cores", "gpu-sharing"}


@cache
def shipped() -> Rulebook:
    return builders.rulebook(builders.shipped_files())


@cache
def alone(backend: str) -> Rulebook:
    return rulebook.with_only(backend, shipped())


def admitted(backend: str) -> Iterator[Explanation]:
    """Every example of a back end that becomes a pod without further ado, explained.

    Compute alone is charged as a whole card, as nobody limits its memory; what some systems make of it does.
    """
    for example in shipped().backends[backend].examples:
        [explained] = explain(builders.pod(labels=example.ask), alone(backend))
        if explained.charges and explained.decision.allowed and not example.ask.keys() <= COMPUTE:
            yield explained


@pytest.mark.parametrize("backend", sorted(shipped().backends))
def test_a_translated_pod_is_counted_at_least_as_it_was_charged(backend: str) -> None:
    rulebook = alone(backend)

    for explained in admitted(backend):
        found = demand([explained.after], inventory.read([], rulebook), rulebook)

        counted = sum((use.asked.devices for use in found.uses), Fraction(0))
        assert found.unread == []
        assert counted >= sum(explained.charges.values()), explained.before["metadata"]["labels"]
