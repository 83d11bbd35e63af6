"""`extends:` and `$(parameter)`: what a site may change without a copy."""

from textwrap import dedent
from typing import Any

import pytest

from tests import tables
from webhook.core.forms import inheritance
from webhook.core.forms.document import DocumentError, Node
from webhook.files import documents


def _merged(name: str, **texts: str) -> Node:
    """One of the specs, each in a file of its name."""
    specs = {name: documents.parse(dedent(text).encode(), f"{name}.yaml")[0] for name, text in texts.items()}
    return inheritance.merged(inheritance.lineage(name, specs))


@tables.rows
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


@tables.rows
def test_what_cannot_be_extended_is_said(specs: dict[str, str], message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        _merged("one", **specs)

    assert str(refused.value) == message


def _substituted(text: str, **values: Any) -> Any:
    [node] = documents.parse(dedent(text).encode(), "rule.yaml")
    parameters = {name: Node(value, node.at) for name, value in values.items()}
    return inheritance.substituted(node, parameters).plain()


@tables.rows
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
