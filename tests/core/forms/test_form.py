"""A form is declared once: one line more, and the key is read, hinted at, described, defined and documented."""

from dataclasses import dataclass

from tests import crds, reference, tables
from webhook.core.forms.document import Location, Problem
from webhook.core.forms.forms import (
    FLAG,
    TEXT,
    any_of,
    derived,
    document,
    form,
    line,
    list_of,
    optional,
    place,
    required,
    size,
    whole,
)
from webhook.files.documents import parse


@dataclass(frozen=True, kw_only=True)
class Shelf:
    name: str = derived(document)
    at: Location = derived(place)
    rule: str = derived(line)
    boards: int = required(whole(), "How many boards it has.", 5)
    room: str | None = optional(TEXT, "Where it stands.")


@dataclass(frozen=True, kw_only=True)
class DeepShelf(Shelf):
    depth: int = optional(size(("Gi", "Mi"), "1Gi"), "How much each board holds.", "8Gi", key="boardDepth", default=0)


SHELF = form(Shelf)
DEEP = form(DeepShelf)
"""The same with one key more, which took one line."""

AT = Location("shelf.yaml", 1)


def _read(text: str, shelf: type[Shelf] = DeepShelf) -> tuple[Shelf, list[str]]:
    (node,) = parse(text.encode(), "shelf.yaml")
    problems: list[Problem] = []
    return form(shelf).read_spec("oak", node, problems), [str(problem) for problem in sorted(problems)]


def test_the_key_is_read() -> None:
    assert _read("{boards: 3, boardDepth: 8Gi}") == (
        DeepShelf(name="oak", at=AT, rule="oak (shelf.yaml:1)", boards=3, room=None, depth=8 << 30),
        [],
    )


def test_the_key_may_be_left_out() -> None:
    assert _read("{boards: 3}")[0] == DeepShelf(name="oak", at=AT, rule="oak (shelf.yaml:1)", boards=3, depth=0)


@tables.rows
def test_what_is_wrong_is_said(shelf: str, text: str, problems: list[str]) -> None:
    assert _read(text, {"deep": DeepShelf, "flat": Shelf}[shelf])[1] == problems


def test_editors_are_told_of_the_key() -> None:
    added = {
        key: DEEP.schema["properties"][key] for key in DEEP.schema["properties"].keys() - SHELF.schema["properties"]
    }

    assert added == {
        "boardDepth": {
            "description": "How much each board holds.",
            "type": "string",
            "pattern": r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i|[kMGT])$",
            "patternErrorMessage": "write a size with its unit, as 1Gi",
            "examples": ["8Gi"],
        }
    }
    assert (DEEP.schema["required"], DEEP.schema["additionalProperties"]) == (["boards"], False)


def test_a_definition_has_the_key() -> None:
    assert crds.structural(DEEP.schema) == {
        "type": "object",
        "required": ["boards"],
        "properties": {
            "boards": {"type": "integer", "description": "How many boards it has.", "minimum": 1},
            "room": {"type": "string", "description": "Where it stands."},
            "boardDepth": {"type": "string", "description": "How much each board holds."},
        },
    }


def test_the_table_has_the_key() -> None:
    added = set(reference.keys(DEEP.schema).splitlines()) - set(reference.keys(SHELF.schema).splitlines())

    assert added == {"| `boardDepth` | How much each board holds. | `8Gi` |"}


@dataclass(frozen=True, kw_only=True)
class Pair:
    left: bool = optional(FLAG, "The left one.", default=False)
    others: tuple[str, ...] = optional(list_of(TEXT), "More of them.", default=())


def test_a_rule_of_several_keys_is_one_for_the_reader_and_for_editors() -> None:
    pair, problems = form(Pair, any_of("left", "others")), list[Problem]()

    (node,) = parse(b"{}", "pair.yaml")
    pair.read_spec("pair", node, problems)

    assert [str(problem) for problem in problems] == ["pair.yaml:1:1: spec: needs left or others"]
    assert pair.schema["anyOf"] == [{"required": ["left"]}, {"required": ["others"]}]


def test_each_wrong_element_of_a_list_is_said() -> None:
    problems: list[Problem] = []
    (node,) = parse(b"others: [a, 1, b, 2]", "pair.yaml")

    assert form(Pair).read_spec("pair", node, problems) == Pair(others=("a", "b"))
    assert [problem.path for problem in problems] == ["spec.others[1]", "spec.others[3]"]
