"""A replica of the admission server, seen by connecting to it: its certificate, and the pages that it serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Any, Final, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from webhook.core.reports.replicas import Bundle, Replica

SECONDS: Final = 5.0
"""For one handshake or page."""

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: dates are looked at apart, and are not told of what is not verified."""

_DIGEST: Final = re.compile(r'^gpu_webhook_rulebook\{digest="([0-9a-f]+)"\} 1$', re.MULTILINE)
_REVIEWS: Final = re.compile(r"^gpu_webhook_reviews_total(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)


class Address(NamedTuple):
    """An IP address or a name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Seen(NamedTuple):
    """A replica, and by how many seconds its clock is ahead of ours; None if it does not say."""

    replica: Replica
    ahead: float | None = None


async def look(address: Address, server: str, bundles: Sequence[Bundle]) -> Seen:
    """What a replica serves, by the name that API servers ask for and the bundles that they have."""
    told = str(address)
    try:
        valid = await _dates(address)
        untrusted, untimely = await _trust(address, server, bundles)
        status, ready, ahead = await _page(address, "/readyz")
        _, metrics, _ = await _page(address, "/metrics")
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        return Seen(Replica(address=told, unreachable=_why(error)))
    digest = _DIGEST.search(metrics)
    replica = Replica(
        address=told,
        untrusted=untrusted,
        untimely=untimely,
        valid=valid,
        not_ready="" if status == HTTPStatus.OK else ready.strip() or f"/readyz answered {status}",
        digest=digest[1] if digest else "",
        reviews=_sum(metrics),
    )
    return Seen(replica, ahead)


def _why(error: Exception) -> str:
    """Why a replica cannot be seen; of a failed connection asyncio itself says only that it failed."""
    named = isinstance(error, ClientError | ssl.SSLError | socket.gaierror)  # errno is not the system's, or said
    if isinstance(error, OSError) and error.errno and not named:
        return os.strerror(error.errno).lower()
    return str(error) or "no answer in time"


async def reviews(addresses: Sequence[Address]) -> int | None:
    """How many reviews these replicas have answered together; None if one does not say."""
    try:
        pages = await asyncio.gather(*(_page(address, "/metrics") for address in addresses))
    except (ClientError, OSError, TimeoutError, ValueError):
        return None
    return sum(_sum(text) for _, text, _ in pages)


def _sum(metrics: str) -> int:
    return sum(int(float(value)) for value in _REVIEWS.findall(metrics))


async def _trust(address: Address, server: str, bundles: Sequence[Bundle]) -> tuple[str, str]:
    """Why its certificate is not trusted, and why not at this time; raises OSError if it cannot be connected."""
    for bundle in (each for each in bundles if each.pem):
        whose = f"by the caBundle of {', '.join(bundle.hooks)}"
        try:
            await _handshake(address, server, _trusting(bundle.pem, _NO_CHECK_TIME))
        except ssl.SSLCertVerificationError as error:
            return f"{error.verify_message}, {whose}", ""
        except ssl.SSLError:
            return f"there is no certificate to verify it {whose}", ""
        try:
            await _handshake(address, server, _trusting(bundle.pem))
        except ssl.SSLCertVerificationError as error:
            return "", f"{error.verify_message}, {whose}"
    return "", ""


async def _dates(address: Address) -> tuple[float, float]:
    """From when and until when its certificate is valid.

    Only of a certificate that it trusts Python tells the dates. So the certificate is read, and then trusted itself.
    """
    any_ = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    any_.check_hostname, any_.verify_mode = False, ssl.CERT_NONE
    served = (await _handshake(address, "", any_)).getpeercert(binary_form=True)
    itself = _trusting(ssl.DER_cert_to_PEM_cert(served), _NO_CHECK_TIME)
    itself.check_hostname = False
    found = (await _handshake(address, "", itself)).getpeercert()
    return ssl.cert_time_to_seconds(found["notBefore"]), ssl.cert_time_to_seconds(found["notAfter"])


def _trusting(pem: str, flags: ssl.VerifyFlags = ssl.VerifyFlags.VERIFY_DEFAULT) -> ssl.SSLContext:
    """The context of a client that trusts each certificate of a bundle, as API servers do, of a CA or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | flags
    context.load_verify_locations(cadata=pem)
    return context


async def _handshake(address: Address, server: str, context: ssl.SSLContext) -> Any:
    """The TLS connection, closed; raises SSLCertVerificationError if the context does not trust the certificate."""
    async with asyncio.timeout(SECONDS):
        _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=server or address.host)
    writer.close()
    with contextlib.suppress(OSError):  # it has nothing more to say to us
        await writer.wait_closed()
    return writer.get_extra_info("ssl_object")


async def _page(address: Address, path: str) -> tuple[int, str, float | None]:
    """The status and text of a page, whatever the certificate, and by how much the clock there is ahead."""
    began = time()
    async with (
        ClientSession(connector=TCPConnector(ssl=False), timeout=ClientTimeout(SECONDS)) as session,
        session.get(f"https://{address}{path}") as answer,
    ):
        text = await answer.text()
    date = answer.headers.get("Date")
    ahead = None if date is None else parsedate_to_datetime(date).timestamp() - (began + time()) / 2
    return answer.status, text, ahead
