"""Forms: what a document may say, declared once, on the fields of the frozen value that it becomes.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Profile:
        name: str = derived(key)
        memory: int = required(SIZE, "Memory of the partition, as the driver reports it.", "9856Mi")
        most: int = optional(whole(), "How many of these one card can hold; 1 if left out.", default=1)

    PROFILE = form(Profile)

`PROFILE.read` makes a Profile of a mapping and says everything that is wrong with it; `PROFILE.schema` is the JSON
Schema (draft 2020-12) that editors check with, from which the reference tables and the structure of CRDs are made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from webhook.core.forms.document import (
    DocumentError,
    Location,
    Node,
    Problem,
    Section,
    closest,
    did_you_mean,
    nearest,
)
from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Schema = dict[str, Any]

EMPTY: Final = "needs at least one entry"
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


# Shapes: how a value is read, and what an editor says of it


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


def _positive(node: Node, _: Scope) -> Fraction:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float) or node.value <= 0:
        raise node.problem("has to be a number above 0")
    return Fraction(*Decimal(str(node.value)).as_integer_ratio())


TEXT: Final[Shape[str]] = Shape(lambda node, _: node.text(), {"type": "string"}, "")
FILLED: Final[Shape[str]] = Shape(lambda node, _: node.filled(), {"type": "string", "minLength": 1}, "")
FLAG: Final[Shape[bool]] = Shape(lambda node, _: node.boolean(), {"type": "boolean"}, fallback=False)
POSITIVE: Final = Shape(_positive, {"type": "number", "exclusiveMinimum": 0}, Fraction(1))
ANYTHING: Final[Shape[Any]] = Shape(lambda node, _: node.plain(), {})
OBJECT: Final[Shape[Mapping[str, Any]]] = Shape(
    lambda node, _: {key: entry.plain() for key, entry in node.items()}, {"type": "object"}, {}
)
"""A mapping of anything, as it stands."""


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


def fitting(fits: Callable[[str], object], mistake: str, schema: Schema | None = None) -> Shape[str]:
    """A text that fits; messages say the `mistake` of another."""

    def read(node: Node, _: Scope) -> str:
        if not fits(node.text()):
            raise node.problem(f'"{node.text()}" {mistake}')
        return node.text()

    return Shape(read, TEXT.schema if schema is None else schema, "")


def size(units: tuple[str, str], example: str) -> Shape[int]:
    """Bytes, of a size with its unit; messages name the `units` in this order."""

    def read(node: Node) -> int:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            raise node.problem(f"has no unit; write {node.value}{units[0]} or {node.value}{units[1]}")
        return node.parsed(quantity.size)

    form = r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i|[kMGT])$"
    return replace(pattern(form, f"write a size with its unit, as {example}", read), fallback=1)


def naming(names: str, read: Callable[[Node, Scope], T]) -> Shape[T]:
    """One of the `names` that other documents define, as `models`; an editor offers those that it is told of."""
    return Shape(read, {**TEXT.schema, "format": names}, TEXT.fallback)


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


def one_or_more(element: Shape[T], if_empty: str = "") -> Shape[tuple[T, ...]]:
    """One such element as it stands, or a list of them."""
    elements = list_of(element, if_empty)

    def read(node: Node, scope: Scope) -> tuple[T, ...]:
        return elements.read(node, scope) if isinstance(node.value, list) else (element.read(node, scope),)

    return Shape(read, any_schema(element, elements), ())


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


# Fields: what a key of a mapping may say


class _Declared(NamedTuple):
    """What a field is read from: a key, or `group.key` where several fields share a mapping.

    `unset` is what the field is where neither stands. A group, which is declared of its members, has no name.
    """

    shape: Any
    description: str = ""
    examples: tuple[Any, ...] = ()
    key: str = ""
    required: bool = False
    embedded: bool = False
    unset: Any = MISSING
    name: str = ""


def required(shape: Shape[T], description: str, *examples: Any, key: str = "", **default: Any) -> T:
    """A field whose key has to be there: the field's name in camel case, or `key`, in a group `group.key`.

    Its `default` is what it is where the group is not there.
    """
    declared = _Declared(shape, description, examples, key, required=True)
    return cast("T", field(metadata={"declared": declared}, **default))


def optional(
    shape: Shape[T], description: str, *examples: Any, key: str = "", default: Any = MISSING, unset: Any = MISSING
) -> T:
    """A field whose key may be left out: then it has the default, or `unset` until the form is completed.

    The default is None; of a list or mapping none of it, and of a flag false.
    """
    if default is MISSING:
        default = shape.fallback if isinstance(shape.fallback, tuple | frozenset | dict | bool) else None
    declared = {"declared": _Declared(shape, description, examples, key, unset=unset)}
    if isinstance(default, dict):
        return cast("T", field(default_factory=lambda: default, metadata=declared))
    return cast("T", field(default=default, metadata=declared))


def embedded(shape: Form[T], group: str = "", default: Any = None) -> T:
    """A field that is a form itself, whose keys stand among those of this one, or in a group."""
    return cast("T", field(default=default, metadata={"declared": _Declared(shape, key=f"{group}.", embedded=True)}))


def derived(read: Callable[[Node, Scope], T], **default: Any) -> T:
    """A field that no key says: its `place`, `key`, `line`, or the name of the `document`."""
    return cast("T", field(metadata={"derived": read}, **default))


def place(node: Node, _: Scope) -> Location:
    """Where the value stands."""
    return node.at


def key(node: Node, _: Scope) -> str:
    """The key that the value stands under."""
    return node.key


def document(_: Node, scope: Scope) -> str:
    """The name of the document."""
    return scope.name


def line(node: Node, scope: Scope) -> str:
    """The rule as messages name it: `vision (tenants.yaml:41)`, or `TenantPolicy/vision spec.quota` in a cluster."""
    at = node.key_at or node.at
    return at.of(scope.name) if at.line else f"{at.file} {node.path}".removesuffix(" spec")


def origin(node: Node, scope: Scope) -> str:
    """The rule by where its value stands: `hami-vgpu (hami-vgpu.yaml:21)`."""
    return node.at.of(scope.name)


# Forms: mappings with fixed keys


class Rule(NamedTuple):
    """What has to hold of several keys together: for editors, and for the reader, which complains to the section."""

    schema: Schema
    check: Callable[[Section], None] = lambda _: None


def any_of(*keys: str) -> Rule:
    """At least one of the keys stands there."""

    def check(section: Section) -> None:
        if isinstance(section.node.value, dict) and not set(section.present()) & set(keys):
            section.complain(f"needs {' or '.join([', '.join(keys[:-1]), keys[-1]])}")

    return Rule({"anyOf": [{"required": [key]} for key in keys]}, check)


def either(key: str, other: str) -> Rule:
    """Just one of the two keys stands there."""

    def check(section: Section) -> None:
        if isinstance(section.node.value, dict) and (key in section.entries) == (other in section.entries):
            section.complain(f"needs either {key}: or {other}:")

    return Rule({"oneOf": [{"required": [other]}, {"type": "object", "required": [key]}]}, check)


class Group(NamedTuple):
    """A mapping in a document whose keys are fields of the value itself."""

    description: str
    examples: tuple[Any, ...] = ()
    rules: tuple[Rule, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Form(Shape[T_co], Generic[T_co]):
    """The shape of a mapping with fixed keys; `read_among` reads them where they stand among others."""

    read_among: Callable[[Section, Scope], Any] = lambda *_: None

    def read_spec(self, name: str, spec: Node, problems: list[Problem], context: Any = None) -> T_co:
        """The value of a document's spec; what is wrong with it goes to `problems`."""
        return self.read(replace(spec, path="spec", key_at=None), Scope(problems, name, context))


def form(
    made: type[T],
    *rules: Rule,
    groups: Mapping[str, Group] = MappingProxyType({}),
    complete: Callable[[Any, Section, Scope], Any] = lambda value, *_: value,
    fallback: Any = None,
) -> Form[T]:
    """The form that the fields of a dataclass declare; `complete` checks or completes what was made of them."""
    attributes = fields(cast("Any", made))
    derived = {field.name: field.metadata["derived"] for field in attributes if "derived" in field.metadata}

    def make(values: Mapping[str, Any], section: Section, scope: Scope) -> Any:
        places = {name: read(section.node, scope) for name, read in derived.items()}
        return complete(made(**values, **places), section, scope)

    members: dict[str, list[_Declared]] = {}
    for attribute in attributes:
        if "declared" in attribute.metadata:
            group = attribute.metadata["declared"].key.rpartition(".")[0]
            members.setdefault(group or f".{attribute.name}", []).append(_named(attribute.name, attribute))
    keys: list[_Declared] = []
    for key, inner in members.items():
        if key in groups:
            group, unset = groups[key], {declared.name: declared.unset for declared in inner}
            shape = _form(inner, group.rules, lambda values, *_: values, unset)
            keys.append(_Declared(shape, group.description, group.examples, key, group.required, unset=unset))
        else:
            keys += inner
    return _form(keys, rules, make, fallback)


def mapping(
    keys: Mapping[str, Any], *rules: Rule, complete: Callable[[Any, Section, Scope], T] = lambda given, *_: given
) -> Form[T]:
    """The form of a mapping with these keys, declared as fields: what is given, by key, unless it is completed."""

    def make(values: Mapping[str, Any], section: Section, scope: Scope) -> T:
        return complete({key: value for key, value in values.items() if value is not None}, section, scope)

    return _form([_named(key, attribute) for key, attribute in keys.items()], rules, make)


def _named(name: str, attribute: Any) -> _Declared:
    """What a field of this name declares, with its key and with what it is if it is not set."""
    declared: _Declared = attribute.metadata["declared"]
    unset = declared.unset
    if unset is MISSING and attribute.default_factory is not MISSING:
        unset = attribute.default_factory()
    elif unset is MISSING:
        unset = declared.shape.fallback if attribute.default is MISSING else attribute.default
    head, *words = name.split("_")
    key = declared.key.rpartition(".")[2] or head + "".join(map(str.capitalize, words))
    return declared._replace(name=name, key=key, unset=unset)


def _form(
    keys: Sequence[_Declared],
    rules: Sequence[Rule],
    make: Callable[[Mapping[str, Any], Section, Scope], Any],
    fallback: Any = None,
) -> Form[Any]:
    """A mapping with these keys and no others; `make` makes the result of their values."""

    def read_among(section: Section, scope: Scope) -> Any:
        values: dict[str, Any] = {}
        for declared in keys:
            shape = declared.shape
            if declared.embedded:
                values[declared.name] = shape.read_among(section, scope)
                continue
            value, entry = shape.fallback if declared.required else declared.unset, section.entries.get(declared.key)
            if entry is not None:
                value = scope.try_read(partial(shape.read, entry, scope), value)
            elif declared.required and isinstance(section.node.value, dict):
                section.complain(f'needs the key "{declared.key}"')
            values |= {declared.name: value} if declared.name else value
        return make(values, section, scope)

    def read(node: Node, scope: Scope) -> Any:
        section, before = Section(node, scope.problems), len(scope.problems)
        value = read_among(section, scope)
        for rule in rules:
            rule.check(section)
        if unknown := section.entries.keys() - keys_read:
            # What else is wrong with the mapping as a whole is often for a key that is misspelt.
            whole = (node.at, node.path)
            kept = [problem for problem in scope.problems[before:] if (problem.at, problem.path) != whole]
            scope.problems[before:] = kept
        for key in unknown:
            message = f'unknown key "{key}"{did_you_mean(paths.get(closest(key, paths), ""))}'
            scope.problems.append(Problem(node.keys.get(key, node.at), node.path, message))
        return value

    schema: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    needed: list[str] = []
    for declared in keys:
        inner = declared.shape.schema
        if declared.embedded:
            schema["properties"] |= inner["properties"]
            needed += inner.get("required", ())
        else:
            schema["properties"][declared.key] = described(declared.description, inner, *declared.examples)
            needed += [declared.key] * declared.required
    schema |= {"required": sorted(needed)} if needed else {}
    for rule in rules:
        schema |= rule.schema
    keys_read = schema["properties"].keys()
    below = {
        name: f"{key}.{name}" for key, child in schema["properties"].items() for name in child.get("properties", ())
    }
    paths = {**below, **{key: key for key in keys_read}}
    return Form(read, schema, fallback, read_among)
