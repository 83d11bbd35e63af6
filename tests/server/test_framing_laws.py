"""However the bytes of requests are cut into pieces, the answers are the same; and no bytes do harm."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.server.peer import chunked, request
from webhook.server.connections import Connection, Door
from webhook.server.handler import Answer, Lane
from webhook.server.settings import Settings
from webhook.telemetry import Lines


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here."""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Echo(Lane):
    """Answers every request with itself, so that the answers show what was understood."""

    def answer(self, method: bytes, target: bytes, body: bytes, *_: object, **__: object) -> Answer:
        return Answer(200, b"%b %b %b" % (method, target, body))  # type: ignore[arg-type] # any number will do


def answers(pieces: list[bytes]) -> bytes:
    """All that a connection writes when these pieces arrive."""

    async def served() -> bytes:
        with open("/dev/null", "wb") as nowhere:  # noqa: ASYNC230, PTH123 - nothing waits here
            door = Door(Settings(body_bytes=1000), Echo({}, None, Lines(nowhere.fileno())))
            connection = Connection(door, ("127.0.0.1",))
            wire = Wire()
            connection.connection_made(wire)
            for piece in pieces:
                if not wire.closed:
                    connection.data_received(piece)
            connection.connection_lost(None)
            return wire.written

    return asyncio.run(served())


def cut(whole: bytes, at: list[int]) -> list[bytes]:
    """The bytes in pieces."""
    ends = sorted({0, len(whole), *(position % (len(whole) + 1) for position in at)})
    return [whole[start:end] for start, end in pairwise(ends)]


bodies = st.binary(max_size=300)
plain_requests = st.builds(lambda body: request("POST", "/mutate", body), bodies)
chunked_requests = st.builds(
    lambda parts: request("POST", "/x", headers={"Transfer-Encoding": "chunked"}) + chunked(parts),
    st.lists(st.binary(min_size=1, max_size=50), max_size=5),
)
cuts = st.lists(st.integers(0, 10_000), max_size=20)


@given(st.lists(plain_requests | chunked_requests, min_size=1, max_size=5), cuts)
@settings(deadline=None)
def test_cutting_the_stream_elsewhere_changes_no_answer(requests: list[bytes], at: list[int]) -> None:
    stream = b"".join(requests)
    whole = answers([stream])

    assert whole.count(b"HTTP/1.1 200 OK\r\n") == len(requests)
    assert answers(cut(stream, at)) == whole


@given(st.lists(plain_requests | chunked_requests, max_size=2), st.binary(min_size=1, max_size=400), cuts)
@example([], b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", [])
@example([], b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", [])
@settings(deadline=None)
def test_no_bytes_are_answered_with_anything_but_http(before: list[bytes], noise: bytes, at: list[int]) -> None:
    said = answers(cut(b"".join(before) + noise, at))

    assert said.count(b"HTTP/1.1 200 OK\r\n") >= len(before)
    with contextlib.suppress(ValueError):
        assert said.index(b"HTTP/1.1 ") == 0
