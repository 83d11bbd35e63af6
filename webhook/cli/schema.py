"""`gpu-webhook schema`: print the JSON Schema of rules, for editors."""

import argparse
import json
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from webhook.cli import options
from webhook.cli.options import FINE, UsageError
from webhook.cli.test import SUITE
from webhook.core.forms import forms
from webhook.core.forms.document import nearest
from webhook.core.forms.labels import MAX_NAME, SUBDOMAIN
from webhook.core.rules import load, modes, verbs
from webhook.core.rules.backend import BACKEND, EXAMPLE, TOLERATION
from webhook.core.rules.catalog import DEVICE_CATALOG
from webhook.core.rules.claims import CLAIM_SOURCE
from webhook.core.rules.cluster import CLUSTER, PROTECTION
from webhook.core.rules.objects import WORKLOAD
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import EXEMPTION, TENANT_POLICY
from webhook.core.rules.verbs import UNITS, VERBS
from webhook.files import rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook schema` takes."""
    command.add_argument("kind", nargs="?", metavar="KIND", help="a kind of document, such as Backend (default: all)")
    options.rules_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Print the schema of one kind, or of all."""
    kind = arguments.kind
    if kind not in {None, *KINDS}:
        raise UsageError(f'no kind of rule is called "{kind}"{nearest(kind, KINDS)}; there are {", ".join(KINDS)}')
    print(schema_text(schema(kind, names(rule_files.load_cached(arguments.rules)))))
    return FINE


# Every kind of document, and what a back end has often

WIDTH: Final = 120
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

KINDS: Final[Mapping[str, tuple[str, forms.Schema]]] = {
    "Backend": (
        "One way a vendor exposes GPUs: what a request becomes, and what else a pod needs.",
        {
            "if": {"required": ["extends"]},
            "then": forms.reference("extendingBackend"),
            "else": forms.reference("backend"),
        },
    ),
    "ClaimSource": (
        "Objects that pods name instead of asking themselves, and what stands in them.",
        forms.reference("claimSource"),
    ),
    "Cluster": (
        "Which back ends this cluster has, in what order, and the defaults. There is exactly one.",
        CLUSTER.schema,
    ),
    "DeviceCatalog": ("Card models of one vendor: names, memory, compute, partitions.", DEVICE_CATALOG.schema),
    "Exemption": ("Who is spared some rules of policies, until when, and who answers for it.", EXEMPTION.schema),
    "Protection": (
        "What of a pod gives devices that it does not ask for, or lifts a limit on those that it has.",
        PROTECTION.schema,
    ),
    "Suite": ("What has to become of pods by rules and policies.", SUITE.schema),
    "TenantPolicy": (
        "What one tenant may ask of GPUs, and how much it may hold. Its name is the tenant's.",
        TENANT_POLICY.schema,
    ),
    "Workload": (
        "Where objects of a kind keep the templates of their pods, and how many pods each makes.",
        WORKLOAD.schema,
    ),
}
"""What each kind of document is for, and the schema of its spec."""

MEANINGS: Final[Mapping[str, tuple[Any, ...]]] = {
    "count": ("How many devices.", {}, {"absent": 1}),
    "memory": ("Memory of a device, or of its partition.", {"unit": "MiB", "round": "up"}),
    "cores": (
        "Compute of a device.",
        {"unit": "percent", "round": "up", "step": 5, "min": 5, "max": 100, "absent": "none"},
    ),
    "share": ("The part of a device that has the memory and the compute asked for.", {"parts": 16}),
    "model": ("The catalogue's name of each model asked for.",),
    "product": ("The product names of the models asked for.", {"form": "label"}),
    "lookalikes": ("Other models whose product names contain a name of the one asked for.",),
    "profile": ("The hardware partition asked for.",),
    "placement": ("`binpack`, `spread` or `topology`, if asked for.", {"values": {"topology": "topology-aware"}}),
    "container": ("The container's name.",),
}
"""What each verb computes, and examples of its options."""


def _any_verb(options: Mapping[str, forms.Schema], **keywords: Any) -> forms.Schema:
    """A mapping with any of these verbs, and their options."""
    of_verbs = {
        verb: forms.described(MEANINGS[verb][0], schema, *MEANINGS[verb][1:]) for verb, schema in options.items()
    }
    return {"type": "object", "properties": of_verbs, **keywords}


def _one_verb(words: str) -> forms.Schema:
    """A mapping with one verb, the options of whose text stand under `words` in `$defs`."""
    options = {verb: forms.reference(f"{verb}Options" if verb in UNITS else words) for verb in VERBS}
    return _any_verb(options, additionalProperties=False, minProperties=1, maxProperties=1)


# Node labels hold no spaces, so product names stand there as labels have them.
_OF_NODES: Final = {**verbs.WORD_OPTIONS, "form": forms.optional(forms.word(("label",)), verbs.FORM, default="label")}
_UNITS: Final = forms.word(UNITS).schema
_LIMITS: Final = _any_verb({verb: verbs.number(verb, {}).schema for verb in UNITS})
SHARED: Final[Mapping[str, forms.Schema]] = {
    "mode": modes.MODE.schema,
    "example": EXAMPLE.schema,
    "toleration": TOLERATION.schema,
    **{f"{verb}Options": verbs.READERS[verb].schema for verb in UNITS},
    "wordOptions": verbs.text("model").schema,
    "nodeLabelOptions": verbs.text("model", _OF_NODES).schema,
    "verb": _one_verb("wordOptions"),
    "nodeLabelVerb": _one_verb("nodeLabelOptions"),
    # Other verbs are excluded outside of the alternatives: an editor then says of a slip that it is no verb, and not
    # that a number was expected.
    "limit": {
        "anyOf": [forms.whole().schema, _UNITS, _LIMITS],
        "propertyNames": _UNITS,
        "minProperties": 1,
        "maxProperties": 1,
    },
}
"""What a back end has often, by the name of its schema."""


_REFERENCE: Final = re.compile(r'"\$ref": "#/\$defs/(\w+)"')


def names(rulebook: Rulebook) -> Mapping[str, Collection[str]]:
    """What documents can name in a rulebook, by what each shape of a name calls them."""
    cards = rulebook.devices.values()
    return {
        "backends": sorted(rulebook.backends),
        "models": sorted({card.model for card in cards}),
        "profiles": sorted(rulebook.profiles),
        "vendors": sorted({card.vendor for card in cards}),
    }


def _offering(value: Any, named: Collection[str]) -> Any:
    """The same, which offers names where one stands; others are taken, as rules of a site may define them."""
    if isinstance(value, list):
        return [_offering(element, named) for element in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _offering(child, named) for key, child in value.items()}
    what = value.get("format")
    if not isinstance(what, str):
        return inner
    del inner["format"]
    return inner | ({"anyOf": [forms.reference(what), {}]} if what in named else {})


def schema(kind: str | None = None, named: Mapping[str, Collection[str]] = MappingProxyType({})) -> forms.Schema:
    """The schema of documents of one kind, or of any document by its `kind`, in which the `named` are offered."""
    object_name = forms.FILLED.schema | {"pattern": f"^{SUBDOMAIN}$", "maxLength": MAX_NAME}
    documents: dict[str, forms.Schema] = {}
    for name, (meaning, spec) in KINDS.items():
        name_of = object_name if name in load.POLICY_KINDS.values() else forms.FILLED.schema
        document = load.document(forms.word((name,)), meaning, spec, name_of)
        documents[name] = forms.described(meaning, document.schema)
    whole: forms.Schema = {"$schema": DRAFT}
    if kind is not None:
        whole |= {"title": kind, **documents[kind]}
    else:
        heads = {key: load.HEAD.schema["properties"][key] for key in ("apiVersion", "kind")}
        heads["kind"] = {**heads["kind"], "enum": [*KINDS]}
        whole |= {
            "type": "object",
            "properties": {**heads, "metadata": {}, "spec": {}},
            "required": load.HEAD.schema["required"],
            "allOf": [
                {"if": {"required": ["kind"], "properties": {"kind": {"const": name}}}, "then": document}
                for name, document in documents.items()
            ],
        }

    # The parts that it refers to, and those that these refer to.
    backend = {"backend": BACKEND.schema, "extendingBackend": inheriting(BACKEND.schema)}
    shared = {**SHARED, **backend, "claimSource": CLAIM_SOURCE.schema}
    whole = _offering(whole, named)
    parts = {name: _offering(parametrised(part), named) for name, part in shared.items()} | {"parameter": PARAMETER}
    parts |= {name: {"enum": [*words]} for name, words in named.items()}
    schemas: dict[str, forms.Schema] = {}
    missing = {*_REFERENCE.findall(json.dumps(whole))}
    while missing:
        schemas |= {name: parts[name] for name in missing}
        missing = {*_REFERENCE.findall(json.dumps(schemas))} - schemas.keys()
    return {**whole, "$defs": {name: schemas[name] for name in parts if name in schemas}} if schemas else whole


def schema_text(value: Any, indent: str = "") -> str:
    """A schema as JSON, whatever fits on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) < WIDTH or not isinstance(value, dict | list):
        return flat
    inner = f"{indent}  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"{inner}{schema_text(entry, inner)}" for entry in value) + f"\n{indent}]"
    entries = (f"{inner}{json.dumps(key)}: {schema_text(entry, inner)}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


# What extending back ends and parameters allow beside the form of a value, as JSON Schema

_HOLE: Final = r"\$\([A-Za-z][A-Za-z0-9]*\)"
PARAMETER: Final[forms.Schema] = {"type": "string", "pattern": _HOLE}
"""What stands under `parameter` in `$defs`."""

_TYPES: Final = {"object": "a mapping", "array": "a list", "integer": "a whole number", "boolean": "true or false"}
_SHOWN: Final = ("description", "examples")


def inheriting(spec: forms.Schema) -> forms.Schema:
    """The spec of a back end that extends another: nothing has to be there but examples, and empty deletes."""
    kept = {key: spec["properties"][key] for key in ("examples", "extends")}
    erasable = _erasable(spec)
    return {**erasable, "properties": {**erasable["properties"], **kept}, "required": [*kept]}


def _erasable(schema: forms.Schema) -> forms.Schema:
    def or_nothing(child: forms.Schema) -> forms.Schema:
        child = _erasable(child)
        if "type" in child and "enum" not in child:
            types = child["type"] if isinstance(child["type"], list) else [child["type"]]
            return {**child, "type": [*dict.fromkeys([*types, "null"])]}
        return _or(child, {"type": "null"}) if child.keys() - {*_SHOWN} else child

    if "properties" not in schema and not isinstance(schema.get("additionalProperties"), dict):
        return schema
    return _with_values({key: value for key, value in schema.items() if key != "required"}, or_nothing)


def parametrised(schema: forms.Schema) -> forms.Schema:
    """The schema with `$(parameter)` in the place of any value, in any text, and in any key."""
    inner = _inside(schema)
    types = inner.get("type", [])
    if "anyOf" in inner or "enum" in inner:
        return _or(inner, forms.reference("parameter"))
    if "string" in types:
        return inner if re.search(inner.get("pattern", ""), "$(name)") else _or(inner, forms.reference("parameter"))
    if "$ref" in inner or not types:
        return inner
    both = [types] if isinstance(types, str) else types
    mistake = f"has to be {_TYPES[both[0]]}, or $(parameter)"
    return {**inner, "type": [*both, "string"], "pattern": f"^{_HOLE}$", "patternErrorMessage": mistake}


def _inside(schema: forms.Schema) -> forms.Schema:
    """The schema with parameters allowed in everything that its values hold."""
    inner = _with_values(schema, parametrised)
    inner |= {key: parametrised(schema[key]) for key in ("items", "propertyNames") if key in schema}
    if "anyOf" in schema:
        inner["anyOf"] = [_inside(form) for form in schema["anyOf"]]
    if "properties" in schema:
        inner["patternProperties"] = {**schema.get("patternProperties", {}), _HOLE: {}}
    return inner


def _with_values(schema: forms.Schema, change: Callable[[forms.Schema], forms.Schema]) -> forms.Schema:
    inner = dict(schema)
    if "properties" in schema:
        inner["properties"] = {key: change(child) for key, child in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        inner["additionalProperties"] = change(schema["additionalProperties"])
    return inner


def _or(schema: forms.Schema, other: forms.Schema) -> forms.Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], other]}
    own = {key: value for key, value in schema.items() if key not in _SHOWN}
    return {**{key: schema[key] for key in schema if key in _SHOWN}, "anyOf": [own, other]}
