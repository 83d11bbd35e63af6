"""Counts of what is loaded, and problems of rule files, for people and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.core.forms.document import Problem
from webhook.core.rules.rulebook import Rulebook


def located(problem: Problem) -> dict[str, Any]:
    """One problem in the form of `check -o json`."""
    at = problem.at
    return {"file": at.file, "line": at.line, "column": at.column, "path": problem.path, "message": problem.message}


def counts(rulebook: Rulebook) -> dict[str, int]:
    """Counts of what is loaded."""
    return {
        "backends": len(rulebook.backends),
        "enabled": len(rulebook.enabled),
        "devices": len({device.model for device in rulebook.devices.values()}),
        "examples": sum(len(backend.examples) for backend in rulebook.backends.values()),
    }


def describe(counted: Mapping[str, int]) -> str:
    """What `counts` gives as a phrase: `4 back ends, 28 card models, 27 examples`."""
    return f"{counted['backends']} back ends, {counted['devices']} card models, {counted['examples']} examples"
