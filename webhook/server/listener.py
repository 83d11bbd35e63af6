"""Accepts connections, and says which of them may stay.

A newcomer has a place apart until it is established: until it has shown a certificate of `--client-ca`, or got a
review answered. Nothing else tells an API server from a stranger in a pod's network. If newcomers need more places
than there are, one of them gives way (`shares`), and never one that is established. If too many are established, one
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
import resource
import socket
import ssl
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from webhook.server.connection import Connection
from webhook.server.handler import Lane
from webhook.server.settings import Settings

# A total that connections share. When it is used up, the connection that holds most gives way.

KNOWN_TIMES: Final = 100
"""How much more than another address a known one may hold."""


class Holder(Protocol):
    """Whoever holds a part."""

    @property
    def address(self) -> object:
        """Where it comes from."""


H = TypeVar("H", bound=Holder)


class Shares(Generic[H]):
    """Who holds how much of a total."""

    def __init__(self, total: int, known: Container[object] = ()) -> None:
        self.total = total
        self.used = 0
        self._known = known
        self._held: dict[object, dict[H, int]] = {}
        self._sums: dict[object, int] = {}

    def hold(self, holder: H, amount: int) -> None:
        """Let a holder have this amount, instead of what it had."""
        held = self._held.setdefault(holder.address, {})
        more = amount - held.get(holder, 0)
        held[holder] = amount
        self.used += more
        self._sums[holder.address] = self._sums.get(holder.address, 0) + more

    def release(self, holder: H) -> None:
        """Let a holder have nothing; it may have had nothing before."""
        held = self._held.get(holder.address, {})
        if holder not in held:
            return
        amount = held.pop(holder)
        self.used -= amount
        self._sums[holder.address] -= amount
        if not held:
            del self._held[holder.address], self._sums[holder.address]

    def giving_way(self) -> H | None:
        """Who has to release what it holds; None unless more is held than there is.

        It is, of the address that holds most, the one that holds most; among equals the one that came first.
        """
        if self.used <= self.total:
            return None
        held = self._held[max(self._sums, key=self._weight)]
        return max(held, key=held.__getitem__)

    def _weight(self, address: object) -> float:
        return self._sums[address] / (KNOWN_TIMES if address in self._known else 1)


# Accepts connections, and says which of them may stay.

log = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""Connections accepted before others get their turn. It is far below the number of newcomers: one that is served in
a few turns is established before a flood from its own address can push it out."""

KNOWN: Final = 1000
"""Addresses that are remembered because connections of them were established."""

STARTS: Final = 10
"""Handshakes begun before others get their turn: so many of known addresses, and so many of others."""

SPARE: Final = 128
"""Descriptors for everything but connections: files, the API server, and connections that are being closed."""

DISPLACED: Final = {
    "connections": "newcomers have all %d places: one of %s, which has most, gives way",
    "bodies": "bodies that are being received have all %d bytes: one of %s, which has most, gives way",
}

RECEIVE_BYTES: Final = 32 * 1024
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
    each = max((most - SPARE) // 3, 1)
    log.warning("%d descriptors are few: %d established connections at most, and %d newcomers", most, each, each)
    return replace(settings, connections=each, newcomers=each)


class Door:
    """All connections of this process, and the sockets that they come from."""

    def __init__(self, settings: Settings, lane: Lane) -> None:
        self.settings = settings
        self.lane = lane
        self.context: ssl.SSLContext
        self.date = b""
        self.connections: set[Connection] = set()
        self._known: dict[object, None] = {}
        self._established = Shares[Connection](settings.connections, self._known)
        self._waiting = Shares[Connection](settings.newcomers, self._known)
        self._ready: dict[bool, dict[object, dict[Connection, socket.socket]]] = {True: {}, False: {}}
        self._starting = False
        self._newcomers = Shares[Connection](settings.newcomers, self._known)
        self._bodies = {each: Shares[Connection](settings.bodies_bytes, self._known) for each in (True, False)}
        self._listeners: Sequence[socket.socket] = ()
        self._listening = False
        self._warned: dict[str, float] = {}

    # Accepting

    def open(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections from now on."""
        self._listeners = listeners
        self.resume()

    def resume(self) -> None:
        """Accept again after a failure."""
        if not self._listening:
            self._listening = True
            for listener in self._listeners:
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
        for _ in range(most):
            try:
                accepted, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors or memory: the socket would stay readable, so it is left alone
                self._warn("accept failed: %s", error)
                self._pause()
                return
            self._meet(accepted, peer[:1])

    def _meet(self, accepted: socket.socket, address: tuple[object, ...]) -> None:
        """Give a newcomer a place."""
        accepted.settimeout(0)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        connection = Connection(self, address)
        connection.cut = partial(self._turn_away, connection, accepted)
        asyncio.get_running_loop().add_reader(accepted, self._queue, connection, accepted)
        self.connections.add(connection)
        self.lane.metrics.connections += 1
        self._place(connection, self._waiting)

    def _place(self, connection: Connection, places: Shares[Connection]) -> None:
        places.hold(connection, 1)
        while (late := places.giving_way()) is not None:
            self._displace("connections", self.settings.newcomers, late)
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
        for ready in self._ready.values():
            for _ in range(min(STARTS, sum(map(len, ready.values())))):
                address = next(iter(ready))
                queue = ready.pop(address)
                self._begin(*queue.popitem())
                if queue:
                    ready[address] = queue
        self._starting = any(self._ready.values())
        if self._starting:
            asyncio.get_running_loop().call_soon(self._start)

    def _begin(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        # Closing would take the descriptor from under asyncio; this ends the handshake as the client's own end would.
        connection.cut = partial(_shut, accepted)
        connection.handshake = loop.create_task(self._shake_hands(connection, accepted))
        self._waiting.release(connection)
        self._place(connection, self._newcomers)

    async def _shake_hands(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self.context,
                ssl_shutdown_timeout=self.settings.linger_seconds,
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
            self._displace("bodies", self.settings.bodies_bytes, late)
            if late is connection:
                return False
            late.give_way()
        return True

    def release_body(self, connection: Connection) -> None:
        """The body is read, or dropped."""
        for bodies in self._bodies.values():  # it may not be established any more
            bodies.release(connection)

    def release(self, connection: Connection) -> None:
        """Give away the place of a connection that is about to end."""
        self.release_body(connection)
        self._waiting.release(connection)
        self._newcomers.release(connection)
        self._established.release(connection)

    def ended(self, connection: Connection) -> None:
        """Forget a connection."""
        self.release(connection)
        connection.cut = _nothing
        self.connections.discard(connection)
        self.lane.metrics.connections -= 1

    def _displace(self, what: str, total: int, late: Connection) -> None:
        self.lane.metrics.dropped["crowded", what] += 1
        self._warn(DISPLACED[what], total, *late.address)

    def _warn(self, text: str, *values: object) -> None:
        if monotonic() > self._warned.get(text, 0.0):
            self._warned[text] = monotonic() + WARN_EVERY
            log.warning(text, *values)


def _nothing() -> None:
    """What is left to cut of a connection that is gone."""


def _shut(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer was faster
        accepted.shutdown(socket.SHUT_RDWR)
