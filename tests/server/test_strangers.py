"""With --client-ca only clients with a certificate of it get reviews; everybody may ask whether all is well.

Without it everybody gets reviews, and what comes from one address counts for that address alone.
"""

import contextlib
import ssl
from pathlib import Path

import pytest

from tests import tables
from tests.cluster.credentials import Credentials, issue
from tests.server.peer import Peer
from tests.server.process import Server, running
from tests.server.test_quota import create, response

SUSPECTS: str = tables.table(__file__, "suspects")


def peer(server: Server, made: Credentials | None, source: str = "127.0.0.1") -> Peer:
    context = ssl.create_default_context(cafile=str(server.folder / "tls.crt"))
    if made is not None:
        context.load_cert_chain(made.admin, made.admin_key)
    return Peer.connect(server.port, context, source)


def test_a_stranger_gets_no_answer_to_a_review(folder: Path, tmp_path: Path, fraction: bytes) -> None:
    made = issue(tmp_path)
    with running(folder, client_ca=str(made.authority)) as server:
        with contextlib.closing(peer(server, None)) as stranger:
            refused = stranger.ask("POST", "/validate", fraction)
        with contextlib.closing(peer(server, None)) as stranger:
            well = stranger.ask("GET", "/healthz")
        with contextlib.closing(peer(server, made)) as known:
            answered = known.ask("POST", "/validate", fraction)

    assert refused.status == 403
    assert refused.body == b"reviews are answered to clients with a certificate of --client-ca only\n"
    assert (well.status, answered.status) == (200, 200)


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked", "Content-Length: 0"])
def test_a_stranger_is_refused_before_a_byte_of_the_body_is_there(folder: Path, tmp_path: Path, framing: str) -> None:
    made = issue(tmp_path)
    with running(folder, client_ca=str(made.authority)) as server, contextlib.closing(peer(server, None)) as stranger:
        stranger.send(f"POST /mutate HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode())
        refused = stranger.answer()

        assert (refused.status, refused.closes) == (403, True)
        assert stranger.ended()


@pytest.mark.parametrize("certified", [False, True], ids=["without a certificate", "with one"])
def test_who_is_suspect_at_one_address_is_not_at_another_or_with_a_certificate(
    folder: Path, tmp_path: Path, *, certified: bool
) -> None:
    made = issue(tmp_path)
    settings = {"tenants": str(tmp_path / "tenants.yaml")} | ({"client_ca": str(made.authority)} if certified else {})
    (tmp_path / "tenants.yaml").write_text(SUSPECTS)
    answers = []
    with running(folder, **settings) as server:
        for name, source in (("suspect", "127.0.0.2"), ("other", "127.0.0.1")):
            with contextlib.closing(peer(server, made if certified else None, source)) as asking:
                answers.append(response(asking.ask("POST", "/validate", create(name, "1"))))

    assert [answer["allowed"] for answer in answers] == [certified, True]
    told = answers[0].get("status", {}).get("message", "")
    assert ("pods of this user were admitted and never stored" in told) == (not certified)
