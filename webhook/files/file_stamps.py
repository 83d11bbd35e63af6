"""Whether files have changed, by inode, time and size: two system calls instead of reading them."""

from __future__ import annotations

from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

RETRY_SECONDS: Final = 2.0
"""After this, files that could not be used are read again, changed or not."""

Stamp = tuple[int, int, int]
"""Inode, time and size. Kubernetes replaces the files of a Secret or ConfigMap volume, which changes the inode."""


def file(path: Path) -> Stamp | None:
    """The stamp of a file; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def directory(path: Path) -> frozenset[tuple[str, Stamp | None]]:
    """The stamps of all files of a directory; empty if there is no such directory."""
    try:
        return frozenset((each.name, file(each)) for each in path.iterdir())
    except OSError:
        return frozenset()


class Change:
    """When to read files again: they have changed, or could not be used when they were read last.

    Such a failure may pass without a change: the process had no descriptor left, or no memory.
    """

    def __init__(self) -> None:
        self._stamp: object = None
        self._retry = inf
        self._said = ""

    def due(self, stamp: object) -> bool:
        """Whether to read the files now, which have this stamp."""
        changed = stamp != self._stamp
        if not changed and monotonic() < self._retry:
            return False
        self._stamp, self._retry = stamp, inf
        self._said = "" if changed else self._said
        return True

    def failed(self, why: object) -> bool:
        """Read them again later. Returns whether this was not said before."""
        self._retry = monotonic() + RETRY_SECONDS
        news, self._said = str(why) != self._said, str(why)
        return news
