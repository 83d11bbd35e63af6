"""YAML, read with the place of every key and value; what Kubernetes could not hold is refused."""

from typing import Any

import pytest

from tests import tables
from webhook.core.forms.document import DocumentError, Location, Node
from webhook.files import documents


def _read(text: str) -> list[Node]:
    return documents.parse(text.encode(), "rules.yaml")


@tables.rows
def test_a_document_is_what_it_says(text: str, value: Any) -> None:
    [document] = _read(text)

    assert document.plain() == value


def test_a_file_may_hold_several_documents_and_empty_ones() -> None:
    assert [document.plain() for document in _read("---\na: 1\n---\n# nothing\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]


def test_every_key_and_value_has_its_place() -> None:
    [document] = _read("a:\n  - b:  c\n")

    assert document.keys == {"a": Location("rules.yaml", 1, 1)}
    [element] = document.value["a"].elements()
    assert element.keys == {"b": Location("rules.yaml", 2, 5)}
    assert element.value["b"].at == Location("rules.yaml", 2, 9)


def _refusal(text: str) -> str:
    with pytest.raises(DocumentError) as refused:
        _read(text)
    return str(refused.value)


@tables.rows
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    assert _refusal(text) == message


def test_what_is_no_text_is_no_yaml() -> None:
    with pytest.raises(DocumentError, match=r"^rules.yaml:1:4: is no text in UTF-8: "):
        documents.parse(b"a: \xff\xfe", "rules.yaml")


def test_depth_is_bounded() -> None:
    assert _refusal("[" * 100_000).startswith("rules.yaml:1:102: is nested more than 100 deep")


def test_aliases_do_not_multiply_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    assert _refusal("\n".join(lines)).endswith("holds more than 500000 values")


def test_what_is_no_utf_8_is_refused_with_its_line() -> None:
    with pytest.raises(DocumentError, match=r"^rules.yaml:2:[56]: is no text in UTF-8: "):
        documents.parse(b'a: b\nc: "\xe4\xf6"\n', "rules.yaml")
