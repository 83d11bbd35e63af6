"""The duty of activation: give our webhooks their rules when every API server was seen to reach a replica.

In an upgrade, also when no replica of a former version is left that may not know what new rules bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from certs import activation, rollout
from certs.activation import Rules
from certs.api import Object
from certs.problem import Problem
from certs.stored import Site
from certs.turns import Status, Turn


class Store(Protocol):
    """Where the configurations are: `api.Api`."""

    @property
    def now(self) -> datetime:
        """The time of the API server."""

    async def find(self, path: str) -> Object | None:
        """One object, or None."""

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        """A JSON Patch."""


class Witness(Protocol):
    """Who sees that replicas answer: `witness.Network`."""

    async def unanswered(self, configuration: str) -> Sequence[Problem]:
        """Which API servers get no answer from a replica for this configuration."""

    async def unmutated(self) -> Sequence[Problem]:
        """Which API servers do not bring pods to be mutated yet."""


class Activator:
    """Keeps the rules of our webhooks as the annotation of their configuration says."""

    def __init__(self, api: Store, witness: Witness, site: Site, status: Status) -> None:
        self._api = api
        self._witness = witness
        self._site = site
        self._status = status

    async def turn(self) -> Turn:
        """Activate what is not active, if replicas answer; raises ApiError if the cluster cannot be read."""
        for kind, path in self._site.configurations.items():
            turn = await self._look(kind, path)
            if turn.acted or turn.problems:
                return turn
        return Turn()

    async def _look(self, kind: str, path: str) -> Turn:
        configuration = await self._api.find(path)
        name = f"{kind} webhook configuration {self._site.configuration}"
        if configuration is None:
            text = f"there is no {name}: pods are admitted unseen; apply the manifests"
            return Turn([Problem("configuration", kind, text)])
        try:
            rules = activation.inactive(configuration)
        except activation.UnreadableError as error:
            return Turn([Problem("configuration", kind, f"the {name}: {error}; apply the manifests")])
        if not rules:
            return Turn()
        why = f"replicas answer, so pods are brought to {activation.names(configuration, rules)}"
        blocked = await self._status.attempt("activate", why, self._activate(kind, configuration, rules))
        return Turn(blocked, acted=not blocked)

    async def _activate(self, kind: str, configuration: Object, rules: Rules) -> Sequence[Problem]:
        """Ask every API server, then write; returns which of them are not ready for it.

        Validating comes after mutating, as it refuses a pod that was not mutated.
        """
        if activation.widens(configuration, rules):
            undone = rollout.unfinished(await self._api.find(self._site.deployment), self._api.now)
            if undone:
                names = activation.names(configuration, rules)
                text = (
                    f"{names}: the former rules stay until no old replica of {self._site.service} is left: {undone}"
                )
                return [Problem("rollout", kind, text)]
        waiting = [*await self._witness.unanswered(kind)]
        if kind == "validating":
            waiting += await self._witness.unmutated()
        if not waiting:
            await self._api.patch(self._site.configurations[kind], activation.operations(configuration, rules))
        return waiting
