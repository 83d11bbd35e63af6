"""Memory that does not grow: connections, bodies that are cut off, and reviews.

What is opened comes and goes before it is measured again, so that only what stays is seen. `SOAK=1` opens as many
connections as kubelets open in weeks.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.attacks.conftest import Figure
from tests.attacks.sockets import CONTEXT, HEAD, KINDS, LENGTH, reach
from tests.cluster.waiting import until
from tests.laws import SOAK
from tests.server.peer import Peer, request
from tests.server.process import Server, running
from webhook.server.settings import MEBIBYTE, Settings

pytestmark = pytest.mark.large

BEFORE = 1_000 if SOAK else 500
CONNECTIONS = 100_000 if SOAK else 2_500
RESETS = 10_000 if SOAK else 500
REVIEWS = 1_000_000 if SOAK else 10_000
AT_ONCE = 8
PIPELINED = 50
SENT = 300_000
"""Bytes of each body that are sent before it is cut off."""

MOST_MIB = 10

Work = Callable[[Server, int], None]


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with running(folder, python=()) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "server"


def resident(server: Server) -> float:
    """MiB of the process that serves, once it has no connections."""
    until(lambda: server.metric("connections") == 1, "all connections gone")
    return memory(server, "VmRSS")


def each(server: Server, count: int, work: Work) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda number: work(server, number), range(count)):
            pass


def whole(review: bytes) -> Work:
    """A connection with one review, as a client makes it that does not keep connections."""

    def once(server: Server, _: int) -> None:
        with CONTEXT.wrap_socket(reach(server.port, "127.0.0.1")) as connected:
            assert Peer(connected).ask("POST", "/mutate", review).status == 200

    return once


def interrupted(server: Server, number: int) -> None:
    """A connection that ends at one of the points where it can."""
    kind = [*KINDS][number % len(KINDS)]
    KINDS[kind](server.port, f"127.0.0.{2 + number % 100}").close()


def reset(server: Server, _: int) -> None:
    """A body that is cut off by a reset."""
    raw = reach(server.port, "127.0.0.1")
    with CONTEXT.wrap_socket(raw) as connected:
        connected.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % LENGTH + b"{" * SENT)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reviews(review: bytes) -> Work:
    """A connection with many reviews, each of a pod with another image."""

    def many(server: Server, number: int) -> None:
        with CONTEXT.wrap_socket(reach(server.port, "127.0.0.1")) as connected:
            peer = Peer(connected)
            for batch in range(10):
                bodies = (review.replace(b":2026.11", b":%d.%d.%d" % (number, batch, n)) for n in range(PIPELINED))
                peer.send(b"".join(request("POST", "/mutate", body) for body in bodies))
                assert [peer.answer().status for _ in range(PIPELINED)] == [200] * PIPELINED

    return many


def nearly_whole(server: Server, _: int) -> socket.socket:
    """As long a body as there may be, without its last byte; the server may refuse it earlier."""
    length = Settings().body_bytes
    connected = CONTEXT.wrap_socket(reach(server.port, "127.0.0.1"))
    with contextlib.suppress(OSError):
        connected.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % length + b"{" * (length - 1))
    return connected


def memory(server: Server, name: str) -> float:
    """MiB of the process that serves: VmRSS now, or VmHWM at its most."""
    status = Path(f"/proc/{server.worker}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def grown(server: Server, before: int, after: int, work: Work, figure: Figure, what: str) -> float:
    """MiB by which the server is larger after so many than after those that come first."""
    each(server, before, work)
    small = resident(server)
    each(server, after - before, work)
    large = resident(server)
    figure(f"{what}: RSS {small:.1f} MiB after {before:,}, {large:.1f} MiB after {after:,}")
    return large - small


def test_connections_leave_nothing_behind(server: Server, fraction: bytes, figure: Figure) -> None:
    assert grown(server, BEFORE, CONNECTIONS, whole(fraction), figure, "connections") < MOST_MIB


def test_connections_that_end_early_leave_nothing_behind(server: Server, figure: Figure) -> None:
    assert grown(server, BEFORE, CONNECTIONS, interrupted, figure, "connections that end early") < MOST_MIB


def test_bodies_that_are_cut_off_leave_nothing_behind(server: Server, figure: Figure) -> None:
    assert grown(server, RESETS // 10, RESETS, reset, figure, "bodies cut off") < MOST_MIB


def test_reviews_leave_nothing_behind(server: Server, fraction: bytes, figure: Figure) -> None:
    connections = REVIEWS // (10 * PIPELINED)

    assert grown(server, connections // 10, connections, reviews(fraction), figure, "500 reviews each") < MOST_MIB


def test_bodies_in_flight_have_a_total(server: Server, figure: Figure) -> None:
    """A hundred newcomers that send 8 MiB each, all but the last byte."""
    empty = resident(server)
    with ThreadPoolExecutor(AT_ONCE) as pool, contextlib.ExitStack() as opened:
        for connected in pool.map(partial(nearly_whole, server), range(100)):
            opened.enter_context(connected)
    peak = memory(server, "VmHWM")
    figure(f"a hundred bodies in flight: RSS {empty:.1f} MiB before, {peak:.1f} MiB at most")

    assert peak - empty < MOST_MIB + 2 * Settings().bodies_bytes / MEBIBYTE
