"""Events in the cluster: the owner of pods that a quota refuses gets one, at most every ten minutes.

The author of a Deployment never sees an admission response: the pods are created by a controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from webhook.cluster.client import Api, ApiError, Object, timestamp
from webhook.core.decision import Decision
from webhook.core.kube import fields
from webhook.core.review import AdmissionRequest
from webhook.core.violations import QUOTA

WINDOW_SECONDS: Final = 600.0
OWNERS: Final = 10_000
"""How many are remembered; one that was forgotten gets another event early."""

AT_ONCE: Final = 20
"""How many writes run at once; an event that comes meanwhile is dropped, the next refusal brings it again."""

MESSAGE_LENGTH: Final = 1024
"""What the API server takes (core/validation/events.go, NoteLengthLimit)."""

COMPONENT: Final = "gpu-webhook"

log = logging.getLogger(__name__)


class Events:
    """Writes events in the background; belongs to one event loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: OrderedDict[str, float] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def record(self, request: AdmissionRequest, decision: Decision) -> None:
        """Take note of a decision; write an event for the owner of a refused pod if it had none lately."""
        texts = [violation.message for violation in decision.violations if violation.code == QUOTA]
        owner = next(fields.controllers(request.pod), None)
        if not texts or owner is None or len(self._writing) >= AT_ONCE:
            return
        uid, now = str(owner.get("uid")), monotonic()
        if now - self._told.get(uid, -WINDOW_SECONDS) < WINDOW_SECONDS:
            return
        self._told[uid] = now
        self._told.move_to_end(uid)
        if len(self._told) > OWNERS:
            self._told.popitem(last=False)
        event = written(owner, request.namespace, f"[{QUOTA}] {'; '.join(texts)}", datetime.now(UTC))
        writing = asyncio.get_running_loop().create_task(self._write(event))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, event: Object) -> None:
        try:
            await self._api.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
        except ApiError as error:
            log.warning("an event was not written: %s", error)


def written(owner: Mapping[str, Any], namespace: str, message: str, now: datetime) -> Object:
    """The Event about an owner, as `kubectl describe` of it shows it."""
    at = timestamp(now)
    about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{str(owner.get('name', ''))[:200]}-", "namespace": namespace},
        "involvedObject": {**about, "namespace": namespace},
        "type": "Warning",
        "reason": "GPUQuotaExceeded",
        "message": message[:MESSAGE_LENGTH],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
