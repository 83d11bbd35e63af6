"""Edits as values: made on a copy, and written as a patch; and where something stands, for people and for patches."""

from collections.abc import Sequence
from typing import Any

from tests import tables
from tests.edited import edited
from webhook.core.kube import fields
from webhook.core.kube.fields import Append, Edit, Put, Remove

Object = dict[str, Any]


@tables.rows
def test_edits_and_their_patch(before: Object, made: list[Object], patch: list[Object], after: Object) -> None:
    kinds = {"put": Put, "append": Append, "remove": Remove}
    edits: list[Edit] = [kinds[kind](tuple(path), *value) for edit in made for kind, (path, *value) in edit.items()]

    written = fields.to_patch(edits, before)

    assert written == patch
    assert edited(edits, before) == fields.applied(written, before) == after


def test_the_object_itself_is_left_as_it_is() -> None:
    before = {"a": {"b": [1]}, "c": [{}]}

    made: list[Edit] = [Append(("a", "b"), 2), Put(("c", 0, "d"), 1), Remove(("a", "b"))]
    fields.applied(fields.to_patch(made, before), before)

    assert before == {"a": {"b": [1]}, "c": [{}]}


def test_the_values_of_edits_stay_as_they_are_whatever_goes_into_them() -> None:
    value = [{"c": [1]}]

    fields.to_patch([Put(("a",), value), Append(("a", 0, "c"), 2)], {})

    assert value == [{"c": [1]}]


def test_what_an_alias_in_yaml_shares_is_changed_in_one_place() -> None:
    shared = {"limits": {"gpu": "1"}}

    after = fields.applied([{"op": "remove", "path": "/a/limits/gpu"}], {"a": shared, "b": shared})

    assert after == {"a": {"limits": {}}, "b": {"limits": {"gpu": "1"}}}


@tables.rows
def test_people_read_paths_as_kubernetes_prints_them(path: Sequence[str | int], text: str) -> None:
    assert fields.field_path(tuple(path)) == text


@tables.rows
def test_patches_escape_tildes_before_slashes(path: Sequence[str | int], text: str) -> None:
    assert fields.pointer(tuple(path)) == text
