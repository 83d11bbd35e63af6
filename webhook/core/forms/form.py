"""Forms: what a document may say, declared once, on the fields of the frozen value that it becomes.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Profile:
        name: str = derived(key)
        memory: int = required(SIZE, "Memory of the partition, as the driver reports it.", "9856Mi")
        most: int = optional(whole(), "How many of these one card can hold; 1 if left out.", default=1)

    PROFILE = form(Profile)

`PROFILE.read` makes a Profile of a mapping and says everything that is wrong with it; `PROFILE.schema` is the JSON
Schema that editors check with, from which the reference tables and the structure of CRDs are made as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

from webhook.core.forms.document import Location, Node, Problem, Section
from webhook.core.forms.shape import Schema, Scope, Shape, described

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

_DECLARED, _DERIVED = "declared", "derived"


class _Declared(NamedTuple):
    """What a field is read from: a key, or `group.key` where several fields share a mapping."""

    shape: Shape[Any]
    description: str = ""
    examples: tuple[Any, ...] = ()
    key: str = ""
    required: bool = False
    embedded: bool = False
    unset: Any = MISSING


def required(shape: Shape[T], description: str, *examples: Any, key: str = "", **default: Any) -> T:
    """A field whose key has to be there: the field's name in camel case, or `key`, in a group `group.key`.

    Its `default` is what it is where the group is not there.
    """
    declared = _Declared(shape, description, examples, key, required=True)
    return cast("T", field(metadata={_DECLARED: declared}, **default))


def optional(
    shape: Shape[T], description: str, *examples: Any, key: str = "", default: Any = MISSING, unset: Any = MISSING
) -> T:
    """A field whose key may be left out: then it has the default, or `unset` until the form is completed.

    The default is None; of a list or mapping none of it, and of a flag false.
    """
    if default is MISSING:
        default = shape.fallback if isinstance(shape.fallback, tuple | frozenset | dict | bool) else None
    declared = {_DECLARED: _Declared(shape, description, examples, key, unset=unset)}
    if isinstance(default, dict):
        return cast("T", field(default_factory=lambda: default, metadata=declared))
    return cast("T", field(default=default, metadata=declared))


def embedded(shape: Form[T], group: str = "", default: Any = None) -> T:
    """A field that is a form itself, whose keys stand among those of this one, or in a group."""
    declared = _Declared(shape, key=f"{group}.", embedded=True)
    return cast("T", field(default=default, metadata={_DECLARED: declared}))


def derived(read: Callable[[Node, Scope], T], **default: Any) -> T:
    """A field that no key says: its `place`, `key`, `line`, or the name of the `document`."""
    return cast("T", field(metadata={_DERIVED: read}, **default))


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


@overload
def form(made: type[T], *rules: Rule, groups: Mapping[str, Group] = ..., fallback: T | None = ...) -> Form[T]: ...
@overload
def form(
    made: type[T],
    *rules: Rule,
    groups: Mapping[str, Group] = ...,
    complete: Callable[[T, Section, Scope], R],
    fallback: R | None = ...,
) -> Form[R]: ...
def form(
    made: type[Any],
    *rules: Rule,
    groups: Mapping[str, Group] = MappingProxyType({}),
    complete: Callable[[Any, Section, Scope], Any] | None = None,
    fallback: Any = None,
) -> Form[Any]:
    """The form that the fields of a dataclass declare; `complete` checks or completes what was made of them."""
    entries = _entries(made, groups)
    derived = {field.name: field.metadata[_DERIVED] for field in fields(made) if _DERIVED in field.metadata}

    def read_among(section: Section, scope: Scope) -> Any:
        places = {name: read(section.node, scope) for name, read in derived.items()}
        value = made(**_read_entries(entries, section, scope), **places)
        return complete(value, section, scope) if complete else value

    def read(node: Node, scope: Scope) -> Any:
        return _read_mapping(node, rules, scope, read_among)

    return Form(read, _schema(entries, rules), fallback, read_among)


class _Entry(NamedTuple):
    """Fields of a value: how a section is read for them, what they are without it, and the schemas of their keys."""

    read: Callable[[Section, Scope], Mapping[str, Any]]
    unset: Mapping[str, Any]
    properties: Mapping[str, Schema]
    required: Sequence[str]


def _entries(made: type[Any], groups: Mapping[str, Group]) -> Sequence[_Entry]:
    """One for each field, and one for those of a group together."""
    entries: dict[tuple[str, str], list[_Entry]] = {}
    for attribute in fields(made):
        if _DECLARED in attribute.metadata:
            group, _, key = attribute.metadata[_DECLARED].key.rpartition(".")
            entries.setdefault((group, "" if group else attribute.name), []).append(_entry(attribute, key))
    return [_of_group(group, groups[group], inner) if group else inner[0] for (group, _), inner in entries.items()]


def _entry(attribute: Field[Any], key: str) -> _Entry:
    """A field with a key of its own, or an embedded form."""
    name, declared = attribute.name, attribute.metadata[_DECLARED]
    shape, unset = declared.shape, declared.unset
    if unset is MISSING and attribute.default_factory is not MISSING:
        unset = attribute.default_factory()  # type: ignore[operator] # mypy does not narrow away MISSING
    elif unset is MISSING:
        unset = shape.fallback if attribute.default is MISSING else attribute.default
    if declared.embedded:
        inner = cast("Form[Any]", shape)
        properties, needed = inner.schema["properties"], inner.schema.get("required", ())
        return _Entry(
            lambda section, scope: {name: inner.read_among(section, scope)}, {name: unset}, properties, needed
        )

    head, *words = name.split("_")
    key = key or head + "".join(map(str.capitalize, words))
    missing = shape.fallback if declared.required else unset

    def read(section: Section, scope: Scope) -> Mapping[str, Any]:
        read_key = section.required if declared.required else section.optional
        return {name: read_key(key, lambda node: shape.read(node, scope), missing)}

    schema = described(declared.description, shape.schema, *declared.examples)
    return _Entry(read, {name: unset}, {key: schema}, [key] if declared.required else [])


def _of_group(key: str, group: Group, entries: Sequence[_Entry]) -> _Entry:
    """A key under which several fields stand."""
    unset = {name: value for entry in entries for name, value in entry.unset.items()}

    def read_group(section: Section, scope: Scope) -> Mapping[str, Any]:
        return _read_entries(entries, section, scope)

    def read(section: Section, scope: Scope) -> Mapping[str, Any]:
        read_key = section.required if group.required else section.optional
        return read_key(key, lambda node: _read_mapping(node, group.rules, scope, read_group), unset)

    schema = described(group.description, _schema(entries, group.rules), *group.examples)
    return _Entry(read, unset, {key: schema}, [key] if group.required else [])


def _read_mapping(node: Node, rules: Iterable[Rule], scope: Scope, read: Callable[[Section, Scope], T]) -> T:
    """What is read of a mapping, all of whose keys are known then."""
    section = Section(node, scope.problems)
    value = read(section, scope)
    section.refuse_other_keys()
    for rule in rules:
        rule.check(section)
    return value


def _read_entries(entries: Iterable[_Entry], section: Section, scope: Scope) -> dict[str, Any]:
    return {name: value for entry in entries for name, value in entry.read(section, scope).items()}


def _schema(entries: Sequence[_Entry], rules: Iterable[Rule]) -> Schema:
    """The schema of a mapping with these keys and no others."""
    properties = {key: schema for entry in entries for key, schema in entry.properties.items()}
    needed = sorted(key for entry in entries for key in entry.required)
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    schema |= {"required": needed} if needed else {}
    for rule in rules:
        schema |= rule.schema
    return schema
