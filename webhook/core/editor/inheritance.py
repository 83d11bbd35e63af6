"""What `extends:` and `$(parameter)` allow beside the form of a value; done by `webhook.core.schema.inheritance`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from webhook.core.editor.pieces import Schema, shared

_NAME: Final = r"\$\([A-Za-z][A-Za-z0-9]*\)"
_ALONE: Final = f"^{_NAME}$"
PARAMETER: Final[Schema] = {"type": "string", "pattern": _NAME}
"""What stands under `parameter` in `$defs`."""

_NAMES: Final = {"object": "a mapping", "array": "a list", "integer": "a whole number", "boolean": "true or false"}
_KEPT: Final = ("examples", "extends")
_SHOWN: Final = ("description", "examples")


def inheriting(spec: Schema) -> Schema:
    """The spec of a back end that extends another: nothing has to be there but examples, and empty deletes."""
    kept = {key: spec["properties"][key] for key in _KEPT}
    erasable = _erasable(spec)
    return {**erasable, "properties": {**erasable["properties"], **kept}, "required": [*_KEPT]}


def _erasable(schema: Schema) -> Schema:
    if "properties" not in schema and not isinstance(schema.get("additionalProperties"), dict):
        return schema
    open_to_all = {key: value for key, value in schema.items() if key != "required"}
    return _within(open_to_all, lambda child: _or_nothing(_erasable(child)))


def _or_nothing(schema: Schema) -> Schema:
    if "type" in schema and "enum" not in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*dict.fromkeys([*types, "null"])]}
    return _or(schema, {"type": "null"}) if schema.keys() - {*_SHOWN} else schema


def parametrised(schema: Schema) -> Schema:
    """The schema with `$(parameter)` in the place of any value, in any text, and in any key."""
    inner = _inside(schema)
    types = inner.get("type", [])
    if "anyOf" in inner or "enum" in inner:
        return _or(inner, shared("parameter"))
    if "string" in types:
        return inner if re.search(inner.get("pattern", ""), "$(name)") else _or(inner, shared("parameter"))
    if "$ref" in inner or not types:
        return inner
    both = [types] if isinstance(types, str) else types
    mistake = f"has to be {_NAMES[both[0]]}, or $(parameter)"
    return {**inner, "type": [*both, "string"], "pattern": _ALONE, "patternErrorMessage": mistake}


def _inside(schema: Schema) -> Schema:
    """The schema with parameters allowed in everything that its values hold."""
    inner = _within(schema, parametrised)
    if "items" in schema:
        inner["items"] = parametrised(schema["items"])
    if "anyOf" in schema:
        inner["anyOf"] = [_inside(form) for form in schema["anyOf"]]
    if "properties" in schema:
        inner["patternProperties"] = {_NAME: {}}
    if "propertyNames" in schema:
        inner["propertyNames"] = parametrised(schema["propertyNames"])
    return inner


def _within(schema: Schema, change: Callable[[Schema], Schema]) -> dict[str, Any]:
    """The schema with the values of its keys changed."""
    inner = dict(schema)
    if "properties" in schema:
        inner["properties"] = {key: change(child) for key, child in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        inner["additionalProperties"] = change(schema["additionalProperties"])
    return inner


def _or(schema: Schema, other: Schema) -> Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], other]}
    shown = {key: value for key, value in schema.items() if key in _SHOWN}
    own = {key: value for key, value in schema.items() if key not in _SHOWN}
    return {**shown, "anyOf": [own, other]}
