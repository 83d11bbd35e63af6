"""The Kubernetes API for every program and command: single objects, lists in pages, watches, compare-and-swap.

Objects stay what they came as. Of `kubernetes.aio` we take how to find a cluster, how to log in, and its connections.
A `Follower` follows a collection: a list, and then every change. It retries whatever the API server does, and always
knows how old its knowledge may be: a watch is begun anew every few seconds or minutes, and one that is silent for
longer than it was asked for is taken for dead.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import orjson
from aiohttp import ClientError, ClientResponse, ClientTimeout
from kubernetes.aio import client, config

from webhook.core.forms.document import API_VERSION, UnreadableError

Object = Mapping[str, Any]

PAGE: Final = 500
"""Objects of one page: a list of thousands of nodes in one piece would be hundreds of megabytes here."""

CONNECT_SECONDS: Final = 5.0
GET_SECONDS: Final = 5.0

PAGE_SILENCE_SECONDS: Final = 20.0
"""How long the API server may say nothing while it sends a page.

It queues a request for 15 s by default: a quarter of --request-timeout (apiserver/pkg/server/config.go,
WithPriorityAndFairness). A connection that is silent for longer leads nowhere; the next try takes another one."""

PAGE_SECONDS: Final = 300.0

ANSWER_SECONDS: Final = 15.0
"""For a create with all webhooks of the cluster: the API server itself gives each of them up to 10 s by default."""

SERVER_NAME: Final = "kubernetes.default.svc"
"""A name that the certificate of every API server is for, whatever address it has."""

GROUP: Final = f"/apis/{API_VERSION}"

FIRST_BACKOFF: Final = 0.1
LONGEST_BACKOFF: Final = 5.0
SHORTEST_WATCH_SECONDS: Final = 1.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class ApiError(UnreadableError):
    """The API server refused or failed, or its answer is not known; the message is for people."""


class MissingError(ApiError):
    """There is no such object, or no such kind."""


class ForbiddenError(ApiError):
    """The account may not do that."""


class ConflictError(ApiError):
    """The object has been written since it was read, or exists already."""


class GoneError(ApiError):
    """The API server no longer knows what followed a version: list again."""


_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
}


def _refused(what: str, status: int, body: bytes) -> ApiError:
    try:
        answer = orjson.loads(body)
        message = answer.get("message") or answer["object"]["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = body[:200].decode(errors="replace")
    return _ERRORS.get(status, ApiError)(f"{what} was answered with {status}: {message}")


class Answer(NamedTuple):
    """Whatever an API server answers: an object, else a Status or what looks like one.

    `at` is its clock, in seconds since 1970, None if it does not say.
    """

    status: int
    body: Object
    warnings: Sequence[str] = ()
    at: float | None = None

    @property
    def message(self) -> str:
        """The first line of a refusal."""
        return str(self.body.get("message", "")).partition("\n")[0]


class Api:
    """A cluster: that of the pod this runs in, else the current one of the kubeconfig. Belongs to one event loop."""

    def __init__(self, connected: Any, url: str = "") -> None:
        self._client = connected
        # Kept here because a pod's configuration gets the Service's again whenever it is asked for the token.
        self._url: str = url or connected.configuration.host

    async def get(self, path: str) -> Object:
        """One object, as it is now: a quorum read."""
        return await self._send("GET", path)

    async def find(self, path: str) -> Object | None:
        """One object, as it is now, or None if there is none: a quorum read."""
        try:
            return await self.get(path)
        except MissingError:
            return None

    async def replace(self, path: str, replacement: Object, seconds: float = GET_SECONDS) -> Object:
        """Compare and swap: replace an object if it still has the replacement's version; returns it as stored."""
        return await self._send("PUT", path, replacement, ClientTimeout(seconds))

    async def create(self, path: str, made: Object) -> Object:
        """Create an object in a collection; returns it as stored."""
        return await self._send("POST", path, made)

    async def delete(self, path: str, version: str) -> None:
        """Delete an object if it still has this version."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        await self._send("DELETE", path, options)

    async def answer(self, method: str, path: str, body: Object | None = None) -> Answer:
        """Whatever is answered, a refusal too; raises ApiError where nothing is."""
        limits = ClientTimeout(ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._open(f"{method} {path.partition('?')[0]} failed", method, path, body, limits) as response:
            content = await response.read()
        try:
            body = orjson.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            body = {"message": content[:200].decode(errors="replace")}
        quoted = re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', ", ".join(response.headers.getall("Warning", [])))
        date = response.headers.get("Date")
        at = parsedate_to_datetime(date).timestamp() if date else None
        return Answer(response.status, body, [re.sub(r"\\(.)", r"\1", text) for text in quoted], at)

    def of(self, host: str, port: int) -> Api:
        """One API server of the cluster, by its address."""
        settings = copy.copy(self._client.configuration)
        settings.tls_server_name = SERVER_NAME
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Api(client.ApiClient(settings), url)

    async def pages(self, path: str, selector: str = "") -> AsyncIterator[Object]:
        """A collection, page by page, all of one moment; `selector`: of fields."""
        limits = ClientTimeout(PAGE_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=PAGE_SILENCE_SECONDS)
        query = {"limit": str(PAGE), **({"fieldSelector": selector} if selector else {})}
        while True:
            page = await self._send("GET", f"{path}?{urlencode(query)}", None, limits)
            yield page
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return

    async def list(self, path: str, selector: str = "") -> list[Object]:
        """All objects of a collection, of one moment."""
        return [raw async for page in self.pages(path, selector) for raw in page["items"] or ()]

    async def version(self, path: str) -> int:
        """The present version of a collection, by a consistent list."""
        return int((await self._send("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"])

    async def watch(self, path: str, version: str, seconds: float) -> AsyncIterator[tuple[str, Object]]:
        """What happens to a collection after a version (ADDED, MODIFIED, DELETED, BOOKMARK), for so many seconds.

        Raises ApiError where the API server is silent for longer than it was asked to go on.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query["timeoutSeconds"] = str(max(1, round(seconds)))
        limits = ClientTimeout(seconds + GET_SECONDS, sock_connect=CONNECT_SECONDS)
        what = f"watching {path} was cut off"
        async with self._open(what, "GET", f"{path}?{urlencode(query)}", None, limits) as answer:
            if answer.status != HTTPStatus.OK:
                raise _refused(path, answer.status, await answer.read())
            async for line in answer.content:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise _refused(f"watching {path}", event["object"].get("code", 0), line)
                yield event["type"], event["object"]

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()

    async def _send(
        self, method: str, path: str, body: Object | None = None, limits: ClientTimeout | None = None
    ) -> Object:
        what = path.partition("?")[0] if method == "GET" else f"{method} {path}"
        why = f"{what} {'cannot be read' if method == 'GET' else 'failed'}"
        async with self._open(why, method, path, body, limits or ClientTimeout(GET_SECONDS)) as answer:
            content = await answer.read()
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise _refused(what, answer.status, content)
            return decoded(content)

    @asynccontextmanager
    async def _open(
        self, failed: str, method: str, path: str, body: Object | None, limits: ClientTimeout
    ) -> AsyncIterator[ClientResponse]:
        """The response to a request, its body not yet read; raises ApiError, whose message begins with `failed`."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            sent = await self._client.call_api(method, self._url + path, headers, body, _request_timeout=limits)
            async with sent.response as answer:
                yield answer
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
            raise ApiError(f"{failed}: {why}") from None


async def connect() -> Api:
    """The cluster that the environment names; raises ApiError where it names none."""
    settings = client.Configuration()
    # Python 3.13 demands extensions of a CA that those of EKS and MicroK8s lack; Go's clients do not ask for them.
    settings.disable_strict_ssl_verification = True
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
        else:
            _require(config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
            await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the same
    except config.ConfigException as error:
        raise ApiError(f"no cluster to ask: {error}") from None
    return Api(client.ApiClient(settings))


def decoded(content: bytes) -> Object:
    """An object, or a page of a list, made without the garbage collector; raises ValueError for anything else.

    A page of pods is some 50,000 containers, none of which is in a circle. The collector would walk through them
    eighty times, and that takes longer than to make them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        document: Object = orjson.loads(content)
    finally:
        if collecting:
            gc.enable()
    return document


def timestamp() -> str:
    """The present time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _require(files: str) -> None:
    """Raise ConfigException where none of the kubeconfigs exists: the library would miss a key in them."""
    if not any(Path(file).expanduser().exists() for file in filter(None, files.split(os.pathsep))):
        raise config.ConfigException(f"there is no kubeconfig {files}")


def ask(work: Callable[[Api], Awaitable[T]]) -> T:
    """Connect, do one piece of work, disconnect; raises ApiError. For commands, and threads of threaded programs."""
    return asyncio.run(_connected(work))


def run(program: Callable[[Api], Awaitable[None]]) -> None:
    """Connect and run a program until SIGTERM or SIGINT cancels it; raises ApiError where there is no cluster."""

    async def stoppable() -> None:
        this, loop = asyncio.current_task(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: this and this.cancel())
        await _connected(program)

    try:
        asyncio.run(stoppable())
    except asyncio.CancelledError:
        log.info("stopped")


async def _connected(work: Callable[[Api], Awaitable[T]]) -> T:
    api = await connect()
    try:
        return await work(api)
    finally:
        await api.close()


class Handler(Generic[T]):
    """What a follower tells of its collection. Versions are those of the collection, and only grow."""

    def keep(self, raw: Object) -> T:
        """What is kept of an object; the rest is forgotten at once."""
        raise NotImplementedError

    def listed(self, kept: list[T], version: int) -> None:
        """All objects, as they are at a version."""
        raise NotImplementedError

    def changed(self, kept: T, version: int, *, exists: bool) -> None:
        """An object was added or changed, or it was deleted: as it last was."""
        raise NotImplementedError

    def bookmarked(self, version: int) -> None:
        """Nothing more happened up to a version."""

    def failed(self, error: ApiError) -> None:
        """The collection could not be listed or watched, and is retried; MissingError: it does not exist."""
        log.warning("%s", error)


class Follower(Generic[T]):
    """Follows one collection; `run` never ends by itself.

    `paths`: where the API server may have it; the first that exists counts. `seconds`: how long one watch goes on.
    """

    def __init__(
        self,
        api: Api,
        paths: Sequence[str],
        handler: Handler[T],
        seconds: float = 240,
        longest: float = LONGEST_BACKOFF,
    ) -> None:
        self.as_of = -inf
        """The time (monotonic) up to which every change was heard, as far as the API server itself knew it."""
        self._api, self._paths, self._handler = api, paths, handler
        self._seconds, self._longest_backoff = seconds, longest

    async def run(self) -> None:
        """List, then watch; begin anew, after a pause that grows, whatever goes wrong."""
        backoff = FIRST_BACKOFF
        while True:
            began = monotonic()
            try:
                await self._follow()
            except GoneError as gone:
                log.info("listed again: %s", gone)
            except ApiError as error:
                self._handler.failed(error)
            lasted = monotonic() - began > self._longest_backoff
            backoff = FIRST_BACKOFF if lasted else min(2 * backoff, self._longest_backoff)
            await asyncio.sleep(backoff)

    async def _follow(self) -> None:
        began = monotonic()
        path, version = await self._list()
        self.as_of = began
        while True:
            began = monotonic()
            async for kind, raw in self._api.watch(path, version, self._seconds):
                version = str(raw["metadata"]["resourceVersion"])
                if kind == "BOOKMARK":
                    self._handler.bookmarked(int(version))
                else:
                    self._handler.changed(self._handler.keep(raw), int(version), exists=kind != "DELETED")
            if monotonic() - began < SHORTEST_WATCH_SECONDS:
                raise ApiError(f"the watch of {path} ended at once")
            self.as_of = began  # the watch ended as it was asked to, so it was alive when it began

    async def _list(self) -> tuple[str, str]:
        """List the collection; its path and version."""
        for path in self._paths:
            kept: list[T] = []
            version = "0"
            try:
                async for page in self._api.pages(path):
                    version = str(page["metadata"]["resourceVersion"])
                    kept += [self._handler.keep(raw) for raw in page["items"] or ()]
                    await asyncio.sleep(0)
            except MissingError as error:
                missing = error
                continue
            self._handler.listed(kept, int(version))
            log.info("%d of %s listed", len(kept), path)
            return path, version
        raise missing


class Collection(Handler[Object]):
    """The objects of a collection as they are now, by name or `namespace/name`, in the form that `keep` gives them.

    `tell` is told the name of each that changes.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.objects: dict[str, Object] = {}
        self.listing = False
        """Whether what changes now was found in a list, and may have changed long ago."""
        self._tell = tell

    def keep(self, raw: Object) -> Object:
        """Without what only the API server needs."""
        kept, metadata = ("name", "uid", "labels", "generation", "resourceVersion"), raw["metadata"]
        return {**raw, "metadata": {key: metadata[key] for key in kept if key in metadata}}

    def listed(self, kept: list[Object], version: int) -> None:  # noqa: ARG002 - of no use here
        """All objects there are."""
        before, self.objects = self.objects, {_name(raw): raw for raw in kept}
        self.listing = True
        for name in before.keys() | self.objects.keys():
            self._tell(name)
        self.listing = False

    def changed(self, kept: Object, version: int, *, exists: bool) -> None:  # noqa: ARG002 - of no use here
        """An object was added, changed or deleted."""
        name = _name(kept)
        before = self.objects.get(name)
        if exists:
            self.objects[name] = kept
        else:
            self.objects.pop(name, None)
        if not exists or kept != before:
            self._tell(name)


def _name(kept: Object) -> str:
    metadata = kept["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
