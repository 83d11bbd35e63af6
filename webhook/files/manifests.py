"""The input of `explain`: YAML or JSON files with objects of any kind, as kubectl reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from webhook.files import documents
from webhook.files.documents import UnreadableError

MAX_BYTES = 8 << 20


def parse(content: bytes, name: str, most: int = documents.MAX_NODES) -> list[Mapping[str, Any]]:
    """Every object of a manifest; raises UnreadableError. They may have at most `most` values in all."""
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    return documents.objects(_escaped(content), name, most)


def _escaped(content: bytes) -> bytes:
    """JSON with escaped characters replaced: YAML reads all of JSON but surrogate pairs, as of an emoji."""
    if b"\\ud" not in content.lower() or content.lstrip()[:1] not in b"{[":
        return content
    try:
        return json.dumps(json.loads(content, object_pairs_hook=_unique), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise UnreadableError(
            f'the key "{next(key for key in keys if keys.count(key) > 1)}" stands twice in an object'
        )
    return dict(pairs)
