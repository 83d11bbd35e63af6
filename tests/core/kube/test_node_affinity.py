"""Node affinity: into every term, unless it is there; refused where the pod excludes it."""

from typing import Any

import pytest

from tests import builders, tables
from tests.edited import edited
from webhook.core.kube import pod
from webhook.core.kube.pod import TERMS, Requirement, affinity_without, node_bounds, require_nodes
from webhook.core.violations import Violation

T4_OR_A10 = Requirement("card", ("T4", "A10"), "rule (file:1)")
WANTED = {"key": "card", "operator": "In", "values": ["T4", "A10"]}
ELSEWHERE = {"key": "zone", "operator": "In", "values": ["a"]}


def _expression(operator: str, *values: str) -> dict[str, Any]:
    return {"key": "card", "operator": operator, **({"values": list(values)} if values else {})}


def _pod(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return builders.pod(affinity={"nodeAffinity": required})


def _terms(raw: dict[str, Any]) -> Any:
    """The terms once the requirement is in, or the violations."""
    came = list(require_nodes(pod.read(raw), [T4_OR_A10]))
    violations = [one for one in came if isinstance(one, Violation)]
    after = edited([one for one in came if not isinstance(one, Violation)], raw)
    required = after["spec"].get("affinity", {}).get("nodeAffinity", {}).get(TERMS[3])
    return [violation.code for violation in violations] or (required and required["nodeSelectorTerms"])


def test_a_pod_without_terms_gets_one() -> None:
    assert _terms(builders.pod()) == [{"matchExpressions": [WANTED]}]


@pytest.mark.parametrize("nothing", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {}}])
def test_an_empty_affinity_is_none(nothing: Any) -> None:
    assert _terms(builders.pod(affinity=nothing)) == [{"matchExpressions": [WANTED]}]


@pytest.mark.parametrize(
    "narrower", [_expression("In", "T4", "A10"), _expression("In", "A10", "T4"), _expression("In", "T4")]
)
def test_what_says_as_much_is_left_as_it_is(narrower: dict[str, Any]) -> None:
    assert _terms(_pod({"matchExpressions": [narrower]})) == [{"matchExpressions": [narrower]}]


@tables.rows
def test_what_says_less_gets_it_beside(compatible: dict[str, Any]) -> None:
    assert _terms(_pod({"matchExpressions": [compatible]})) == [{"matchExpressions": [compatible, WANTED]}]


def test_every_term_gets_it() -> None:
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}

    assert _terms(_pod({"matchExpressions": [ELSEWHERE]}, fields)) == [
        {"matchExpressions": [ELSEWHERE, WANTED]},
        {**fields, "matchExpressions": [WANTED]},
    ]


def test_a_term_that_matches_no_node_goes_on_matching_none() -> None:
    assert _terms(_pod({}, {"matchExpressions": [ELSEWHERE]})) == [{}, {"matchExpressions": [ELSEWHERE, WANTED]}]


@tables.rows
def test_a_term_that_matches_no_node_stays_when_a_key_is_removed(terms: list[dict[str, Any]], left: Any) -> None:
    found = affinity_without(pod.read(_pod(*terms)), {"card"})

    assert found == ({} if left is None else _pod(*left)["spec"]["affinity"])


@tables.rows
def test_no_alternative_of_several_is_lost_when_a_key_is_removed(terms: list[Any], left: Any) -> None:
    several = [{"matchExpressions": each} for each in terms]

    found = affinity_without(pod.read(_pod(*several)), {"card"})

    rest = [{"matchExpressions": each} for each in left or ()]
    assert found == (_pod(*rest)["spec"]["affinity"] if left else {})


@pytest.mark.parametrize(
    "opposite", [_expression("In", "L4"), _expression("NotIn", "T4", "A10", "L4"), _expression("DoesNotExist")]
)
def test_terms_that_all_exclude_it_are_refused(opposite: dict[str, Any]) -> None:
    assert _terms(_pod({"matchExpressions": [opposite]}, {"matchExpressions": [ELSEWHERE, opposite]})) == ["GPU502"]


def test_two_expressions_of_one_term_are_anded() -> None:
    both = {"matchExpressions": [_expression("In", "T4"), _expression("NotIn", "T4")]}

    assert _terms(_pod(both)) == ["GPU502"]


def test_one_term_that_allows_it_is_enough() -> None:
    excluding = {"matchExpressions": [_expression("In", "L4")]}

    assert _terms(_pod(excluding, {"matchExpressions": [ELSEWHERE]})) == [
        {"matchExpressions": [_expression("In", "L4"), WANTED]},
        {"matchExpressions": [ELSEWHERE, WANTED]},
    ]


def test_a_node_selector_that_agrees_is_enough() -> None:
    assert _terms(builders.pod(nodeSelector={"card": "A10"})) is None


def test_a_node_selector_that_differs_is_refused() -> None:
    assert _terms(builders.pod(nodeSelector={"card": "L4"})) == ["GPU502"]


@tables.rows
def test_the_bounds_of_a_pod_hold_on_every_node_that_it_may_run_on(
    terms: list[list[dict[str, Any]]], bounds: dict[str, list[str]]
) -> None:
    raw = _pod(*({"matchExpressions": term} if term else {} for term in terms)) if terms else builders.pod()

    assert node_bounds(pod.read(raw)) == {key: {*values} for key, values in bounds.items()}


def test_a_node_selector_holds_in_every_term() -> None:
    raw = _pod({"matchExpressions": [_expression("In", "T4", "A10")]}, {"matchExpressions": [ELSEWHERE]})
    raw["spec"]["nodeSelector"] = {"card": "T4"}

    assert node_bounds(pod.read(raw)) == {"card": {"T4"}}


def test_what_is_added_to_a_gated_pod_never_widens_its_bounds() -> None:
    """An update may add labels to its nodeSelector, and expressions to its terms (KEP-3838)."""
    raw = _pod({"matchExpressions": [_expression("In", "T4", "A10")]})
    raw["spec"]["nodeSelector"] = {"card": "L4"}

    assert node_bounds(pod.read(raw)) == {"card": {"T4", "A10"}}


@tables.rows
def test_bounds_are_within_what_is_required_or_not(
    bounds: dict[str, list[str]], values: list[str], *, within: bool
) -> None:
    frozen = {key: frozenset(values) for key, values in bounds.items()}

    assert Requirement("card", tuple(values), "rule").holds_within(frozen) == within
