"""Runs the admission server with the settings given as JSON; what every test here, and the benchmark, starts."""

import asyncio
import atexit
import json
import os
import resource
import sys
from functools import partial
from pathlib import Path

from webhook.server.serve import serve
from webhook.server.settings import Settings


def main() -> int:
    given = json.loads(sys.argv[1])
    if folder := given.pop("modules_to", None):
        atexit.register(list_modules, Path(folder))
    seconds = given.pop("followed_for", None)
    if descriptors := given.pop("descriptors", None):
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    prepare = None
    if tenants := given.pop("tenants", None):
        from webhook.cli.serve import judge_by  # noqa: PLC0415 - a server that knows only pods has nothing of the cli

        prepare = partial(judge_by, Path(tenants))
    files = ("rules", "surroundings", "state", "tls_cert", "tls_key", "client_ca")
    paths = {name: Path(given[name]) for name in files if name in given}
    return serve(Settings(**{**given, **paths}), None if seconds is None else lambda _: fall(seconds), prepare)


async def fall(seconds: float) -> None:
    """Follow nothing, and fail after a while."""
    await asyncio.sleep(seconds)
    raise RuntimeError("a fault")


def list_modules(folder: Path) -> None:
    """What this process, arbiter or worker, has imported by its end."""
    (folder / str(os.getpid())).write_text("\n".join(sorted(sys.modules)))


if __name__ == "__main__":
    sys.exit(main())
