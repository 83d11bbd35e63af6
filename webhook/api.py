"""The Kubernetes API for programs with an event loop: single objects, lists in pages, and watches.

What has to be exact or quick talks to it through here: the ledger in the admission server, and the settler. Objects
stay what they came as; of `kubernetes.aio` we take how to find a cluster, how to log in, and its connections.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import ClientError, ClientResponse, ClientTimeout
from kubernetes.aio import client, config

from webhook.core.document import API_VERSION

Object = Mapping[str, Any]

PAGE: Final = 500
GET_SECONDS: Final = 5.0
LIST_SECONDS: Final = 60.0
GROUP: Final = f"/apis/{API_VERSION}"


class ApiError(Exception):
    """The API did not do what was asked, or did not say whether it did; the message is for people."""


class MissingError(ApiError):
    """There is no such object, or no such kind."""


class ConflictError(ApiError):
    """Somebody has written the object since it was read, or has created it before."""


class GoneError(ApiError):
    """The API server no longer knows what came after a version: list again."""


class RefusedError(ApiError):
    """The API server said no, and will say so again."""


_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.FORBIDDEN: RefusedError,
    HTTPStatus.BAD_REQUEST: RefusedError,
    HTTPStatus.UNPROCESSABLE_ENTITY: RefusedError,
}


class Api:
    """A cluster: that of the pod this runs in, else the current one of the kubeconfig. Belongs to one event loop."""

    def __init__(self, connected: Any) -> None:
        self._client = connected

    async def get(self, path: str) -> Object:
        """One object, as it is now: a quorum read."""
        return await self._send("GET", path, None, GET_SECONDS)

    async def put(self, path: str, replacement: Object, seconds: float = GET_SECONDS) -> Object:
        """Replace an object if it still has the version that stands in it, and return it as it is now."""
        return await self._send("PUT", path, replacement, seconds)

    async def post(self, path: str, made: Object) -> Object:
        """Create an object."""
        return await self._send("POST", path, made, GET_SECONDS)

    async def delete(self, path: str, version: str) -> None:
        """Delete an object if it still has this version."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        await self._send("DELETE", path, options, GET_SECONDS)

    async def pages(self, path: str) -> AsyncIterator[Object]:
        """A collection, page by page; all of them are of one moment, as the first says."""
        following = ""
        while True:
            query = {"limit": str(PAGE), **({"continue": following} if following else {})}
            page = await self._send("GET", f"{path}?{_query(query)}", None, LIST_SECONDS)
            yield page
            following = page["metadata"].get("continue") or ""
            if not following:
                return

    async def changes(self, path: str, version: str, seconds: float) -> AsyncIterator[tuple[str, Object]]:
        """What happens to a collection after a version (ADDED, MODIFIED, DELETED, BOOKMARK), for so many seconds.

        A server that is silent for longer than it was asked to go on is gone: ApiError.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        try:
            async with self._open("GET", f"{path}?{_query(query)}", None, seconds + GET_SECONDS) as answer:
                if answer.status != HTTPStatus.OK:
                    raise _refused(path, answer.status, await answer.read())
                async for line in answer.content:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise _refused(f"watching {path}", event["object"].get("code", 0), line)
                    yield event["type"], event["object"]
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiError(f"watching {path} was cut off: {error!r}") from None

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()

    async def _send(self, method: str, path: str, body: Object | None, seconds: float) -> Object:
        try:
            async with self._open(method, path, body, seconds) as answer:
                content = await answer.read()
        except (ClientError, OSError, TimeoutError) as error:
            raise ApiError(f"{method} {path} failed: {error!r}") from None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise _refused(f"{method} {path}", answer.status, content)
        return decoded(content)

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Object | None, seconds: float
    ) -> AsyncIterator[ClientResponse]:
        """The response to a request, its body not yet read."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._client.configuration.host + path
        limit = ClientTimeout(total=seconds)
        sent = await self._client.call_api(method, url, headers, body, _request_timeout=limit)
        async with sent.response as answer:
            yield answer


async def connect() -> Api:
    """The cluster there is to talk to; raises ApiError where none is named."""
    settings = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
        else:
            await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the same
    except config.ConfigException as error:
        raise ApiError(f"no cluster to ask: {error}") from None
    return Api(client.ApiClient(settings))


def decoded(content: bytes) -> Object:
    """An object, or a page of a list, made without the garbage collector.

    A page of pods is some 50,000 containers, none of which is in a circle. The collector would walk through them
    eighty times, and that takes longer than to make them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        found: Object = orjson.loads(content)
    finally:
        if collecting:
            gc.enable()
    return found


def timestamp(at: datetime) -> str:
    """A time as Kubernetes writes it, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _query(query: Mapping[str, str]) -> str:
    return "&".join(f"{key}={value}" for key, value in query.items())


def _refused(what: str, status: int, body: bytes) -> ApiError:
    try:
        said = orjson.loads(body)
        message = said.get("message") or said["object"]["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = body[:200].decode(errors="replace")
    return _ERRORS.get(status, ApiError)(f"{what} was answered with {status}: {message}")
