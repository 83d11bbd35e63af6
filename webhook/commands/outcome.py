"""How a command ends: its exit codes, and the error of wrong usage."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
FINDINGS: Final = 1
FAILED: Final = 2


class UsageError(Exception):
    """What was asked cannot be done; the message is for the person who typed it."""
