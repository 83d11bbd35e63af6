"""Decisions of late: a controller makes many pods that are alike, and what was decided about one holds for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import orjson

from webhook.core import likeness
from webhook.core.decision import Decision
from webhook.core.review import AdmissionRequest
from webhook.core.rulebook import Rulebook

Judge = Callable[[AdmissionRequest, Rulebook], Decision]

REMEMBERED: Final = 128
"""Kinds of pods, of the size that follows at most: together 2 MiB, and the decisions."""

LONGEST: Final = 16 * 1024
"""Bytes of a review that is remembered."""


class Recent:
    """Asks judges, and remembers what they said, for the second of the reviews and for as long as the rules hold."""

    def __init__(self) -> None:
        self._rulebook: Rulebook | None = None
        self._at = 0.0
        self._known: dict[tuple[str, AdmissionRequest, bytes], Decision] = {}

    def judge(self, name: str, judge: Judge, request: AdmissionRequest, rulebook: Rulebook, size: int) -> Decision:
        """What `judge`, who is called `name`, says to a review of so many bytes."""
        if (request.operation, request.resource, request.old_pod) != ("CREATE", "pods", None) or not request.pod:
            return judge(request, rulebook)
        asked = likeness.alike(request)
        if size > LONGEST:
            return likeness.about(judge(asked, rulebook), request)
        return likeness.about(self._remembered(name, judge, asked, rulebook), request)

    def _remembered(self, name: str, judge: Judge, asked: AdmissionRequest, rulebook: Rulebook) -> Decision:
        if rulebook is not self._rulebook or asked.at != self._at:
            self._rulebook, self._at, self._known = rulebook, asked.at, {}
        try:
            kind = (name, replace(asked, pod=None), orjson.dumps(asked.pod))  # as JSON, where 1 is not true
        except TypeError:  # orjson reads deeper than it writes
            return judge(asked, rulebook)
        decision = self._known.get(kind)
        if decision is None:
            decision = judge(asked, rulebook)
            if decision.allowed and len(self._known) < REMEMBERED:  # a refusal may be long
                self._known[kind] = decision
        return decision
