"""What people hand to `explain`: YAML or JSON files with objects of any kind, as kubectl reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook import documents
from webhook.core.document import DocumentError

MAX_BYTES = 8 << 20


class ManifestError(Exception):
    """A manifest that cannot be read; the message says where and why."""


def parse(content: bytes, name: str) -> list[Mapping[str, Any]]:
    """Every object of a manifest; raises ManifestError."""
    if len(content) > MAX_BYTES:
        raise ManifestError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        objects = [node.plain() for node in documents.parse(content, name)]
    except DocumentError as error:
        raise ManifestError(str(error)) from None
    for found in objects:
        if not isinstance(found, dict):
            raise ManifestError(f"{name} holds something that is not an object")
    return objects
