"""Shapes of values: how each is read, and what an editor says of it as JSON Schema (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from webhook.core.forms.document import DocumentError, Node, Problem, nearest
from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Schema = dict[str, Any]

SUGGESTED: Final = 50
"""Of how many problems of a document the nearest word is looked for: each takes as long as reading a pod."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What everything in one document is read with.

    problems  what is wrong with it, as far as it is read
    name      the document's, by which messages call its rules
    known     what names in it can stand for; each kind of document says what that is
    """

    problems: list[Problem] = field(default_factory=list)
    name: str = ""
    known: Any = None

    def try_read(self, read: Callable[[], T], fallback: T) -> T:
        """What `read` returns; if it raises DocumentError, its problems are added, and the fallback is returned."""
        try:
            return read()
        except DocumentError as error:
            self.problems.extend(error.problems)
            return fallback

    def nearest(self, text: str, words: Collection[str]) -> str:
        """As `document.nearest`; nothing once many things are wrong."""
        return nearest(text, words) if len(self.problems) < SUGGESTED else ""


@dataclass(frozen=True, slots=True)
class Shape(Generic[T_co]):
    """What a value may look like. `read` raises DocumentError; the fallback stands in for what cannot be read."""

    read: Callable[[Node, Scope], T_co]
    schema: Schema
    fallback: Any = None

    def reading(self, read: Callable[[Node, Scope], T]) -> Shape[T]:
        """The same to editors, read in another way."""
        return Shape(read, self.schema, self.fallback)

    def read_or_report(self, node: Node, scope: Scope) -> T_co | None:
        """The value as it is read, or None with its problems in the scope."""
        return scope.try_read(lambda: self.read(node, scope), None)


TEXT: Final[Shape[str]] = Shape(lambda node, _: node.text(), {"type": "string"}, "")
FILLED: Final[Shape[str]] = Shape(lambda node, _: node.filled(), {"type": "string", "minLength": 1}, "")
FLAG: Final[Shape[bool]] = Shape(lambda node, _: node.boolean(), {"type": "boolean"}, fallback=False)
ANYTHING: Final[Shape[Any]] = Shape(lambda node, _: node.plain(), {})


def whole(least: int = 1, most: int | None = None) -> Shape[int]:
    """A whole number of at least `least`, and at most `most`."""

    def read(node: Node, _: Scope) -> int:
        number = node.integer(least)
        if most is not None and number > most:
            raise node.problem(f"has to be {most} or less, not {number}")
        return number

    return Shape(read, {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}, least)


def word(words: Collection[str]) -> Shape[Any]:
    """One of a closed set of words."""
    return Shape(lambda node, _: node.word(words), {"type": "string", "enum": [*words]}, "")


def pattern(form: str, mistake: str, read: Callable[[Node], T] | None = None) -> Shape[Any]:
    """A string of a form; `mistake` is what an editor says of another."""
    schema = {"type": "string", "pattern": form, "patternErrorMessage": mistake}
    return Shape(lambda node, _: (read or Node.text)(node), schema, "")


def size(units: tuple[str, str], example: str) -> Shape[int]:
    """Bytes, of a size with its unit; messages name the `units` in this order."""

    def read(node: Node) -> int:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            raise node.problem(f"has no unit; write {node.value}{units[0]} or {node.value}{units[1]}")
        try:
            return quantity.size(node.text())
        except quantity.QuantityError as error:
            raise node.problem(f"{error.message}; {error.fix}") from None

    form = r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i|[kMGT])$"
    return replace(pattern(form, f"write a size with its unit, as {example}", read), fallback=1)


def _positive(node: Node, _: Scope) -> Fraction:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float) or node.value <= 0:
        raise node.problem("has to be a number above 0")
    return Fraction(*Decimal(str(node.value)).as_integer_ratio())


POSITIVE: Final = Shape(_positive, {"type": "number", "exclusiveMinimum": 0}, Fraction(1))


def list_of(element: Shape[T], if_empty: str = "") -> Shape[tuple[T, ...]]:
    """A list of such elements; `if_empty` is what is wrong with one without any, if that is."""

    def read(node: Node, scope: Scope) -> tuple[T, ...]:
        if if_empty and not node.elements():
            raise node.problem(if_empty)
        values = (element.read_or_report(entry, scope) for entry in node.elements())
        return tuple(value for value in values if value is not None)

    return Shape(read, {"type": "array", "items": element.schema, **({"minItems": 1} if if_empty else {})}, ())


def set_of(element: Shape[T], if_empty: str = "") -> Shape[frozenset[T]]:
    """As `list_of`, where neither order nor number matters."""
    elements = list_of(element, if_empty)
    return Shape(lambda node, scope: frozenset(elements.read(node, scope)), elements.schema, frozenset())


def map_of(value: Shape[T], key: Shape[Any] = ANYTHING, **keywords: Any) -> Shape[Mapping[str, T]]:
    """A mapping whose keys are free, or all have the shape of a `key`, and whose values all have one shape.

    The `keywords` are more of its schema.
    """

    def read(node: Node, scope: Scope) -> Mapping[str, T]:
        for name in dict(node.items()):
            key.read_or_report(Node(name, node.keys.get(name, node.at), node.path), scope)
        values = {name: value.read_or_report(entry, scope) for name, entry in node.items()}
        return {name: entry for name, entry in values.items() if entry is not None}

    names = {"propertyNames": key.schema} if key.schema else {}
    return Shape(read, {"type": "object", "additionalProperties": value.schema, **names, **keywords}, {})


def unspoilt(shape: Shape[T], check: Callable[[T], str] = lambda _: "") -> Shape[T]:
    """A value of which nothing is wrong, or a DocumentError with all that is; `check` tells what else may be."""

    def read(node: Node, scope: Scope) -> T:
        problems: list[Problem] = []
        value = shape.read(node, replace(scope, problems=problems))
        if not problems and (complaint := check(value)):
            raise node.problem(complaint)
        if problems:
            raise DocumentError(*problems)
        return value

    return replace(shape, read=read)


def any_schema(*shapes: Shape[Any]) -> Schema:
    """The schema of a value that has one of these shapes."""
    return {"anyOf": [shape.schema for shape in shapes]}


def defined(name: str, shape: Shape[T]) -> Shape[T]:
    """The shape, whose schema stands under this name in `$defs`."""
    return replace(shape, schema=reference(name))


def reference(name: str) -> Schema:
    """The schema that stands under this name in `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def described(description: str, schema: Schema, *examples: Any) -> Schema:
    """The schema with what an editor shows of it."""
    return {"description": description, **schema, **({"examples": [*examples]} if examples else {})}
