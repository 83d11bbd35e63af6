"""What commands read, files or standard input, and the JSON that they print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from webhook.files import manifests


def manifest(file: str) -> tuple[bytes, str]:
    """A manifest and its name, read up to one byte beyond the largest; `-` is standard input."""
    if file == "-":
        return sys.stdin.buffer.read(manifests.MAX_BYTES + 1), "standard input"
    return Path(file).read_bytes(), file


def whole(file: str) -> tuple[bytes, str]:
    """A file of any size, and its name; a cluster has many objects."""
    return (sys.stdin.buffer.read(), "standard input") if file == "-" else (Path(file).read_bytes(), file)


def dump(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))
