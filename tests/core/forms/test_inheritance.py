"""`extends:` and `$(parameter)`: what a site may change without a copy."""

from textwrap import dedent
from typing import Any

import pytest

from webhook.core.forms import inheritance
from webhook.core.forms.document import DocumentError, Node
from webhook.files import documents


def _specs(**texts: str) -> dict[str, Node]:
    """Specs by name, each in a file of its name."""
    return {name: documents.parse(dedent(text).encode(), f"{name}.yaml")[0] for name, text in texts.items()}


def _merged(name: str, **texts: str) -> Node:
    return inheritance.merged(inheritance.lineage(name, _specs(**texts)))


@pytest.mark.parametrize(
    ("child", "parent", "merged"),
    [
        pytest.param("", "a: 1", {"a": 1}, id="everything is taken over"),
        pytest.param("a: 2", "a: 1", {"a": 2}, id="a scalar is replaced"),
        pytest.param("a: [2]", "a: [1, 1]", {"a": [2]}, id="a list is replaced"),
        pytest.param("a: {c: 2}", "a: {b: 1}", {"a": {"b": 1, "c": 2}}, id="mappings are merged"),
        pytest.param("a: {b: {d: 2}}", "a: {b: {c: 1}}", {"a": {"b": {"c": 1, "d": 2}}}, id="at any depth"),
        pytest.param("a: {b: }", "a: {b: 1, c: 1}", {"a": {"c": 1}}, id="an empty value deletes"),
        pytest.param("a: x", "a: {b: 1}", {"a": "x"}, id="a mapping gives way to a scalar"),
        pytest.param("a: {b: 1}", "a: x", {"a": {"b": 1}}, id="and a scalar to a mapping"),
        pytest.param("a: 1", "examples: [x]", {"a": 1}, id="examples are not taken over"),
    ],
)
def test_what_a_child_becomes(child: str, parent: str, merged: dict[str, Any]) -> None:
    assert _merged("child", child=f"extends: parent\n{dedent(child)}", parent=parent).plain() == merged


def test_a_grandchild_takes_over_from_both() -> None:
    specs = {"old": "{a: 1, b: 1, c: 1}", "middle": "{extends: old, b: 2, c: 2}", "young": "{extends: middle, c: 3}"}

    assert _merged("young", **specs).plain() == {"a": 1, "b": 2, "c": 3}


def test_what_is_taken_over_stays_where_it_stands() -> None:
    merged = _merged("child", child="extends: parent\nb: 2", parent="a: 1")

    assert {key: str(at) for key, at in merged.keys.items()} == {
        "a": "parent.yaml:1:1",
        "extends": "child.yaml:1:1",
        "b": "child.yaml:2:1",
    }


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            {"one": "extends: tow", "two": "{}"},
            'one.yaml:1:10: spec.extends: no back end is called "tow" (did you mean "two"?)',
        ),
        ({"one": "extends: one"}, "one.yaml:1:10: spec.extends: goes round in a circle: one -> one"),
        (
            {"one": "extends: two", "two": "extends: three", "three": "extends: one"},
            "three.yaml:1:10: spec.extends: goes round in a circle: one -> two -> three -> one",
        ),
    ],
)
def test_what_cannot_be_extended_is_said(specs: dict[str, str], message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        _merged("one", **specs)

    assert str(refused.value) == message


def _substituted(text: str, **values: Any) -> Any:
    [node] = documents.parse(dedent(text).encode(), "rule.yaml")
    parameters = {name: Node(value, node.at) for name, value in values.items()}
    return inheritance.substituted(node, parameters).plain()


@pytest.mark.parametrize(
    ("text", "values", "becomes"),
    [
        ("a: $(x)", {"x": "text"}, {"a": "text"}),
        ("a: $(x)", {"x": 5}, {"a": 5}),
        ("a: $(x)", {"x": True}, {"a": True}),
        ("a: pre-$(x)-$(y)", {"x": 5, "y": "z"}, {"a": "pre-5-z"}),
        ("$(x)/gpu: 1", {"x": "vendor.example"}, {"vendor.example/gpu": 1}),
        ("a: [{b: $(x)}]", {"x": "c"}, {"a": [{"b": "c"}]}),
        ("a: $(x)", {"x": "$(y)", "y": "z"}, {"a": "$(y)"}),
        ("a: $x $( x) ${x} {x}", {"x": "c"}, {"a": "$x $( x) ${x} {x}"}),
    ],
)
def test_what_a_parameter_becomes(text: str, values: dict[str, Any], becomes: Any) -> None:
    assert _substituted(text, **values) == becomes


def test_a_parameter_that_is_not_declared_is_said_with_the_nearest() -> None:
    with pytest.raises(DocumentError) as refused:
        _substituted("a:\n- b: $(resuorce)", resource="x")

    assert (
        str(refused.value)
        == 'rule.yaml:2:6: spec.a[0].b: no parameter is called "resuorce" (did you mean "resource"?)'
    )


def test_a_parameter_has_a_default() -> None:
    [spec] = documents.parse(b"parameters:\n  x: {default: 5, description: a number}\n  y: {default: z}", "rule.yaml")

    assert {name: node.plain() for name, node in inheritance.declared(spec).items()} == {"x": 5, "y": "z"}
