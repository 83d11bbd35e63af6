"""The schemas that `gpu-webhook schema` prints."""

from __future__ import annotations

import json
from typing import Any, Final

from webhook.core.document import API_VERSION
from webhook.core.editor import backends, catalogs, claimsources, clusters, exemptions, tenantpolicies
from webhook.core.editor.inheritance import PARAMETER, inheriting, parametrised
from webhook.core.editor.pieces import Schema, filled, mapping, says, shared, word
from webhook.core.schema.rulebooks import KINDS

WIDTH: Final = 120
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_BACKEND: Final[Schema] = {
    "if": {"required": ["extends"]},
    "then": shared("extendingBackend"),
    "else": shared("backend"),
}
_SPECS: Final[dict[str, Schema]] = {
    "Backend": _BACKEND,
    "Cluster": clusters.SPEC,
    "DeviceCatalog": catalogs.SPEC,
    "ClaimSource": shared("claimSource"),
    "TenantPolicy": tenantpolicies.SPEC,
    "Exemption": exemptions.SPEC,
}
_NAMES: Final[dict[str, Schema]] = {"TenantPolicy": tenantpolicies.NAME, "Exemption": tenantpolicies.NAME}
_PARTS: Final[dict[str, Schema]] = {
    **backends.PARTS,
    "backend": backends.SPEC,
    "extendingBackend": inheriting(backends.SPEC),
    "claimSource": claimsources.SPEC,
}
_MEANINGS: Final[dict[str, str]] = {
    "Backend": "One way a vendor exposes GPUs: what a request becomes, and what else a pod needs.",
    "Cluster": "Which back ends this cluster has, in what order, and the defaults. There is exactly one.",
    "DeviceCatalog": "Card models of one vendor: names, memory, compute, partitions.",
    "ClaimSource": "Objects that pods name instead of asking themselves, and what stands in them.",
    "TenantPolicy": "What one tenant may ask of GPUs, and how much it may hold. Its name is the tenant's.",
    "Exemption": "Who is spared some rules of policies, until when, and who answers for it.",
}


def schema(kind: str | None = None) -> dict[str, Any]:
    """The schema of documents of one kind, or of any document by its `kind`."""
    if kind is not None:
        return _complete({"$schema": DRAFT, "title": kind, **_document(kind)})
    whole = {
        "$schema": DRAFT,
        "title": "Rules of gpu-webhook",
        "type": "object",
        "properties": {
            "apiVersion": _version(),
            "kind": says("Which kind of rule this is.", word(KINDS)),
            "metadata": {},
            "spec": {},
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "allOf": [{"if": _is(name), "then": _document(name)} for name in KINDS],
    }
    return _complete(whole)


def _complete(schema: Schema) -> Schema:
    """The schema with the parts that it refers to, and those that these refer to."""
    parts = {name: parametrised(part) for name, part in _PARTS.items()} | {"parameter": PARAMETER}
    found: dict[str, Schema] = {}
    missing = _references(schema)
    while missing:
        found |= {name: parts[name] for name in missing}
        missing = _references(found) - found.keys()
    return {**schema, "$defs": {name: found[name] for name in parts if name in found}} if found else schema


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for element in schema for name in _references(element)}
    if not isinstance(schema, dict):
        return set()
    own = {str(schema["$ref"]).removeprefix(shared("")["$ref"])} if "$ref" in schema else set()
    return own | {name for value in schema.values() for name in _references(value)}


def text(value: Any, indent: str = "") -> str:
    """A schema as JSON, whatever fits on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) < WIDTH or not isinstance(value, dict | list):
        return flat
    inner = f"{indent}  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"{inner}{text(entry, inner)}" for entry in value) + f"\n{indent}]"
    entries = (f"{inner}{json.dumps(key)}: {text(entry, inner)}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def _is(kind: str) -> Schema:
    return {"required": ["kind"], "properties": {"kind": {"const": kind}}}


def _version() -> Schema:
    return says("The version of the rule language.", word((API_VERSION,)))


def _document(kind: str) -> Schema:
    metadata = {
        "name": says("The name that other rules and `gpu-backend` use.", _NAMES.get(kind, filled())),
        "annotations": says("Notes of yours; they mean nothing here.", {}),
        "labels": says("Marks of yours; they mean nothing here.", {}),
    }
    return says(
        _MEANINGS[kind],
        mapping(
            {
                "apiVersion": _version(),
                "kind": says(_MEANINGS[kind], word((kind,))),
                "metadata": says("The document's name.", mapping(metadata, needs=("name",))),
                "spec": says("What the document says.", _SPECS[kind]),
            },
            needs=("apiVersion", "kind", "metadata", "spec"),
        ),
    )
