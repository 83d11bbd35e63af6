"""Whether every API server accepts a leaf: this program shows the very leaf, and has each API server call here.

Both of our webhook configurations have a webhook `probe.gpu-webhook.io` beside those that go to the replicas. It goes
to this program's own Service, for Leases of our namespace with a label that only this program writes. A dry run of
such a Lease is sent to every address of the Service `kubernetes`. An API server that then calls here with what the
Lease says has verified the leaf with the bundle that it has *now*. A configuration is one object, so it has the same
bundle for the webhooks beside this one.
"""

from __future__ import annotations

import contextlib
import secrets
import ssl
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from certs import servers, stored
from certs.api import Api, ApiError
from certs.endpoints import Address
from certs.issue import Pair
from certs.problem import Problem

LABEL: Final = "gpu-webhook.io/probe"

Arrivals = Mapping[str, set[str]]
"""By the value of a Lease's label: the configurations whose webhook brought it here."""


async def refusals(
    api: Api, leaf: Pair, configurations: Collection[str], bind: Address, namespace: str
) -> Sequence[Problem]:
    """Which API servers do not accept the leaf, and why; empty if all do. Raises ApiError."""
    found = await servers.addresses(api)
    try:
        async with _showing(leaf, bind) as arrivals:

            async def why_not(there: Api) -> str:
                return await _why_not(there, configurations, arrivals, namespace)

            return await servers.ask(api, found, why_not)
    except OSError as error:
        return [Problem("api-server", "", f"the leaf cannot be shown to any API server: {error}")]


async def _why_not(there: Api, configurations: Collection[str], arrivals: Arrivals, namespace: str) -> str:
    """Ask once; nothing if the API server came here for each configuration."""
    token = secrets.token_hex(16)
    try:
        await servers.dry_run(there, namespace, {LABEL: token})
    except ApiError as error:
        return f"does not accept the new leaf: {error}"
    missing = [each for each in configurations if each not in arrivals[token]]
    return f"has not called {stored.PROBE} of our configuration: {' and '.join(missing)}" if missing else ""


@contextlib.asynccontextmanager
async def _showing(leaf: Pair, bind: Address) -> AsyncIterator[Arrivals]:
    """Serve with the leaf, each request on a connection of its own: a kept one would be of an older leaf."""
    arrivals: dict[str, set[str]] = defaultdict(set)

    async def answer(request: web.Request) -> web.Response:
        review: Mapping[str, Any] = (await request.json())["request"]
        arrivals[review["object"]["metadata"]["labels"][LABEL]].add(request.match_info["configuration"])
        said = {"uid": review["uid"], "allowed": True}
        response = web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said}
        )
        response.force_close()
        return response

    application = web.Application()
    application.router.add_post("/probe/{configuration}", answer)
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=0, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, *bind, ssl_context=_context(leaf), reuse_address=True).start()
        yield arrivals
    finally:
        await runner.cleanup()


def _context(leaf: Pair) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.num_tickets = 0  # a resumed session would not look at the leaf
    with tempfile.NamedTemporaryFile(prefix="leaf-") as file:  # mode 0600; OpenSSL reads files only
        file.write(leaf.certificate + leaf.key)
        file.flush()
        made.load_cert_chain(Path(file.name))
    return made
