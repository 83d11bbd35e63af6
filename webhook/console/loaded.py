"""The rules as they are on disk now: read again when a file has changed, so an author sees an edit on reload."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webhook import rulefiles
from webhook.core.document import Problem
from webhook.core.rulebook import Rulebook

Stamp = frozenset[tuple[str, int, int, int]]
"""Name, inode, time and size of every file: what changes when somebody saves one. A thousandth of a load."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A rulebook, or the problems that keep the files from being one.

    Never an older rulebook: a page that explains by rules which are no longer on disk would mislead their author.
    """

    rulebook: Rulebook | None
    problems: Sequence[Problem] = ()


class Rules:
    """The rules of one directory; safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._loaded = Loaded(None)

    def now(self) -> Loaded:
        """What the directory holds at this moment."""
        with self._lock:
            stamp = _stamp(self.directory)  # before the files are read: a change in between is seen next time
            if stamp != self._stamp:
                self._loaded = _load(self.directory)
                self._stamp = stamp
            return self._loaded


def _load(directory: Path) -> Loaded:
    try:
        return Loaded(rulefiles.load(directory))
    except rulefiles.RuleFilesError as error:
        return Loaded(None, error.problems)


def _stamp(directory: Path) -> Stamp:
    found = set()
    try:
        for file in directory.iterdir():
            status = file.stat()
            found.add((file.name, status.st_ino, status.st_mtime_ns, status.st_size))
    except OSError:  # it vanished on the way; reading it again says what is wrong
        found.add(("", 0, 0, 0))
    return frozenset(found)
