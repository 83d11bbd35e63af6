"""Every kind of document, and the JSON Schema of them that `gpu-webhook schema` prints for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import API_VERSION
from webhook.core.forms.inheritance import PARAMETER, inheriting, parametrised
from webhook.core.forms.labels import MAX_NAME, SUBDOMAIN
from webhook.core.forms.shape import ANYTHING, FILLED, Schema, reference, says, word
from webhook.core.rules.backend import BACKEND, SHARED
from webhook.core.rules.catalog import DEVICE_CATALOG
from webhook.core.rules.claim_source import CLAIM_SOURCE
from webhook.core.rules.cluster import CLUSTER
from webhook.core.rules.exemption import EXEMPTION
from webhook.core.rules.protection import PROTECTION
from webhook.core.rules.tenant_policy import TENANT_POLICY
from webhook.core.rules.workload import WORKLOAD

WIDTH: Final = 120
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


class Kind(NamedTuple):
    """A kind of document: what it is for, the schema of its spec, and whether it is an object in a cluster, too."""

    meaning: str
    spec: Schema
    is_object: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "Backend": Kind(
        "One way a vendor exposes GPUs: what a request becomes, and what else a pod needs.",
        {"if": {"required": ["extends"]}, "then": reference("extendingBackend"), "else": reference("backend")},
    ),
    "ClaimSource": Kind(
        "Objects that pods name instead of asking themselves, and what stands in them.", reference("claimSource")
    ),
    "Cluster": Kind(
        "Which back ends this cluster has, in what order, and the defaults. There is exactly one.", CLUSTER.schema
    ),
    "DeviceCatalog": Kind("Card models of one vendor: names, memory, compute, partitions.", DEVICE_CATALOG.schema),
    "Exemption": Kind(
        "Who is spared some rules of policies, until when, and who answers for it.", EXEMPTION.schema, is_object=True
    ),
    "Protection": Kind(
        "What of a pod gives devices that it does not ask for, or lifts a limit on those that it has.",
        PROTECTION.schema,
    ),
    "TenantPolicy": Kind(
        "What one tenant may ask of GPUs, and how much it may hold. Its name is the tenant's.",
        TENANT_POLICY.schema,
        is_object=True,
    ),
    "Workload": Kind(
        "Where objects of a kind keep the templates of their pods, and how many pods each makes.", WORKLOAD.schema
    ),
}
_PARTS: Final[Mapping[str, Schema]] = {
    **SHARED,
    "backend": BACKEND.schema,
    "extendingBackend": inheriting(BACKEND.schema),
    "claimSource": CLAIM_SOURCE.schema,
}
_OBJECT_NAME: Final = FILLED.schema | {"pattern": f"^{SUBDOMAIN}$", "maxLength": MAX_NAME}
_VERSION: Final = says("The version of the rule language.", word((API_VERSION,)).schema)
_HEAD: Final = ("apiVersion", "kind", "metadata", "spec")


def schema(kind: str | None = None) -> dict[str, Any]:
    """The schema of documents of one kind, or of any document by its `kind`."""
    if kind is not None:
        return _complete({"$schema": DRAFT, "title": kind, **_document(kind)})
    whole = {
        "$schema": DRAFT,
        "title": "Rules of gpu-webhook",
        "type": "object",
        "properties": {
            "apiVersion": _VERSION,
            "kind": says("Which kind of rule this is.", word(KINDS).schema),
            "metadata": {},
            "spec": {},
        },
        "required": [*_HEAD],
        "allOf": [
            {"if": {"required": ["kind"], "properties": {"kind": {"const": name}}}, "then": _document(name)}
            for name in KINDS
        ],
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
    own = {str(schema["$ref"]).removeprefix(reference("")["$ref"])} if "$ref" in schema else set()
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


def _document(name: str) -> Schema:
    kind = KINDS[name]
    metadata = {
        "name": says(
            "The name that other rules and `gpu-backend` use.", _OBJECT_NAME if kind.is_object else FILLED.schema
        ),
        "annotations": says("Notes of yours; they mean nothing here.", ANYTHING.schema),
        "labels": says("Marks of yours; they mean nothing here.", ANYTHING.schema),
    }
    whole = {
        "apiVersion": _VERSION,
        "kind": says(kind.meaning, word((name,)).schema),
        "metadata": says("The document's name.", _mapping(metadata, "name")),
        "spec": says("What the document says.", kind.spec),
    }
    return says(kind.meaning, _mapping(whole, *_HEAD))


def _mapping(properties: Mapping[str, Schema], *needs: str) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": [*needs]}
