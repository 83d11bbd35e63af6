"""Every API server, one by one, asked by a dry run of a Lease that one of our webhooks is called for.

A Lease, because this program may write Leases anyway. It may not create pods, which could mount every Secret of the
namespace. Nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from certs import endpoints
from certs.api import Api
from certs.endpoints import Address
from certs.problem import Problem

SECONDS: Final = 2.0
"""For the tries at one API server: it hears of a configuration late, or asks another copy of this program."""

PAUSE_SECONDS: Final = 0.1

WhyNot = Callable[[Api], Awaitable[str]]
"""Asks one API server once. Returns what is wrong with it, as the rest of a sentence, or nothing."""


async def addresses(api: Api) -> Sequence[Address]:
    """Of the Service `kubernetes`; raises ApiError."""
    return await endpoints.of_service(api, "default", "kubernetes")


async def ask(api: Api, servers: Sequence[Address], why_not: WhyNot) -> Sequence[Problem]:
    """What is wrong with each API server, after a few tries; empty if nothing is."""
    if not servers:
        return [Problem("api-server", "", "the Service kubernetes has no addresses: no API server can be asked")]
    found = await asyncio.gather(*(_ask_one(api.of(*server), why_not) for server in servers))
    return [
        Problem("api-server", str(server), f"the API server {server} {why}")
        for server, why in zip(servers, found, strict=True)
        if why
    ]


async def _ask_one(there: Api, why_not: WhyNot) -> str:
    until = monotonic() + SECONDS
    try:
        why = await why_not(there)
        while why and monotonic() < until:
            await asyncio.sleep(PAUSE_SECONDS)
            why = await why_not(there)
    finally:
        await there.close()
    return why


async def dry_run(there: Api, namespace: str, labels: Mapping[str, str]) -> Sequence[str]:
    """Send a Lease with labels, and store nothing; returns the warnings. Raises ApiError if it is refused."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?dryRun=All"
    metadata = {"generateName": "gpu-webhook-certs-", "namespace": namespace, "labels": labels}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
    return await there.warnings("POST", path, lease)
