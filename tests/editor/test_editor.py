"""An editor completes and explains what the forms say: in block and in flow style, in each document of a file."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from tests import builders, tables
from tests.editor import server
from tests.editor.server import Editor
from tests.missing import UnavailableError, announcing, skip_unless_ci
from webhook.cli.schema import schema

pytestmark = pytest.mark.editor

FILE = builders.RULES / "in-an-editor.yaml"
"""Shown to the server, and never written."""

FIRST = "# yaml-language-server: $schema=schemas/rules.json\n"
NEXT = f"--- {FIRST}"
EVERYTHING = sorted((builders.ROOT / "tests" / "core" / "rules" / "everything").glob("*.yaml"))
DOCUMENTS = {
    **{file.stem: yaml.safe_load(file.read_text()) for file in EVERYTHING},
    **tables.table(__file__, "documents with every key"),
}
"""Documents that have together every key that there is."""


@pytest.fixture(scope="module")
def editor(request: pytest.FixtureRequest) -> Iterator[Editor]:
    """A server that reads nothing but what it is shown, and the schema."""
    try:
        program = server.find(announcing(request))
    except UnavailableError as reason:
        skip_unless_ci(str(reason))
    with server.running(program) as client:
        yield client


@cache
def _meanings() -> dict[str, set[str]]:
    """What the forms say of a key, at any place."""
    meanings: dict[str, set[str]] = {}

    def walk(part: Any) -> None:
        if isinstance(part, list):
            for element in part:
                walk(element)
        if isinstance(part, dict):
            properties = part.get("properties")
            if isinstance(properties, dict):
                for key, child in properties.items():
                    if isinstance(child, dict) and isinstance(child.get("description"), str):
                        meanings.setdefault(key, set()).add(child["description"])
            for child in part.values():
                walk(child)

    walk(schema())
    return meanings


NAMES = ("annotations", "labels", "parameters")
"""Keys under which keys are free."""

OBJECTS = ("pod", "object", "given", "everything")
"""Keys under which objects of Kubernetes stand, and the back end whose parameters a cluster sets."""


def _keys(node: yaml.Node | None, parent: str = "") -> Iterator[yaml.ScalarNode]:
    """Every key of a document that a form may have, where it stands."""
    if isinstance(node, yaml.MappingNode) and parent not in OBJECTS:
        for key, value in node.value:
            if parent not in NAMES:
                yield key
            yield from _keys(value, key.value)
    if isinstance(node, yaml.SequenceNode) and parent not in OBJECTS:
        for element in node.value:
            yield from _keys(element)


def _place(text: str) -> tuple[str, int, int]:
    """A text without its `|`, and where that was."""
    before, _, after = text.partition("|")
    return before + after, before.count("\n"), len(before) - (before.rfind("\n") + 1)


@tables.rows
def test_it_offers_what_may_stand_there(text: str, offers: list[str], editor: Editor) -> None:
    shown, line, column = _place(FIRST + text.replace("---\n", NEXT))
    editor.open(FILE, shown)

    assert {*offers} <= {*editor.completed(FILE, line, column)}


@pytest.mark.parametrize("style", ["block", "flow"])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_each_key_of_each_form_is_explained_in_the_second_document_too(kind: str, style: str, editor: Editor) -> None:
    document = yaml.safe_dump(DOCUMENTS[kind], default_flow_style=style == "flow", sort_keys=False, width=100)
    text = f"{FIRST}{document}{NEXT}{document}"
    editor.open(FILE, text)

    unexplained = {
        (key.value, key.start_mark.line)
        for root in yaml.compose_all(text)
        for key in _keys(root)
        if key.value in _meanings()
        and not any(
            meaning in editor.hover(FILE, key.start_mark.line, key.start_mark.column + 1).replace("\\", "")
            for meaning in _meanings()[key.value]
        )
    }

    assert unexplained == set()


def test_no_key_is_left_out() -> None:
    tried = {key.value for document in DOCUMENTS.values() for key in _keys(yaml.compose(yaml.safe_dump(document)))}

    assert _meanings().keys() - tried == set()
