"""What schemas are made of: a mapping, a list, a text, a number, one of a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]


def mapping(properties: Mapping[str, Schema], *, needs: Iterable[str] = (), **more: Any) -> Schema:
    """A mapping with these keys and no others; `needs` are those that have to be there."""
    form = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**form, **({"required": sorted(needs)} if needs else {}), **more}


def each(value: Schema, **more: Any) -> Schema:
    """A mapping whose keys are free and whose values all have one form."""
    return {"type": "object", "additionalProperties": value, **more}


def many(element: Schema, **more: Any) -> Schema:
    """A list of such elements."""
    return {"type": "array", "items": element, **more}


def text(**more: Any) -> Schema:
    """A string."""
    return {"type": "string", **more}


def filled(**more: Any) -> Schema:
    """A string that is not empty."""
    return text(minLength=1, **more)


def form(pattern: str, mistake: str) -> Schema:
    """A string of a form; `mistake` is what an editor says of another."""
    return text(pattern=pattern, patternErrorMessage=mistake)


def word(known: Iterable[str]) -> Schema:
    """One of a closed set of words."""
    return text(enum=[*known])


def whole(least: int = 1, **more: Any) -> Schema:
    """A whole number of at least `least`."""
    return {"type": "integer", "minimum": least, **more}


def flag() -> Schema:
    """True or false."""
    return {"type": "boolean"}


def either(*forms: Schema) -> Schema:
    """A value of one of these forms."""
    return {"anyOf": [*forms]}


def shared(name: str) -> Schema:
    """The form that stands under this name in `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def says(description: str, schema: Schema, *examples: Any) -> Schema:
    """The schema with what an editor shows of it."""
    return {"description": description, **schema, **({"examples": [*examples]} if examples else {})}


def never(key: str, *others: str) -> Schema:
    """The key does not stand beside any of the others."""
    beside = {"required": [key], "anyOf": [{"required": [other]} for other in others]}
    return {"not": {"type": "object", **beside}}
