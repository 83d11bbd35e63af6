"""How much is loaded, and what is wrong with rules, for people and scripts."""

from __future__ import annotations

from typing import Any

from webhook.core.document import Problem
from webhook.core.rulebook import Rulebook


def located(problem: Problem) -> dict[str, Any]:
    """One problem in the form of `check -o json`."""
    at = problem.at
    return {"file": at.file, "line": at.line, "column": at.column, "path": problem.path, "message": problem.message}


def counts(rulebook: Rulebook) -> dict[str, int]:
    """How much is loaded, for people and scripts."""
    return {
        "backends": len(rulebook.backends),
        "enabled": len(rulebook.enabled),
        "devices": len({device.model for device in rulebook.devices.values()}),
        "examples": sum(len(backend.examples) for backend in rulebook.backends.values()),
    }


def describe(rulebook: Rulebook) -> str:
    """The same as a phrase: `4 back ends, 28 card models, 27 examples`."""
    counted = counts(rulebook)
    return f"{counted['backends']} back ends, {counted['devices']} card models, {counted['examples']} examples"
