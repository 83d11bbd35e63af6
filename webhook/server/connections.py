r"""TLS connections: who may stay, and HTTP/1.1 over gunicorn's parser in C, with a deadline for every wait.

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

A newcomer has a place apart until it is established: until it has shown a certificate of `--client-ca`, or got a
review answered. Nothing else tells an API server from a stranger in a pod's network. If newcomers need more places
than there are, one of them gives way (`Shares`), and never one that is established. If too many are established, one
of the address that has most is a newcomer again. Memory for bodies is shared likewise, among newcomers and among
established connections.

TLS begins after a newcomer's first byte, for a few at a time: a handshake costs a hundred times what an accept does.
A waiting connection costs one descriptor, and competes for a place only with others that wait. Addresses take turns,
known ones apart. Within one address the newest connection goes first, as its client has waited least.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import resource
import socket
import ssl
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, Final, Literal, cast

import gunicorn_h1c

from webhook.server.handler import JSON, Answer, Lane
from webhook.server.settings import KIBIBYTE, Settings

log = logging.getLogger(__name__)

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
            if self._left:
                return
            match = _LINE.match(self._kept)
            if match is None:
                if not END.startswith(self._kept[:2]) or END in self._kept[2:]:
                    raise ValueError("no chunk begins where one should")
                return
            after = self._kept[match.end() :]
            self._left = int(match[1], 16)
            if self._left:
                self._kept = after
            elif after.startswith(END):
                self.rest = after[2:]
            elif END.startswith(after):
                return
            else:
                raise ValueError("a chunked body has no trailers here")


State = Literal["handshake", "idle", "header", "body", "answer", "write", "linger", "close"]

HEAD_BYTES: Final = 32 * KIBIBYTE
"""Longest head of a request. The API server's is 0.3 KiB; Go's default is 1 MiB. The parser checks its limits only
after a head is complete, so the bytes are counted here."""

CHUNKING_BYTES: Final = 64 * KIBIBYTE
"""What the framing of a chunked body may add: the extensions of a chunk may be endless."""

UNSENT_BYTES: Final = 64 * KIBIBYTE
"""With more unsent than this a connection reads no further request. The loop's own 512 KiB would be half a GiB for a
thousand peers that do not read."""

CROWDED: Final = "bodies that are being received take all memory there is for them; retry"

STRANGER: Final = "reviews are answered to clients with a certificate of --client-ca only"

REASONS: Final = {status: status.phrase.encode() for status in HTTPStatus}


class RefusedError(Exception):
    """The request that is being read is refused; the connection ends with the answer."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Connection(asyncio.Protocol):
    """One connection, from accept."""

    def __init__(self, door: Door, address: tuple[object, ...]) -> None:
        self.door = door
        self.settings = door.settings
        self.address = address
        self.established = False
        self.cut: Callable[[], None]
        """Ends it without ceremony."""
        self.handshake: asyncio.Task[None]
        self.named = True
        """Whether /metrics names tenants to it."""
        self._transport: asyncio.Transport
        self._parser: Any = None
        self._unproven = ""
        self._received = self._size = 0
        self._parts: list[bytes] = []
        self._chunks: Chunks | None = None
        self._unread = b""
        self._later: asyncio.Future[Answer]
        self._enter("handshake", self.settings.handshake_seconds)

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin idle: Go's client opens connections before it has a request for them (net/http, dialConnFor)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNSENT_BYTES)
        self.cut = self._transport.abort
        self._parser = gunicorn_h1c.H1CProtocol(
            on_headers_complete=self._on_head,
            on_body=self._on_body,
            limit_request_line=4 * KIBIBYTE,
            limit_request_field_size=8 * KIBIBYTE,
            limit_request_fields=100,
            limit_remaining=0,  # what follows a request is at most one read of TLS, 256 KiB in uvloop
        )
        is_client = bool(transport.get_extra_info("peercert"))
        self._unproven = "" if is_client else str(self.address[0])
        self._enter("idle", self.settings.keepalive_seconds)
        if is_client:
            self.door.establish(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Leave no trace."""
        self.door.ended(self)
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
            self.refuse(refused.status, str(refused))
        except ValueError as error:  # the common base of the parser's errors, which have two ParseErrors among them
            status = HTTPStatus.BAD_REQUEST
            if isinstance(error, gunicorn_h1c.LimitRequestLine):
                status = HTTPStatus.REQUEST_URI_TOO_LONG
            elif isinstance(error, gunicorn_h1c.LimitRequestHeaders):
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.refuse(status, f"not HTTP/1.1: {error}")
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

    # From the worker, and the door

    def expire(self) -> None:
        """Do what this state's deadline requires."""
        self.door.lane.metrics.dropped["deadline", self.state] += 1
        if self.state in ("header", "body"):
            seconds = getattr(self.settings, f"{self.state}_seconds")
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {self.state} did not arrive within {seconds:g} s")
        elif self.state in ("idle", "linger"):
            self._close()
        else:
            self.abort()  # among them an answer whose client has given up

    def retire(self, idle_seconds: float) -> None:
        """Close if it has been idle so long, without waiting for the peer's close_notify."""
        since = self.deadline - self.settings.keepalive_seconds
        if self.state == "idle" and monotonic() - since >= idle_seconds:
            self._close()
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        self.deadline = inf
        self.door.release(self)
        self.cut()

    # Requests

    def _feed(self, data: bytes) -> bytes:
        """Feed the parser. If that completes a request, answer it and return the bytes after it."""
        parser, settings = self._parser, self.settings
        if self.state == "idle":
            self._enter("header", settings.header_seconds)
            self._received = 0
        self._received += len(data)
        rest: bytes | None = data  # what follows the request; None while that is not whole
        if self._chunks is None:
            parser.feed(data)
            rest = parser.remaining() if parser.is_complete else None
        if self._chunks is not None and rest is not None:
            for part in self._chunks.feed(rest):
                self._on_body(part)
            rest = self._chunks.rest
        if rest is None:
            if self.state == "header" and self._received > HEAD_BYTES:
                text = f"the head of the request is over {HEAD_BYTES} bytes"
                raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
            if self._received > HEAD_BYTES + settings.body_bytes + CHUNKING_BYTES:
                self._admit(self._received)
            return b""

        self._enter("idle", settings.keepalive_seconds)
        body, self._parts, self._chunks = b"".join(self._parts), [], None
        answer = self.door.lane.answer(parser.method, parser.path, body, self._unproven, named=self.named)
        if self._size:
            self.door.release_body(self)
        kept = b"" if parser.http_version >= (1, 1) else b"Connection: keep-alive\r\n"
        keeps, with_body = bool(parser.should_keep_alive), parser.method != b"HEAD"
        if isinstance(answer, Answer):
            self._reply(answer, kept, keeps=keeps, with_body=with_body)
        else:
            self._enter("answer", settings.answer_seconds)
            self._transport.pause_reading()
            reply = partial(self._reply, kept=kept, keeps=keeps, with_body=with_body)
            self._later = asyncio.ensure_future(answer)
            self._later.add_done_callback(partial(self._answered, reply))
        parser.reset()
        return rest

    def _on_head(self) -> bool:
        """The parser has a whole head. Returns whether it should take the request for one without a body."""
        self._enter("body", self.settings.body_seconds)
        self._parts, self._size = [], 0
        parser = self._parser
        if self._unproven and self.settings.client_ca is not None and parser.method not in (b"GET", b"HEAD"):
            raise RefusedError(HTTPStatus.FORBIDDEN, STRANGER)
        if parser.get_header(b"transfer-encoding") and not parser.is_chunked:  # h1c 0.6.9 takes it for no body
            raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "the only transfer coding known here is chunked")
        self._admit(parser.content_length or 0)
        if parser.http_version >= (1, 1) and (expected := parser.get_header(b"expect")):
            if expected.lower() != b"100-continue":
                raise RefusedError(HTTPStatus.EXPECTATION_FAILED, "the only expectation known here is 100-continue")
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._chunks = Chunks() if parser.is_chunked else None
        return self._chunks is not None

    def _on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._chunks is not None:
            self._admit(self._size)
        self._parts.append(part)

    def _admit(self, size: int) -> None:
        """Refuse a body that is too long, or for which there is no memory."""
        if size > self.settings.body_bytes:
            text = f"the body is over {self.settings.body_bytes} bytes: no review is that long"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        if size and not self.door.admit(self, size):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, CROWDED)

    # Answers

    def _answered(self, reply: Callable[[Answer], None], answer: asyncio.Future[Answer]) -> None:
        """Send an answer that had to wait, and go on with what was received meanwhile."""
        if self.state != "answer" or answer.cancelled() or self._transport.is_closing():
            return
        self._enter("idle", self.settings.keepalive_seconds)
        self._transport.resume_reading()
        reply(answer.result())
        self.data_received(b"")

    def _reply(self, answer: Answer, kept: bytes, *, keeps: bool, with_body: bool) -> None:
        """Answer; the connection stays open if the client keeps it, with `kept` as its header of that name."""
        if answer.content_type is JSON:  # a review, and not of a stranger
            self.door.establish(self)
        ends = self.door.lane.draining or not keeps
        self._write(answer, b"Connection: close\r\n" if ends else kept, with_body=with_body)
        if ends:
            self._close()

    def refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer why, and leave the peer time to read it: closing with unread bytes would reset the connection."""
        if self.state not in ("header", "body"):
            return
        self._enter("linger", self.settings.linger_seconds)
        self._parts, self._chunks = [], None
        self.door.release_body(self)
        self._write(self.door.lane.refuse(status, text), b"Connection: close\r\n")

    def _write(self, answer: Answer, connection: bytes, *, with_body: bool = True) -> None:
        status, body, content_type, allow = answer
        allowed = b"Allow: %b\r\n" % allow if allow else b""
        again = b"Retry-After: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else b""
        shown = body if with_body else b""
        about = status, REASONS[status], self.door.date, content_type, len(body), allowed, again, connection, shown
        form = b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b%b\r\n%b"
        self._transport.write(form % about)

    def _close(self) -> None:
        self._enter("close", self.settings.linger_seconds)
        self._transport.close()

    def _enter(self, state: State, seconds: float) -> None:
        self.state = state
        self.deadline = monotonic() + seconds


# A total that connections share. When it is used up, the connection that holds most gives way.

KNOWN_TIMES: Final = 100
"""How much more than another address a known one may hold."""


class Shares:
    """Which connections hold how much of a total."""

    def __init__(self, total: int, known: Container[object] = ()) -> None:
        self.total = total
        self.used = 0
        self._known = known
        self._held: dict[object, dict[Connection, int]] = {}
        self._sums: dict[object, int] = {}

    def hold(self, holder: Connection, amount: int) -> None:
        """Let a holder have this amount, instead of what it had."""
        held = self._held.setdefault(holder.address, {})
        more = amount - held.get(holder, 0)
        held[holder] = amount
        self.used += more
        self._sums[holder.address] = self._sums.get(holder.address, 0) + more

    def release(self, holder: Connection) -> None:
        """Let a holder have nothing; it may have had nothing before."""
        held = self._held.get(holder.address, {})
        if holder not in held:
            return
        amount = held.pop(holder)
        self.used -= amount
        self._sums[holder.address] -= amount
        if not held:
            del self._held[holder.address], self._sums[holder.address]

    def giving_way(self) -> Connection | None:
        """Who has to release what it holds; None unless more is held than there is.

        It is, of the address that holds most, the one that holds most; among equals the one that came first.
        """
        if self.used <= self.total:
            return None

        def weight(address: object) -> float:
            return self._sums[address] / (KNOWN_TIMES if address in self._known else 1)

        held = self._held[max(self._sums, key=weight)]
        return max(held, key=held.__getitem__)


# Accepts connections, and says which of them may stay.

AT_ONCE: Final = 100
"""Connections accepted before others get their turn. It is far below the number of newcomers: one that is served in
a few turns is established before a flood from its own address can push it out."""

KNOWN: Final = 1000
"""Addresses that are remembered because connections of them were established."""

STARTS: Final = 10
"""Handshakes begun before others get their turn: so many of known addresses, and so many of others."""

LOOPBACK: Final = ("127.0.0.1", "::1")
"""Where programs of the same pod come from, and `kubectl port-forward`."""

SPARE: Final = 128
"""Descriptors for everything but connections: files, the API server, and connections that are being closed."""

RECEIVE_BYTES: Final = 32 * KIBIBYTE
"""What the kernel keeps of a connection until it is read. uvloop reads all of it at once and keeps buffers of that
size: with the kernel's default, bodies of 200 KB on 1,000 connections leave 300 MiB; with this, 180 [measured]."""

WARN_EVERY: Final = 60.0
"""Seconds between two warnings of the same kind."""


def within_descriptors(settings: Settings) -> Settings:
    """Raise this process's limit on descriptors to what the settings need, or lower them to the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections + 2 * settings.newcomers + SPARE
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most == wanted:
        return settings
    share = max((most - SPARE) // 3, 1)
    log.warning("%d descriptors are few: %d established connections at most, and %d newcomers", most, share, share)
    return replace(settings, connections=share, newcomers=share)


class Door:
    """All connections of this process, and the sockets that they come from."""

    def __init__(self, settings: Settings, lane: Lane) -> None:
        self.settings = settings
        self.lane = lane
        self.context: ssl.SSLContext
        self.date = b""
        self.connections: set[Connection] = set()
        self._known: dict[object, None] = {}
        self._waiting = Shares(settings.newcomers, self._known)
        self._newcomers = Shares(settings.newcomers, self._known)
        self._established = Shares(settings.connections, self._known)
        self._bodies = {  # by whether the connection is established
            group: Shares(settings.bodies_bytes, self._known) for group in (False, True)
        }
        self._ready: dict[bool, dict[object, dict[Connection, socket.socket]]] = {True: {}, False: {}}
        self._starting = False
        self._listeners: Sequence[socket.socket] = ()
        self._listening = False
        self._warned: dict[str, float] = {}

    # Accepting

    def open(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections from now on, or again after a failure."""
        self._listeners = listeners
        if not self._listening:
            self._listening = True
            for listener in listeners:
                asyncio.get_running_loop().add_reader(listener, self._accept, listener, AT_ONCE)

    def close(self) -> None:
        """Accept those that wait in the kernel, and no more."""
        for listener in self._listeners:
            self._accept(listener, self.settings.newcomers)
        self._pause()
        for listener in self._listeners:
            listener.close()
        self._listeners = ()

    def _pause(self) -> None:
        """Accept no more; new connections stay in the kernel's queue."""
        self._listening = False
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)

    def _accept(self, listener: socket.socket, most: int) -> None:
        """Give newcomers a place, where they wait for their client's first bytes."""
        for _ in range(most):
            try:
                accepted, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors or memory: the socket would stay readable, so it is left alone
                self._warn("accept failed: %s", error)
                self._pause()
                return
            accepted.settimeout(0)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            connection = Connection(self, peer[:1])
            connection.named = listener is not self._listeners[0] or peer[0] in LOOPBACK
            connection.cut = partial(self._turn_away, connection, accepted)
            asyncio.get_running_loop().add_reader(accepted, self._queue, connection, accepted)
            self.connections.add(connection)
            self.lane.metrics.connections += 1
            self._place(connection, self._waiting)

    def _place(self, connection: Connection, places: Shares) -> None:
        places.hold(connection, 1)
        while (late := places.giving_way()) is not None:
            self.lane.metrics.dropped["crowded", "connections"] += 1
            text = "newcomers have all %d places: one of %s, which has most, gives way"
            self._warn(text, self.settings.newcomers, *late.address)
            late.abort()

    def _turn_away(self, connection: Connection, accepted: socket.socket) -> None:
        """Close a connection that waits for TLS."""
        asyncio.get_running_loop().remove_reader(accepted)
        for ready in self._ready.values():
            queue = ready.get(connection.address, {})
            if queue.pop(connection, None) is not None and not queue:
                del ready[connection.address]
        accepted.close()
        self.ended(connection)

    def _queue(self, connection: Connection, accepted: socket.socket) -> None:
        """The client's first bytes are there: begin TLS when it is its turn."""
        asyncio.get_running_loop().remove_reader(accepted)
        ready = self._ready[connection.address in self._known]
        ready.setdefault(connection.address, {})[connection] = accepted
        if not self._starting:
            self._start()

    def _start(self) -> None:
        """Begin some of the handshakes that wait, and the others after what else there is to do."""
        loop = asyncio.get_running_loop()
        for ready in self._ready.values():
            for _ in range(min(STARTS, sum(map(len, ready.values())))):
                address = next(iter(ready))
                queue = ready.pop(address)
                connection, accepted = queue.popitem()
                # Closing would take the descriptor from under asyncio; this ends the handshake as the client's own
                # end would.
                connection.cut = partial(_shut, accepted)
                connection.handshake = loop.create_task(self._shake_hands(connection, accepted))
                self._waiting.release(connection)
                self._place(connection, self._newcomers)
                if queue:
                    ready[address] = queue
        self._starting = any(self._ready.values())
        if self._starting:
            loop.call_soon(self._start)

    async def _shake_hands(self, connection: Connection, accepted: socket.socket) -> None:
        loop, seconds = asyncio.get_running_loop(), self.settings.linger_seconds
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self.context, ssl_shutdown_timeout=seconds
            )
        except OSError as error:  # not TLS, no common version, or the peer does not trust the certificate
            log.debug("handshake failed: %s", error)
            self.lane.metrics.dropped["handshake", "connections"] += 1
            self.ended(connection)

    # For a connection

    def establish(self, connection: Connection) -> None:
        """Take a connection out of the newcomers. If too many are established, one of them is a newcomer again."""
        if connection.established:
            return
        self._known.pop(connection.address, None)
        self._known[connection.address] = None  # the last one now
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        self._newcomers.release(connection)
        self._established.hold(connection, 1)
        connection.established = True
        if (late := self._established.giving_way()) is not None:
            self._established.release(late)
            late.established = False
            self._place(late, self._newcomers)

    def admit(self, connection: Connection, size: int) -> bool:
        """Count the body of a request; the largest of the address that sends most gives way. False: it is this."""
        bodies = self._bodies[connection.established]
        bodies.hold(connection, size)
        while (late := bodies.giving_way()) is not None:
            bodies.release(late)
            self.lane.metrics.dropped["crowded", "bodies"] += 1
            text = "bodies that are being received have all %d bytes: one of %s, which has most, gives way"
            self._warn(text, self.settings.bodies_bytes, *late.address)
            if late is connection:
                return False
            late.refuse(HTTPStatus.SERVICE_UNAVAILABLE, CROWDED)
        return True

    def release_body(self, connection: Connection) -> None:
        """The body is read, or dropped."""
        for bodies in self._bodies.values():  # it may not be established any more
            bodies.release(connection)

    def release(self, connection: Connection) -> None:
        """Give away the place of a connection that is about to end."""
        self.release_body(connection)
        for places in (self._waiting, self._newcomers, self._established):
            places.release(connection)

    def ended(self, connection: Connection) -> None:
        """Forget a connection."""
        self.release(connection)
        connection.cut = lambda: None  # nothing is left to cut
        self.connections.discard(connection)
        self.lane.metrics.connections -= 1

    def _warn(self, text: str, *values: object) -> None:
        if monotonic() > self._warned.get(text, 0.0):
            self._warned[text] = monotonic() + WARN_EVERY
            log.warning(text, *values)


def _shut(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer was faster
        accepted.shutdown(socket.SHUT_RDWR)
