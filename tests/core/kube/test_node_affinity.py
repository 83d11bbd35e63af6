"""Node affinity: into every term, unless it is there; refused where the pod excludes it."""

from typing import Any

from tests import builders, tables
from tests.edited import edited
from webhook.core.kube import pod
from webhook.core.kube.pod import TERMS, Requirement, affinity_without, node_bounds, require_nodes
from webhook.core.violations import Violation

T4_OR_A10 = Requirement("card", ("T4", "A10"), "rule (file:1)")
ELSEWHERE = {"key": "zone", "operator": "In", "values": ["a"]}


def _expression(operator: str, *values: str) -> dict[str, Any]:
    return {"key": "card", "operator": operator, **({"values": list(values)} if values else {})}


def _pod(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return builders.pod(affinity={"nodeAffinity": required})


@tables.rows
def test_the_terms_of_a_pod_become(spec: dict[str, Any], becomes: Any) -> None:
    """Terms that allow one of the cards, or the code of a refusal."""
    raw = _pod(*spec["terms"]) if "terms" in spec else builders.pod(**spec)
    came = list(require_nodes(pod.read(raw), [T4_OR_A10]))

    violations = [violation for violation in came if isinstance(violation, Violation)]
    after = edited([edit for edit in came if not isinstance(edit, Violation)], raw)
    required = after["spec"].get("affinity", {}).get("nodeAffinity", {}).get(TERMS[3])
    assert ([violation.code for violation in violations] or (required and required["nodeSelectorTerms"])) == becomes


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
