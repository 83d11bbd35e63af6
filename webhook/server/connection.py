r"""One TLS connection: HTTP/1.1 framing over gunicorn's parser in C, with a deadline for every wait.

A review is answered inside the callback that received its last byte: no task, no queue, no timer. So it costs half of
what it does through gunicorn's ASGI worker: 22,300 reviews/s against 10,850 with a core that only says yes [measured,
gunicorn 27.0.1, one core of two]. Deadlines are numbers that the worker compares with the clock a few times a second;
timers would cost one each per request. Only an answer that has to wait for the ledger takes a task.

    handshake ---> idle                         the client's first bytes, and TLS
    idle ---> header ---> body ---> idle        a request and its answer
                  \          \---> answer ---> idle       the same, and the answer has to wait
                   \          \---> write       the peer does not read its answers
                    \----------\--> linger      refused: the rest of the request is read and dropped
    every state ---> close                      the end of TLS (close_notify)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

import gunicorn_h1c

from webhook.core import review
from webhook.server.handler import JSON, Answer, Lane
from webhook.server.settings import KIBIBYTE, Settings

# A chunked body (RFC 9112, section 7.1), read strictly.

END: Final = b"\r\n"

_LINE = re.compile(rb"\r\n([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r\n")
"""What is between two chunks: the end of one, and the size of the next."""


class Chunks:
    """One body, fed piece by piece."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        """What follows the body; None until it is whole."""
        self._kept = END  # as if a chunk had ended
        self._left = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The parts of the body in these bytes; raises ValueError if they are no chunks."""
        self._kept += data
        while self.rest is None:
            part, self._kept = self._kept[: self._left], self._kept[self._left :]
            if part:
                self._left -= len(part)
                yield part
            if self._left or not self._next():
                return

    def _next(self) -> bool:
        """Read the line before the next chunk, or the end of the body; False if it is not whole yet."""
        found = _LINE.match(self._kept)
        if found is None:
            if not END.startswith(self._kept[:2]) or END in self._kept[2:]:
                raise ValueError("no chunk begins where one should")
            return False
        after = self._kept[found.end() :]
        self._left = int(found[1], 16)
        if self._left:
            self._kept = after
        elif after.startswith(END):
            self.rest = after[2:]
        elif not END.startswith(after):
            raise ValueError("a chunked body has no trailers here")
        return bool(self._left)


# One TLS connection: HTTP/1.1 framing over gunicorn's parser in C, with a deadline for every wait.

State = Literal["handshake", "idle", "header", "body", "answer", "write", "linger", "close"]

HEAD_BYTES: Final = 32 * KIBIBYTE
"""Longest head of a request. The API server's is 0.3 KiB; Go's default is 1 MiB. The parser checks its limits only
after a head is complete, so the bytes are counted here."""

LINE_BYTES: Final = 4 * KIBIBYTE
FIELD_BYTES: Final = 8 * KIBIBYTE
FIELDS: Final = 100

CHUNKING_BYTES: Final = 64 * KIBIBYTE
"""What the framing of a chunked body may add: the extensions of a chunk may be endless."""

UNSENT_BYTES: Final = 64 * KIBIBYTE
"""With more unsent than this a connection reads no further request. The loop's own 512 KiB would be half a GiB for a
thousand peers that do not read."""

CROWDED: Final = "bodies that are being received take all memory there is for them; retry"

VALIDATE: Final = b"/validate"

STRANGER: Final = "reviews are answered to clients with a certificate of --client-ca only"

REASONS: Final = {status: status.phrase.encode() for status in HTTPStatus}


class Owner(Protocol):
    """What a connection needs of its worker."""

    settings: Settings
    lane: Lane
    date: bytes

    def establish(self, connection: Connection) -> None:
        """It has shown who it is: it keeps its place."""

    def admit(self, connection: Connection, size: int) -> bool:
        """Whether a body of this size may be kept."""

    def release_body(self, connection: Connection) -> None:
        """The body is kept no longer."""

    def release(self, connection: Connection) -> None:
        """The place is free: the connection is about to end."""

    def ended(self, connection: Connection) -> None:
        """The connection is gone."""


class RefusedError(Exception):
    """The request that is being read is refused; the connection ends with the answer."""

    def __init__(self, status: HTTPStatus, text: str, denial: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.denial = denial


class _Form(NamedTuple):
    """How to frame an answer: whether the connection stays open, its `Connection` header, whether it has a body."""

    keeps: bool
    kept: bytes
    with_body: bool


class Connection(asyncio.Protocol):
    """One connection, from accept."""

    def __init__(self, owner: Owner, address: tuple[object, ...]) -> None:
        self.owner = owner
        self.address = address
        self.established = False
        self.cut: Callable[[], None]
        """Ends it without ceremony."""
        self.handshake: asyncio.Task[None]
        self.settings = owner.settings
        self._enter("handshake", self.settings.handshake_seconds)
        self._transport: asyncio.Transport
        self._trusted = False
        self._received = 0
        self._parts: list[bytes] = []
        self._chunks: Chunks | None = None
        self._size = 0
        self._denying = False
        self._unread = b""
        self._later: asyncio.Future[Answer]
        self._parser: Any = None

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin idle: Go's client opens connections before it has a request for them (net/http, dialConnFor)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNSENT_BYTES)
        self.cut = self._transport.abort
        self._parser = gunicorn_h1c.H1CProtocol(
            on_headers_complete=self._on_head,
            on_body=self._on_body,
            limit_request_line=LINE_BYTES,
            limit_request_field_size=FIELD_BYTES,
            limit_request_fields=FIELDS,
            limit_remaining=0,  # what follows a request is at most one read of TLS, 256 KiB in uvloop
        )
        known = bool(transport.get_extra_info("peercert"))
        self._trusted = known or self.settings.client_ca is None
        self._enter("idle", self.settings.keepalive_seconds)
        if known:
            self.owner.establish(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Leave no trace."""
        self.owner.ended(self)
        # gunicorn_h1c's parser takes no part in garbage collection: with the callbacks it holds, the connection and
        # its last body would stay for ever, 56 to 72 KiB each [measured, 0.6.9].
        self._parser = None

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete now."""
        data = self._unread + data
        try:
            while data and self.state in ("idle", "header", "body"):
                data = self._feed(data)
        except RefusedError as refused:
            self._refuse(refused.status, str(refused), refused.denial)
        except ValueError as error:  # the common base of the parser's errors, which have two ParseErrors among them
            self._refuse(_status_of(error), f"not HTTP/1.1: {error}")
        else:
            self._unread = data if self.state in ("write", "answer") else b""

    def pause_writing(self) -> None:
        """Stop reading, too: the peer does not read its answers."""
        if self.state == "idle":
            self._enter("write", self.settings.write_seconds)
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again, beginning with what was received before."""
        if self.state == "write":
            self._enter("idle", self.settings.keepalive_seconds)
            self._transport.resume_reading()
            self.data_received(b"")

    # From the worker

    def expire(self) -> None:
        """Do what this state's deadline requires."""
        self.owner.lane.metrics.dropped["deadline", self.state] += 1
        if self.state in ("header", "body"):
            seconds = getattr(self.settings, f"{self.state}_seconds")
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {self.state} did not arrive within {seconds:g} s")
        elif self.state in ("idle", "linger"):
            self._close()
        else:
            self.abort()  # among them an answer whose client has given up

    def retire(self, idle_seconds: float = 0) -> None:
        """Close if it has been idle so long, without waiting for the peer's close_notify."""
        since = self.deadline - self.settings.keepalive_seconds
        if self.state == "idle" and monotonic() - since >= idle_seconds:
            self._close()
            self.abort()

    def give_way(self) -> None:
        """Refuse the request whose body is being received: others need the memory."""
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, CROWDED)

    def abort(self) -> None:
        """Cut the connection."""
        self.deadline = inf
        self.owner.release(self)
        self.cut()

    # Requests

    def _feed(self, data: bytes) -> bytes:
        """Feed the parser. If that completes a request, answer it and return the bytes after it."""
        if self.state == "idle":
            self._enter("header", self.settings.header_seconds)
            self._received = 0
        self._received += len(data)
        rest = self._read(data)
        if rest is None:
            self._check_size()
            return b""
        self._respond()
        self._parser.reset()
        return rest

    def _read(self, data: bytes) -> bytes | None:
        """What follows the request; None if that is not whole yet."""
        if self._chunks is None:
            self._parser.feed(data)
            if not self._parser.is_complete:
                return None
            data = self._parser.remaining()
        if self._chunks is None:
            return data
        for part in self._chunks.feed(data):
            self._on_body(part)
        return self._chunks.rest

    def _check_size(self) -> None:
        if self.state == "header" and self._received > HEAD_BYTES:
            text = f"the head of the request is over {HEAD_BYTES} bytes"
            raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        if self._received > HEAD_BYTES + self.settings.body_bytes + CHUNKING_BYTES:
            raise self._too_large()

    def _on_head(self) -> bool:
        """The parser has a whole head. Returns whether it should take the request for one without a body."""
        self._enter("body", self.settings.body_seconds)
        self._parts, self._size = [], 0
        parser = self._parser
        if not self._trusted and parser.method not in (b"GET", b"HEAD"):
            raise RefusedError(HTTPStatus.FORBIDDEN, STRANGER)
        if parser.get_header(b"transfer-encoding") and not parser.is_chunked:  # h1c 0.6.9 takes it for no body
            raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "the only transfer coding known here is chunked")
        # With an error the API server would admit a pod to its node: a validating review is denied by its UID.
        self._denying = (parser.content_length or 0) > self.settings.body_bytes and parser.path.startswith(VALIDATE)
        self._admit(0 if self._denying else parser.content_length or 0)
        if parser.http_version >= (1, 1) and (expected := parser.get_header(b"expect")):
            if expected.lower() != b"100-continue":
                raise RefusedError(HTTPStatus.EXPECTATION_FAILED, "the only expectation known here is 100-continue")
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._chunks = Chunks() if parser.is_chunked else None
        return self._chunks is not None

    def _on_body(self, part: bytes) -> None:
        """A part of the body is there."""
        if self._denying:
            raise self._too_large(part)
        self._size += len(part)
        if self._chunks is not None:
            self._admit(self._size)
        self._parts.append(part)

    def _admit(self, size: int) -> None:
        """Refuse a body that is too long, or for which there is no memory."""
        if size > self.settings.body_bytes:
            raise self._too_large()
        if size and not self.owner.admit(self, size):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, CROWDED)

    def _too_large(self, start: bytes = b"") -> RefusedError:
        text = f"the body is over {self.settings.body_bytes} bytes: no review is that long"
        return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, review.unread(start, text))

    # Answers

    def _respond(self) -> None:
        parser = self._parser
        self._enter("idle", self.settings.keepalive_seconds)
        body, self._parts, self._chunks = b"".join(self._parts), [], None
        answer = self.owner.lane.answer(parser.method, parser.path, body)
        if self._size:
            self.owner.release_body(self)
        kept = b"" if parser.http_version >= (1, 1) else b"Connection: keep-alive\r\n"
        form = _Form(keeps=bool(parser.should_keep_alive), kept=kept, with_body=parser.method != b"HEAD")
        if isinstance(answer, Answer):
            self._reply(answer, form)
            return
        self._enter("answer", self.settings.answer_seconds)
        self._transport.pause_reading()
        self._later = asyncio.ensure_future(answer)
        self._later.add_done_callback(partial(self._answered, form))

    def _answered(self, form: _Form, answer: asyncio.Future[Answer]) -> None:
        """Send an answer that had to wait, and go on with what was received meanwhile."""
        if self.state != "answer" or answer.cancelled() or self._transport.is_closing():
            return
        self._enter("idle", self.settings.keepalive_seconds)
        self._transport.resume_reading()
        self._reply(answer.result(), form)
        self.data_received(b"")

    def _reply(self, answer: Answer, form: _Form) -> None:
        if answer.content_type is JSON:  # a review, and not of a stranger
            self.owner.establish(self)
        ends = self.owner.lane.draining or not form.keeps
        self._write(answer, b"Connection: close\r\n" if ends else form.kept, with_body=form.with_body)
        if ends:
            self._close()

    def _refuse(self, status: HTTPStatus, text: str, denial: bytes = b"") -> None:
        """Answer why, and leave the peer time to read it: closing with unread bytes would reset the connection."""
        if self.state not in ("header", "body"):
            return
        self._enter("linger", self.settings.linger_seconds)
        self._parts, self._chunks = [], None
        self.owner.release_body(self)
        refused = self.owner.lane.refuse(status, text)
        self._write(Answer(HTTPStatus.OK, denial, JSON) if denial else refused, b"Connection: close\r\n")

    def _write(self, answer: Answer, connection: bytes, *, with_body: bool = True) -> None:
        allow = b"Allow: %b\r\n" % answer.allow if answer.allow else b""
        again = b"Retry-After: 1\r\n" if answer.status == HTTPStatus.SERVICE_UNAVAILABLE else b""
        self._transport.write(
            b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b%b\r\n%b"
            % (
                answer.status,
                REASONS[answer.status],
                self.owner.date,
                answer.content_type,
                len(answer.body),
                allow,
                again,
                connection,
                answer.body if with_body else b"",
            )
        )

    def _close(self) -> None:
        self._enter("close", self.settings.linger_seconds)
        self._transport.close()

    def _enter(self, state: State, seconds: float) -> None:
        self.state = state
        self.deadline = monotonic() + seconds


def _status_of(error: Any) -> HTTPStatus:
    if isinstance(error, gunicorn_h1c.LimitRequestLine):
        return HTTPStatus.REQUEST_URI_TOO_LONG
    if isinstance(error, gunicorn_h1c.LimitRequestHeaders):
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return HTTPStatus.BAD_REQUEST
