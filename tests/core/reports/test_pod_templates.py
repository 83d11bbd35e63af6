"""What makes pods is read by the Workload of its kind: which pods, how many, and what cannot be said."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import builders, readme, tables
from webhook.core.pod_templates import Found, Template, pods, templates
from webhook.core.rules.objects import BUILT_IN, Workload
from webhook.core.violations import Refusal, Violation
from webhook.files.rule_files import RuleFilesError

SHIPPED = builders.rulebook(builders.shipped_files())
OWN = readme.block("workload", readme.BACKENDS.read_text())


def numbers(text: str, workloads: Any = SHIPPED.workloads) -> dict[str, int]:
    """How many pods of each template the objects of a manifest make, by title."""
    found = list(_found(text, workloads))
    assert [each.wrong for each in found if each.wrong] == []
    return {each.title: each.number for each in found}


def wrong(text: str) -> list[str]:
    """What is said of each object that nothing else can be said of."""
    return [str(each.wrong) for each in _found(text, SHIPPED.workloads) if each.wrong]


def _found(text: str, workloads: Any) -> Iterator[Found]:
    for document in yaml.safe_load_all(text):
        yield from pods(document, workloads)


@tables.rows
def test_of_kubernetes_own_kinds_there_are_so_many_pods_at_a_time(spec: str, number: int) -> None:
    [found] = _found(spec, BUILT_IN)

    assert (found.number, found.wrong) == (number, None)


@tables.rows
def test_kinds_that_hold_no_pods_need_no_words(document: str) -> None:
    assert list(_found(document, SHIPPED.workloads)) == []


@tables.rows
def test_a_kind_that_nobody_knows_is_said_to_be_unknown(document: str, said: str) -> None:
    [message] = wrong(document)

    assert message.splitlines()[0].removeprefix("[GPU004] ").endswith(said)


@tables.rows
def test_a_field_that_cannot_be_read_is_told_with_its_path(spec: str, path: str, said: str) -> None:
    [message] = wrong(f"{{apiVersion: apps/v1, kind: Deployment, spec: {spec}}}")

    assert message.splitlines()[:2] == [f"[GPU005] {path} {said}", f"  at   {path}"]


def test_an_object_that_should_have_pods_and_has_none_is_told() -> None:
    [message] = wrong("{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}")

    assert message.splitlines()[0] == (
        "[GPU005] no pod stands at spec.headGroupSpec.template or spec.workerGroupSpecs[].template"
    )


def test_a_kind_of_ones_own_is_the_file_that_the_readme_shows() -> None:
    own = builders.rulebook(builders.shipped_files() | {"own.yaml": OWN})
    training = "{apiVersion: acme.example/v1, kind: Training, metadata: {name: a}, spec: {replicas: 7, template: {}}}"

    assert numbers(training, own.workloads) == {"Training a (7 pods)": 7}
    assert len(OWN.splitlines()) == 7


def test_an_example_that_does_not_come_out_is_a_problem_of_the_rules() -> None:
    with pytest.raises(RuleFilesError) as refused:
        builders.rulebook(
            builders.shipped_files() | {"own.yaml": OWN.replace("spec.template: 4", "spec.template: 5")}
        )

    assert [str(problem) for problem in refused.value.problems] == [
        "own.yaml:7:14: spec.examples[0]: the example \"an object\" makes {'spec.template': 4}"
    ]


def test_a_kind_is_defined_once() -> None:
    twice = {"a.yaml": OWN, "b.yaml": OWN.replace("trainings", "more")}
    with pytest.raises(RuleFilesError) as refused:
        builders.rulebook(builders.shipped_files() | twice)

    [problem] = refused.value.problems
    assert str(problem).endswith("spec.objects: Training of acme.example is defined already, by trainings (a.yaml:5)")


# Whatever stands in an object, it is read or refused

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


def _things(workload: Workload) -> st.SearchStrategy[Any]:
    """Objects in which any of the keys that the workload reads may hold anything."""
    roots = {path for made in workload.pods for path in (*made.roots, *made.beside, *made.containers)}
    keys = st.sampled_from(sorted({str(step) for path in roots for step in path} | {"name", "spec"}))
    return st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5))


@pytest.mark.large
@given(st.data())
def test_whatever_stands_in_an_object_it_is_read_or_refused_with_a_path(data: st.DataObject) -> None:
    workload = data.draw(st.sampled_from([each for each in SHIPPED.workloads.values() if each.pods]))
    raw = {"spec": data.draw(_things(workload)), "metadata": data.draw(_things(workload))}
    made: Sequence[Template] = ()
    violations: Sequence[Violation] = ()
    try:
        made = templates(raw, workload)
    except Refusal as refusal:
        violations = refusal.violations

    assert all(isinstance(each.pod, dict) and each.number >= 0 for each in made)
    assert all(each.code == "GPU005" and each.path for each in violations)
