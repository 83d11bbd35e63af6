"""What people hand to `explain`: YAML or JSON files with objects of any kind, as kubectl reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from webhook import documents
from webhook.core.document import DocumentError

MAX_BYTES = 8 << 20


class ManifestError(Exception):
    """A manifest that cannot be read; the message says where and why."""


def parse(content: bytes, name: str, most: int = documents.MAX_NODES) -> list[Mapping[str, Any]]:
    """Every object of a manifest; raises ManifestError. `most` is how many values they may hold together."""
    if len(content) > MAX_BYTES:
        raise ManifestError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        objects = [node.plain() for node in documents.parse(_escaped(content), name, most)]
    except DocumentError as error:
        raise ManifestError(str(error)) from None
    for found in objects:
        if not isinstance(found, dict):
            raise ManifestError(f"{name} holds something that is not an object")
    return objects


def _escaped(content: bytes) -> bytes:
    """JSON with its characters written out: YAML reads all of JSON but the pairs of escapes that make an emoji."""
    if b"\\ud" not in content.lower() or content.lstrip()[:1] not in b"{[":
        return content
    try:
        return json.dumps(json.loads(content, object_pairs_hook=_unique), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ManifestError(f'the key "{next(key for key in keys if keys.count(key) > 1)}" stands twice in an object')
    return dict(pairs)
