"""`extends:` and `$(parameter)`, resolved on the documents before they are read.

A back end that extends another takes over everything it does not say itself: mappings are merged, lists and scalars
replaced, an empty value (`key:`) deletes. Examples are not inherited: they belong to the rule that shows them.
What editors are told of both stands at the end.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core.forms.document import DocumentError, Location, Node, Parameters, Problem, kind, nearest
from webhook.core.forms.forms import Schema, reference

_PARAMETER = re.compile(r"\$\(([A-Za-z][A-Za-z0-9]*)\)")

MAX_CHAIN = 20


def lineage(name: str, specs: Mapping[str, Node]) -> list[Node]:
    """The spec of the back end `name`, and those that it extends, one after the other; raises DocumentError."""
    chain = [name]
    while (parent := _entry(specs[chain[-1]], "extends")) is not None:
        parent = Node(parent.value, parent.at, "spec.extends")
        if not isinstance(parent.value, str):
            raise parent.problem("has to be the name of a back end")
        if parent.value not in specs:
            hint = nearest(parent.value, specs.keys() - {chain[-1]})
            raise parent.problem(f'no back end is called "{parent.value}"{hint}')
        if parent.value in chain:
            raise parent.problem(f"goes round in a circle: {' -> '.join((*chain, parent.value))}")
        if len(chain) > MAX_CHAIN + 1:
            raise parent.problem(f"a chain of more than {MAX_CHAIN} back ends")
        chain.append(parent.value)
    return [specs[name] for name in chain]


def _entry(spec: Node, key: str) -> Node | None:
    return spec.value.get(key) if isinstance(spec.value, dict) else None


def merged(lineage: Sequence[Node]) -> Node:
    """A spec with everything merged in that it extends; raises DocumentError."""
    spec, *ancestors = lineage
    if not ancestors:
        return spec
    inherited = merged(ancestors)
    entries = Node(inherited.value, inherited.at, "spec").items()
    base = {key: node for key, node in entries if key not in {"examples", "extends"}}
    own = {key: node for key, node in spec.value.items() if key != "extends"}
    return _merge(Node(base, inherited.at, keys=inherited.keys), Node(own, spec.at, keys=spec.keys))


def _merge(base: Node, over: Node) -> Node:
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    entries = dict(base.value)
    for key, node in over.value.items():
        if node.value is None:
            entries.pop(key, None)
        else:
            entries[key] = _merge(entries[key], node) if key in entries else node
    return Node(entries, over.at, keys={**base.keys, **over.keys})


def declared(spec: Node) -> Parameters:
    """The parameters that a spec declares, with their defaults; raises DocumentError."""
    block = _entry(spec, "parameters")
    if block is None:
        return {}
    defaults: dict[str, Node] = {}
    for name, entry in Node(block.value, block.at, "spec.parameters", block.keys).items():
        fields = dict(entry.items())
        if "default" not in fields or fields.keys() - {"default", "description", "label", "also"}:
            raise entry.problem("has to be {default: ..., description: ...}, perhaps with label: or also:")
        defaults[name] = fields["default"]
    return defaults


def unused(spec: Node, merged: Node) -> Iterator[Problem]:
    """A problem for each parameter that a spec declares, and that neither it nor what it extends writes anywhere."""
    block = _entry(spec, "parameters")
    if block is None or not isinstance(block.value, dict):
        return
    rest = {key: node.plain() for key, node in merged.value.items() if key != "parameters"}
    written = {*_PARAMETER.findall(str(rest))}
    if not written <= merged.value["parameters"].value.keys():
        return  # a slip in a name that is written is told by itself
    for name in {name for name, node in block.value.items() if node.value is not None} - written:
        message = f'nothing writes the parameter "{name}"{nearest(name, written)}'
        yield Problem(block.keys.get(name, block.at), "spec.parameters", message)


def substituted(node: Node, parameters: Parameters, path: str = "spec") -> Node:
    """The document with `$(name)` replaced, in keys and values; a value that is only `$(name)` keeps its type."""

    def value(name: str, at: Location) -> Any:
        if name not in parameters:
            raise DocumentError(Problem(at, path, f'no parameter is called "{name}"{nearest(name, parameters)}'))
        return parameters[name].value

    def in_text(name: str, at: Location) -> str:
        if isinstance(given := value(name, at), dict | list):
            raise DocumentError(
                Problem(at, path, f'the parameter "{name}" stands in a text, and is {kind(given)}; give it a text')
            )
        return str(given)

    def replaced(text: str, at: Location) -> str:
        return _PARAMETER.sub(lambda match: in_text(match[1], at), text)

    match node.value:
        case dict():
            entries, keys = {}, {}
            for key, child in node.value.items():
                at = node.keys.get(key, node.at)
                name = replaced(key, at)
                if name in entries:
                    message = f'two keys become "{name}"; give their parameters different values'
                    raise DocumentError(Problem(at, path, message))
                entries[name], keys[name] = substituted(child, parameters, f"{path}.{key}"), at
            return Node(entries, node.at, keys=keys)
        case list():
            elements = enumerate(node.value)
            return Node([substituted(child, parameters, f"{path}[{i}]") for i, child in elements], node.at)
        case str():
            alone = _PARAMETER.fullmatch(node.value)
            return Node(value(alone[1], node.at) if alone else replaced(node.value, node.at), node.at)
    return node


# What extending back ends and parameters allow beside the form of a value, as JSON Schema

_HOLE: Final = r"\$\([A-Za-z][A-Za-z0-9]*\)"
PARAMETER: Final[Schema] = {"type": "string", "pattern": _HOLE}
"""What stands under `parameter` in `$defs`."""

_TYPES: Final = {"object": "a mapping", "array": "a list", "integer": "a whole number", "boolean": "true or false"}
_SHOWN: Final = ("description", "examples")


def inheriting(spec: Schema) -> Schema:
    """The spec of a back end that extends another: nothing has to be there but examples, and empty deletes."""
    kept = {key: spec["properties"][key] for key in ("examples", "extends")}
    erasable = _erasable(spec)
    return {**erasable, "properties": {**erasable["properties"], **kept}, "required": [*kept]}


def _erasable(schema: Schema) -> Schema:
    def or_nothing(child: Schema) -> Schema:
        child = _erasable(child)
        if "type" in child and "enum" not in child:
            types = child["type"] if isinstance(child["type"], list) else [child["type"]]
            return {**child, "type": [*dict.fromkeys([*types, "null"])]}
        return _or(child, {"type": "null"}) if child.keys() - {*_SHOWN} else child

    if "properties" not in schema and not isinstance(schema.get("additionalProperties"), dict):
        return schema
    return _with_values({key: value for key, value in schema.items() if key != "required"}, or_nothing)


def parametrised(schema: Schema) -> Schema:
    """The schema with `$(parameter)` in the place of any value, in any text, and in any key."""
    inner = _inside(schema)
    types = inner.get("type", [])
    if "anyOf" in inner or "enum" in inner:
        return _or(inner, reference("parameter"))
    if "string" in types:
        return inner if re.search(inner.get("pattern", ""), "$(name)") else _or(inner, reference("parameter"))
    if "$ref" in inner or not types:
        return inner
    both = [types] if isinstance(types, str) else types
    mistake = f"has to be {_TYPES[both[0]]}, or $(parameter)"
    return {**inner, "type": [*both, "string"], "pattern": f"^{_HOLE}$", "patternErrorMessage": mistake}


def _inside(schema: Schema) -> Schema:
    """The schema with parameters allowed in everything that its values hold."""
    inner = _with_values(schema, parametrised)
    inner |= {key: parametrised(schema[key]) for key in ("items", "propertyNames") if key in schema}
    if "anyOf" in schema:
        inner["anyOf"] = [_inside(form) for form in schema["anyOf"]]
    if "properties" in schema:
        inner["patternProperties"] = {_HOLE: {}}
    return inner


def _with_values(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    inner = dict(schema)
    if "properties" in schema:
        inner["properties"] = {key: change(child) for key, child in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        inner["additionalProperties"] = change(schema["additionalProperties"])
    return inner


def _or(schema: Schema, other: Schema) -> Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], other]}
    own = {key: value for key, value in schema.items() if key not in _SHOWN}
    return {**{key: schema[key] for key in schema if key in _SHOWN}, "anyOf": [own, other]}
