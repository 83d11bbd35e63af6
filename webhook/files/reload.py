"""The rules of a directory, read again when they change, for programs that run for a long time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from webhook.core.rules.rulebook import Rulebook
from webhook.files import file_stamps, rule_files
from webhook.telemetry import logs

RULES_SECONDS: Final = 2.0
"""How often the files are checked."""

log = logging.getLogger(__name__)


class Rules:
    """The rules of a directory, read again when its files change. If they do not load, the last good ones stay."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._change = file_stamps.Change()
        self.rulebook: Rulebook | None = None

    def refresh(self) -> bool:
        """Read the rules again if the files have changed; returns whether there is news.

        Files that change while they are read are read again: a directory is replaced whole, and half of each of two
        versions is neither.
        """
        stamp = file_stamps.directory(self._directory)
        if not self._change.due(stamp):
            return False
        try:
            rulebook = rule_files.load(self._directory)
        except rule_files.RuleFilesError as error:
            return file_stamps.directory(self._directory) == stamp and self._failed(error)
        if file_stamps.directory(self._directory) != stamp:
            return False
        self.rulebook = rulebook
        digest = rulebook.digest[: logs.DIGEST_LENGTH]
        log.info("rules %s from %s: %d back ends", digest, self._directory, len(rulebook.backends))
        return True

    def _failed(self, error: rule_files.RuleFilesError) -> bool:
        """Retry later. Returns whether this is another error than before."""
        if not self._change.failed(error):
            return False
        what = "no rules" if self.rulebook is None else "the changed rules are not usable, the last good ones stay"
        log.error("%s: %s", what, error)
        return True
