"""One API server out of several, from inside a pod."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes.aio import client
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

import certs.api
import webhook.cluster.client
from certs import issue
from webhook.cluster.client import SERVER_NAME


@asynccontextmanager
async def api_server(name: str, certificate: Path) -> AsyncIterator[int]:
    """Answers everything with its name, and with the token that came; yields its port."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"name": name, "token": request.headers["Authorization"]})

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("program", [certs.api.Api, webhook.cluster.client.Api])
def test_an_api_server_is_asked_at_its_own_address_and_not_at_that_of_the_service(
    program: type[certs.api.Api | webhook.cluster.client.Api], tmp_path: Path
) -> None:
    """The library's configuration of a pod gets the Service's address again whenever it is asked for the token."""
    pair = issue.self_signed([*issue.LOOPBACK, SERVER_NAME], datetime.now(UTC))
    certificate, token = tmp_path / "tls.pem", tmp_path / "token"
    certificate.write_bytes(pair.certificate + pair.key)
    token.write_text("secret")

    async def ask() -> list[object]:
        async with api_server("any", certificate) as service, api_server("this", certificate) as port:
            pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(service)}
            settings = client.Configuration()
            settings.disable_strict_ssl_verification = True
            InClusterConfigLoader(token, certificate, environ=pod).load_and_set(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
            api = program(client.ApiClient(settings))
            there = api.of("127.0.0.1", port)
            found = [await each.find("/") for each in (api, there, api, there)]
            await asyncio.gather(api.close(), there.close())
            return [*found]

    assert asyncio.run(ask()) == [{"name": name, "token": "bearer secret"} for name in ("any", "this", "any", "this")]
