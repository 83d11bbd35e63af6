"""What a rule writes: numbers under limits, text in annotations, labels, env and node affinity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar, Final

from webhook.core.forms import labels
from webhook.core.forms.document import Location, Node, Section, inside, nearest
from webhook.core.forms.form import form, need, origin, take
from webhook.core.forms.shape import (
    FLAG,
    TEXT,
    Schema,
    Scope,
    Shape,
    each,
    many,
    pattern,
    shared,
    strict,
    whole,
    word,
)
from webhook.core.rules import verbs
from webhook.core.rules.verbs import LABEL_VERB, NUMBERS, VERB, Amount, any_verb, computed, number
from webhook.core.rules.vocabulary import HOLES, UNITS, VERBS, WORDS, filled, holes


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that a rule writes as it stands; strings may have holes (`{model}`).

    Several for node affinity: the label has one of them, or where there is none, it must not be there.
    """

    value: str | int | tuple[str, ...]
    at: Location
    enforce: bool = False
    rule: str = ""
    what: ClassVar = ""
    unit_name: ClassVar = ""
    digits: ClassVar = 0
    absent: ClassVar = None
    most: ClassVar = False
    is_number: ClassVar = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, with their holes."""
        return self.value if isinstance(self.value, tuple) else (str(self.value),)

    @property
    def words(self) -> tuple[str, ...]:
        """What of the request it says: the holes in it."""
        return tuple(hole for text in self.texts for hole in holes(text))

    def wrote(self, value: object) -> bool:
        """Whether it is a value of this rule, as it stands."""
        return value in self.texts

    @property
    def number(self) -> int:
        """The value of a limit, where the form of rules lets nothing but whole numbers pass."""
        if not isinstance(self.value, int):
            raise TypeError(f"{self.at}: {self.value!r} is no number")
        return self.value


Output = Amount | Constant
"""Both have the same properties, as far as they mean something of either: a constant computes nothing (`what`)."""


# Names that Kubernetes takes


def _legal_name(node: Node, _: Scope) -> str:
    if node.text() and not labels.is_subdomain(filled(node.text())):
        raise node.problem(f'"{node.text()}" is no name of an object; write a-z, 0-9, - and dots, as gpu-scheduler')
    return node.text()


def _legal_variable(node: Node, _: Scope) -> str:
    if not _VARIABLE.fullmatch(filled(node.text())):
        raise node.problem(f'"{node.text()}" is no name of a variable; write letters, digits and _, as GPU_MODE')
    return node.text()


_VARIABLE: Final = re.compile("[-._a-zA-Z][-._a-zA-Z0-9]*")
OBJECT: Final = TEXT.reading(_legal_name)
VARIABLES: Final = Shape(_legal_variable, {})
LABELS: Final = Shape(lambda node, _: labels.key(node, filled), {})
ANNOTATIONS: Final = Shape(lambda node, _: labels.key(node, lambda text: filled(text).lower()), {})
"""The names of objects and variables, and the keys of labels and annotations, with holes."""


def values_of_labels(found: Mapping[str, Output], path: str, scope: Scope) -> None:
    """Complain of texts that no label can have as its value."""
    for key, output in found.items():
        for text in output.texts if isinstance(output, Constant) else ():
            scope.attempt(partial(labels.value, Node(text, output.at, inside(path, key)), filled), "")


# Constants, and text with holes


def _holed(node: Node, _: Scope) -> str:
    """A text, whose holes are all of those that there are, or a number as its text."""
    if _is_number(node):
        return str(node.value)
    value = node.text()
    for hole in holes(value):
        if hole not in HOLES:
            known = ", ".join(f"{{{name}}}" for name in HOLES)
            raise node.problem(f'unknown hole "{{{hole}}}"{nearest(hole, HOLES)}; there are {known}')
    return value


def _is_number(node: Node) -> bool:
    """Whether a whole number stands where text belongs, as a parameter that is a number elsewhere may."""
    return isinstance(node.value, int) and not isinstance(node.value, bool)


def _text_schema(form: str, mistake: str) -> Schema:
    return pattern(form, mistake).schema | {"type": ["string", "integer"]}


_KNOWN: Final = f"only these holes are known: {', '.join(f'{{{name}}}' for name in HOLES)}"
_NO_OTHER_HOLE: Final = rf"(?![\s\S]*\{{(?!({'|'.join(HOLES)})\}})[A-Za-z]+\}})"
_NO_VERB: Final = rf"(?!({'|'.join(VERBS)})$)"

HOLED: Final = Shape(_holed, _text_schema(f"^{_NO_OTHER_HOLE}", _KNOWN), "")
"""Text with holes; a whole number is its text."""

_TEXT: Final = _text_schema(f"^{_NO_OTHER_HOLE}{_NO_VERB}", f"{_KNOWN}; and a verb is written as {{model: {{}}}}")


@dataclass(frozen=True, kw_only=True)
class _Enforced:
    value: str = need(HOLED, "The text, which may have holes.")
    enforce: bool = take(
        FLAG, "In env it replaces the pod's own value; as an annotation or label, another value is refused."
    )


def constant(value: str | int | tuple[str, ...], node: Node, scope: Scope) -> Constant:
    """The value that stands at a node."""
    return Constant(value, node.at, rule=origin(node, scope))


def _enforced(read: _Enforced, section: Section, scope: Scope) -> Constant:
    return replace(constant(read.value, section.node, scope), enforce=read.enforce)


@dataclass(frozen=True, kw_only=True)
class _Absent:
    absent: bool = need(Shape(FLAG.read, {"type": "boolean", "enum": [True]}, blank=False), "It must not be there.")


def _none(read: _Absent, section: Section, scope: Scope) -> Constant:
    if not read.absent:
        section.complain("absent can only be true")
    return constant((), section.node, scope)


_ENFORCED: Final = strict(form(_Enforced, after=_enforced))
ABSENT: Final = strict(form(_Absent, after=_none))
"""`{absent: true}`: the label or annotation must not be there."""


# What stands under limits, annotations, labels, env and nodeAffinity


def _limit(node: Node, scope: Scope) -> Output:
    if _is_number(node):
        return constant(node.integer(1), node, scope)
    if isinstance(node.value, str):
        return NUMBERS[node.word([*UNITS])].read(replace(node, value={}, keys={}), scope)
    verb = next(iter(node.value)) if isinstance(node.value, dict) and len(node.value) == 1 else ""
    if verb in WORDS:
        raise node.problem(f'"{verb}" is text, and a limit is a number; use one of {", ".join(UNITS)}')
    made = computed(node, scope)
    if made.digits:
        raise dict(node.items())[verb].problem("digits are for text: a resource is a whole number")
    return made


def _written(node: Node, scope: Scope) -> Output:
    if node.value in VERBS:
        raise node.problem(f"is a verb here only as {{{node.value}: {{}}}}")
    if isinstance(node.value, str) or _is_number(node):
        return constant(_holed(node, scope), node, scope)
    if isinstance(node.value, dict) and "value" in node.value:
        return _ENFORCED.read(node, scope)
    return computed(node, scope)


def _selected(node: Node, scope: Scope) -> Output:
    if isinstance(node.value, dict) and "absent" in node.value:
        return ABSENT.read(node, scope)
    if isinstance(node.value, list):
        return constant(tuple(_holed(element, scope) for element in node.elements()), node, scope)
    read = _written(node, scope)
    if isinstance(read, Amount) and read.form == "name":
        raise node.problem("node labels hold no spaces: use form: label")
    return read


# Other verbs are excluded outside of the alternatives: an editor then says of a slip that it is no verb, and not that
# a number was expected.
_LIMIT: Final[Schema] = {
    "anyOf": [whole().schema, word(UNITS).schema, any_verb({verb: number(verb, digits=False) for verb in UNITS})],
    "propertyNames": word(UNITS).schema,
    "minProperties": 1,
    "maxProperties": 1,
}
LIMIT: Final[Shape[Output]] = shared("limit", Shape(_limit, {}))
"""A number: a verb, or a whole number as it stands."""

WRITTEN: Final[Shape[Output]] = Shape(_written, {"anyOf": [_TEXT, shared("verb", VERB).schema, _ENFORCED.schema]})
"""A value under `annotations`, `labels` and `env`: text with holes, a verb, or `{value: ..., enforce: true}`."""

SELECTED: Final[Shape[Output]] = Shape(
    _selected,
    {
        "anyOf": [
            _TEXT,
            many(HOLED).schema,
            ABSENT.schema,
            shared("nodeLabelVerb", LABEL_VERB).schema,
            _ENFORCED.schema,
        ]
    },
)
"""A value under `nodeAffinity`: one text, a list of them, a verb, or `{absent: true}`."""


# What a mode, or a back end whatever the mode, writes beside limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written beside limits, by key."""

    annotations: Mapping[str, Output] = take(
        each(WRITTEN, ANNOTATIONS),
        "Annotations of the pod: text, which may have holes as `{model}`, or a verb. In a mode the key of a"
        " number may have the hole `{container}`, the container's name.",
        {"acme.example/placement": {"placement": {}}},
    )
    labels: Mapping[str, Output] = take(
        each(WRITTEN, LABELS), "Labels of the pod: text, which may have holes as `{model}`, or a verb."
    )
    env: Mapping[str, Output] = take(
        each(WRITTEN, VARIABLES),
        "Environment of the container: text, a verb, or `{value: ..., enforce: true}`.",
        {"NVIDIA_VISIBLE_DEVICES": {"value": "void", "enforce": True}},
    )
    node_affinity: Mapping[str, Output] = take(
        each(SELECTED, LABELS),
        "Labels that the node has to have: a text, a list of texts of which one is enough, a verb, or `{absent:"
        " true}`.",
        {"acme.example/model": {"product": {}}},
    )

    def over(self, general: Outputs) -> Outputs:
        """These and the general ones, without those that write nothing, as a parameter that is empty makes them."""
        joined = {one.name: {**getattr(general, one.name), **getattr(self, one.name)} for one in fields(self)}
        return Outputs(**{section: _writing(outputs) for section, outputs in joined.items()})


def _writing(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {key: output for key, output in outputs.items() if not isinstance(output, Constant) or output.value != ""}


def _legal(outputs: Outputs, section: Section, scope: Scope) -> Outputs:
    values_of_labels(outputs.labels, f"{section.node.path}.labels", scope)
    values_of_labels(outputs.node_affinity, f"{section.node.path}.nodeAffinity", scope)
    return outputs


OUTPUTS: Final = form(Outputs, after=_legal)


SHARED: Final[Mapping[str, Schema]] = {**verbs.SHARED, "limit": _LIMIT}

_A_NUMBER: Final = {"type": "object", "anyOf": [{"required": [verb]} for verb in UNITS]}
ASKING: Final[Schema] = {"not": {"type": "object", "additionalProperties": {"not": _A_NUMBER}}}
"""Holds for a mapping in which some value is a number that a rule computes."""
