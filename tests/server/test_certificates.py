"""Certificate files that change under a running server."""

import contextlib
import shutil
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.__main__ import replace
from certs.issue import LOOPBACK, Pair, self_signed
from tests.cluster.waiting import until
from tests.server.process import Server, running
from webhook.server import serve

NOW = datetime.now(UTC)
NOT_USABLE = "the changed certificate is not usable"


def serial(server: Server) -> int:
    """The serial number of the certificate that a new connection meets."""
    pem = ssl.get_server_certificate(("127.0.0.1", server.port), timeout=20)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def fresh() -> tuple[Pair, int]:
    pair = self_signed(LOOPBACK, NOW)
    return pair, x509.load_pem_x509_certificate(pair.certificate).serial_number


def expired() -> Pair:
    return self_signed(LOOPBACK, NOW - timedelta(days=2), timedelta(days=1))


def put(folder: Path, pair: Pair) -> None:
    replace(folder / "tls.key", pair.key, mode=0o600)
    replace(folder / "tls.crt", pair.certificate, mode=0o644)


def test_a_new_pair_serves_new_connections_and_old_ones_live_on(folder: Path) -> None:
    with running(folder) as server, contextlib.closing(server.connect()) as old:
        before = serial(server)
        pair, after = fresh()
        put(folder, pair)
        until(lambda: serial(server) == after, "the new certificate")

        assert before != after
        assert old.ask("GET", "/healthz").status == 200
        assert server.get("/healthz") == "ok\n"
        assert server.metric('reloads_total{what="certificate",result="done"}') == 1


def ends(pair: Pair) -> float:
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc.timestamp()


def test_the_page_says_when_the_certificate_that_is_served_ends(folder: Path) -> None:
    with running(folder) as server:
        pair = self_signed(LOOPBACK, NOW, timedelta(days=2))
        put(folder, pair)
        server.await_line("the certificate was reloaded")

        assert server.metric('certs_expiry_timestamp_seconds{certificate="served"}') == ends(pair)


@pytest.mark.parametrize("made", [fresh()[0], expired()], ids=["valid", "expired"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_end_of_a_certificate_is_read_whenever_that_is(folder: Path, made: Pair, version: ssl.TLSVersion) -> None:
    folder.mkdir()
    put(folder, made)
    context = serve.tls_context((folder / "tls.crt", folder / "tls.key"))
    context.maximum_version = version

    assert serve.certificate_expiry(context, made.certificate) == ends(made)


def test_a_volume_of_links_is_followed(tmp_path: Path, folder: Path) -> None:
    """A Secret's volume: tls.crt -> ..data/tls.crt, and ..data is a link that changes all files at once."""
    first, second = fresh(), fresh()
    for name, (pair, _) in {"1": first, "2": second}.items():
        (tmp_path / name).mkdir()
        put(tmp_path / name, pair)
    data = tmp_path / "..data"
    data.symlink_to("1")
    files = {"tls_cert": str(data / "tls.crt"), "tls_key": str(data / "tls.key")}
    with running(folder, **files) as server:
        assert serial(server) == first[1]
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").rename(data)
        until(lambda: serial(server) == second[1], "the new certificate")


def half(folder: Path) -> None:
    whole = (folder / "tls.crt").read_bytes()
    (folder / "tls.crt").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    "spoil",
    [
        half,
        lambda folder: (folder / "tls.key").write_bytes(b"garbage"),
        lambda folder: (folder / "tls.key").write_bytes(fresh()[0].key),
        lambda folder: (folder / "tls.crt").write_bytes(fresh()[0].certificate),
        lambda folder: (folder / "tls.crt").unlink(),
        lambda folder: put(folder, expired()),
    ],
    ids=["half a certificate", "no key", "another key", "another certificate", "no certificate", "an expired one"],
)
def test_a_pair_that_does_not_fit_changes_nothing(folder: Path, spoil: Callable[[Path], object]) -> None:
    with running(folder) as server:
        before = serial(server)
        shutil.copy(folder / "tls.crt", folder / "good.crt")
        spoil(folder)
        server.await_line(NOT_USABLE)
        assert serial(server) == before

        pair, after = fresh()
        put(folder, pair)
        until(lambda: serial(server) == after, "the pair that fits")
        assert server.metric('reloads_total{what="certificate",result="failed"}') >= 1


def test_where_both_have_expired_the_clock_may_be_wrong_and_the_newer_one_serves(folder: Path) -> None:
    folder.mkdir()
    put(folder, expired())
    files = {"tls_cert": str(folder / "tls.crt"), "tls_key": str(folder / "tls.key")}
    with running(folder, **files) as server:
        before = serial(server)
        put(folder, expired())
        until(lambda: serial(server) != before, "the newer certificate")


def test_a_pair_that_comes_while_descriptors_are_short_serves_as_soon_as_they_are_not(folder: Path) -> None:
    with running(folder) as server:
        pair, after = fresh()
        with server.short_of_descriptors():
            put(folder, pair)
            server.await_line("Too many open files")
        until(lambda: serial(server) == after, "the new certificate")

        assert len(server.lines(NOT_USABLE)) == 1


def test_an_encrypted_key_asks_nobody_for_a_password(folder: Path) -> None:
    with running(folder) as server:
        (folder / "tls.key").write_text(
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIC\n-----END ENCRYPTED PRIVATE KEY-----"
        )
        server.await_line(NOT_USABLE)

        assert server.popen.poll() is None


def test_a_pair_that_is_about_to_expire_is_replaced_at_the_start(folder: Path) -> None:
    folder.mkdir()
    put(folder, self_signed(LOOPBACK, NOW - timedelta(days=340)))
    with running(folder) as server:
        assert server.lines("made a new certificate")
        assert server.get("/healthz") == "ok\n"
