"""What editors are told of rules, and what reads them: neither knows a key or a word that the other does not."""

import copy
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.laws import SOAK
from webhook.core.document import DocumentError, Node, Section
from webhook.core.editor import documents, outputs
from webhook.core.schema import rulebooks
from webhook.core.schema.outputs import VERBS
from webhook.core.shorthand import KEYS
from webhook.documents import parse

SCHEMA = documents.schema()
EDITOR = Draft202012Validator(SCHEMA)
EVERYTHING = sorted(Path(__file__).with_name("everything").glob("*.yaml"))
"""Rules with every section and every word there is; `backend.yaml`, one that extends it, a cluster, a catalogue."""

Place = tuple[str | int, ...]


def _node(file: Path) -> Node:
    (document,) = parse(file.read_bytes(), file.name)
    return document


NODES = {file.name: _node(file) for file in EVERYTHING}
RULES = {name: node.plain() for name, node in NODES.items()}


def _problems(name: str, rule: Any) -> list[str]:
    """What is said of one of the rules when it looks like this, beside those that it names."""
    (document,) = parse(json.dumps(rule).encode(), name)
    beside = [node for other, node in NODES.items() if other not in {name, "extending.yaml"}]
    try:
        rulebooks.rulebook([document, *beside], "")
    except DocumentError as error:
        return [problem.message for problem in error.problems if problem.at.file in {name, "rules"}]
    return []


# The schema, walked like the rules that it describes


def _forms(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema with all alternatives of it."""
    if not isinstance(schema, dict):
        return
    yield schema
    if "$ref" in schema:
        yield from _forms(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    for key in ("anyOf", "allOf", "oneOf"):
        for form in schema.get(key, ()):
            yield from _forms(form)
    for key in ("then", "else"):
        yield from _forms(schema.get(key))


def _forms_at(place: Place) -> list[dict[str, Any]]:
    forms = list(_forms(SCHEMA))
    for step in place:
        inner = [_child(form, step) for form in forms]
        forms = [form for schema in inner for form in _forms(schema)]
    return forms


def _child(form: dict[str, Any], step: str | int) -> Any:
    if isinstance(step, int):
        return form.get("items")
    return form.get("properties", {}).get(step, form.get("additionalProperties"))


def _closed(schema: Any) -> Iterator[dict[str, Any]]:
    """Every mapping with a fixed set of keys that stands anywhere in a schema."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            yield schema
        for value in schema.values():
            yield from _closed(value)
    for element in schema if isinstance(schema, list) else ():
        yield from _closed(element)


def _place(path: str) -> Place:
    """`spec.modes[0].limits["a.b/c"]` as steps."""
    steps = re.findall(r'\["([^"]*)"\]|\[([0-9]+)\]|([^.\[]+)', path)
    return tuple(int(index) if index else quoted or key for quoted, index, key in steps)


# The readers, and which keys they ask for


Asked = dict[tuple[str, str], tuple[set[str], set[str]]]
"""For each mapping in the rules, by file and path: the keys that are read there, and those that are needed."""


@pytest.fixture(scope="module")
def asked() -> Asked:
    taken: dict[Section, set[str]] = defaultdict(set)
    needed: dict[Section, set[str]] = defaultdict(set)
    found: Asked = {}
    take, need, done = Section.take, Section.need, Section.done

    def recorded_take(section: Section, key: str, read: Any, default: Any) -> Any:
        taken[section].add(key)
        return take(section, key, read, default)

    def recorded_need(section: Section, key: str, read: Any, default: Any) -> Any:
        needed[section].add(key)
        return need(section, key, read, default)

    def recorded_done(section: Section) -> None:
        path = section.node.path
        # Decimals of a resource are read only to say that it has none.
        keys = taken[section] - {"digits"} if re.search(r"\.(limits|resources)\[", path) else taken[section]
        if section.given():
            found[section.node.at.file, path] = keys, needed[section]
        done(section)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Section, "take", recorded_take)
        patch.setattr(Section, "need", recorded_need)
        patch.setattr(Section, "done", recorded_done)
        _problems("extending.yaml", RULES["extending.yaml"])
    return found


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", RULES)
def test_rules_with_everything_are_right_to_both(name: str) -> None:
    assert [error.message for error in EDITOR.iter_errors(RULES[name])] == []
    assert _form(_problems(name, RULES[name])) == []


def _keys(form: dict[str, Any]) -> frozenset[str]:
    """The keys of a mapping in the schema, without the one that is resolved before a back end is read."""
    return frozenset(form.get("properties", ())) - {"extends"}


def test_every_key_that_is_read_is_shown_there_and_no_other(asked: Asked) -> None:
    for (file, path), (keys, _) in asked.items():
        assert keys in [_keys(form) for form in _forms_at(_place(path))], f"{file}: {path}"


def test_no_key_is_shown_that_nothing_reads(asked: Asked) -> None:
    shown = {_keys(form) for form in _closed(SCHEMA)}
    read = {frozenset(keys) for keys, _ in asked.values()}
    read_without_a_section = {frozenset(VERBS), frozenset(KEYS), frozenset({"default", "description"})}

    assert shown == read | read_without_a_section


def test_every_key_that_is_needed_is_marked_so(asked: Asked) -> None:
    for (file, path), (keys, needed) in asked.items():
        forms = [form for form in _forms_at(_place(path)) if _keys(form) == keys]
        # The key that makes a mapping what it is, a label that must be absent, is looked for before it is read.
        assert needed in [set(form.get("required", ())) for form in forms] or keys == {"absent"}, f"{file}: {path}"


def test_every_verb_is_explained() -> None:
    assert outputs.MEANINGS.keys() == set(VERBS)


# Every value replaced by others: what is wrong to the readers is wrong to an editor, and what is right is right

OTHERS: tuple[Any, ...] = (0, "word", [], {}, None, True, -1, 2.5, "{word}", "count", [[]], {"word": 1})
"""Two of them are tried in every place, in turn, and with SOAK=1 all of them."""

NOT_FORM = (
    "^no (rule|catalogue|parameter|back end)|does not enable|has no parameter|nothing under reads",
    "is no multiple of|less than min|^no number is from|has a meaning already",
    "^two keys become|^the example|^what becomes of",
    "no Cluster document|goes round in a circle|is defined already|is a device already",
)
"""Problems no schema knows of: names elsewhere; sums; what parameters and examples become; the rules together."""

VALUES_OF_PARAMETERS = ("spec", "parameters")
"""They stand where the schema sees only the parameter's name."""

EXPECTATIONS = ("spec", "examples", 1)
"""What an example expects is stricter in the schema: another type never comes out, but is no mistake in form."""


def _form(problems: list[str]) -> list[str]:
    return [problem for problem in problems if not re.search("|".join(NOT_FORM), problem)]


def _places(value: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from _places(inner, (*place, key))


def _changed(rule: Any, place: Place, other: Any) -> Any:
    """The rule with another value at a place, which may be a new key."""
    if not place:
        return other
    changed = copy.copy(rule)
    inner = rule[place[0]] if len(place) > 1 else None
    changed[place[0]] = _changed(inner, place[1:], other)
    return changed


def _without(rule: Any, place: Place) -> Any:
    """The rule without a key."""
    changed = copy.deepcopy(rule)
    at = changed
    for step in place[:-1]:
        at = at[step]
    del at[place[-1]]
    return changed


def _at(rule: Any, place: Place) -> Any:
    for step in place:
        rule = rule[step]
    return rule


def _changes(rule: Any) -> Iterator[tuple[Place, Any]]:
    """The rule with one thing changed: another value, a key less, a key more; and where that is."""
    for count, place in enumerate(_places(rule)):
        if isinstance(_at(rule, place), dict):
            yield place, _changed(rule, (*place, "word"), "text")
        if place and isinstance(place[-1], str):
            yield place, _without(rule, place)
        for other in OTHERS if SOAK else (OTHERS[count % len(OTHERS)], OTHERS[-count % len(OTHERS)]):
            if place:
                yield place, _changed(rule, place, other)


@pytest.mark.parametrize("name", RULES)
def test_whatever_is_changed_editors_and_readers_agree(name: str) -> None:
    for place, changed in _changes(RULES[name]):
        fine, said = EDITOR.is_valid(changed), _problems(name, changed)
        explained = VALUES_OF_PARAMETERS if fine else EXPECTATIONS
        agreed = not _form(said) if fine else bool(said)
        assert agreed or place[: len(explained)] == explained, (place, _at_most(changed, place), said)


def _at_most(rule: Any, place: Place) -> Any:
    """What is at a place, if it is still there."""
    try:
        return _at(rule, place)
    except KeyError:
        return "nothing"


@pytest.mark.parametrize("name", RULES)
def test_editors_offer_the_words_that_are_read(name: str) -> None:
    for place in _places(RULES[name]):
        offered = [form["enum"] for form in _forms_at(place) if form.get("type") == "string" and "enum" in form]
        if not isinstance(_at(RULES[name], place), str) or not offered:
            continue
        said = "\n".join(_problems(name, _changed(RULES[name], place, "-")))
        read = re.search(r'"-" is not one of ([^"(]*?)(?: \(|$)', said, re.MULTILINE)
        assert read is not None, (place, said)
        # A node label holds no spaces, so the form that has some is not offered there.
        words = [*filter("name".__ne__, read[1].split(", "))] if "nodeAffinity" in place else read[1].split(", ")
        assert words in offered, place


def test_a_parameter_may_stand_for_any_scalar_of_a_back_end() -> None:
    rule = RULES["backend.yaml"]
    scalars = [place for place in _places(rule) if not isinstance(_at(rule, place), dict | list)]

    refused = [place for place in scalars if not EDITOR.is_valid(_changed(rule, place, "$(name)"))]
    assert refused == [("apiVersion",), ("kind",)]


@pytest.mark.parametrize("section", ["limits", "annotations", "labels", "env", "nodeAffinity", "when"])
def test_a_parameter_may_stand_in_any_key_of_a_back_end(section: str) -> None:
    assert EDITOR.is_valid(
        _changed(RULES["backend.yaml"], ("spec", "modes", 0, section, "a.example/$(name)"), "$(b)")
    )


def test_a_parameter_stands_nowhere_else() -> None:
    assert not EDITOR.is_valid(_changed(RULES["cluster.yaml"], ("spec", "unknownValue"), "$(name)"))
    assert not EDITOR.is_valid(_changed(RULES["catalog.yaml"], ("spec", "devices", 0, "memory"), "$(name)"))
