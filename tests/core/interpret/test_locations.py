"""Where the shorthand may stand, and whose word counts."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from webhook.core.interpret import interpret
from webhook.core.kube import pod
from webhook.core.request import Devices, GpuRequest

RULES = builders.rulebook(builders.shipped_files())
SHARE = GpuRequest(share=Fraction(3, 10), memory_share=Fraction(3, 10), cores=Fraction(30))
HALF = GpuRequest(share=Fraction(1, 2), memory_share=Fraction(1, 2), cores=Fraction(50))


def _read(raw: Mapping[str, Any]) -> interpret.Interpretation:
    return interpret.interpret(pod.read(raw), RULES)


def _asked(raw: Mapping[str, Any]) -> dict[str, GpuRequest | None]:
    """What each container asks in shorthand; nothing may be wrong with it."""
    read = _read(raw)
    assert read.violations == []
    return {asked.container.name: asked.request for asked in read.asked}


@tables.rows
def test_one_request_in_every_form_of_metadata(form: dict[str, Any]) -> None:
    assert _asked(builders.pod(**form)) == {"main": SHARE}


@tables.rows
def test_one_request_in_every_form_of_resources(limits: dict[str, Any]) -> None:
    assert _asked(builders.pod(builders.container(limits=limits))) == {"main": SHARE}


def test_where_each_part_stands_is_kept() -> None:
    [asked] = _read(builders.pod(builders.container(limits={"gpu": "0.3"}), labels={"gpu-model": "T4"})).asked

    assert {key: (stated.value, str(stated)) for key, stated in asked.stated.items()} == {
        "gpu": (Devices(1, Fraction(3, 10)), 'spec.containers[0].resources.limits.gpu says "0.3"'),
        "gpu-model": (("T4",), 'metadata.labels.gpu-model says "T4"'),
    }


@tables.rows
def test_the_word_of_a_container_wins_over_that_of_its_pod(pod: dict[str, Any]) -> None:
    assert _asked(builders.written(pod)) == {"main": HALF}


def test_what_one_place_says_and_the_other_does_not_comes_together() -> None:
    both = builders.pod(labels={"gpu": "0.5"}, annotations={"memory.gpu-webhook.io/main": "8Gi"})

    assert _asked(both)["main"] == GpuRequest(share=Fraction(1, 2), memory=8 << 30, cores=Fraction(50))


@pytest.mark.parametrize("labels", [{"gpu": "1"}, {"gpu-memory": "8Gi"}], ids=str)
def test_a_container_may_say_none_to_what_is_said_of_the_pod(labels: dict[str, str]) -> None:
    raw = builders.pod(labels=labels, annotations={"gpu.gpu-webhook.io/main": "none"})

    assert _asked(raw) == {"main": None}


@pytest.mark.parametrize("none", [{"gpu": "none"}, {}], ids=["of the pod", "of the container"])
def test_a_containers_amount_beside_none_is_refused_and_not_forgotten(none: dict[str, str]) -> None:
    own = {} if none else {"gpu.gpu-webhook.io/main": "none"}
    raw = builders.pod(labels=none, annotations={"cores.gpu-webhook.io/main": "30", **own})

    [wrong] = _read(raw).violations

    assert (wrong.code, wrong.message.partition(":")[0]) == ("GPU202", "gpu and gpu-cores cannot hold together")


@tables.rows
def test_what_is_said_of_the_pod_is_for_one_container(metadata: dict[str, Any], chosen: str) -> None:
    one, two, init = map(builders.container, ("one", "two", "init"))
    raw = builders.pod(one, two, initContainers=[init], **metadata)

    assert [name for name, request in _asked(raw).items() if request] == [chosen]


@pytest.mark.parametrize(("restart", "kind"), [("Always", "sidecar"), (None, "init container")])
def test_containers_of_every_kind_are_seen_with_their_paths(restart: str | None, kind: str) -> None:
    init = builders.container("init", restartPolicy=restart)
    raw = builders.pod(initContainers=[init], ephemeralContainers=[builders.container("debug")])

    assert [(container.kind, container.path) for container in pod.read(raw).containers] == [
        (kind, ("spec", "initContainers", 0)),
        ("container", ("spec", "containers", 0)),
        ("ephemeral container", ("spec", "ephemeralContainers", 0)),
    ]


@tables.rows
def test_a_pod_that_has_nothing_to_do_with_gpus_is_told_at_once(raw: dict[str, Any]) -> None:
    assert interpret.asks_nothing(pod.read(raw), RULES)


@pytest.mark.parametrize("text", ["true", "a100", "yes", "shared-pool"])
def test_labels_that_others_have_written_are_left_alone_with_a_warning(text: str) -> None:
    read = _read(builders.pod(labels={"gpu": text}))

    assert (read.violations, [asked.request for asked in read.asked], len(read.warnings)) == ([], [None], 1)


@pytest.mark.parametrize("text", ["1.5", "2y", "0.3.3", "1e3", "0x1", "half", "All", ""])
def test_labels_that_are_meant_as_an_amount_have_to_be_one(text: str) -> None:
    assert [violation.code for violation in _read(builders.pod(labels={"gpu": text})).violations] == ["GPU201"]


@tables.rows
def test_a_size_where_a_number_of_devices_belongs_is_moved_to_the_key_of_that_place(
    section: str, key: str, written: str
) -> None:
    asked = {key: "8Gi"}
    one = builders.container(limits=asked) if section == "limits" else builders.container()
    pods = builders.pod(one, **({} if section == "limits" else {section: asked}))

    assert [violation.fix for violation in _read(pods).violations] == [f"remove it, and write {written}"]


@tables.rows
def test_the_obvious_meaning_of_an_amount_in_the_resources_stands_in_its_fix(
    name: str, amount: str, fix: str
) -> None:
    read = _read(builders.pod(builders.container(limits={name: amount})))

    assert [violation.fix for violation in read.violations] == [fix]
