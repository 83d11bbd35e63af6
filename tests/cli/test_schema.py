"""`gpu-webhook schema`, and the rules that editors check with it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests import builders, readme, tables
from tests.cases import golden
from tests.cli.program import run
from webhook.cli import schema as schemas
from webhook.core import request
from webhook.core.forms.document import DocumentError
from webhook.files.documents import parse

SCHEMA = builders.RULES / "schemas" / "rules.json"
MODELINE = "# yaml-language-server: $schema=schemas/rules.json"
SHIPPED = [file for file in sorted(builders.RULES.glob("*.yaml")) if file.name != "kustomization.yaml"]
NAMES = schemas.names(builders.rulebook(builders.shipped_files()))
CASES = [case for case in golden.find() if (case.folder / "rules").exists()]

BEYOND_A_SCHEMA = {case for cases in tables.table(__file__, "beyond a schema").values() for case in cases}
"""Wrong rules of tests/cases that the schema does not object to; the table has them by why it cannot."""


@cache
def _editor(kind: str | None) -> Draft202012Validator:
    """What checks documents of one kind, or of any."""
    return Draft202012Validator(schemas.schema(kind))


def _mistakes(text: str, kind: str | None = None) -> Iterator[str]:
    for document in parse(text.encode(), "rule.yaml"):
        for error in _editor(kind).iter_errors(document.plain()):
            yield f"{error.json_path}: {error.message}"


def _is_marked(file: Path) -> bool:
    """Whether an editor marks something in a file because of the schema."""
    try:
        return any(_mistakes(file.read_text()))
    except DocumentError:
        return False


def test_it_prints_the_schema_of_any_rule() -> None:
    ran = run("schema")

    assert (ran.code, ran.err) == (0, "")
    assert ran.json == schemas.schema(named=NAMES)
    assert ran.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_it_prints_the_schema_of_one_kind(kind: str) -> None:
    ran = run("schema", kind)

    assert (ran.code, ran.err) == (0, "")
    assert ran.json["title"] == kind
    Draft202012Validator.check_schema(ran.json)


def test_an_unknown_kind_is_wrong_usage_and_told_the_kinds() -> None:
    ran = run("schema", "BackEnd")

    assert (ran.code, ran.out) == (2, "")
    for kind in schemas.KINDS:
        assert kind in ran.err


def test_the_shipped_file_is_what_is_printed() -> None:
    assert SCHEMA.read_text() == run("schema").out, "say: gpu-webhook schema > rules/schemas/rules.json"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_rules_are_right_and_say_where_their_schema_is(file: Path) -> None:
    first, *others = file.read_text().splitlines()

    assert first == MODELINE
    assert {line for line in others if line.startswith("---")} <= {f"--- {MODELINE}"}
    assert (file.parent / first.partition("$schema=")[2]).samefile(SCHEMA)
    assert [*_mistakes(file.read_text())] == []


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_the_schema_of_a_kind_takes_this_kind_only(kind: str) -> None:
    for file in SHIPPED:
        right = all(document.plain()["kind"] == kind for document in parse(file.read_bytes(), file.name))
        assert any(_mistakes(file.read_text(), kind)) != right, file.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_rules_of_a_case_are_to_check_they_are_to_editors(case: golden.Case) -> None:
    files = sorted((case.folder / "rules").glob("*.yaml"))
    wrong = (case.folder / "problems.txt").exists() and case.folder.name not in BEYOND_A_SCHEMA

    assert any(map(_is_marked, files)) == wrong


def test_no_reason_outlives_its_case() -> None:
    assert {case.folder.name for case in CASES} >= BEYOND_A_SCHEMA


def test_the_rule_of_the_walk_through_is_right() -> None:
    text = readme.POLICIES.read_text() + readme.BACKENDS.read_text()

    for rule in ("rules/acme.yaml", "back end", "policy.yaml", "protection", "workload"):
        assert [*_mistakes(readme.block(rule, text))] == []


def test_every_key_is_in_the_reference() -> None:
    text = readme.REFERENCE.read_text()

    of_kubernetes = {"tolerationSeconds"}
    keys = _keys(schemas.schema()) - of_kubernetes - request.KEYS.keys()
    assert [key for key in sorted(keys) if key not in text] == []


def _keys(schema: Any) -> set[str]:
    """Every key that an editor offers."""
    if isinstance(schema, list):
        return {key for element in schema for key in _keys(element)}
    if not isinstance(schema, dict):
        return set()
    own = schema["properties"].keys() if schema.get("additionalProperties") is False else set()
    return {*own, *(key for value in schema.values() for key in _keys(value))}
