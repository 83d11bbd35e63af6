"""What the API server refuses by itself is refused in an explanation, too, at the same field."""

from time import process_time
from typing import Any

import pytest

from tests import builders
from webhook.cli import explanation

RULES = builders.rulebook(builders.shipped_files())


def said(document: dict[str, Any]) -> list[tuple[str, str]]:
    """The codes and field paths of the refusal; nothing if it is admitted."""
    (found,) = explanation.explain(document, RULES)
    assert found.decision.allowed == (not found.decision.violations)
    return [(each.code, each.path) for each in found.decision.violations]


def asking(**metadata: Any) -> dict[str, Any]:
    """A pod that asks for a share of a GPU, with further metadata."""
    pod = builders.pod(annotations={"gpu": "0.3"})
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


def limited(**limits: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in limits.items()}
    return builders.pod(builders.container(limits=named))


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (asking(labels={"team": "a b"}), "metadata.labels.team"),
        (asking(labels={"team": "x" * 64}), "metadata.labels.team"),
        (limited(cpu="4 cores"), "spec.containers[0].resources.limits.cpu"),
        (limited(memory="16GB"), "spec.containers[0].resources.limits.memory"),
        (limited(foo="1"), "spec.containers[0].resources.limits.foo"),
        (limited(**{"example.com/a": "0.5"}), 'spec.containers[0].resources.limits["example.com/a"]'),
    ],
)
def test_what_the_api_server_does_not_take_is_refused_at_its_field(document: dict[str, Any], path: str) -> None:
    assert said(document) == [("GPU007", path)]


def test_a_quantity_of_very_many_digits_is_refused_at_once() -> None:
    began = process_time()

    assert said(limited(cpu="1" * 100_000 + "x")) == [("GPU007", "spec.containers[0].resources.limits.cpu")]
    assert process_time() - began < 1


@pytest.mark.parametrize(
    "document",
    [
        asking(
            labels={"team": "", "example.com/a.b_c": "A-1"}, annotations={"gpu": "30%", "Example.com/x": "any text"}
        ),
        asking(name="a.b-1"),
        asking(generateName="train-"),
        limited(cpu=0.5, memory="1e9", ephemeral_storage="16Gi", hugepages_2Mi="4Mi"),
        limited(gpu="0.3"),
        limited(**{"nvidia.com/gpu": "0.5"}),
    ],
)
def test_what_the_api_server_takes_once_it_is_translated_is_admitted(document: dict[str, Any]) -> None:
    assert said(document) == []


def test_a_value_that_is_no_string_is_told_once() -> None:
    assert said(asking(labels={"gpu": 0.3, "level": 3})) == [
        ("GPU001", "metadata.labels.gpu"),
        ("GPU001", "metadata.labels.level"),
    ]


def test_a_template_is_refused_for_what_a_pod_would_be_rescued_from() -> None:
    pod = limited(gpu="0.3")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {"labels": {"team": "a b"}}, "spec": pod["spec"]}},
    }

    assert said(deployment) == [
        ("GPU007", "metadata.labels.team"),
        ("GPU002", "spec.containers[0].resources.limits.gpu"),
    ]


@pytest.mark.parametrize(
    ("limits", "fixes"),
    [
        ({"gpu": "2x0.5"}, ['remove it, and label the template gpu: "2x0.5"']),
        (
            {"gpu": "1.5"},
            ['write gpu-webhook.io/gpu: 1 instead of gpu, or remove it, and label the template gpu: "1"'],
        ),
        ({"gpu-webhook.io/percent": "30%"}, []),
        ({"nvidia.com/gpu": "1.5"}, []),
    ],
)
def test_a_template_is_told_its_names_beside_a_value_that_is_none(limits: dict[str, str], fixes: list[str]) -> None:
    template = builders.pod(builders.container(limits=limits))
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web"}, "spec": {"template": template}}
    [explained] = explanation.explain(job, RULES)

    mistaken = explained.decision.violations[0]
    assert mistaken.code in {"GPU201", "GPU402"}
    assert [wrong.fix for wrong in explained.decision.violations if wrong.code == "GPU002"] == fixes


def test_a_model_in_limits_is_no_quantity_and_belongs_on_a_label() -> None:
    [explained] = explanation.explain(limited(gpu="1", gpu_model="A100-80GB"), RULES)

    assert [wrong.fix for wrong in explained.decision.violations] == [
        "remove it, and write the label gpu-model: A100-80GB"
    ]
    assert explained.decision.warnings[0] == (
        "spec.containers[0].resources.limits.gpu-model: Kubernetes takes no such resource. "
        "Write the annotation model.gpu-webhook.io/main: A100-80GB instead"
    )
