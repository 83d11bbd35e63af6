"""What a settler tells of itself over HTTP: `/metrics` for Prometheus, `/healthz` for the kubelet.

One line of a request is read and one answer written, on a port that only those two should reach.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from fractions import Fraction
from time import monotonic, time
from typing import Final, Protocol

from webhook.core.quota.settlement import Settlement
from webhook.core.rules.tenancy import Tenancy
from webhook.settler.reconciler import Reconciler
from webhook.telemetry import metrics

LINE_BYTES: Final = 4096
READ_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 120.0
"""A settler that has heard nothing of pods for so long does not work; a restart does no harm."""


class Source(Protocol):
    """The settler that the page is about."""

    settlement: Settlement
    reconciler: Reconciler
    tenancy: Tenancy

    @property
    def digest(self) -> str:
        """The digest of the rules that pods are counted by; empty without rules."""

    @property
    def heard_at(self) -> float:
        """The time (monotonic) up to which everything was heard of pods, or this was started."""


async def answer(settler: Source, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, and close."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        line = await asyncio.wait_for(reader.readline(), READ_SECONDS)
        status, body = _page(settler, line[:LINE_BYTES])
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
    writer.close()


def _page(settler: Source, line: bytes) -> tuple[str, bytes]:
    if line.startswith(b"GET /metrics "):
        return "200 OK", metrics.page(_lines(settler, monotonic()))
    if not line.startswith(b"GET /healthz "):
        return "404 Not Found", b"there are /metrics and /healthz\n"
    if monotonic() - settler.heard_at > STALLED_SECONDS:
        return "503 Service Unavailable", b"nothing was heard of pods for too long\n"
    return "200 OK", b"ok\n"


def _lines(settler: Source, now: float) -> Iterator[str]:
    labels, known = ("tenant", "what"), settler.reconciler
    used = {(name, key): each for name, ledger in known.ledgers.items() for key, each in ledger.used.items()}
    hard = {(name, key): each for name, ledger in known.ledgers.items() for key, each in ledger.hard.items()}
    pending: dict[metrics.Labels, float] = {(name,): len(ledger.pending) for name, ledger in known.ledgers.items()}
    age: dict[metrics.Labels, float] = {(name,): round(now - at, 3) for name, at in known.settled_at.items()}
    yield from metrics.family("tenant_used", "What a tenant uses: devices, or bytes of memory.", labels, _plain(used))
    yield from metrics.family("tenant_hard", "What a tenant may use at most.", labels, _plain(hard))
    yield from metrics.family("tenant_pending", "Reservations of pods not yet seen.", ("tenant",), pending)
    yield from metrics.family("settled_seconds_ago", "Since a tenant was last settled.", ("tenant",), age)
    left: dict[metrics.Labels, float] = {
        (one.name,): round(one.expires - time()) for one in settler.tenancy.exemptions
    }
    yield from metrics.family("exemption_seconds_left", "Until an exemption expires.", ("exemption",), left)
    heard = round(now - settler.heard_at, 3)
    yield from metrics.family("settle_age_seconds", "How old what was heard of pods may be.", (), {(): heard})
    yield from metrics.family("pods_seen", "Pods that are there.", (), {(): len(settler.settlement.view)})
    yield from metrics.rulebook(settler.digest)
    yield from metrics.family("settle_conflicts_total", "Writes that came too late.", (), {(): known.conflicts})


def _plain(amounts: dict[tuple[str, str], Fraction]) -> dict[tuple[str, ...], float]:
    return {key: float(amount) for key, amount in amounts.items()}
