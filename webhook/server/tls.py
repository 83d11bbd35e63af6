"""The serving certificate as a TLS context, and whether its files have changed."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Final

from webhook.files import file_stamps

_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""

Stamp = tuple[file_stamps.Stamp | None, ...]


def stamp(pair: tuple[Path, Path], client_ca: Path | None = None) -> Stamp:
    """The inode, time and size of the files."""
    return tuple(map(file_stamps.file, pair if client_ca is None else (*pair, client_ca)))


class CertificateError(Exception):
    """Which files cannot be used, and why, in a sentence."""


def context(pair: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    """A server's context; raises CertificateError if the files are not what they should be.

    With a `client_ca` a client may present a certificate, which that CA must have signed. Without one a client gets
    no review answered (connection.py); the kubelet's probes, which have none, still get their answer.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    made.num_tickets = 0  # they cost a sixth of a handshake, and the API server's client never uses one
    certificate, key = pair
    try:
        made.load_cert_chain(certificate, key, password=_no_password)
    except OSError as error:
        raise CertificateError(f"{certificate} and {key} are no certificate with its key: {error}") from None
    if client_ca is None:
        return made
    try:
        made.load_verify_locations(client_ca)
    except OSError as error:
        raise CertificateError(f"{client_ca} of --client-ca has no certificate of a CA: {error}") from None
    made.verify_mode = ssl.CERT_OPTIONAL
    return made


def has_expired(made: ssl.SSLContext, certificate: bytes) -> bool:
    """Whether clients refuse this certificate (PEM) of a context as expired: a handshake in memory tells."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, not its issuer
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))
        ends = client.wrap_bio(received, sent), made.wrap_bio(sent, received, server_side=True)
        for end in (*ends, ends[0]):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_code == _EXPIRED
    except ssl.SSLError:
        return False  # clients may refuse it for another reason
    return False


def read(certificate: Path) -> bytes:
    """A certificate file; raises CertificateError."""
    try:
        return certificate.read_bytes()
    except OSError as error:
        raise CertificateError(f"{certificate} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """No password: OpenSSL would ask the terminal for that of an encrypted key, and wait."""
    return ""
