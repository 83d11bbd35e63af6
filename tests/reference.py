"""The tables of `rules/REFERENCE.md`: what a document may say, made from the forms that read it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.cli.schema import MEANINGS, SHARED
from webhook.core.forms.forms import Schema
from webhook.core.rules.verbs import UNITS


def keys(schema: Schema, elsewhere: Schema | None = None) -> str:
    """A table of the keys of a mapping, those inside of others by their path; those of a `Backend` only by name."""
    said = {(path.removeprefix("inject."), *rest) for path, *rest in _rows(elsewhere, "", {})} if elsewhere else set()
    found = list(_rows(schema, "", {}))
    rows = [
        f"| `{path}` | {text} | {example} |" for path, text, example in found if (path, text, example) not in said
    ]
    alike = [path for path, text, example in found if (path, text, example) in said and "." not in path]
    rows += [f"| {_ticked(alike)} | As in a `Backend`, or under its `inject`. |  |"] * bool(alike)
    return "\n".join(["| key | meaning | for example |", "| --- | --- | --- |", *rows])


def _rows(schema: Schema, prefix: str, seen: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for key, child in schema["properties"].items():
        path = f"{prefix}{key}"
        step, inner = _inner(child)
        same = seen.setdefault(json.dumps(inner), path) if inner else path
        alike = "" if same == path else f" Its keys are those of `{same}`."
        needed = " Needed." if key in schema.get("required", ()) and not prefix else ""
        found = [_flow(example) for example in child.get("examples", ())]
        yield path, f"{child['description']}{_words(child)}{alike}{needed}", ", ".join(f"`{text}`" for text in found)
        if inner and not alike:
            yield from _rows({"properties": inner}, f"{path}{step}.", seen)


def _inner(schema: Schema) -> tuple[str, Schema]:
    """The keys of a value, or of each in a list or under a free key, and how these are written in a path."""
    for step, holder in (("", schema), ("[]", schema.get("items")), (".*", schema.get("additionalProperties"))):
        known = holder.get("properties", {}) if isinstance(holder, dict) else {}
        if known and all("description" in child for child in known.values()):
            return step, known
    return "", {}


def _words(schema: Schema) -> str:
    """The words that there are, where the description does not name them all."""
    forms = [schema, schema.get("items", {}), *schema.get("anyOf", ())]
    words = [word for form in forms if isinstance(form, Mapping) for word in form.get("enum", ()) if word]
    known = [word for word in dict.fromkeys(map(str, words)) if f"`{word}`" not in schema["description"]]
    return f" One of {', '.join(f'`{word}`' for word in known)}." if len(known) > 1 else ""


def _flow(value: Any) -> str:
    """A value as one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    return f'"{value}"' if set(value) & set(":*{}[]$%,") or value.replace(".", "").isdecimal() else value


def verbs() -> str:
    """A table of the verbs."""
    rows = (f"| `{verb}` | {meaning} |" for verb, (meaning, *_) in MEANINGS.items())
    return "\n".join(["| verb | the amount, or the text |", "| --- | --- |", *rows])


def options() -> str:
    """A table of the options of verbs; what one means for several verbs alike is said once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for verb in MEANINGS:
        name = f"{verb}Options" if verb in UNITS else "wordOptions"
        for path, text, example in _rows(SHARED[name], "", {}):
            found.setdefault((path, text, example), []).append(verb)
    rows = (f"| `{path}` | {_of(of)} | {text} | {example} |" for (path, text, example), of in sorted(found.items()))
    return "\n".join(["| option | of | meaning | for example |", "| --- | --- | --- | --- |", *rows])


def _of(verbs: list[str]) -> str:
    words = [verb for verb in MEANINGS if verb not in UNITS]
    return "text" if verbs == words else "numbers" if verbs == [*UNITS] else _ticked(verbs)


def _ticked(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
