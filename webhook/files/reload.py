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
        """Read the rules again if the files have changed; returns whether there is news."""
        if not self._change.due(file_stamps.directory(self._directory)):
            return False
        try:
            self.rulebook = rule_files.load(self._directory)
        except rule_files.RuleFilesError as error:
            if not self._change.failed(error):
                return False
            log.error("the rules cannot be used: %s", error)  # noqa: TRY400 - the sentence is all there is to say
        else:
            log.info("rules %s", self.rulebook.digest[: logs.DIGEST_LENGTH])
        return True
