"""The duty of rotation: read everything, ask `rotation.plan` what is next, and write it.

What is stored is read leniently and written whole. What cannot be read counts as missing: an operator may have
deleted it, or have written anything into it.

A webhook configuration that somebody deleted is created again as it was last seen: without it pods are admitted
unseen, and nobody notices. Who uninstalls deletes this program as well, which then ends before the time is over. Who
wants to be without a configuration for a while stops this program first.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from certs import activation, issue, rotation
from certs.api import OURS, ApiError, Object, Site, Store, additions
from certs.issue import Pair
from certs.rotation import Action, Authorities, Publish, Replace, Serve, State, Terms
from certs.turns import Problem, Status, Turn

GONE: Final = timedelta(seconds=30)
"""How long a configuration is missing before it is created again; `kubectl delete -k` ends this program sooner."""

_OF_ONE_LIFE: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"})

log = logging.getLogger(__name__)


def pair(secret: Object | None, certificate: str = "tls.crt", key: str = "tls.key") -> Pair | None:
    """A certificate and its key in a Secret, if both are there."""
    values = Pair(_value(secret, certificate), _value(secret, key))
    return values if all(values) else None


def authorities(secret: Object | None) -> Authorities:
    """What the Secret of CAs says. Each of its values may be lost without the others, and old versions have fewer."""
    trusted = issue.split(_value(secret, "trusted.crt"))
    return Authorities(pair(secret, "ca.crt", "ca.key"), pair(secret, "next.crt", "next.key"), trusted)


def bundles(configuration: Object) -> Iterator[tuple[int, str, bytes]]:
    """The place, the name and the CA bundle of each of our webhooks in a configuration."""
    for place, hook in enumerate(configuration.get("webhooks") or ()):
        if hook["name"].endswith(OURS):
            yield place, hook["name"], _decoded(hook["clientConfig"].get("caBundle"))


def bundles_changed(configuration: Object) -> datetime:
    """When a CA bundle in a configuration was last changed, as the API server notes of every writer's fields.

    The time of creation counts only where nothing else is noted: the clock may have been set back since.
    """
    metadata = configuration["metadata"]
    written = [fields["time"] for fields in metadata.get("managedFields") or () if "f:caBundle" in str(fields)]
    return max(map(datetime.fromisoformat, written or (metadata["creationTimestamp"],)))


def _value(secret: Object | None, key: str) -> bytes:
    return _decoded(((secret or {}).get("data") or {}).get(key))


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "")
    except binascii.Error:
        return b""


class Stored(NamedTuple):
    """The objects as one turn has read them."""

    configurations: Mapping[str, Object]
    serving: Object | None
    authorities: Object | None
    at: datetime


class Rotator:
    """Keeps the CAs, the bundles and the serving certificate of one installation."""

    def __init__(self, api: Store, site: Site, terms: Terms, status: Status) -> None:
        self._api = api
        self._site = site
        self._terms = terms
        self._status = status
        self._last: dict[str, Object] = {}
        self._missing_since: dict[str, datetime] = {}

    async def turn(self) -> Turn:
        """Do what is next; raises ApiError if the cluster cannot be read."""
        configurations: dict[str, Object] = {}
        for kind, path in self._site.configurations.items():
            configuration = await self._api.find(path)
            if configuration is not None:
                configurations[kind] = configuration
        serving = await self._api.find(self._site.serving)
        secret = await self._api.find(self._site.authorities)  # the last: `rotation.State` says why
        stored = Stored(configurations, serving, secret, self._api.now)
        state = State(
            bundles={
                kind: frozenset(bundle for _, _, bundle in bundles(configuration))
                for kind, configuration in configurations.items()
            },
            changed=max(map(bundles_changed, configurations.values()), default=stored.at),
            serving=pair(serving),
            beside=_value(serving, "ca.crt"),
            authorities=authorities(secret),
        )
        pairs = {"authority": state.authorities.signer, "leaf": state.serving}
        self._status.expiry = {
            name: issue.expires(certificate.certificate)
            for name, certificate in pairs.items()
            if certificate and issue.split(certificate.certificate)
        }
        problems = await self._recreate(stored, state.authorities)
        acted = False
        for action in rotation.plan(state, self._site.names, self._terms, stored.at):
            write = self._write(action, stored, state.authorities)
            problem = await self._status.attempt(action.name, action.why, write)
            problems += [problem] if problem else []
            acted |= problem is None
        return Turn(problems, acted)

    async def _write(self, action: Action, stored: Stored, present: Authorities) -> None:
        """One compare-and-swap; raises ApiError."""
        match action:
            case Publish(configuration=kind, bundle=bundle):
                configuration, encoded = stored.configurations[kind], base64.b64encode(bundle).decode()
                others = [place for place, _, published in bundles(configuration) if published != bundle]
                values = {f"/webhooks/{place}/clientConfig/caBundle": encoded for place in others}
                await self._api.patch(self._site.configurations[kind], additions(configuration, values))
            case Serve(signer=signer):
                leaf = issue.leaf(signer, self._site.names, stored.at, self._terms.leaf)
                data = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": b"".join(present.certificates)}
                await self._put(self._site.serving, "kubernetes.io/tls", data, stored.serving)
            case Replace():
                data = {"trusted.crt": b"".join(action.trusted)}
                for name, authority in action.pairs(self._terms.authority, stored.at).items():
                    data |= {f"{name}.crt": authority.certificate, f"{name}.key": authority.key}
                await self._put(self._site.authorities, "Opaque", data, stored.authorities)

    async def _put(self, path: str, kind: str, data: Mapping[str, bytes], present: Object | None) -> None:
        """Write a Secret.

        Keys that are not ours stay: a Secret that cert-manager left is of a kind that demands two of its own.
        """
        name = path.rpartition("/")[2]
        labels = {"app.kubernetes.io/name": self._site.program}
        secret = present or {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self._site.namespace, "labels": labels},
            "type": kind,
        }
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        await self._api.put(path, {**secret, "data": {**(secret.get("data") or {}), **encoded}}, present)

    async def _recreate(self, stored: Stored, present: Authorities) -> list[Problem]:
        """Create each configuration again that has been missing for a while; returns what there is to say of it."""
        self._last |= stored.configurations
        missing = [kind for kind in self._site.configurations if kind not in stored.configurations]
        self._missing_since = {kind: min(stored.at, self._missing_since.get(kind, stored.at)) for kind in missing}
        problems = []
        for kind in missing:
            name = f"{kind} webhook configuration {self._site.configuration}"
            text = f"there is no {name}: pods are admitted unseen."
            if kind not in self._last:
                text += " This program has not seen it and cannot create it: apply the manifests"
            elif stored.at - self._missing_since[kind] < GONE:
                text += f" It will be created again; who wants to be without it stops {self._site.program} first"
            else:
                try:
                    await self._create(kind, b"".join(present.certificates))
                except ApiError as error:
                    self._status.actions["recreate", "failed"] += 1
                    text += f" It cannot be created again: {error}"
                else:
                    self._status.actions["recreate", "done"] += 1
                    log.warning("recreate: the %s webhook configuration was deleted, and is there again", kind)
                    text = f"the {name} was deleted"
            problems.append(Problem("configuration", kind, text))
        return problems

    async def _create(self, kind: str, bundle: bytes) -> None:
        """Create a configuration as it was last seen, inactive: the activator gives the rules in its order.

        Its fields get their former managers. Otherwise they would all be this program's: the next server-side apply
        would be a conflict, and a webhook that a later version no longer has would stay.
        """
        last, path = self._last[kind], self._site.configurations[kind]
        configuration: Object = copy.deepcopy(last)
        for place, _, _ in bundles(last):
            configuration["webhooks"][place]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        with contextlib.suppress(activation.UnreadableError):
            configuration = activation.deactivated(configuration)
        metadata = {key: value for key, value in last["metadata"].items() if key not in _OF_ONE_LIFE}
        created = await self._api.put(path, {**configuration, "metadata": metadata}, None)
        now = created["metadata"]["creationTimestamp"]
        managers = [{**fields, "time": now} for fields in last["metadata"].get("managedFields", ())]
        await self._api.patch(path, additions(created, {"/metadata/managedFields": managers}))
