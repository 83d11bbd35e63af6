"""`extends:` and `$(parameter)`, resolved on the documents before they are read.

A back end that extends another takes over everything it does not say itself: mappings are merged, lists and scalars
replaced, an empty value (`key:`) deletes. Examples are not inherited: they belong to the rule that shows them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.core.forms.document import DocumentError, Location, Node, Parameters, Problem, kind, nearest

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
