"""`gpu-webhook explain` of everything that makes pods: one object of each kind that a shipped document is about."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders, tables
from tests.edited import edited, places
from webhook.cli import explanation
from webhook.core.kube.fields import Put

MANIFEST = Path(__file__).with_name("workloads") / "every-kind.yaml"
OBJECTS: list[Any] = list(yaml.safe_load_all(MANIFEST.read_text()))
SHIPPED = builders.rulebook(builders.shipped_files())

CARDS: Mapping[str, Any] = tables.table(__file__, "cards")
"""By object, how many pods of each template there are, and how many devices each is charged."""


def test_every_pod_of_every_kind_is_explained() -> None:
    found: dict[str, str] = {}
    for raw in OBJECTS:
        explained = explanation.explain(raw, SHIPPED)
        assert [one.decision.violations for one in explained] == [()] * len(explained)
        pods = " ".join(f"{one.pods}x{sum(one.charges.values(), Fraction())}" for one in explained)
        metadata = raw["metadata"]
        found[f"{raw['kind']} {metadata.get('name') or metadata['generateName']}"] = pods

    assert found == CARDS


def test_every_kind_that_a_shipped_document_says_pods_of_stands_in_the_manifest() -> None:
    known = {key for key, each in SHIPPED.workloads.items() if each.pods and each.name}
    there = {(raw["apiVersion"].rpartition("/")[0], raw["kind"]) for raw in OBJECTS}

    assert there == known


def test_every_shipped_document_with_pods_says_where_its_kind_is_defined() -> None:
    sources = {each.name: each.source for each in SHIPPED.workloads.values() if each.pods and each.name}

    assert [name for name, source in sources.items() if not source.startswith("https://github.com/")] == []


OTHERS: tuple[Any, ...] = (0, "many", [], {}, None, True, -1, 2.5, [[]], {"a": 1}, [{"name": 5}], 10**30)


@pytest.mark.parametrize("raw", OBJECTS, ids=lambda raw: str(raw["kind"]))
def test_whatever_stands_anywhere_in_an_object_it_is_explained_or_refused_with_a_path(raw: Any) -> None:
    for count, place in enumerate(place for place in places(raw) if place[0] not in {"apiVersion", "kind"}):
        for other in (OTHERS[count % len(OTHERS)], OTHERS[-count % len(OTHERS)]):
            for one in explanation.explain(edited([Put(place, other)], raw), SHIPPED):
                assert all(violation.path for violation in one.decision.violations)
