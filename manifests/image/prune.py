"""Removes what the installed programs never import, and compiles the rest to bytecode, when the image is built.

The Python of the environment runs it, with a folder for the bytecode of Python's own modules. Nothing is written when
the programs run, so everything is compiled here, without times: two builds have the same bytes.
"""

import compileall
import importlib
import py_compile
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

USED = ("kubernetes.aio.client.api.coordination_v1_api",)
"""The generated modules that our programs need, beside those that these import: leader election reads a Lease.

Everything else is read and written as plain JSON (webhook/cluster/client.py, certs/api.py)."""

GENERATED = tuple(f"kubernetes/{half}client/{kind}" for half in ("", "aio/") for kind in ("api", "models"))
"""One module for each kind of object, which the library loads when its name is used: most of its 70 MiB."""


def main() -> None:
    """Prune and compile."""
    packages = Path(sysconfig.get_path("purelib"))
    # uv_cache.json and .lock have times of this build in them.
    for file in (*unused(packages), *packages.glob("*.dist-info/uv_cache.json"), Path(sys.prefix, ".lock")):
        file.unlink(missing_ok=True)
    for record in packages.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if (packages / line.partition(",")[0]).exists()))
    if not compileall.compile_dir(packages, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
        raise SystemExit(f"{packages} cannot be compiled")
    compile_library(Path(sys.argv[1]))


def unused(packages: Path) -> Iterator[Path]:
    """The generated modules that are not loaded after those in use."""
    for module in USED:
        importlib.import_module(module)
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for folder in GENERATED:
        for file in (packages / folder).glob("*.py"):
            if str(file) not in loaded and file.name != "__init__.py":
                yield file


def compile_library(target: Path) -> None:
    """Compile Python's own modules into `target`; they are checked, as the image may have another release of 3.x."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in library.rglob("*.py"):
        if not {"site-packages", "dist-packages"} & set(file.relative_to(library).parts):
            compiled = target / cache_from_source(str(file)).lstrip("/")
            py_compile.compile(
                str(file), str(compiled), doraise=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH
            )


if __name__ == "__main__":
    main()
