"""The other end of a connection: sends exactly the bytes it is told to, and reads answers one at a time."""

import contextlib
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One HTTP response as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"


class _Socket(ssl.SSLSocket):
    """Closes itself: `SSLSocket._create` of CPython loses one that is reset before its handshake begins."""

    def __del__(self) -> None:
        self.close()


class Peer:
    """One TLS connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = b""

    @classmethod
    def connect(cls, port: int, context: ssl.SSLContext, source: str = "127.0.0.1") -> Self:
        raw = socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
        context.sslsocket_class = _Socket
        try:
            return cls(context.wrap_socket(raw, server_hostname="localhost"))
        except BaseException:
            raw.close()
            raise

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answered:
        """Send one request and read its answer."""
        self.send(request(method, path, body, headers))
        return self.answer(with_body=method != "HEAD")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, with_body: bool = True) -> Answered:
        """The next answer; EOFError when the connection ends before it."""
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        length = int(headers.get("content-length", 0)) if with_body else 0
        while len(self._buffer) < length:
            self._receive()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answered(int(first.split()[1]), headers, body)

    def _receive(self) -> None:
        received = self.socket.recv(65536)
        if not received:
            raise EOFError
        self._buffer += received

    def ended(self) -> bool:
        """Whether the server ends the connection; waits for that."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of one HTTP/1.1 request."""
    length = {"Content-Length": str(len(body))} if body else {}
    lines = [f"{name}: {value}" for name, value in {"Host": "localhost", **length, **(headers or {})}.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


def chunked(parts: Iterable[bytes]) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
