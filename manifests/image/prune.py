"""Removes what the installed programs never import, and compiles the rest to bytecode, when the image is built.

The Python of the environment runs it, with a folder for the bytecode of Python's own modules. Nothing is written when
the programs run, so everything is compiled here, without times: two builds have the same bytes.
"""

import compileall
import py_compile
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

GENERATED = tuple(f"kubernetes/{half}client/{kind}" for half in ("", "aio/") for kind in ("api", "models"))
"""One module for each kind of object: most of the library's 70 MiB.

The library loads them when their names are used. Our programs use none: they read and write plain JSON
(webhook/cluster/client.py, certs/api.py)."""


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
    """The generated modules, without the packages that hold them."""
    for folder in GENERATED:
        yield from (file for file in (packages / folder).glob("*.py") if file.name != "__init__.py")


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
