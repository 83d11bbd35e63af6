"""Nothing that begins like the shorthand is passed over in silence, and what a hint says can be pasted."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests import builders, tables
from webhook.core import request
from webhook.core.forms import document, labels
from webhook.core.interpret import locations
from webhook.core.kube import pod
from webhook.core.kube.fields import field_path
from webhook.core.mutate import mutate
from webhook.core.validate import validate

RULES = builders.rulebook(builders.shipped_files())


def _warnings(raw: Mapping[str, Any]) -> list[str]:
    request = builders.creating(raw)
    answers = mutate(request, RULES), validate(request, RULES)
    return [warning for answer in answers for warning in answer.warnings]


@tables.rows
def test_a_label_that_begins_with_gpu_gets_a_hint_whether_or_not_a_gpu_is_asked(
    key: str, value: str, wish: str
) -> None:
    said = f"metadata.labels.{key}: nothing here reads this label. {wish}"

    assert _warnings(builders.pod(labels={key: value})) == [said]
    assert said in _warnings(builders.pod(builders.container(limits={"nvidia.com/gpu": 1}), labels={key: value}))


@tables.rows
def test_a_hint_for_an_annotation_names_an_annotation(key: str, value: str, wish: str) -> None:
    said = f"metadata.annotations.{key}: nothing here reads this annotation. {wish}"

    assert _warnings(builders.pod(annotations={key: value})) == [said]


@tables.rows
def test_what_is_meant_for_the_shorthand_by_another_name_gets_a_hint(
    section: str, key: str, value: str, wish: str
) -> None:
    where = f"{field_path(('metadata', section, key))}: nothing here reads this {section.removesuffix('s')}"

    assert _warnings(builders.pod(**{section: {key: value}})) == [f"{where}. {wish}"]


@tables.rows
def test_a_resource_without_a_domain_that_kubernetes_does_not_take_gets_a_hint(name: str, wish: str) -> None:
    assert _warnings(builders.pod(builders.container(limits={name: 1}))) == [
        f"spec.containers[0].resources.limits.{name}: Kubernetes takes no such resource. Write {wish}"
    ]


@tables.rows
def test_an_extended_resource_that_looks_like_one_of_a_rule_gets_a_hint(name: str, near: str) -> None:
    (said,) = _warnings(builders.pod(builders.container(limits={name: 1})))

    assert f"ask for nvidia.com/{near} instead," in said


def test_what_rules_read_and_what_belongs_to_a_domain_gets_none() -> None:
    with_kai = builders.shipped_files()
    with_kai["cluster.yaml"] = with_kai["cluster.yaml"].replace("backends: [", "backends: [kai, ")
    kai = builders.rulebook(with_kai)
    mine = builders.pod(labels={"gpu.example/kind": "x", "app": "gpu"}, annotations={"gpu-fraction": "0.5"})

    assert list(mutate(builders.creating(mine), kai).warnings) == []


def test_hints_are_bounded() -> None:
    many = {f"gpu-{number}-modle": "T4" for number in range(300)}
    words = document.Nearest(8)

    said = [*locations.hints_of_keys(pod.read(builders.pod(labels=many)), RULES, words)]

    assert (len(said), words.left) == (locations.MOST_HINTS + 1, 0)
    assert said[-1] == "292 more labels and annotations begin with gpu, and nothing here reads them"


@tables.rows
def test_what_can_be_pasted_is_a_string_to_yaml(text: str) -> None:
    assert yaml.safe_load(request.pasteable("gpu", text)) == {"gpu": text}


@pytest.mark.parametrize("key", sorted(request.KEYS))
def test_every_example_of_a_key_can_be_pasted_into_a_label(key: str) -> None:
    (value,) = yaml.safe_load(request.EXAMPLES[key].partition(" (")[0]).values()

    assert isinstance(value, str)
    assert labels.is_value(value)
