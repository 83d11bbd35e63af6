"""Decisions of late: a controller makes many pods that are alike, and what was decided about one holds for all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

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

Slot = tuple[str, str, str, str]


class _Known(NamedTuple):
    """What was asked, about which pod (as JSON: 1 is not true), by which rules, and what was decided."""

    asked: AdmissionRequest
    pod: bytes
    rulebook: Rulebook
    decision: Decision


class Recent:
    """Asks judges, and remembers what they said: for each path, namespace, user and controller the last."""

    def __init__(self) -> None:
        self._known: OrderedDict[Slot, _Known] = OrderedDict()

    def judge(self, name: str, judge: Judge, request: AdmissionRequest, rulebook: Rulebook, size: int) -> Decision:
        """What `judge`, who is called `name`, says to a review of so many bytes."""
        if request.operation != "CREATE" or request.resource != "pods" or request.pod is None:
            return judge(request, rulebook)
        asked = likeness.alike(request)
        if size > LONGEST:
            return likeness.about(judge(asked, rulebook), request)
        return likeness.about(self._remembered(_slot(name, request), judge, asked, rulebook), request)

    def _remembered(self, slot: Slot, judge: Judge, asked: AdmissionRequest, rulebook: Rulebook) -> Decision:
        pod, rest = orjson.dumps(asked.pod), replace(asked, pod=None)
        known = self._known.get(slot)
        if known is not None and known.rulebook is rulebook and known.pod == pod and known.asked == rest:
            return known.decision
        decision = judge(asked, rulebook)
        if decision.allowed:  # a refusal may be long
            self._remember(slot, _Known(rest, pod, rulebook, decision))
        return decision

    def _remember(self, slot: Slot, known: _Known) -> None:
        self._known[slot] = known
        self._known.move_to_end(slot)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _slot(name: str, request: AdmissionRequest) -> Slot:
    metadata = (request.pod or {}).get("metadata")
    controller = metadata.get("generateName") if isinstance(metadata, dict) else ""
    return name, request.namespace, request.user, str(controller)
