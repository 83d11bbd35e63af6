"""CAs and leaves, and what is said of those that are not good."""

import base64
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from certs.api import Site
from certs.issue import (
    Pair,
    anchor,
    authority,
    check,
    check_authority,
    elapsed,
    expires,
    issued,
    leaf,
    self_signed,
    split,
)
from tests.certs.strange import rsa_authority

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = Site().names
CA = authority(NOW, 1825 * DAY)
LEAF = leaf(CA, NAMES, NOW, 30 * DAY)


def test_the_names_of_a_service_are_those_by_which_it_is_called() -> None:
    assert NAMES == (
        "gpu-webhook",
        "gpu-webhook.gpu-webhook-system",
        "gpu-webhook.gpu-webhook-system.svc",
        "gpu-webhook.gpu-webhook-system.svc.cluster.local",
    )


def test_a_leaf_is_verified_as_clients_do_by_its_ca_and_no_other() -> None:
    def verify(ca: Pair) -> list[x509.Certificate]:
        store = Store([x509.load_pem_x509_certificate(ca.certificate)])
        verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName(NAMES[2]))
        return verifier.verify(x509.load_pem_x509_certificate(LEAF.certificate), [])

    assert len(verify(CA)) == 2
    with pytest.raises(VerificationError):
        verify(authority(NOW, DAY))


def test_openssl_agrees(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ca = authority(now, DAY)
    (tmp_path / "ca").write_bytes(authority(now, DAY).certificate + ca.certificate)
    (tmp_path / "leaf").write_bytes(leaf(ca, NAMES, now, DAY).certificate)
    options = ["-x509_strict", "-purpose", "sslserver", "-verify_hostname", NAMES[2], "-CAfile", str(tmp_path / "ca")]
    done = subprocess.run(["openssl", "verify", *options, tmp_path / "leaf"], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_both_are_valid_an_hour_before_they_are_made() -> None:
    for pair, lifetime in ((CA, 1825 * DAY), (LEAF, 30 * DAY)):
        made = x509.load_pem_x509_certificate(pair.certificate)
        assert made.not_valid_before_utc == NOW - timedelta(hours=1)
        assert (issued(pair.certificate), expires(pair.certificate)) == (NOW, NOW + lifetime)
        assert elapsed(pair.certificate, NOW + lifetime / 2) == 0.5


def test_a_leaf_does_not_outlive_its_ca() -> None:
    assert expires(leaf(authority(NOW, 10 * DAY), NAMES, NOW, 30 * DAY).certificate) == NOW + 10 * DAY


def test_a_good_pair_is_good_until_it_ends() -> None:
    assert check(LEAF, NOW + 30 * DAY, NAMES) is None
    assert check(CA, NOW) is None


@pytest.mark.parametrize(
    ("pair", "at", "said"),
    [
        (LEAF, NOW + 31 * DAY, "it expired on 2026-12-22"),
        (LEAF, NOW - DAY, "it is valid only from 2026-11-22"),
        (Pair(LEAF.certificate, CA.key), NOW, "the key is not the certificate's"),
        (self_signed(["other.example"], NOW), NOW, f"it does not serve {', '.join(NAMES)}"),
    ],
)
def test_what_is_not_good_is_said(pair: Pair, at: datetime, said: str) -> None:
    assert check(pair, at, NAMES) == said


@pytest.mark.parametrize("pair", [Pair(b"", b""), Pair(b"garbage", LEAF.key), Pair(LEAF.certificate, b"garbage")])
def test_what_cannot_be_read_is_said(pair: Pair) -> None:
    assert (check(pair, NOW, NAMES) or "").startswith("it cannot be read: ")


def test_a_ca_whose_key_is_of_another_kind_is_not_used() -> None:
    assert check_authority(CA, NOW) is None
    assert check_authority(rsa_authority(NOW), NOW) == "the CA's key is not one of an elliptic curve"
    assert check_authority(CA, NOW + 1826 * DAY) == "it expired on 2031-11-21"


@given(st.sampled_from([CA, LEAF]), st.data())
def test_whatever_others_write_is_judged_and_no_error(pair: Pair, data: st.DataObject) -> None:
    def changed(pem: bytes) -> bytes:
        label, content = pem.partition(b"\n")[0], base64.b64decode(b"".join(pem.splitlines()[1:-1]))
        place = data.draw(st.integers(0, len(content) - 1))
        spoilt = content[:place] + data.draw(st.binary(min_size=1, max_size=1)) + content[place + 1 :]
        return b"\n".join([label, base64.b64encode(spoilt), label.replace(b"BEGIN", b"END")])

    found = Pair(*(changed(each) if data.draw(st.booleans()) else each for each in pair))

    check_authority(found, NOW)
    check(found, NOW, NAMES)
    split(found.certificate, NOW)
    anchor(found.certificate, [CA.certificate])
    anchor(LEAF.certificate, [found.certificate])


def test_a_serial_number_below_one_cannot_be_read_and_ends_nothing() -> None:
    content = base64.b64decode(b"".join(CA.certificate.splitlines()[1:-1]))
    number = x509.load_pem_x509_certificate(CA.certificate).serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1, "big")
    below = content.replace(serial, bytes([serial[0] | 0x80]) + serial[1:])
    negative = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(below) + b"\n-----END CERTIFICATE-----\n"

    said = check_authority(CA._replace(certificate=negative), NOW)

    assert said is not None
    assert said.startswith("it cannot be read: Parsed a serial number which wasn't positive")
    assert split(negative, NOW) == []
    assert anchor(LEAF.certificate, [negative]) is None


def test_the_anchor_of_a_leaf_is_found_among_others() -> None:
    other = authority(NOW, DAY).certificate
    alone = self_signed(NAMES, NOW).certificate

    assert anchor(LEAF.certificate, [other, CA.certificate]) == CA.certificate
    assert anchor(LEAF.certificate, [other]) is None
    assert anchor(alone, [other, alone]) == alone


def test_a_bundle_is_split_into_what_is_valid() -> None:
    other = authority(NOW, DAY).certificate

    assert split(other + CA.certificate, NOW) == [other, CA.certificate]
    assert split(other + CA.certificate, NOW + 2 * DAY) == [CA.certificate]
    assert split(b"garbage", NOW) == split(b"", NOW) == []


def test_every_handshake_library_here_takes_the_pair(tmp_path: Path) -> None:
    (tmp_path / "pair").write_bytes(LEAF.certificate + LEAF.key)

    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tmp_path / "pair")
