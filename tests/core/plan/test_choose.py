"""Who serves: explicit, then the tenant's, then the cluster's order; and how modes are described."""

from dataclasses import replace
from typing import Any

from tests import builders, tables
from tests.core import acme
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.rules import rulebook
from webhook.core.rules.modes import When

RULES = builders.rulebook(builders.shipped_files())


@tables.rows
def test_the_first_that_can_is_taken(preferred: str | None, labels: dict[str, str], backend: str) -> None:
    planned = plan.make(pod.read(builders.pod(labels=labels)), RULES, preferred)

    assert [served.backend.name for served in planned.assignments] == [backend]


@tables.rows
def test_a_resource_is_of_the_back_end_to_whose_nodes_the_pod_is_bound(
    order: tuple[str, ...], selector: dict[str, str], backend: str
) -> None:
    cluster = replace(RULES.cluster, backends=order, tiers={}, whole=None, part=None)
    raw = builders.pod(builders.container(limits={"nvidia.com/gpu": "1"}), nodeSelector=selector)

    planned = plan.make(pod.read(raw), rulebook.index(cluster, RULES.backends, RULES.devices))

    assert [served.backend.name for served in planned.assignments] == [backend]


@tables.rows
def test_a_condition_is_described_in_words(when: dict[str, Any], words: str) -> None:
    read = {"count": tuple, "has": frozenset}

    assert str(When(**{key: read.get(key, str)(value) for key, value in when.items()})) == words


def test_a_mode_without_a_name_is_called_by_its_condition() -> None:
    [mode] = acme.backend("modes: [{when: {devices: whole, count: 2}, limits: {acme.example/x: count}}]").modes

    assert mode.name == "whole cards, 2 devices"
