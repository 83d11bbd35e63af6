"""Remembers decisions: pods with equal projections get equal decisions while a rulebook is in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.decision import Decision, Reservation
from webhook.core.kube import time
from webhook.core.policy import device_access
from webhook.core.projection import projection
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal

Judge = Callable[[AdmissionRequest, Rulebook], Decision]

Key = tuple[str, str, tuple[str, int] | None, bytes]
"""The judge's name, the namespace, the user and the second if they may decide, and the projection as JSON."""

REMEMBERED: Final = 512
"""How many decisions: at most 2 MiB of projections, and the decisions themselves."""

LONGEST: Final = 4 * 1024
"""The longest projection that is remembered, in bytes. An ordinary pod has about 600."""

_SHOWN: Final = device_access.MIRROR.encode()


class Memo:
    """Returns a remembered decision, or calls the judge. A denial is not remembered: it may be long."""

    def __init__(self) -> None:
        self._rulebook: Rulebook | None = None
        self._known: dict[Key, Decision] = {}

    def decide(self, name: str, judge: Judge, request: AdmissionRequest, rulebook: Rulebook) -> Decision:
        """The decision about one request, by `judge` or from memory; `name` is the judge's name in the key."""
        if request.operation != "CREATE" or request.old_pod is not None or not request.is_of_a_pod:
            return judge(request, rulebook)
        try:
            projected = projection.project(request, rulebook)
        except Refusal:
            return judge(request, rulebook)  # which words the refusal, or in observe mode the warning
        key = _key(name, projected, rulebook)
        if rulebook is not self._rulebook:
            self._rulebook, self._known = rulebook, {}
        decision = self._known.get(key) if key is not None else None
        if decision is None:
            decision = judge(projected, rulebook)
            self._remember(key, decision)
        if decision.reservation is None:
            return decision
        return decision._replace(reservation=_named(decision.reservation, request))

    def _remember(self, key: Key | None, decision: Decision) -> None:
        """Keep a decision; if there is no room, forget the oldest."""
        if key is None or not decision.allowed:
            return
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = decision


def _key(name: str, request: AdmissionRequest, rulebook: Rulebook) -> Key | None:
    """The key of a decision; None for a projection that is too large, or nested too deep to be compared."""
    if not 0 < len(request.text) <= LONGEST:
        return None
    return name, request.namespace, _moment(request, rulebook), request.text


def _moment(request: AdmissionRequest, rulebook: Rulebook) -> tuple[str, int] | None:
    """The user and the second, if an exemption may hold for the namespace or a kubelet may show the pod; or None."""
    holds = any(exemption.covers(request.namespace) for exemption in rulebook.tenancy.exemptions)
    return (request.user, int(request.at)) if holds or _SHOWN in request.text else None


def _named(reservation: Reservation, request: AdmissionRequest) -> Reservation:
    """The reservation of an equal projection, with this pod's name, UID and author."""
    metadata: Mapping[str, Any] = (request.pod or {}).get("metadata") or {}
    ask = reservation.ask._replace(
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        author=request.author,
        created=_seconds(metadata.get("creationTimestamp")),
    )
    return replace(reservation, ask=ask)


def _seconds(stamp: Any) -> float:
    """A time of the API server in seconds since 1970; 0 if there is none."""
    try:
        return time.seconds(stamp)
    except (TypeError, ValueError):
        return 0.0
