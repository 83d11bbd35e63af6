"""The pod before and after, line by line."""

from itertools import chain
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import tables
from tests.edited import edited
from webhook.cli.explain import DifferenceLine, passages
from webhook.core.kube.fields import Append, Edit, Put, Remove

POD: dict[str, Any] = tables.table(__file__, "pod")


def changed(*edits: Edit, before: dict[str, Any] = POD) -> list[str]:
    """The changed lines, each as `mark text rule`."""
    return [f"{line.mark}{line.text}  {line.rule}".rstrip() for line in lines(before, *edits) if line.mark != " "]


def lines(before: dict[str, Any], *edits: Edit) -> list[DifferenceLine]:
    found = passages(before, edited(edits, before), edits)
    return list(chain.from_iterable(passage.lines for passage in found))


@tables.rows
def test_changed_lines_have_the_rules_of_their_edits(
    before: dict[str, Any] | None, edits: list[list[Any]], lines: list[str]
) -> None:
    made = {"put": Put, "append": Append, "remove": Remove}
    changes = [made[verb](tuple(path), *words) for verb, path, *words in edits]

    assert changed(*changes, before=POD if before is None else before) == lines


def test_both_sides_of_an_element_begin_with_a_dash() -> None:
    before = {"list": [{"a": "1", "b": "2"}]}

    assert [line.mark + line.text for line in lines(before, Remove(("list", 0, "a")))] == [
        " list:",
        "-- a: '1'",
        "-  b: '2'",
        "+- b: '2'",
    ]


def test_a_script_of_several_lines_stays_one() -> None:
    before = {"args": ["echo one\necho two\n"], "a": "1"}

    assert [line.text for line in lines(before, Put(("a",), "2"))][:4] == ["args:", "- |", "  echo one", "  echo two"]


def test_what_is_far_from_a_change_is_folded() -> None:
    before = {f"k{i}": "v" for i in range(30)}
    found = passages(before, edited([Put(("k29",), "w")], before), [])

    assert [(passage.folded, len(passage.lines)) for passage in found] == [(True, 26), (False, 5)]


leaves = (
    st.sampled_from(["", "a", "1", "two\nlines\n", "- x", "k: v"]) | st.booleans() | st.none() | st.integers(0, 9)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, min_size=1)


@given(objects, objects)
def test_each_side_is_whole(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = [line for passage in passages(before, after, []) for line in passage.lines]

    assert yaml.safe_load("".join(f"{line.text}\n" for line in found if line.mark != "+")) == before
    assert yaml.safe_load("".join(f"{line.text}\n" for line in found if line.mark != "-")) == after
