"""The addresses behind a Service, and what is served there."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from certs import issue
from certs.api import Api, Object
from certs.problem import Problem

SECONDS: Final = 5.0
"""For one handshake."""


_QUESTION: Final = b"GET /healthz HTTP/1.1\r\nHost: gpu-webhook\r\nConnection: close\r\n\r\n"


class Address(NamedTuple):
    """An IP address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def of_service(api: Api, namespace: str, service: str) -> Sequence[Address]:
    """All addresses of a Service, those of endpoints that are not ready too."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = await api.send("GET", f"{path}?labelSelector=kubernetes.io/service-name%3D{service}")
    return sorted({address for each in found["items"] for address in addresses(each)})


def addresses(endpoint_slice: Object) -> Iterator[Address]:
    """The addresses of one EndpointSlice, at the port of HTTPS."""
    for port in endpoint_slice.get("ports") or ():
        if port.get("name") == "https" and port.get("port"):
            for endpoint in endpoint_slice.get("endpoints") or ():
                yield from (Address(host, port["port"]) for host in endpoint["addresses"])


async def others(replicas: Collection[Address], signer: bytes) -> list[Problem]:
    """Which replicas do not serve a leaf of the signer, as far as can be seen; empty if all do."""
    found = await asyncio.gather(*(_why_not(replica, signer) for replica in replicas))
    return [Problem("replica", str(each), why) for each, why in zip(replicas, found, strict=True) if why]


async def _why_not(replica: Address, signer: bytes) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            served = await _served(replica)
    except (OSError, TimeoutError) as error:
        return f"what the replica {replica} serves cannot be seen: {str(error) or 'no answer in time'}"
    if issue.anchor(served, [signer]) is None:
        return f"the replica {replica} still serves a certificate of another CA"
    return ""


async def _served(replica: Address) -> bytes:
    """The certificate of a server, whatever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*replica, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(_QUESTION)  # who leaves without a word looks to the replica like a handshake that failed
    await reader.read(1)
    writer.close()
    with contextlib.suppress(OSError):  # it has nothing more to say to us
        await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(found).encode()
