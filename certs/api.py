"""The Kubernetes API, as far as this program needs it: single objects, compare-and-swap, and what time it is there.

`webhook.cluster.client` is richer, and not imported: the two programs share no code, so that none of the server's is
in the one process that holds the CA's key.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientTimeout
from kubernetes.aio import client, config

Object = Mapping[str, Any]

SECONDS: Final = 10.0
"""For one request; the API server waits for a webhook for 5 s."""


class ApiError(Exception):
    """The API server refused or failed, or its answer is not known; the message is for people."""


class MissingError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """The object has been written since it was read, or exists already."""


_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.UNPROCESSABLE_ENTITY: ConflictError,  # a `test` of a JSON Patch that fails
}


class _Answer(NamedTuple):
    found: Object
    warnings: Sequence[str]


class Api:
    """A cluster, or one of its API servers."""

    def __init__(self, connected: client.ApiClient, url: str = "") -> None:
        self.connected = connected
        # Kept here because a pod's configuration gets the Service's again whenever it is asked for the token.
        self._url: str = url or connected.configuration.host
        self._told = (datetime.min.replace(tzinfo=UTC), 0.0)

    @property
    def now(self) -> datetime:
        """The time of the API server that answered last.

        API servers decide whether a certificate is valid, by their clocks. This machine's may be wrong.
        """
        at, heard = self._told
        return at + timedelta(seconds=monotonic() - heard)

    def of(self, address: str, port: int) -> Api:
        """The API server at an address; its certificate is expected to be for the name that the cluster has."""
        settings = copy.copy(self.connected.configuration)
        settings.tls_server_name = settings.tls_server_name or urlsplit(self._url).hostname
        url = f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"
        return Api(client.ApiClient(settings), url)

    async def find(self, path: str) -> Object | None:
        """One object, as it is now, or None if there is none."""
        try:
            return await self.send("GET", path)
        except MissingError:
            return None

    async def put(self, path: str, made: Object, present: Object | None) -> Object:
        """Compare and swap: create the object, or replace it if nobody has written it since `present` was read."""
        if present is None:
            return await self.send("POST", path.rpartition("/")[0], made)
        return await self.send("PUT", path, made)

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        """A JSON Patch; one that has a field which the API server does not know, and would drop, is refused."""
        await self.send("PATCH", f"{path}?fieldValidation=Strict", operations, "application/json-patch+json")

    async def send(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Object:
        """One request; returns the object in the answer, and raises ApiError for every answer that is none."""
        return (await self._exchange(method, path, body, content_type)).found

    async def warnings(self, method: str, path: str, body: object) -> Sequence[str]:
        """The warnings in the answer to one request: values of the header `Warning`; raises ApiError like `send`."""
        return (await self._exchange(method, path, body)).warnings

    async def _exchange(
        self, method: str, path: str, body: object, content_type: str = "application/json"
    ) -> _Answer:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        url, limits = self._url + path, ClientTimeout(SECONDS)
        try:
            await self.connected.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            sent = await self.connected.call_api(method, url, headers, body, _request_timeout=limits)
            async with sent.response as answer:
                content = await answer.read()
            if "Date" in answer.headers:
                self._told = parsedate_to_datetime(answer.headers["Date"]), monotonic()
            found = _object(content)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiError(f"{method} {path} failed: {str(error) or repr(error):.300}") from None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            kind = _ERRORS.get(answer.status, ApiError)
            raise kind(f"{method} {path} was answered with {answer.status}: {found.get('message', '')!s:.300}")
        return _Answer(found, answer.headers.getall("Warning", ()))

    async def close(self) -> None:
        """End all connections."""
        await self.connected.close()  # type: ignore[no-untyped-call]  # the library leaves it so


def _object(content: bytes) -> Object:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"the answer is no object: {content[:100]!r}")  # noqa: TRY004 - of a value, not of a caller
    return found


async def connect() -> Api:
    """The cluster of the pod this runs in, else the kubeconfig's current one; raises ApiError if there is none."""
    settings = client.Configuration()
    # Python 3.13 demands extensions of a CA that those of EKS and MicroK8s lack; Go's clients do not ask for them.
    settings.disable_strict_ssl_verification = True
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
        else:
            await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the same
    except config.ConfigException as error:
        raise ApiError(f"no cluster to ask: {error}") from None
    return Api(client.ApiClient(settings))
