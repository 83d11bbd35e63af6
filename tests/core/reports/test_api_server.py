"""What the API server refuses by itself is refused in an explanation, too, at the same field."""

from time import process_time
from typing import Any

from tests import builders, tables
from webhook.cli import explanation

RULES = builders.rulebook(builders.shipped_files())


def said(document: dict[str, Any]) -> list[tuple[str, str]]:
    """The codes and field paths of the refusal; nothing if it is admitted."""
    (found,) = explanation.explain(document, RULES)
    assert found.decision.allowed == (not found.decision.violations)
    return [(each.code, each.path) for each in found.decision.violations]


def asking(limits: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod with limits, or one that asks for a share of a GPU with further metadata."""
    if limits is not None:
        return builders.pod(builders.container(limits=limits))
    pod = builders.pod(annotations={"gpu": "0.3"})
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


@tables.rows
def test_what_the_api_server_does_not_take_is_refused_at_its_field(pod: dict[str, Any], path: str) -> None:
    assert said(asking(**pod)) == [("GPU007", path)]


def test_a_quantity_of_very_many_digits_is_refused_at_once() -> None:
    began = process_time()

    assert said(asking({"cpu": "1" * 100_000 + "x"})) == [("GPU007", "spec.containers[0].resources.limits.cpu")]
    assert process_time() - began < 1


@tables.rows
def test_what_the_api_server_takes_once_it_is_translated_is_admitted(pod: dict[str, Any]) -> None:
    assert said(asking(**pod)) == []


def test_a_value_that_is_no_string_is_told_once() -> None:
    assert said(asking(labels={"gpu": 0.3, "level": 3})) == [
        ("GPU001", "metadata.labels.gpu"),
        ("GPU001", "metadata.labels.level"),
    ]


def test_a_template_is_refused_for_what_a_pod_would_be_rescued_from() -> None:
    pod = asking({"gpu": "0.3"})
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


@tables.rows
def test_a_template_is_told_its_names_beside_a_value_that_is_none(limits: dict[str, str], fixes: list[str]) -> None:
    template = builders.pod(builders.container(limits=limits))
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web"}, "spec": {"template": template}}
    [explained] = explanation.explain(job, RULES)

    mistaken = explained.decision.violations[0]
    assert mistaken.code in {"GPU201", "GPU402"}
    assert [wrong.fix for wrong in explained.decision.violations if wrong.code == "GPU002"] == fixes


def test_a_model_in_limits_is_no_quantity_and_belongs_on_a_label() -> None:
    [explained] = explanation.explain(asking({"gpu": "1", "gpu-model": "A100-80GB"}), RULES)

    assert [wrong.fix for wrong in explained.decision.violations] == [
        "remove it, and write the label gpu-model: A100-80GB"
    ]
    assert explained.decision.warnings[0] == (
        "spec.containers[0].resources.limits.gpu-model: Kubernetes takes no such resource. "
        "Write the annotation model.gpu-webhook.io/main: A100-80GB instead"
    )
