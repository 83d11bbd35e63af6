"""The Go programs of the benchmark, built once into the user's cache."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.cluster import binaries

HERE = Path(__file__).parent
NAMES = ("noop", "load", "writer")


def build() -> dict[str, Path]:
    """Where each program is; built now when its source has changed."""
    return {name: _built(HERE / name) for name in NAMES}


def _built(source: Path) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = base / "gpu-webhook" / "bench" / _digest(source) / source.name
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            go, environment = binaries._go(Path(scratch))  # noqa: SLF001 - the control plane is built by the same Go
            made = Path(scratch) / "made"
            command = [str(go), "build", "-trimpath", "-o", str(made), "."]
            subprocess.run(command, cwd=source, env={**os.environ, **environment}, check=True, timeout=600)
            made.rename(program)
    return program


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for name in ("go.mod", "main.go"):
        digest.update((source / name).read_bytes())
    return digest.hexdigest()[:16]
