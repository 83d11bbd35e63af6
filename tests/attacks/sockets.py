"""Sockets by the thousand: a program that opens them, each left at one point of its life, and what to call meanwhile.

    python -m tests.attacks.sockets PORT KIND COUNT SOURCES

opens COUNT sockets to a server on loopback, says so on a line, and keeps those that the server lets it until its
standard input ends. SOURCES are the addresses that it opens them from, one after the other.
"""

import contextlib
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.server.peer import Peer
from tests.server.process import ROOT, Server

AT_ONCE = 16
PATIENCE = 60.0
HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\n"
LENGTH = 1 << 20

CALL_SECONDS = 10.0
"""What a call may take: the API server's default `timeoutSeconds`."""

Ends = Callable[[int, str], socket.socket]


def reach(port: int, source: str) -> socket.socket:
    """A connection from an address of loopback."""
    connected = socket.socket()
    try:
        connected.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: ports are per destination
        connected.settimeout(PATIENCE)
        connected.bind((source, 0))
        connected.connect(("127.0.0.1", port))
    except BaseException:
        connected.close()
        raise
    return connected


def stranger() -> ssl.SSLContext:
    """The TLS of somebody who does not care whom it meets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


CONTEXT = stranger()


def half_handshake(port: int, source: str) -> socket.socket:
    """Send the first bytes of a handshake."""
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        CONTEXT.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    connected = reach(port, source)
    connected.sendall(hello.read())
    return connected


def after_handshake(sent: bytes) -> Ends:
    """Speak TLS and send so much."""

    def end(port: int, source: str) -> socket.socket:
        raw = reach(port, source)
        try:
            connected = CONTEXT.wrap_socket(raw, server_hostname="localhost")
        except BaseException:
            raw.close()
            raise
        connected.sendall(sent)
        return connected

    return end


KINDS: Mapping[str, Ends] = {
    "silent": reach,
    "half handshake": half_handshake,
    "handshake": after_handshake(b""),
    "half head": after_handshake(HEAD),
    "half body": after_handshake(HEAD + b"Content-Length: %d\r\n\r\n" % LENGTH + b"{" * 16_000),
}


def swarm(port: int, kind: str, count: int, sources: Sequence[str]) -> list[socket.socket]:
    """The sockets; one that the server ends before it is where it should be is opened, and lost."""

    def one(number: int) -> socket.socket | None:
        with contextlib.suppress(OSError):
            return KINDS[kind](port, sources[number % len(sources)])
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [each for each in pool.map(one, range(count)) if each is not None]


def main() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, kind, count, sources = sys.argv[1:]
    kept = swarm(int(port), kind, int(count), sources.split(","))
    print(len(kept), flush=True)  # noqa: T201 - what the other program waits for
    sys.stdin.read()
    for each in kept:
        each.close()
    return 0


@dataclass
class Attack:
    """The program at work."""

    popen: subprocess.Popen[str]

    @property
    def whole(self) -> bool:
        """Whether all its sockets have been opened."""
        assert self.popen.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.popen.stdout, selectors.EVENT_READ)
            return bool(ready.select(0))


@contextlib.contextmanager
def attack(server: Server, kind: str, count: int, sources: Sequence[str]) -> Iterator[Attack]:
    """The program beside a block."""
    command = [sys.executable, "-m", "tests.attacks.sockets", str(server.port), kind, str(count), ",".join(sources)]
    popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield Attack(popen)
        popen.communicate(timeout=PATIENCE)
        assert popen.returncode == 0
    finally:
        popen.kill()
        popen.communicate()


@dataclass
class Calls:
    """What somebody got who called again and again."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def call(self, ask: Callable[[], int]) -> None:
        """Ask once, and remember how it went."""
        began = time.monotonic()
        try:
            status = ask()
        except (OSError, EOFError) as error:
            self.failures.append(repr(error))
            return
        took = time.monotonic() - began
        self.seconds.append(took)
        if status != 200 or took > CALL_SECONDS:
            self.failures.append(f"{status} after {took:.1f} s")


class Callers:
    """Two API servers that call all the time: one over a connection that it keeps, one over a new one each time.

    The first has another connection, on which it calls before and after.
    """

    def __init__(self, server: Server, review: bytes) -> None:
        self._server, self._review = server, review
        self._ended = threading.Event()
        self.kept, self.new, self.idle = Calls(), Calls(), Calls()

    def _again_and_again(self, calls: Calls, ask: Callable[[], int]) -> None:
        while not self._ended.wait(0.005):
            calls.call(ask)

    def _once(self) -> int:
        with contextlib.closing(self._server.connect()) as peer:
            return self._ask(peer)

    def _ask(self, peer: Peer) -> int:
        return peer.ask("POST", "/mutate?timeout=5s", self._review).status

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Call for the length of a block."""
        with contextlib.closing(self._server.connect()) as kept, contextlib.closing(self._server.connect()) as idle:
            self.idle.call(partial(self._ask, idle))
            callers = ((self.kept, partial(self._ask, kept)), (self.new, self._once))
            threads = [threading.Thread(target=self._again_and_again, args=each) for each in callers]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._ended.set()
                for thread in threads:
                    thread.join()
            self.idle.call(partial(self._ask, idle))


if __name__ == "__main__":
    sys.exit(main())
