"""YAML, read with the place of every key and value; what Kubernetes could not hold is refused."""

from typing import Any

import pytest

from webhook.core.forms.document import DocumentError, Location, Node
from webhook.files import documents


def _read(text: str) -> list[Node]:
    return documents.parse(text.encode(), "rules.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ('a: "1"', {"a": "1"}),
        ("a: 0.5", {"a": 0.5}),
        ("a: yes", {"a": True}),
        ("a:", {"a": None}),
        ("a: [x, {b: c}]", {"a": ["x", {"b": "c"}]}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2026-11-21", {"a": "2026-11-21"}),
        ("1: x", {"1": "x"}),
        ("yes: x", {"yes": "x"}),
        ("a: &one [x]\nb: *one", {"a": ["x"], "b": ["x"]}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
    ],
)
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", 'rules.yaml:3:1: the key "a" stands here a second time; first at rules.yaml:1'),
        ("a: {b: 1, b: 2}", 'rules.yaml:1:11: the key "b" stands here a second time; first at rules.yaml:1'),
        ('a: 1\n"a": 2', 'rules.yaml:2:1: the key "a" stands here a second time; first at rules.yaml:1'),
        ("a: [", "rules.yaml:2:1: is not YAML: did not find expected node content"),
        (
            "a: b: c",
            (
                "rules.yaml:1:5: is not YAML: mapping values are not allowed in this context;"
                " indent it as its neighbours, or quote a text with a colon"
            ),
        ),
        (
            "\ta: 1",
            (
                "rules.yaml:1:1: is not YAML: found character that cannot start any token;"
                " indent with spaces, not tabs, and quote a text that begins so"
            ),
        ),
        (
            "a:\n  b: 1\n c: 2",
            (
                "rules.yaml:3:2: is not YAML: did not find expected key;"
                " look at the indentation and quotes here and above"
            ),
        ),
        (
            "a: [*]",
            (
                "rules.yaml:1:6: is not YAML: did not find expected alphabetic or numeric character;"
                ' quote a text that begins with * or &, as "*"'
            ),
        ),
        (
            "kind: A\na: {kind: B, kind: C}",
            'rules.yaml:2:14: the key "kind" stands here a second time; first at rules.yaml:2',
        ),
        (
            "kind: A\nkind: B",
            (
                'rules.yaml:2:1: the key "kind" stands here a second time; first at rules.yaml:1;'
                " if another document begins here, write --- above it"
            ),
        ),
        ("a: *nobody", 'rules.yaml:1:4: the anchor "nobody" is not defined before'),
        ("a: &loop [*loop]", 'rules.yaml:1:11: the anchor "loop" is not defined before'),
        ("a: &x {b: 1}\nc:\n  <<: *x", "rules.yaml:3:3: merge keys (<<) are not read; write the keys out"),
        ("{[a]: b}", "rules.yaml:1:2: has to be a plain key"),
        ("a: .nan", "rules.yaml:1:4: is no number that JSON can hold"),
        ("a: .inf", "rules.yaml:1:4: is no number that JSON can hold"),
        ("a: 9223372036854775808", "rules.yaml:1:4: is no number that JSON can hold"),
        (
            "a: !!python/object:os.system x",
            "rules.yaml:1:4: has the tag !!python/object:os.system, which JSON and so Kubernetes has not",
        ),
        ("a: !!binary eA==", "rules.yaml:1:4: has the tag !!binary, which JSON and so Kubernetes has not"),
        ("a: !mine x", "rules.yaml:1:4: has the tag !mine, which JSON and so Kubernetes has not"),
    ],
)
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
