"""Whether every API server accepts a leaf: this program shows the very leaf, and has each API server call here.

Both of our webhook configurations have a webhook `probe.gpu-webhook.io` beside those that go to the replicas. It goes
to this program's own Service, for Leases of our namespace with a label that only this program writes. A dry run of
such a Lease is sent to every address of the Service `kubernetes`. An API server that then calls here with what the
Lease says has verified the leaf with the bundle that it has *now*. A configuration is one object, so it has the same
bundle for the webhooks beside this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from aiohttp import web

from certs import stored
from certs.api import Api, ApiError
from certs.endpoints import Address
from certs.issue import Pair
from certs.problem import Problem

SECONDS: Final = 2.0
"""For the tries at one API server: it may have come to another copy of this program, behind the same Service."""

PAUSE_SECONDS: Final = 0.1
LABEL: Final = "gpu-webhook.io/probe"

Arrivals = Mapping[str, set[str]]
"""By the value of a Lease's label: the configurations whose webhook brought it here."""


async def refusals(
    api: Api, leaf: Pair, servers: Collection[Address], configurations: Collection[str], bind: Address, namespace: str
) -> list[Problem]:
    """Which API servers do not accept the leaf, and why; empty if all do.

    A Lease, because this program may write Leases anyway; it may not create pods, which could mount every Secret of
    the namespace.
    """
    if not servers:
        return [Problem("api-server", "", "the Service kubernetes has no addresses: no API server can be asked")]
    try:
        async with _showing(leaf, bind) as arrivals:
            asked = (_refusal(api, server, configurations, arrivals, namespace) for server in servers)
            return [problem for problem in await asyncio.gather(*asked) if problem]
    except OSError as error:
        return [Problem("api-server", "", f"the leaf cannot be shown to any API server: {error}")]


async def _refusal(
    api: Api, server: Address, configurations: Collection[str], arrivals: Arrivals, namespace: str
) -> Problem | None:
    """Why one API server does not accept the leaf, after a few tries."""
    there, until = api.of(*server), monotonic() + SECONDS
    try:
        why = await _why_not(there, configurations, arrivals, namespace)
        while why and monotonic() < until:
            await asyncio.sleep(PAUSE_SECONDS)
            why = await _why_not(there, configurations, arrivals, namespace)
    finally:
        await there.close()
    return Problem("api-server", str(server), f"the API server {server} {why}") if why else None


async def _why_not(there: Api, configurations: Collection[str], arrivals: Arrivals, namespace: str) -> str:
    """Ask once; nothing if the API server came here for each configuration."""
    token = secrets.token_hex(16)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?dryRun=All"
    try:
        await there.send("POST", path, _lease(token, namespace))
    except ApiError as error:
        return f"does not accept the new leaf: {error}"
    missing = [each for each in configurations if each not in arrivals[token]]
    return f"has not called {stored.PROBE} of our configuration: {' and '.join(missing)}" if missing else ""


def _lease(token: str, namespace: str) -> stored.Object:
    labels = {LABEL: token}
    metadata = {"name": f"gpu-webhook-certs-probe-{token[:8]}", "namespace": namespace, "labels": labels}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


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
