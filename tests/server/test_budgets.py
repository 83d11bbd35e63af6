"""What newcomers may take: places and memory, shared by address, and nothing of what is established."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import credentials
from tests.cluster.waiting import until
from tests.server.peer import Peer
from tests.server.process import Server, running
from tests.server.test_strangers import peer

PLACES = 6
HEAD = "POST /mutate HTTP/1.1\r\nHost: localhost\r\n"
BODIES = 100_000
CROWDED = b"bodies that are being received take all memory there is for them; retry\n"


@pytest.fixture
def few(folder: Path) -> Iterator[Server]:
    """A server with few places and little memory for newcomers."""
    with running(folder, newcomers=PLACES, bodies_bytes=BODIES) as server:
        yield server


@contextlib.contextmanager
def silent(server: Server, count: int, source: str = "127.0.0.2") -> Iterator[list[socket.socket]]:
    """So many sockets that send nothing, all of them accepted, some of which may have been turned away since."""
    with contextlib.ExitStack() as opened:
        address = ("127.0.0.1", server.port)
        sockets = [opened.enter_context(socket.create_connection(address, 20, (source, 0))) for _ in range(count)]
        yield sockets


def half(server: Server, length: int, source: str) -> Peer:
    """A newcomer that has sent the head of a request and the first byte of its body."""
    connected = server.connect(source)
    connected.send(f"{HEAD}Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert connected.answer().status == 100
    connected.send(b"{")
    return connected


def test_newcomers_never_push_out_who_got_a_review_answered(few: Server, plain: bytes) -> None:
    with contextlib.closing(few.connect()) as known:
        assert known.ask("POST", "/mutate", plain).status == 200
        with silent(few, 5 * PLACES, "127.0.0.1") as sockets:
            assert sockets[0].recv(1) == b"", "the oldest newcomer gives way"
            assert known.ask("POST", "/mutate", plain).status == 200
        assert few.metric('dropped_total{why="crowded",what="connections"}') >= 4 * PLACES
        assert len(few.lines("newcomers have all 6 places: one of 127.0.0.1, which has most, gives way")) == 1


def test_newcomers_never_push_out_who_has_shown_a_certificate(folder: Path, tmp_path: Path, plain: bytes) -> None:
    made = credentials.issue(tmp_path)
    with (
        running(folder, newcomers=PLACES, client_ca=str(made.authority)) as server,
        contextlib.closing(peer(server, made)) as known,
    ):
        assert known.ask("GET", "/healthz").status == 200
        with silent(server, 5 * PLACES, "127.0.0.1") as sockets:
            assert sockets[0].recv(1) == b""
            assert known.ask("POST", "/mutate", plain).status == 200


def test_who_established_too_many_connections_makes_room_for_another_address(folder: Path, plain: bytes) -> None:
    with running(folder, newcomers=PLACES, connections=2) as server, contextlib.ExitStack() as opened:
        peers = [
            opened.enter_context(contextlib.closing(server.connect(source)))
            for source in ("127.0.0.2", "127.0.0.2", "127.0.0.1")
        ]
        assert [each.ask("POST", "/mutate", plain).status for each in peers] == [200, 200, 200]
        flood = [opened.enter_context(contextlib.closing(server.connect())) for _ in range(3 * PLACES)]
        until(flood[0].ended, "the oldest newcomer gives way")

        assert peers[2].ask("POST", "/mutate", plain).status == 200


def test_an_address_that_floods_pushes_out_its_own_newcomers_only(few: Server) -> None:
    with contextlib.closing(few.connect()) as other, silent(few, 5 * PLACES) as sockets:
        assert sockets[0].recv(1) == b""
        assert other.ask("GET", "/healthz").status == 200
        with contextlib.closing(few.connect()) as new:
            assert new.ask("GET", "/healthz").status == 200


def test_an_address_that_is_alone_has_all_places(few: Server) -> None:
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(contextlib.closing(few.connect())) for _ in range(PLACES)]

        assert [each.ask("GET", "/healthz").status for each in peers] == [200] * PLACES


def test_who_gets_its_first_review_answered_makes_room_for_a_newcomer(few: Server, plain: bytes) -> None:
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(contextlib.closing(few.connect())) for _ in range(3 * PLACES)]
        for each in reversed(peers[-PLACES:]):
            assert each.ask("POST", "/mutate", plain).status == 200
        late = [opened.enter_context(contextlib.closing(few.connect())) for _ in range(PLACES)]

        assert [each.ask("GET", "/healthz").status for each in (*late, *peers[-PLACES:])] == [200] * 2 * PLACES


def test_of_all_bodies_the_largest_of_the_address_that_sends_most_gives_way(few: Server, plain: bytes) -> None:
    with contextlib.ExitStack() as opened:
        sizes = {"127.0.0.2": (20_000, 50_000), "127.0.0.3": (29_000,)}
        small, large, other = (
            opened.enter_context(contextlib.closing(half(few, size, source)))
            for source in sizes
            for size in sizes[source]
        )
        with contextlib.closing(few.connect()) as new:
            assert new.ask("POST", "/mutate", plain).status == 200
        refused = large.answer()
        for each, size in ((small, 20_000), (other, 29_000)):
            each.send(b" " * (size - 1))
            assert each.answer().status == 400, "it is read, and no review"

    assert (refused.status, refused.body, refused.closes) == (503, CROWDED, True)
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("framing", ["Content-Length: {}", "Transfer-Encoding: chunked"])
def test_a_body_that_would_itself_have_to_give_way_is_refused(few: Server, framing: str) -> None:
    head = f"{HEAD}{framing.format(BODIES + 1)}\r\n\r\n".encode()
    with contextlib.closing(few.connect()) as new:
        new.send(head)
        if "chunked" in framing:
            new.send(b"%x\r\n%b" % (BODIES + 1, b" " * (BODIES + 1)))

        assert (answered := new.answer()).status == 503
        assert answered.body == CROWDED
    assert few.metric('dropped_total{why="crowded",what="bodies"}') == 1


def test_bodies_of_newcomers_take_nothing_from_established_connections(few: Server, plain: bytes) -> None:
    with contextlib.closing(few.connect()) as known:
        assert known.ask("POST", "/mutate", plain).status == 200
        with contextlib.closing(half(few, BODIES, "127.0.0.1")):
            assert known.ask("POST", "/mutate", b" " * BODIES).status == 400


@pytest.mark.parametrize("ends", ["reset", "answered", "refused"])
def test_a_body_that_is_over_leaves_its_memory_to_others(few: Server, ends: str) -> None:
    for _ in range(3):
        with contextlib.closing(half(few, BODIES, "127.0.0.1")) as sender:
            if ends == "answered":
                sender.send(b" " * (BODIES - 1))
                assert sender.answer().status == 400
                assert sender.ask("POST", "/mutate", b" " * BODIES).status == 400
            if ends == "refused":
                with contextlib.closing(few.connect("127.0.0.2")) as other:
                    other.ask("POST", "/mutate", b"{}")
                assert sender.answer().status == 503
        until(lambda: few.metric("connections") == 1, "the sender gone")


def test_few_descriptors_are_shared_among_newcomers_and_established_connections(folder: Path, plain: bytes) -> None:
    with running(folder, descriptors=160) as server, contextlib.closing(server.connect()) as known:
        assert server.lines("160 descriptors are few: 10 established connections at most, and 10 newcomers")
        assert known.ask("POST", "/mutate", plain).status == 200
        with silent(server, 200, "127.0.0.1") as sockets:
            assert sockets[0].recv(1) == b""
            assert known.ask("POST", "/mutate", plain).status == 200
        assert not server.lines("accept failed")


def test_without_a_descriptor_nothing_is_accepted_and_nothing_spins(few: Server, plain: bytes) -> None:
    with contextlib.closing(few.connect()) as known:
        assert known.ask("POST", "/mutate", plain).status == 200
        with few.short_of_descriptors(), silent(few, 1) as (waiting,):
            few.await_line("accept failed: [Errno 24] Too many open files")
            before = cpu(few.worker)
            for _ in range(10):
                assert known.ask("POST", "/mutate", plain).status == 200
                with contextlib.suppress(TimeoutError):
                    waiting.settimeout(0.1)
                    waiting.recv(1)
            assert cpu(few.worker) - before < 0.5, "seconds in one"

        assert few.get("/healthz") == "ok\n"
        assert len(few.lines("accept failed")) == 1


def cpu(process: int) -> float:
    """The seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
