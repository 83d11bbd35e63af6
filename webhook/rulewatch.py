"""The rules of a directory, read again when they change, for programs that run for long."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from webhook import logs, rulefiles, stamps
from webhook.core.rulebook import Rulebook

RULES_SECONDS: Final = 2.0
"""How often the rules are looked at."""

log = logging.getLogger(__name__)


class Rules:
    """The rules of a directory, read again when its files change; those that do not load leave the last good ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamp: object = None
        self.rulebook: Rulebook | None = None

    def refresh(self) -> bool:
        """Look whether the files have changed."""
        stamp = stamps.directory(self._directory)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.rulebook = rulefiles.load(self._directory)
        except rulefiles.RuleFilesError as error:
            log.error("the rules cannot be used: %s", error)  # noqa: TRY400 - the sentence is all there is to say
        else:
            log.info("rules %s", self.rulebook.digest[: logs.DIGEST_LENGTH])
        return True
