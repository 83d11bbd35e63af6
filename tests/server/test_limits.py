"""What is too large, or is no HTTP."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tables
from tests.server.peer import Peer, chunked, request
from tests.server.process import Server, running

CAP = 20_000
HEAD = "POST /mutate HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that refuses bodies over CAP."""
    with running(tmp_path_factory.mktemp("small"), body_bytes=CAP) as started:
        yield started


@pytest.fixture
def limited(small: Server) -> Iterator[Peer]:
    with contextlib.closing(small.connect()) as connected:
        yield connected


@tables.rows
def test_a_request_is_answered(limited: Peer, sent: str, status: list[int], closes: bool, body: str) -> None:  # noqa: FBT001
    """OVER stands for one byte more than the cap. The last answer has this body, unless it is any."""
    limited.send(f"{HEAD}{sent}".replace("OVER", str(CAP + 1)).encode())
    answers = [limited.answer() for _ in status]

    assert ([answered.status for answered in answers], answers[-1].closes) == (status, closes)
    assert body in {"", answers[-1].body.decode()}


def test_a_body_of_exactly_the_cap_is_read(limited: Peer) -> None:
    assert limited.ask("POST", "/mutate", b"x" * CAP).status == 400


def test_a_chunked_body_is_counted_while_it_comes(limited: Peer) -> None:
    limited.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
    limited.send(chunked([b"x" * 1000] * (CAP // 1000 + 1))[: -len(b"0\r\n\r\n")])

    assert limited.answer().status == 413


def test_a_chunked_review_is_answered(limited: Peer, plain: bytes) -> None:
    parts = [plain[at : at + 1000] for at in range(0, len(plain), 1000)]
    limited.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(parts))

    assert limited.answer().status == 200


@pytest.mark.parametrize("framing", ["Content-Length: 9000000", "Transfer-Encoding: chunked"])
def test_who_sends_everything_first_still_reads_the_refusal(server: Server, framing: str) -> None:
    with contextlib.closing(server.connect()) as peer:
        body = b"x" * 9_000_000
        peer.send(f"{HEAD}{framing}\r\n\r\n".encode() + (body if "Length" in framing else chunked([body])))
        assert peer.answer().status == 413


def test_refused_bodies_are_counted(small: Server) -> None:
    with contextlib.closing(small.connect()) as peer:
        peer.send(f"{HEAD}Content-Length: 1000000\r\n\r\n".encode())
        peer.answer()

    assert small.metric('refused_requests_total{status="413"}') >= 1


def test_a_body_that_waits_for_permission_gets_it(limited: Peer, plain: bytes) -> None:
    limited.send(f"{HEAD}Content-Length: {len(plain)}\r\nExpect: 100-continue\r\n\r\n".encode())

    assert limited.answer().status == 100
    limited.send(plain)
    assert limited.answer().status == 200


def test_endless_framing_is_not_collected(limited: Peer) -> None:
    limited.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1;".encode())
    with contextlib.suppress(ConnectionError, socket.timeout):  # the server may end it while we still send
        limited.send(b"x" * 200_000)

    assert limited.answer().status == 413


def test_an_endless_head_is_not_collected(peer: Peer) -> None:
    peer.send(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 100_000)
    answered = peer.answer()

    assert (answered.status, answered.closes) == (431, True)


@tables.rows
def test_what_is_no_http_is_refused_and_the_connection_closed(sent: str, status: int, peer: Peer) -> None:
    _refuses(peer, sent.replace("HEAD", HEAD).encode(), status)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/" + "x" * 5000, {}, 414), ("/", {"X": "x" * 9000}, 431), ("/", {f"X-{n}": "x" for n in range(150)}, 431)],
    ids=["a long path", "a long header", "many headers"],
)
def test_a_head_that_is_too_large_is_refused(peer: Peer, path: str, headers: dict[str, str], status: int) -> None:
    _refuses(peer, request("GET", path, headers=headers), status)


def _refuses(peer: Peer, sent: bytes, status: int) -> None:
    peer.send(sent)
    answered = peer.answer()

    assert (answered.status, answered.closes) == (status, True)
    assert answered.body.count(b"\n") == 1
    assert peer.ended()


def test_a_peer_that_speaks_no_tls_is_sent_away(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in raw.recv(1000)
    assert server.metric('dropped_total{why="handshake",what="connections"}') >= 1


def test_a_peer_that_leaves_in_the_middle_harms_nobody(server: Server, folder: Path) -> None:
    for sent in (b"", b"POST /mu", f"{HEAD}Content-Length: 100\r\n\r\nabc".encode()):
        peer = server.connect()
        peer.send(sent)
        peer.close()

    assert server.get("/healthz") == "ok\n"
    assert not folder.exists()
