"""Whether files have changed, by inode, time and size: two system calls instead of reading them."""

from __future__ import annotations

from pathlib import Path

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
