"""The replicas of the admission server as they were seen: certificates, clocks, and the rules that they apply."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Any, Final, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from webhook.cli.checkup import Check, number, several
from webhook.core.kube.fields import DAY, HOUR, duration

# The replicas of the admission server as they were seen: certificates, clocks, and the rules that they apply.

SKEW_SECONDS: Final = 10.0
"""Clocks that differ by less are fine: a Date header has whole seconds, and an answer takes some time."""

MOST_SKEW_SECONDS: Final = HOUR
"""Certificates are valid from an hour before they are issued on."""

PART_LEFT: Final = 1 / 3
"""A certificate is renewed when this part of its lifetime is left."""

DIGEST: Final = 12
"""How much of a digest is shown."""

FROM_INSIDE: Final = "run it in a pod of the cluster, or give --endpoint for each replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A caBundle as PEM, and the webhooks that have it; "": they have none."""

    hooks: tuple[str, ...]
    pem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica.

    unreachable  why it cannot be connected from here
    untrusted    why its certificate is not verified by a bundle, its dates aside; with the webhooks that have it
    untimely     why the certificate or one of its CAs is not valid at this time, by the clock of this machine
    valid        from when and until when the certificate is valid, in seconds since 1970; None if it is not trusted
    not_ready    what /readyz says, if it is not ready
    digest       of the rules that it applies; "" if it says none
    reviews      how many it has answered; None if it does not say
    """

    address: str
    unreachable: str = ""
    untrusted: str = ""
    untimely: str = ""
    valid: tuple[float, float] | None = None
    not_ready: str = ""
    digest: str = ""
    reviews: int | None = None


def present(replicas: Sequence[Replica], service: str) -> Check:
    """Whether replicas are there and ready."""
    if not replicas:
        fix = "kubectl get pods and their events there; a Deployment cannot start without its Secret gpu-webhook-tls"
        return Check("replicas", "fail", f"the Service {service} has no endpoint that is ready", fix)
    waiting = [f"{each.address}: {each.not_ready}" for each in replicas if each.not_ready]
    if waiting:
        return Check("replicas", "fail", several(waiting), "the log of that pod says why it is not ready")
    hidden = [f"{each.address}: {each.unreachable}" for each in replicas if each.unreachable]
    if hidden:
        text = f"{len(hidden)} of {number(len(replicas), 'replica')} cannot be seen from here: {several(hidden)}"
        return Check("replicas", "warn", text, f"if `admission` is ok: {FROM_INSIDE}; else see there")
    ready = "is ready" if len(replicas) == 1 else "are ready"
    return Check("replicas", "ok", f"{number(len(replicas), 'replica')} {ready}")


def _unseen(name: str) -> Check:
    return Check(name, "warn", "not examined: no replica can be seen from here", FROM_INSIDE)


def certificate(bundles: Sequence[Bundle], replicas: Sequence[Replica], server: str, secret: str) -> Check:
    """Whether each replica serves a certificate that the bundles of our webhooks verify."""
    fix = f"the log of gpu-webhook-certs says why it did not renew; with others' certificates: ca.crt of {secret}"
    wiped = [hook for bundle in bundles if not bundle.pem for hook in bundle.hooks]
    if wiped:
        text = f"{', '.join(wiped)} has no caBundle: API servers trust no replica"
        return Check("certificate", "fail", text, f"gpu-webhook-certs writes it within 15 s; {fix}")
    wrong = [f"{each.address}: {each.untrusted}" for each in replicas if each.untrusted]
    if wrong:
        return Check("certificate", "fail", several(wrong), fix)
    seen = [each for each in replicas if not each.unreachable]
    if not seen:
        return _unseen("certificate")
    return Check(
        "certificate", "ok", f"{number(len(seen), 'replica')}: the caBundle verifies what is served for {server}"
    )


def expiry(replicas: Sequence[Replica], now: float) -> Check:
    """Whether the certificates are valid now and for long enough."""
    fix = "the log of gpu-webhook-certs says why it did not renew; or renew them where they are issued"
    dated = [(each, *each.valid) for each in replicas if each.valid]
    if not dated:
        return _unseen("expiry")
    for each, begins, ends in dated:
        if now > ends:
            return Check("expiry", "fail", f"{each.address}: expired {duration(now - ends)} ago", fix)
        if now < begins:
            return Check("expiry", "fail", f"{each.address}: not valid for another {duration(begins - now)}", fix)
        if each.untimely:
            return Check(
                "expiry", "fail", f"{each.address}: {each.untimely}: a CA of the caBundle, not the leaf", fix
            )
    each, begins, ends = min(dated, key=lambda one: (one[2] - now) / max(one[2] - one[1], 1))
    text = f"{duration(ends - now)} of {max(1, round((ends - begins) / DAY))} days are left"
    if ends - now < PART_LEFT * (ends - begins):
        return Check("expiry", "warn", f"{each.address}: only {text}, less than a third: a renewal is late", fix)
    return Check("expiry", "ok", text)


def clocks(offsets: Mapping[str, float]) -> Check:
    """Whether clocks agree. `offsets` has whose clock is ahead of ours by how many seconds."""
    known = {"this machine": 0.0, **offsets}
    if len(known) == 1:
        return _unseen("clocks")
    middle = sorted(known.values())[len(known) // 2]
    off = {whose: offset - middle for whose, offset in known.items() if abs(offset - middle) > SKEW_SECONDS}
    if not off:
        return Check("clocks", "ok", f"{len(known)} clocks agree to {SKEW_SECONDS:g} s")
    said = [f"{whose} is {_seconds(abs(by))} {'ahead' if by > 0 else 'behind'}" for whose, by in off.items()]
    broken = any(abs(by) > MOST_SKEW_SECONDS for by in off.values())
    why = "; certificates are valid from an hour before their issue on" if broken else ""
    return Check(
        "clocks", "fail" if broken else "warn", several(said) + why, "synchronise clocks there (chrony, NTP)"
    )


def _seconds(amount: float) -> str:
    return duration(amount) if amount >= 60 else f"{amount:.0f} s"


def rules(replicas: Sequence[Replica], digest: str, source: str) -> Check:
    """Whether each replica applies the rules of that digest, which `source` has."""
    seen = [each for each in replicas if not each.unreachable]
    if not seen:
        return _unseen("rules")
    others = [each for each in seen if each.digest != digest]
    if not others:
        text = f"{number(len(seen), 'replica')} {'applies' if len(seen) == 1 else 'apply'} the rules of {source}"
        return Check("rules", "ok", f"{text}, {digest[:DIGEST]}")
    said = [f"{each.address} applies {each.digest[:DIGEST] or 'none'}" for each in others]
    agree = len({each.digest for each in seen}) == 1
    text = f"{source} has the rules {digest[:DIGEST]}, and {several(said)}"
    fix = "a changed ConfigMap takes a minute to reach them; after that their logs say why the rules do not load"
    return Check("rules", "fail", text if agree else f"replicas disagree: {text}", fix)


# A replica of the admission server, seen by connecting to it: its certificate, and the pages that it serves.

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
