"""Edits as values: made on a copy, and written as a patch."""

from typing import Any

import pytest

from tests.edited import edited
from webhook.core.kube import patch as patches
from webhook.core.kube.patch import Append, Edit, Put, Remove


@pytest.mark.parametrize(
    ("before", "made", "patch", "after"),
    [
        pytest.param({}, [], [], {}, id="nothing"),
        pytest.param(
            {"a": {}},
            [Put(("a", "b"), 1)],
            [{"op": "add", "path": "/a/b", "value": 1}],
            {"a": {"b": 1}},
            id="a new key",
        ),
        pytest.param(
            {"a": {"b": 0}},
            [Put(("a", "b"), 1)],
            [{"op": "add", "path": "/a/b", "value": 1}],
            {"a": {"b": 1}},
            id="a key anew",
        ),
        pytest.param(
            {},
            [Put(("a", "b", "c"), 1), Put(("a", "b", "d"), 2)],
            [{"op": "add", "path": "/a", "value": {"b": {"c": 1, "d": 2}}}],
            {"a": {"b": {"c": 1, "d": 2}}},
            id="holders that are missing are made once",
        ),
        pytest.param(
            {"a": None},
            [Put(("a", "b"), 1)],
            [{"op": "add", "path": "/a", "value": {"b": 1}}],
            {"a": {"b": 1}},
            id="a null holder",
        ),
        pytest.param(
            {},
            [Append(("a",), 1), Append(("a",), 2)],
            [{"op": "add", "path": "/a", "value": [1, 2]}],
            {"a": [1, 2]},
            id="a list that is missing is made once",
        ),
        pytest.param(
            {"a": [1]},
            [Append(("a",), 2)],
            [{"op": "add", "path": "/a/-", "value": 2}],
            {"a": [1, 2]},
            id="the end of a list",
        ),
        pytest.param(
            {},
            [Put(("a", "b"), [{"c": [1]}]), Append(("a", "b", 0, "c"), 2), Put(("a", "b", 0, "d", "e"), 3)],
            [{"op": "add", "path": "/a", "value": {"b": [{"c": [1, 2], "d": {"e": 3}}]}}],
            {"a": {"b": [{"c": [1, 2], "d": {"e": 3}}]}},
            id="inside an element of a list that is made with its holder",
        ),
        pytest.param(
            {"a": {}},
            [Put(("a", "x"), 0), Put(("a", "b"), [{"c": [1]}]), Append(("a", "b", 0, "c"), 2)],
            [
                {"op": "add", "path": "/a/x", "value": 0},
                {"op": "add", "path": "/a/b", "value": [{"c": [1, 2]}]},
            ],
            {"a": {"x": 0, "b": [{"c": [1, 2]}]}},
            id="inside an element of a list whose holder is there",
        ),
        pytest.param(
            {"a": None},
            [Append(("a",), 1)],
            [{"op": "add", "path": "/a", "value": [1]}],
            {"a": [1]},
            id="a null list",
        ),
        pytest.param(
            {"a": [{}, {}]},
            [Append(("a", 1, "b"), 1)],
            [{"op": "add", "path": "/a/1/b", "value": [1]}],
            {"a": [{}, {"b": [1]}]},
            id="a list in an element",
        ),
        pytest.param(
            {"a": [1, 2]},
            [Put(("a", 1), 3)],
            [{"op": "replace", "path": "/a/1", "value": 3}],
            {"a": [1, 3]},
            id="an element",
        ),
        pytest.param(
            {"a/b~": {"c": 1}},
            [Remove(("a/b~", "c"))],
            [{"op": "remove", "path": "/a~1b~0/c"}],
            {"a/b~": {}},
            id="a key away",
        ),
        pytest.param(
            {"a": [1, 2, 3]},
            [Remove(("a", 2)), Remove(("a", 0))],
            [{"op": "remove", "path": "/a/2"}, {"op": "remove", "path": "/a/0"}],
            {"a": [2]},
            id="elements away",
        ),
    ],
)
def test_edits_and_their_patch(
    before: dict[str, Any], made: list[Edit], patch: list[dict[str, Any]], after: dict[str, Any]
) -> None:
    written = patches.to_patch(made, before)

    assert written == patch
    assert edited(made, before) == patches.applied(written, before) == after


def test_the_object_itself_is_left_as_it_is() -> None:
    before = {"a": {"b": [1]}, "c": [{}]}

    made: list[Edit] = [Append(("a", "b"), 2), Put(("c", 0, "d"), 1), Remove(("a", "b"))]
    patches.applied(patches.to_patch(made, before), before)

    assert before == {"a": {"b": [1]}, "c": [{}]}


def test_the_values_of_edits_stay_as_they_are_whatever_goes_into_them() -> None:
    value = [{"c": [1]}]

    patches.to_patch([Put(("a",), value), Append(("a", 0, "c"), 2)], {})

    assert value == [{"c": [1]}]


def test_what_an_alias_in_yaml_shares_is_changed_in_one_place() -> None:
    shared = {"limits": {"gpu": "1"}}

    after = patches.applied([{"op": "remove", "path": "/a/limits/gpu"}], {"a": shared, "b": shared})

    assert after == {"a": {"limits": {}}, "b": {"limits": {"gpu": "1"}}}
