"""What commands read, files or standard input, and the JSON that they print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def content(file: str, most: int = -1) -> tuple[bytes, str]:
    """The content of a file, and its name; `-` is standard input, of which at most so many bytes are read."""
    return (sys.stdin.buffer.read(most), "standard input") if file == "-" else (Path(file).read_bytes(), file)


def dump(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))
