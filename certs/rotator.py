"""The duty of rotation: read everything, ask `rotation.plan` what is next, do the first thing that can be done."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple, Protocol

from certs import issue, rotation, stored
from certs.api import ApiError, Object
from certs.copies import Copies
from certs.issue import Pair
from certs.problem import Problem
from certs.rotation import Action, Authorities, Forget, Publish, Serve, State, Terms
from certs.stored import Site
from certs.turns import Status, Turn

PATIENCE_SECONDS: Final = 20.0
"""How long API servers are asked to accept a leaf while the one that is being served is not good."""

log = logging.getLogger(__name__)


class Store(Protocol):
    """Where the Secrets and configurations are: `api.Api`."""

    @property
    def now(self) -> datetime:
        """The time by which certificates are judged."""

    async def find(self, path: str) -> Object | None:
        """One object, or None."""

    async def put(self, path: str, made: Object, present: Object | None) -> Object:
        """Compare and swap; returns the object as it is stored."""

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        """A JSON Patch."""


class Witness(Protocol):
    """Who sees what API servers accept, and what replicas serve: `witness.Network`."""

    async def refusals(self, leaf: Pair, configurations: Collection[str]) -> Sequence[Problem]:
        """Which API servers do not accept a leaf for these configurations."""

    async def others(self, signer: bytes) -> Sequence[Problem]:
        """Which replicas do not serve a leaf of this CA."""


class _Seen(NamedTuple):
    """Everything that one turn has read."""

    configurations: Mapping[str, Object]
    serving: Object | None
    known: Object | None
    at: datetime

    @property
    def state(self) -> State:
        """What `plan` is asked about."""
        bundles = {
            name: frozenset(bundle for _, _, bundle in stored.bundles(each))
            for name, each in self.configurations.items()
        }
        found = stored.found(self.serving, self.configurations, self.at)
        return State(bundles, stored.pair(self.serving), found, stored.authorities(self.known))


class Rotator:
    """Keeps the CA, the bundles and the serving certificate of one installation."""

    def __init__(self, api: Store, witness: Witness, site: Site, terms: Terms, status: Status) -> None:
        self._api = api
        self._witness = witness
        self._site = site
        self._terms = terms
        self._status = status
        self._copies = Copies()
        self._waiting_since: float | None = None

    async def turn(self) -> Turn:
        """Do one thing, if there is one that can be done; raises ApiError if the cluster cannot be read."""
        seen = await self._read()
        problems = await self._recreate(seen)
        state = seen.state
        self._status.expiry = dict(_expiry(state))
        for action in rotation.plan(state, self._site.names, self._terms, seen.at):
            name = type(action).__name__.lower()
            blocked = await self._status.attempt(name, action.why, self._do(action, seen, state))
            if not blocked:
                return Turn(problems, acted=True)
            problems += blocked
        return Turn(problems)

    async def _read(self) -> _Seen:
        """What is stored; `rotation.State` says why in this order."""
        found = {kind: await self._api.find(path) for kind, path in self._site.configurations.items()}
        configurations = {kind: each for kind, each in found.items() if each is not None}
        serving = await self._api.find(self._site.serving)
        known = await self._api.find(self._site.authorities)
        return _Seen(configurations, serving, known, self._api.now)

    async def _recreate(self, seen: _Seen) -> list[Problem]:
        """Create each missing configuration again, if it is time."""
        self._copies.look(seen.configurations, seen.at)
        return [
            Problem("configuration", kind, await self._recreated(kind, path, seen))
            for kind, path in self._site.configurations.items()
            if kind not in seen.configurations
        ]

    async def _recreated(self, kind: str, path: str, seen: _Seen) -> str:
        """What there is to say about a missing configuration."""
        missing = f"there is no {kind} webhook configuration {self._site.configuration}: pods are admitted unseen."
        if not self._copies.known(kind):
            return f"{missing} This program has not seen it and cannot create it: apply the manifests"
        made = self._copies.due(kind, b"".join(stored.authorities(seen.known).certificates), seen.at)
        if made is None:
            return (
                f"{missing} It will be created again; who wants to be without it stops {self._site.own_service} first"
            )
        try:
            created = await self._api.put(path, made, None)
            await self._api.patch(path, self._copies.ownership(kind, created))
        except ApiError as error:
            self._status.actions["recreate", "failed"] += 1
            return f"{missing} It cannot be created again: {error}"
        self._status.actions["recreate", "done"] += 1
        log.warning("recreate: the %s webhook configuration was deleted, and is there again", kind)
        return f"the {kind} webhook configuration {self._site.configuration} was deleted"

    # One action

    async def _do(self, action: Action, seen: _Seen, state: State) -> Sequence[Problem]:
        match action:
            case Publish():
                path = self._site.configurations[action.configuration]
                operations = stored.publication(seen.configurations[action.configuration], action.bundle)
                await self._api.patch(path, operations)
                return []
            case Serve():
                return await self._serve(action, seen, state.authorities)
            case Forget():
                others = await self._witness.others(action.signer)
                if others:
                    return others
        known = rotation.step(state.authorities, action, self._terms, seen.at)
        path, data = self._site.authorities, stored.authorities_data(known)
        await self._api.put(path, stored.secret(path, "Opaque", seen.known, data), seen.known)
        return []

    async def _serve(self, action: Serve, seen: _Seen, authorities: Authorities) -> Sequence[Problem]:
        made = issue.leaf(action.signer, self._site.names, seen.at, self._terms.leaf)
        refusals = await self._witness.refusals(made, seen.configurations)
        if refusals and not self._impatient(action):
            return refusals
        if refusals:
            log.error("a leaf is served that API servers were not seen to accept, as the present one is not good")
        self._waiting_since = None
        path = self._site.serving
        bundle = b"".join(authorities.certificates)
        data = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": bundle}
        await self._api.put(path, stored.secret(path, "kubernetes.io/tls", seen.serving, data), seen.serving)
        return []

    def _impatient(self, action: Serve) -> bool:
        """Whether API servers were asked for long enough, while what they have now is not good anyway."""
        if not action.anyway:
            self._waiting_since = None
            return False
        self._waiting_since = self._waiting_since or monotonic()
        return monotonic() - self._waiting_since > PATIENCE_SECONDS


def _expiry(state: State) -> Mapping[str, datetime]:
    pairs = {"authority": state.authorities.signer, "leaf": state.serving}
    return {name: issue.expires(pair.certificate) for name, pair in pairs.items() if pair and _readable(pair)}


def _readable(pair: Pair) -> bool:
    return bool(issue.certificates(pair.certificate))
