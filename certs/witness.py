"""What API servers accept and replicas serve, seen over the network."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from certs import endpoints, ping, probe
from certs.api import Api
from certs.endpoints import Address
from certs.issue import Pair
from certs.problem import Problem
from certs.stored import Site


class Network:
    """The API servers and replicas of one installation, as their EndpointSlices list them at the moment."""

    def __init__(self, api: Api, site: Site, bind: Address) -> None:
        self._api = api
        self._site = site
        self._bind = bind

    async def refusals(self, leaf: Pair, configurations: Collection[str]) -> Sequence[Problem]:
        """Which API servers do not accept a leaf for these configurations; raises ApiError."""
        return await probe.refusals(self._api, leaf, configurations, self._bind, self._site.namespace)

    async def unanswered(self, configuration: str) -> Sequence[Problem]:
        """Which API servers get no answer from a replica for this configuration; raises ApiError."""
        return await ping.unanswered(self._api, ping.PING, configuration, self._site.namespace)

    async def unmutated(self) -> Sequence[Problem]:
        """Which API servers do not bring pods to be mutated yet; raises ApiError."""
        return await ping.unanswered(self._api, ping.ACTIVE, "mutating", self._site.namespace)

    async def others(self, signer: bytes) -> Sequence[Problem]:
        """Which replicas do not serve a leaf of this CA; raises ApiError."""
        replicas = await endpoints.of_service(self._api, self._site.namespace, self._site.service)
        return await endpoints.others(replicas, signer)
