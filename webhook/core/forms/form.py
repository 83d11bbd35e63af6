"""Forms: what a document may say, declared once, on the fields of the frozen value that it becomes.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Profile:
        name: str = found(key)
        memory: int = need(SIZE, "Memory of the partition, as the driver reports it.", "9856Mi")
        most: int = take(whole(), "How many of these one card can hold; 1 if left out.", default=1)

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
from webhook.core.forms.shape import Schema, Scope, Shape, says

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

_DECLARED, _FOUND = "declared", "found"


class _Declared(NamedTuple):
    """What a field is read from: a key, or `group.key` where several fields share a mapping."""

    shape: Shape[Any]
    description: str = ""
    examples: tuple[Any, ...] = ()
    key: str = ""
    needed: bool = False
    inline: bool = False
    absent: Any = MISSING


def need(shape: Shape[T], description: str, *examples: Any, key: str = "", **default: Any) -> T:
    """A field whose key has to be there: the field's name in camel case, or `key`, in a group `group.key`.

    Its `default` is what it is where the group is not there.
    """
    declared = _Declared(shape, description, examples, key, needed=True)
    return cast("T", field(metadata={_DECLARED: declared}, **default))


def take(
    shape: Shape[T], description: str, *examples: Any, key: str = "", default: Any = MISSING, absent: Any = MISSING
) -> T:
    """A field whose key may be left out: then it has the default, or `absent` until the form is completed.

    The default is None; of a list or mapping none of it, and of a flag false.
    """
    if default is MISSING:
        default = shape.blank if isinstance(shape.blank, tuple | frozenset | dict | bool) else None
    return cast("T", _field(_Declared(shape, description, examples, key, absent=absent), default))


def inline(shape: Form[T], group: str = "", default: Any = None) -> T:
    """A field that is a form itself, whose keys stand among those of this one, or in a group."""
    return cast("T", _field(_Declared(shape, key=f"{group}.", inline=True), default))


def _field(declared: _Declared, default: Any) -> Any:
    if isinstance(default, dict):
        return field(default_factory=lambda: default, metadata={_DECLARED: declared})
    return field(default=default, metadata={_DECLARED: declared})


def found(read: Callable[[Node, Scope], T], **default: Any) -> T:
    """A field that no key says: its `place`, `key`, `line`, or the name of the `document`."""
    return cast("T", field(metadata={_FOUND: read}, **default))


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
        if isinstance(section.node.value, dict) and not set(section.given()) & set(keys):
            section.complain(f"needs {' or '.join([', '.join(keys[:-1]), keys[-1]])}")

    return Rule({"anyOf": [{"required": [key]} for key in keys]}, check)


class Group(NamedTuple):
    """A mapping in a document whose keys are fields of the value itself."""

    description: str
    examples: tuple[Any, ...] = ()
    rules: tuple[Rule, ...] = ()
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Form(Shape[T_co], Generic[T_co]):
    """The shape of a mapping with fixed keys; `within` reads them where they stand among others."""

    entries: Sequence[_Entry] = ()
    within: Callable[[Section, Scope], Any] = lambda *_: None

    def of(self, name: str, spec: Node, problems: list[Problem], known: Any = None) -> T_co:
        """The value of a document's spec; what is wrong with it goes to `problems`."""
        return self.read(replace(spec, path="spec", key_at=None), Scope(problems, name, known))


@overload
def form(made: type[T], *rules: Rule, groups: Mapping[str, Group] = ..., blank: T | None = ...) -> Form[T]: ...
@overload
def form(
    made: type[T],
    *rules: Rule,
    groups: Mapping[str, Group] = ...,
    after: Callable[[T, Section, Scope], R],
    blank: R | None = ...,
) -> Form[R]: ...
def form(
    made: type[Any],
    *rules: Rule,
    groups: Mapping[str, Group] = MappingProxyType({}),
    after: Callable[[Any, Section, Scope], Any] | None = None,
    blank: Any = None,
) -> Form[Any]:
    """The form that the fields of a dataclass declare; `after` checks or completes what was made of them."""
    entries = _entries(made, groups)
    automatic = {each.name: each.metadata[_FOUND] for each in fields(made) if _FOUND in each.metadata}

    def within(section: Section, scope: Scope) -> Any:
        known = {name: read(section.node, scope) for name, read in automatic.items()}
        value = made(**_read(entries, section, scope), **known)
        return after(value, section, scope) if after else value

    def read(node: Node, scope: Scope) -> Any:
        return _whole(node, rules, scope, within)

    return Form(read, _mapping(entries, rules), blank, entries, within)


def _whole(node: Node, rules: Iterable[Rule], scope: Scope, read: Callable[[Section, Scope], T]) -> T:
    """What is read of a mapping, all of whose keys are known then."""
    section = Section(node, scope.problems)
    value = read(section, scope)
    section.done()
    for rule in rules:
        rule.check(section)
    return value


class _Entry(NamedTuple):
    """Fields of a value: how a section is read for them, what they are without it, and the schemas of their keys."""

    read: Callable[[Section, Scope], dict[str, Any]]
    absent: Mapping[str, Any]
    properties: Mapping[str, Schema]
    needs: Sequence[str]


def _entries(made: type[Any], groups: Mapping[str, Group]) -> Sequence[_Entry]:
    """One for each field, and one for those of a group together."""
    found: dict[tuple[str, str], list[_Entry]] = {}
    for each in fields(made):
        declared: _Declared | None = each.metadata.get(_DECLARED)
        if declared is not None:
            group, _, key = declared.key.rpartition(".")
            made_of = _inlined if declared.inline else _keyed
            found.setdefault((group, "" if group else each.name), []).append(made_of(each, declared, key))
    return [_grouped(group, groups[group], inner) if group else inner[0] for (group, _), inner in found.items()]


def _keyed(each: Field[Any], declared: _Declared, key: str) -> _Entry:
    head, *words = each.name.split("_")
    key = key or head + "".join(map(str.capitalize, words))
    shape, needed, default = declared.shape, declared.needed, _default(each, declared)

    def read(section: Section, scope: Scope) -> dict[str, Any]:
        take = section.need if needed else section.take
        return {each.name: take(key, lambda node: shape.read(node, scope), shape.blank if needed else default)}

    schema = says(declared.description, shape.schema, *declared.examples)
    return _Entry(read, {each.name: default}, {key: schema}, [key] if needed else [])


def _inlined(each: Field[Any], declared: _Declared, _: str) -> _Entry:
    form = cast("Form[Any]", declared.shape)

    def read(section: Section, scope: Scope) -> dict[str, Any]:
        return {each.name: form.within(section, scope)}

    return _Entry(read, {each.name: _default(each, declared)}, _properties(form.entries), _needs(form.entries))


def _grouped(key: str, group: Group, entries: Sequence[_Entry]) -> _Entry:
    """A key under which several fields stand."""
    absent = {name: value for entry in entries for name, value in entry.absent.items()}

    def read(section: Section, scope: Scope) -> dict[str, Any]:
        take = section.need if group.needed else section.take
        return take(key, lambda node: _whole(node, group.rules, scope, inside), absent)

    def inside(section: Section, scope: Scope) -> dict[str, Any]:
        return _read(entries, section, scope)

    schema = says(group.description, _mapping(entries, group.rules), *group.examples)
    return _Entry(read, absent, {key: schema}, [key] if group.needed else [])


def _default(each: Field[Any], declared: _Declared) -> Any:
    if declared.absent is not MISSING:
        return declared.absent
    if each.default_factory is not MISSING:
        return each.default_factory()  # type: ignore[operator] # mypy does not narrow away dataclasses.MISSING
    return declared.shape.blank if each.default is MISSING else each.default


def _read(entries: Iterable[_Entry], section: Section, scope: Scope) -> dict[str, Any]:
    return {name: value for entry in entries for name, value in entry.read(section, scope).items()}


def _properties(entries: Iterable[_Entry]) -> dict[str, Schema]:
    return {key: schema for entry in entries for key, schema in entry.properties.items()}


def _needs(entries: Iterable[_Entry]) -> list[str]:
    return [key for entry in entries for key in entry.needs]


def _mapping(entries: Sequence[_Entry], rules: Iterable[Rule]) -> Schema:
    """The schema of a mapping with these keys and no others."""
    needs = sorted(_needs(entries))
    schema: Schema = {"type": "object", "properties": _properties(entries), "additionalProperties": False}
    schema |= {"required": needs} if needs else {}
    for rule in rules:
        schema |= rule.schema
    return schema
