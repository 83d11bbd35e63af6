"""A pod without a GPU is never patched, but for a zero that vendors misread; and any answer is an answer."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders, tables
from tests.cases.served import as_served
from tests.laws import clusters, surroundings, tried
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.request import PREFIX
from webhook.core.review import AdmissionRequest
from webhook.core.validate import validate

Way = Callable[[dict[str, Any]], dict[str, Any]]
WAYS: st.SearchStrategy[Way] = st.sampled_from([copy.deepcopy, as_served])
"""A pod as written, and as the API server serves it."""


def _strange(answer: Decision) -> list[str]:
    """The warnings that are no hints about the keys of `surroundings` that begin with `gpu`."""
    hints = ("metadata.labels.gpuType: nothing here reads", "metadata.annotations.gpu-note: nothing here reads")
    return [warning for warning in answer.warnings if not warning.startswith(hints)]


@tried(1_000)
@given(surroundings.pods(), WAYS)
def test_who_asks_for_nothing_gets_nothing(pod: dict[str, Any], way: Way) -> None:
    request = builders.creating(way(pod))
    rules = clusters.rulebook(clusters.ALL)

    for answer in (mutate(request, rules), validate(request, rules)):
        assert (answer.allowed, list(answer.patch), _strange(answer), answer.audit) == (True, [], [], {})


@tried(1_000)
@given(surroundings.pods(), st.sampled_from(sorted(clusters.rulebook(clusters.ALL).resources)), WAYS)
def test_zero_of_anything_is_nothing(pod: dict[str, Any], resource: str, way: Way) -> None:
    """It is left alone where it is a number of devices. Vendors may take another zero for no limit, so it goes."""
    container = pod["spec"]["containers"][0]
    container.setdefault("resources", {}).setdefault("limits", {})[resource] = 0
    raw = way(pod)
    request = builders.creating(raw)
    rules = clusters.rulebook(clusters.ALL)
    after = raw if rules.resources[resource].counts else _without(raw, resource)

    mutated, validated = mutate(request, rules), validate(request, rules)
    for answer in (mutated, validated):
        assert (answer.allowed, _strange(answer), answer.audit) == (True, [], {})
    assert (jsonpatch.apply_patch(raw, mutated.patch), list(validated.patch)) == (after, [])


def _without(pod: dict[str, Any], resource: str) -> dict[str, Any]:
    """The pod without a resource on its first container."""
    left = copy.deepcopy(pod)
    for amounts in left["spec"]["containers"][0]["resources"].values():
        if isinstance(amounts, dict):
            amounts.pop(resource, None)
    return left


_WORDS: Mapping[str, Any] = tables.table(__file__, "words")
_OURS = (PREFIX + "gpu", "gpu." + PREFIX + "x", "." + PREFIX)
_KEYS = st.sampled_from((*_WORDS["keys"], *_OURS))
_SCALARS = st.sampled_from((*_WORDS["values"], 2**70, 1e300, "é" * 300, "9" * 5000))
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=20
)
_PODS = st.fixed_dictionaries(
    {
        "metadata": _JSON | st.fixed_dictionaries({"labels": _JSON, "annotations": _JSON}),
        "spec": _JSON
        | st.fixed_dictionaries(
            {
                "containers": _JSON
                | st.lists(
                    _JSON
                    | st.fixed_dictionaries(
                        {
                            "name": _SCALARS,
                            "resources": _JSON | st.dictionaries(_KEYS, st.dictionaries(_KEYS, _SCALARS)),
                            "env": _JSON,
                        }
                    ),
                    max_size=3,
                )
            },
            optional={"tolerations": _JSON, "affinity": _JSON, "nodeSelector": _JSON, "schedulerName": _JSON},
        ),
    }
)


@pytest.mark.large
@tried(1_000)
@given(_PODS | st.dictionaries(_KEYS, _JSON, max_size=4), _PODS)
def test_whatever_comes_is_answered(pod: dict[str, Any], old: dict[str, Any]) -> None:
    rules = clusters.rulebook(clusters.ALL)
    for request in (builders.creating(pod), builders.updating(old, pod)):
        for answer in (mutate(request, rules), validate(request, rules)):
            assert answer.allowed == (not answer.violations)


@tried(500)
@given(
    _JSON, st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]), st.sampled_from(["", "status", "resize"])
)
def test_whatever_is_asked_of_us_is_answered(pod: Any, operation: str, subresource: str) -> None:
    request = AdmissionRequest(
        uid="1",
        operation=operation,
        resource="pods",
        subresource=subresource,
        namespace="",
        name="",
        dry_run=False,
        pod=pod if isinstance(pod, dict) else None,
        old_pod=None,
    )
    rules = clusters.rulebook(clusters.ALL)

    for answer in (mutate(request, rules), validate(request, rules)):
        assert answer.allowed == (not answer.violations)
