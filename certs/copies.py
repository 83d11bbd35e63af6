"""The webhook configurations as they were last seen: one that somebody deleted is created again.

Without it pods are admitted unseen, and nobody notices. Who uninstalls deletes this program as well, which then ends
before the time is over. Who wants to be without a configuration for a while stops this program first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from certs import activation, stored
from certs.stored import Object

GONE: Final = timedelta(seconds=30)
"""How long a configuration is missing before it is created again; `kubectl delete -k` ends this program sooner."""

_OF_ONE_LIFE: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"})


class Copies:
    """What this process has seen of the configurations; after a restart nothing, until it sees them."""

    def __init__(self) -> None:
        self._last: dict[str, Object] = {}
        self._missing_since: dict[str, datetime] = {}

    def look(self, configurations: Mapping[str, Object], at: datetime) -> None:
        """Remember those that are there, and since when the others are not."""
        self._last |= configurations
        self._missing_since = {
            kind: min(at, self._missing_since.get(kind, at)) for kind in self._last if kind not in configurations
        }

    def due(self, kind: str, bundle: bytes, at: datetime) -> Object | None:
        """A missing configuration to be created, with this CA bundle and not active, if it is time."""
        if kind not in self._missing_since or at - self._missing_since[kind] < GONE:
            return None
        last = self._last[kind]
        metadata = {key: value for key, value in last["metadata"].items() if key not in _OF_ONE_LIFE}
        return {**_deactivated(stored.with_bundle(last, bundle)), "metadata": metadata}

    def ownership(self, kind: str, created: Object) -> Sequence[Object]:
        """The JSON Patch that gives the fields of a configuration that was created again to their former managers.

        They would all be this program's: the next `kubectl apply --server-side` would be a conflict, and a webhook
        that a later version no longer has would stay.
        """
        managed = self._last[kind]["metadata"].get("managedFields", [])
        return stored.additions(created, {"/metadata/managedFields": managed})

    def known(self, kind: str) -> bool:
        """Whether a missing configuration can be created again."""
        return kind in self._last


def _deactivated(configuration: Object) -> Object:
    """The activator gives both configurations their rules again, in its order."""
    try:
        return activation.deactivated(configuration)
    except activation.UnreadableError:
        return configuration
