"""Whether files have changed, as they look from outside: two system calls instead of a reading."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]
"""Inode, time and size; the volume of a Secret or a ConfigMap, and whoever replaces a file, changes the inode."""


def file(path: Path) -> Stamp | None:
    """What a file looks like; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def directory(path: Path) -> frozenset[tuple[str, Stamp | None]]:
    """What all files of a directory look like; nothing where there is none."""
    try:
        return frozenset((each.name, file(each)) for each in path.iterdir())
    except OSError:
        return frozenset()
