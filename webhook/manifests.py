"""What people hand to `explain`: YAML or JSON files with objects of any kind, as kubectl reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook import rulefiles
from webhook.core.document import DocumentError

MAX_BYTES = 8 << 20


class ManifestError(Exception):
    """A manifest that cannot be read; the message says where and why."""


def parse(content: bytes, name: str) -> list[Mapping[str, Any]]:
    """Every object of a manifest; raises ManifestError."""
    if len(content) > MAX_BYTES:
        raise ManifestError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        documents = [node.plain() for node in rulefiles.parse(content, name)]
    except DocumentError as error:
        raise ManifestError(str(error)) from None
    for document in documents:
        if not isinstance(document, dict):
            raise ManifestError(f"{name} holds something that is not an object")
    return documents
