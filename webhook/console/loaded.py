"""The rules as they are on disk now: read again when a file has changed, so an author sees an edit on reload."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webhook.core.forms.document import Problem
from webhook.core.rules.rulebook import Rulebook
from webhook.files import file_stamps, rule_files, rulebook_cache, surroundings
from webhook.files.surroundings import SurroundingsError
from webhook.views import rules


@dataclass(frozen=True, slots=True)
class Loaded:
    """A rulebook, or the problems that keep the files from being one.

    Never an older rulebook: a page that explains by rules which are no longer on disk would mislead their author.
    `unseen` is why nothing is known of the cluster around, where something should be.
    """

    rulebook: Rulebook | None
    problems: Sequence[Problem] = ()
    unseen: str | None = None

    def contract(self) -> dict[str, Any]:
        """Whether the rules can be used; then what they say, else everything that is wrong with them."""
        return rules.broken(self.problems) if self.rulebook is None else rules.contract(self.rulebook)


class Rules:
    """The rules of one directory, in the surroundings that a file tells of; safe to use from several threads."""

    def __init__(self, directory: Path, around: Path | None = None) -> None:
        self.directory = directory
        self._around = around
        self._lock = threading.Lock()
        self._stamp: object = None
        self._loaded = Loaded(None)

    def now(self) -> Loaded:
        """What the files hold at this moment."""
        with self._lock:
            # Before the files are read: a change in between is seen next time.
            stamp = file_stamps.directory(self.directory), self._around and file_stamps.file(self._around)
            if stamp != self._stamp:
                self._loaded = _load(self.directory, self._around)
                whole = self._loaded.rulebook is not None and self._loaded.unseen is None
                self._stamp = stamp if whole else None  # else it is read again: what failed may pass without a change
            return self._loaded


def _load(directory: Path, around: Path | None) -> Loaded:
    try:
        rulebook = rulebook_cache.load(directory)
    except rule_files.RuleFilesError as error:
        return Loaded(None, error.problems)
    if around is None:
        return Loaded(rulebook)
    try:
        return Loaded(surroundings.around(rulebook, around))
    except SurroundingsError as error:
        return Loaded(rulebook, unseen=f"Nothing is known of the cluster's nodes: {error}")
