"""The client of the Kubernetes API against servers that are slow, silent, refuse, or talk nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiohttp import web
from kubernetes.aio import client as library
from kubernetes.aio import config

from webhook.cluster import client
from webhook.cluster.client import Api, ApiError, ConflictError, ForbiddenError, GoneError, MissingError

T = TypeVar("T")
NODES = "/api/v1/nodes"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[Api]:
    """A client of an API server that answers every request so."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = library.Configuration()
    settings.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    api = Api(library.ApiClient(settings))
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()


def ask(handler: Handler, work: Callable[[Api], Awaitable[T]]) -> T:
    async def once() -> T:
        async with asyncio.timeout(20), served(handler) as api:
            return await work(api)

    return asyncio.run(once())


def saying(*parts: bytes, status: int = 200, pause: float = 0.0) -> Handler:
    """A server whose answer comes in parts, with a pause before each."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for part in parts:
            await asyncio.sleep(pause)
            await response.write(part)
        return response

    return answer


async def silent(_: web.Request) -> web.StreamResponse:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never is


def page(*names: str, following: str = "") -> bytes:
    items = [{"metadata": {"name": name}} for name in names]
    return json.dumps({"metadata": {"resourceVersion": "5", "continue": following}, "items": items}).encode()


def names(found: list[client.Object]) -> list[str]:
    return [each["metadata"]["name"] for each in found]


async def nodes(api: Api) -> list[str]:
    return names(await api.list(NODES))


def test_a_list_is_read_page_by_page_with_its_selector() -> None:
    asked: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        return web.Response(body=page("b") if "continue" in request.query else page("a", following="a/b+c="))

    found = ask(answer, lambda api: api.list(NODES, "status.phase!=Failed,status.phase!=Succeeded"))

    first = {"limit": "500", "fieldSelector": "status.phase!=Failed,status.phase!=Succeeded"}
    assert (names(found), asked) == (["a", "b"], [first, {**first, "continue": "a/b+c="}])


@pytest.mark.parametrize(
    ("patience", "work", "why"),
    [
        ("PAGE_SILENCE_SECONDS", nodes, f"{NODES} cannot be read: Timeout on reading data from socket"),
        ("GET_SECONDS", lambda api: api.get(f"{NODES}/a"), f"{NODES}/a cannot be read: no answer in time"),
        ("GET_SECONDS", lambda api: watched(api, 0.1), f"watching {NODES} was cut off: no answer in time"),
    ],
    ids=["a page", "an object", "a watch that is silent for longer than it was asked for"],
)
def test_what_never_comes_is_given_up(
    monkeypatch: pytest.MonkeyPatch, patience: str, work: Callable[[Api], Awaitable[Any]], why: str
) -> None:
    monkeypatch.setattr(client, patience, 0.1)

    with pytest.raises(ApiError, match=f"^{why}$"):
        ask(silent, work)


def test_a_page_over_a_thin_line_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE_SILENCE_SECONDS", 0.5)
    parts = [page("a")[at : at + 16] for at in range(0, len(page("a")), 16)]

    assert ask(saying(*parts, pause=0.15), nodes) == ["a"]


def test_an_answer_that_is_not_of_an_api_server_is_an_error() -> None:
    with pytest.raises(ApiError, match=r"^/api/v1/nodes cannot be read: unexpected character"):
        ask(saying(b"<html>log in first"), nodes)


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, ForbiddenError), (404, MissingError), (409, ConflictError), (410, GoneError), (500, ApiError)],
)
def test_what_the_api_server_says_comes_as_an_error_of_its_kind(status: int, error: type[ApiError]) -> None:
    says = saying(b'{"kind": "Status", "message": "etcd is away"}', status=status)

    with pytest.raises(ApiError, match=rf"^PUT /a was answered with {status}: etcd is away$") as raised:
        ask(says, lambda api: api.replace("/a", {}))

    assert type(raised.value) is error


async def watched(api: Api, seconds: float = 5.0) -> list[tuple[str, Any]]:
    return [(kind, found["metadata"]["name"]) async for kind, found in api.watch(NODES, "5", seconds)]


def test_a_watch_delivers_objects_as_large_as_the_api_server_stores_them() -> None:
    large = {"type": "ADDED", "object": {"metadata": {"name": "large", "annotations": {"a": "b" * 3_000_000}}}}
    line = json.dumps(large).encode() + b"\n"

    assert ask(saying(line[:100_000], line[100_000:]), watched) == [("ADDED", "large")]


def test_a_watch_that_is_too_late_has_to_be_listed_again() -> None:
    gone = b'{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}\n'

    with pytest.raises(GoneError, match=r"too old resource version$"):
        ask(saying(gone), watched)


def test_without_a_kubeconfig_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere/a:/nowhere/b")

    with pytest.raises(ApiError, match=r"^no cluster to ask: there is no kubeconfig /nowhere/a:/nowhere/b$"):
        asyncio.run(client.connect())
