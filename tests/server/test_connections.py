"""How connections are reused, shared out and given up."""

import contextlib
import ssl
from pathlib import Path

import pytest

from tests.server.peer import Peer, request
from tests.server.process import Server
from webhook.server import serve


def test_a_connection_serves_many_reviews(peer: Peer, fraction: bytes) -> None:
    answers = [peer.ask("POST", "/mutate", fraction) for _ in range(20)]

    assert {answered.status for answered in answers} == {200}
    assert not any(answered.closes for answered in answers)


def test_pipelined_requests_are_answered_in_order(peer: Peer, plain: bytes) -> None:
    peer.send(request("GET", "/healthz") + request("POST", "/mutate", plain) + request("GET", "/nowhere"))

    assert [peer.answer().status for _ in range(3)] == [200, 200, 404]


@pytest.mark.parametrize("at", [1, 20, 60, 100, 3000])
def test_a_pipelined_request_may_come_in_two_pieces(peer: Peer, plain: bytes, at: int) -> None:
    sent = request("GET", "/healthz") + request("POST", "/mutate", plain)
    peer.send(sent[:at])
    peer.send(sent[at:])

    assert [peer.answer().status for _ in range(2)] == [200, 200]


def test_a_request_may_come_byte_by_byte(peer: Peer) -> None:
    for byte in request("POST", "/mutate", b"{}"):
        peer.send(bytes([byte]))

    assert peer.answer().status == 400


def test_a_connection_that_is_gone_leaves_nothing_behind(server: Server, fraction: bytes) -> None:
    def open_and_close(times: int) -> None:
        for _ in range(times):
            with contextlib.closing(server.connect()) as peer:
                assert peer.ask("POST", "/mutate", fraction).status == 200

    def resident() -> int:
        status = Path(f"/proc/{server.worker}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    open_and_close(100)  # what is made once is made
    before = resident()
    open_and_close(400)

    assert resident() - before < 4_000, "KiB; each connection that is kept would be 56 or more"


def test_close_is_honoured(peer: Peer) -> None:
    answered = peer.ask("GET", "/healthz", headers={"Connection": "close"})

    assert (answered.status, answered.closes) == (200, True)
    assert peer.ended()


def test_http_1_0_closes(peer: Peer) -> None:
    peer.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    answered = peer.answer()

    assert (answered.status, answered.body, answered.closes) == (200, b"ok\n", True)
    assert peer.ended()


def test_http_1_0_may_ask_to_stay(peer: Peer) -> None:
    for _ in range(2):
        peer.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert peer.answer().headers["connection"] == "keep-alive"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(server: Server, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(server.folder / "tls.crt"))
    context.minimum_version = context.maximum_version = version
    with contextlib.closing(Peer.connect(server.port, context)) as peer:
        assert peer.ask("GET", "/healthz").status == 200


def test_nothing_older_than_tls_1_2_is_spoken(server: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")  # else the client itself would not try
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(ssl.SSLError):
        Peer.connect(server.port, context)
    made = serve.tls_context((server.folder / "tls.crt", server.folder / "tls.key"))
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2


def test_http_2_is_not_offered(server: Server) -> None:
    context = ssl.create_default_context(cafile=str(server.folder / "tls.crt"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with contextlib.closing(Peer.connect(server.port, context)) as peer:
        assert isinstance(peer.socket, ssl.SSLSocket)
        assert peer.socket.selected_alpn_protocol() == "http/1.1"
