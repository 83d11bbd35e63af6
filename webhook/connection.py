r"""One connection of the admission server: gunicorn's HTTP/1.1 protocol, and what it lacks.

gunicorn 27's ASGI protocol waits for ever for a head, a body or a reader [measured], closes a connection on
bytes it has not read, and forgets to say so. Here every state but "answer" has a deadline, which the worker
compares with the clock a few times a second: a number per connection, where timers would cost one each per
request.

    idle ---> header ---> body ---> answer ---> idle      a request
                 \          \          \---> write          its peer does not read
                  \----------\---> linger ---> close       refused: what is unread is read and dropped
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import Any, Literal, Protocol

from gunicorn.asgi.protocol import ASGIProtocol

from webhook.metrics import Metrics
from webhook.settings import Settings

State = Literal["idle", "header", "body", "answer", "write", "linger", "close"]


def has_fast_parser() -> bool:
    """Whether gunicorn finds its HTTP parser in C.

    It keeps what it found on the class it was asked through and reads a part of that from its own: this has to be
    called once, before the first `Connection`.
    """
    return bool(ASGIProtocol._check_h1c_protocol_available())  # noqa: SLF001 - there is no other way to ask


class Owner(Protocol):
    """What a connection needs of its worker, besides what gunicorn's own protocol does."""

    settings: Settings
    metrics: Metrics
    draining: bool
    connections: set[Connection]
    loop: asyncio.AbstractEventLoop


class Connection(ASGIProtocol):  # type: ignore[misc] # gunicorn has no types
    """One connection, from the end of its TLS handshake."""

    def __init__(self, worker: Owner) -> None:
        super().__init__(worker)
        self.owner = worker
        self.settings = worker.settings
        self.state: State = "idle"
        self.deadline = inf
        self._closed = False
        self.gone: asyncio.Future[None] = worker.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin idle: Go's client may open a connection it has no request for yet (net/http, dialConnFor)."""
        self._enter("idle", self.settings.keepalive_seconds)
        self.owner.connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.owner.connections.discard(self)
        super().connection_lost(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """The first byte of a request starts its clock; what comes after a refusal is dropped."""
        if self.state == "idle":
            self._enter("header", self.settings.header_seconds)
        elif self.state in ("linger", "close"):
            return
        super().data_received(data)

    def pause_writing(self) -> None:
        """The peer does not read: it has until the deadline."""
        super().pause_writing()
        if self.state == "answer":
            self._enter("write", self.settings.write_seconds)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self.state == "write":
            self._enter("answer", inf)

    def expire(self) -> None:
        """Do what is due at the deadline."""
        self.owner.metrics.timeouts[(self.state,)] += 1
        if self.state in ("header", "body"):
            seconds = getattr(self.settings, f"{self.state}_seconds")
            self._send_error_response(408, f"the {self.state} of the request did not arrive within {seconds:g} s\n")
            self._close_transport()
        elif self.state == "idle":
            self.retire()
        elif self.state == "linger":
            self._end()
        else:
            self.deadline = inf
            self.transport.abort()

    def retire(self) -> None:
        """Close, if no request is under way."""
        if self.state == "idle":
            self._close_transport()

    def _enter(self, state: State, seconds: float) -> None:
        self.state = state
        self.deadline = monotonic() + seconds

    # What follows replaces methods of gunicorn's protocol; each says what gunicorn calls it for.

    def _on_headers_complete(self) -> Any:
        """The parser has a head."""
        self._enter("body", self.settings.body_seconds)
        return super()._on_headers_complete()

    def _on_message_complete(self) -> None:
        """The parser has a whole request."""
        self._enter("answer", inf)
        super()._on_message_complete()

    def _arm_keepalive_timer(self) -> None:
        """The answer is out and no other request has come."""
        if self.state == "answer":
            self._enter("idle", self.settings.keepalive_seconds)

    def _is_websocket_upgrade(self, _: Any) -> bool:
        """Whether to leave HTTP: never, an upgrade may be ignored (RFC 9110, section 7.8)."""
        return False

    def _will_close(self, request: Any, response_requires_close: Any) -> bool:
        """Whether to announce that this answer is the last: also while leaving, and before a whole body."""
        return self.owner.draining or self.state == "body" or super()._will_close(request, response_requires_close)

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """An answer without the application: what cannot be parsed, or came too slowly. One at most."""
        if not self._closed:
            self.owner.metrics.refused[(str(status),)] += 1
            super()._send_error_response(status, message, extra_headers)

    def _close_transport(self) -> None:
        """Close; with a request half read, only after the peer had time to read why."""
        if self._closed:
            return
        if self.state not in ("header", "body"):
            self._end()
            return
        self._closed = True
        self._enter("linger", self.settings.linger_seconds)
        self._resume_reading()
        self._wake()

    def _end(self) -> None:
        self._closed = True
        self._enter("close", self.settings.linger_seconds)
        self.transport.close()
        self._wake()

    def _wake(self) -> None:
        """Let the tasks that wait for this connection see that it is closed."""
        self._request_ready.set()
        if self._body_receiver is not None:
            self._body_receiver.signal_disconnect()
