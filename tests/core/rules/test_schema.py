"""What editors are told of rules, and what reads them: neither knows a key or a word that the other does not."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.edited import edited, places
from tests.laws import SOAK
from webhook.cli.schema import MEANINGS, schema
from webhook.core.forms.document import DocumentError, Node
from webhook.core.kube.fields import Path as Steps
from webhook.core.kube.fields import Put, Remove
from webhook.core.rules import load
from webhook.core.rules.verbs import VERBS
from webhook.files.documents import parse

SCHEMA = schema()
EDITOR = Draft202012Validator(SCHEMA)
EVERYTHING = sorted(Path(__file__).with_name("everything").glob("*.yaml"))
"""Rules with every section and every word there is; `backend.yaml`, one that extends it, a cluster, a catalogue."""


def _node(file: Path) -> Node:
    (document,) = parse(file.read_bytes(), file.name)
    return document


NODES = {file.name: _node(file) for file in EVERYTHING}
MEMORY = load.Memory(200)
RULES = {name: node.plain() for name, node in NODES.items()}


def _problems(name: str, rule: Any) -> list[str]:
    """What is said of one of the rules when it looks like this, beside those that it names."""
    (document,) = parse(json.dumps(rule).encode(), name)
    beside = [node for other, node in NODES.items() if other not in {name, "extending.yaml"}]
    try:
        load.read([document, *beside], "", MEMORY)
    except DocumentError as error:
        return [problem.message for problem in error.problems if problem.at.file in {name, "rules"}]
    return []


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", RULES)
def test_rules_with_everything_are_right_to_both(name: str) -> None:
    assert [error.message for error in EDITOR.iter_errors(RULES[name])] == []
    assert _form(_problems(name, RULES[name])) == []


def test_every_verb_is_explained() -> None:
    assert MEANINGS.keys() == set(VERBS)


# Every value replaced by others: what is wrong to the readers is wrong to an editor, and what is right is right

OTHERS: tuple[Any, ...] = (0, "word", [], {}, None, True, -1, 2.5, "{word}", "count", [[]], {"word": 1})
"""Two of them are tried in every place, in turn, and with SOAK=1 all of them."""

NOT_FORM = (
    "^no (rule|catalogue|parameter|back end)|does not enable|has no parameter|nothing under reads",
    "is no multiple of|less than min|^no number is from|has a meaning already",
    "^two keys become|stands in a text, and is|^the example|^what becomes of|: in a key only",
    "is in another list than|is not within",
    "no request both has|is made by|is for partitions|stands here a second time|nothing writes the parameter",
    "is no (key|value|name|glob|model|product|profile|placement)|^nothing fills|for requests of authors of pods",
    "is the name of a mode for other requests|^fit lists each value once",
    "no Cluster document|goes round in a circle|is defined already|is a device already",
)
"""Problems no schema knows of: names elsewhere; sums; what parameters and examples become; what contradicts itself;
names of Kubernetes, which may have holes; the rules together."""

VALUES_OF_PARAMETERS = ("spec", "parameters")
"""They stand where the schema sees only the parameter's name."""

EXPECTATIONS = ("spec", "examples", 1)
"""What an example expects is stricter in the schema: another type never comes out, but is no mistake in form."""


def _form(problems: list[str]) -> list[str]:
    return [problem for problem in problems if not re.search("|".join(NOT_FORM), problem)]


def _at(rule: Any, place: Steps) -> Any:
    for step in place:
        rule = rule[step]
    return rule


def _changes(rule: Any) -> Iterator[tuple[Steps, Any]]:
    """The rule with one thing changed: another value, a key less, a key more; and where that is."""
    for count, place in enumerate([(), *places(rule)]):
        if isinstance(_at(rule, place), dict):
            yield place, edited([Put((*place, "word"), "text")], rule)
        if place and isinstance(place[-1], str):
            yield place, edited([Remove(place)], rule)
        for other in OTHERS if SOAK else (OTHERS[count % len(OTHERS)], OTHERS[-count % len(OTHERS)]):
            if place:
                yield place, edited([Put(place, other)], rule)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.large] * (name == "backend.yaml")) for name in RULES]
)
def test_whatever_is_changed_editors_and_readers_agree(name: str) -> None:
    for place, changed in _changes(RULES[name]):
        fine, said = EDITOR.is_valid(changed), _problems(name, changed)
        explained = VALUES_OF_PARAMETERS if fine else EXPECTATIONS
        agreed = not _form(said) if fine else bool(said)
        assert agreed or place[: len(explained)] == explained, (place, _at_most(changed, place), said)


def _at_most(rule: Any, place: Steps) -> Any:
    """What is at a place, if it is still there."""
    try:
        return _at(rule, place)
    except KeyError:
        return "nothing"


@pytest.mark.parametrize("name", RULES)
def test_no_message_shows_how_the_program_keeps_a_document(name: str) -> None:
    """A mapping or a list in every place: as the value of a parameter it may come to stand in a text."""
    rule = RULES[name]
    others: tuple[Any, ...] = ({"word": 1}, [[]])
    changed = (edited([Put(place, other)], rule) for place in places(rule) for other in others)

    assert [problem for each in changed for problem in _problems(name, each) if "Node(" in problem] == []


def test_a_parameter_may_stand_for_any_scalar_of_a_back_end() -> None:
    rule = RULES["backend.yaml"]
    scalars = [place for place in places(rule) if not isinstance(_at(rule, place), dict | list)]

    refused = [place for place in scalars if not EDITOR.is_valid(edited([Put(place, "$(name)")], rule))]
    assert refused == [("apiVersion",), ("kind",)]


@pytest.mark.parametrize("section", ["limits", "annotations", "labels", "env", "nodeAffinity", "when"])
def test_a_parameter_may_stand_in_any_key_of_a_back_end(section: str) -> None:
    place = ("spec", "modes", 0, section, "a.example/$(name)")

    assert EDITOR.is_valid(edited([Put(place, "$(b)")], RULES["backend.yaml"]))


def test_a_parameter_stands_nowhere_else() -> None:
    assert not EDITOR.is_valid(edited([Put(("spec", "unknownValue"), "$(name)")], RULES["cluster.yaml"]))
    assert not EDITOR.is_valid(edited([Put(("spec", "devices", 0, "memory"), "$(name)")], RULES["catalog.yaml"]))
