"""Nothing holds a place by doing nothing."""

import contextlib
import socket
import time
from pathlib import Path

from tests.cluster.waiting import until
from tests.server.peer import Peer, request
from tests.server.process import Server, running

HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
SOON = 0.3
PAUSE = 0.02


def drip(peer: Peer, byte: bytes) -> float:
    """Send one byte again and again until an answer comes; how long that took."""
    peer.socket.settimeout(PAUSE)
    began = time.monotonic()
    while time.monotonic() - began < 20:
        with contextlib.suppress(TimeoutError):
            peer.send(byte)
            peer._buffer += peer.socket.recv(65536)  # noqa: SLF001 - a part of Peer, kept where it is used
            break
    peer.socket.settimeout(20)
    return time.monotonic() - began


def test_a_handshake_that_never_ends_is_cut(folder: Path) -> None:
    with running(folder, handshake_seconds=SOON) as server:
        with socket.create_connection(("127.0.0.1", server.port), 20) as silent:
            assert silent.recv(1) == b""
        assert server.metric('dropped_total{why="deadline",what="handshake"}') == 1


def test_a_head_that_drips_gets_408_however_lively_it_drips(folder: Path) -> None:
    with running(folder, header_seconds=SOON) as server, contextlib.closing(server.connect()) as peer:
        peer.send(b"GET /healthz HTTP/1.1\r\nX: ")
        took = drip(peer, b"x")
        answered = peer.answer()

        assert (answered.status, answered.closes) == (408, True)
        assert answered.body == b"the header did not arrive within 0.3 s\n"
        assert SOON <= took < 10


def test_a_body_that_drips_gets_408(folder: Path) -> None:
    with running(folder, body_seconds=SOON) as server, contextlib.closing(server.connect()) as peer:
        peer.send(HEAD)
        took = drip(peer, b"x")

        assert peer.answer().status == 408
        assert SOON <= took < 10
        assert server.metric('dropped_total{why="deadline",what="body"}') == 1


def test_after_408_the_connection_ends_even_if_its_peer_goes_on(folder: Path) -> None:
    with running(folder, body_seconds=SOON, linger_seconds=SOON) as server:
        with contextlib.closing(server.connect()) as peer:
            peer.send(HEAD)
            assert peer.answer().status == 408
            assert peer.ended()
        until(lambda: server.metric("connections") == 1, "the place being free")  # the one that asks


def test_an_idle_connection_outlives_every_other_deadline(folder: Path) -> None:
    soon = {"header_seconds": SOON, "body_seconds": SOON, "handshake_seconds": SOON, "write_seconds": SOON}
    with running(folder, **soon) as server, contextlib.ExitStack() as open_now:
        used, unused = (open_now.enter_context(contextlib.closing(server.connect())) for _ in range(2))
        assert used.ask("GET", "/healthz").status == 200
        time.sleep(4 * SOON)  # the time itself is what is tested: nothing may happen in it
        assert used.ask("GET", "/healthz").status == 200
        assert unused.ask("GET", "/healthz").status == 200


def test_an_idle_connection_is_closed_in_the_end(folder: Path) -> None:
    with running(folder, keepalive_seconds=SOON) as server, contextlib.closing(server.connect()) as peer:
        assert peer.ask("GET", "/healthz").status == 200
        assert peer.ended()


def test_a_peer_that_does_not_read_is_cut(folder: Path) -> None:
    with running(folder, write_seconds=SOON) as server, contextlib.closing(server.connect()) as peer:
        peer.socket.settimeout(5)
        with contextlib.suppress(OSError):  # it is cut while it still sends, or its own buffer is full
            for _ in range(200):
                peer.send(request("GET", "/metrics") * 100)
        until(lambda: server.metric('dropped_total{why="deadline",what="write"}') == 1, "the cut")
        assert server.get("/healthz") == "ok\n"


def test_a_slow_reader_gets_everything_in_order(server: Server) -> None:
    with contextlib.closing(server.connect()) as peer:
        asked = 500
        peer.send(request("GET", "/metrics") * asked)

        assert [peer.answer().status for _ in range(asked)] == [200] * asked
        assert peer.ask("GET", "/healthz").status == 200
