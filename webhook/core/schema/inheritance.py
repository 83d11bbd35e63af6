"""`extends:` and `$(parameter)`, resolved on the documents before they are read.

A back end that extends another takes over everything it does not say itself: mappings are merged, lists and scalars
replaced, an empty value (`key:`) deletes. Examples are not inherited: they belong to the rule that shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from webhook.core.document import DocumentError, Location, Node, Problem, nearest

_PARAMETER = re.compile(r"\$\(([A-Za-z][A-Za-z0-9]*)\)")

MAX_CHAIN = 20

Parameters = Mapping[str, Node]
"""A value for each parameter, by name."""


def merged(name: str, specs: Mapping[str, Node], path: tuple[str, ...] = ()) -> Node:
    """The spec of the back end `name` with everything it extends merged in; raises DocumentError."""
    spec = specs[name]
    parent = spec.value.get("extends") if isinstance(spec.value, dict) else None
    if parent is None:
        return spec
    if not isinstance(parent.value, str):
        raise DocumentError(Problem(parent.at, "spec.extends", "has to be the name of a back end"))
    if parent.value not in specs:
        known = specs.keys() - {name}
        raise DocumentError(
            Problem(
                parent.at,
                "spec.extends",
                f'no back end is called "{parent.value}"{nearest(str(parent.value), known)}',
            )
        )
    if parent.value in {*path, name}:
        chain = " -> ".join((*path, name, parent.value))
        raise DocumentError(Problem(parent.at, "spec.extends", f"goes round in a circle: {chain}"))
    if len(path) > MAX_CHAIN:
        raise DocumentError(Problem(parent.at, "spec.extends", f"a chain of more than {MAX_CHAIN} back ends"))
    inherited = merged(parent.value, specs, (*path, name))
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
    block = spec.value.get("parameters") if isinstance(spec.value, dict) else None
    if block is None:
        return {}
    defaults: dict[str, Node] = {}
    for name, entry in Node(block.value, block.at, "spec.parameters", block.keys).items():
        fields = dict(entry.items())
        if "default" not in fields or fields.keys() - {"default", "description"}:
            raise entry.problem("has to be {default: ..., description: ...}")
        defaults[name] = fields["default"]
    return defaults


def substituted(node: Node, parameters: Parameters, path: str = "spec") -> Node:
    """The document with `$(name)` replaced, in keys and values; a value that is only `$(name)` keeps its type."""
    if isinstance(node.value, dict):
        entries, keys = {}, {}
        for key, child in node.value.items():
            name = _text(key, parameters, node.keys.get(key, node.at), path)
            if name in entries:
                message = f'two keys become "{name}"; give their parameters different values'
                raise DocumentError(Problem(node.keys.get(key, node.at), path, message))
            entries[name] = substituted(child, parameters, f"{path}.{key}")
            keys[name] = node.keys.get(key, node.at)
        return Node(entries, node.at, keys=keys)
    if isinstance(node.value, list):
        return Node([substituted(child, parameters, f"{path}[{i}]") for i, child in enumerate(node.value)], node.at)
    if isinstance(node.value, str) and (whole := _PARAMETER.fullmatch(node.value)):
        return Node(_value(whole[1], parameters, node.at, path).value, node.at)
    if isinstance(node.value, str):
        return Node(_text(node.value, parameters, node.at, path), node.at)
    return node


def _text(text: str, parameters: Parameters, at: Location, path: str) -> str:
    return _PARAMETER.sub(lambda match: str(_value(match[1], parameters, at, path).value), text)


def _value(name: str, parameters: Parameters, at: Location, path: str) -> Node:
    if name not in parameters:
        raise DocumentError(Problem(at, path, f'no parameter is called "{name}"{nearest(name, parameters)}'))
    return parameters[name]
