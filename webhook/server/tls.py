"""The serving certificate as a TLS context, and whether its files have changed."""

from __future__ import annotations

import contextlib
import ssl
from math import inf
from pathlib import Path
from typing import Final

from webhook.files import file_stamps

_AT_ANY_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: certificates that have expired are read, too."""

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


def expiry(made: ssl.SSLContext, certificate: bytes) -> float:
    """When a certificate (PEM) of a context ends, in seconds since the epoch; infinity if a client cannot tell.

    A handshake in memory shows it: the standard library has no other way to read a certificate.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, not its issuer
    client.verify_flags |= _AT_ANY_TIME
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))
        ends = client.wrap_bio(received, sent), made.wrap_bio(sent, received, server_side=True)
        for end in (*ends, *ends, ends[0]):  # TLS 1.2 takes two steps of each more than 1.3
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError:
        return inf
    return float(ssl.cert_time_to_seconds(str((ends[0].getpeercert() or {})["notAfter"])))


def read(certificate: Path) -> bytes:
    """A certificate file; raises CertificateError."""
    try:
        return certificate.read_bytes()
    except OSError as error:
        raise CertificateError(f"{certificate} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """No password: OpenSSL would ask the terminal for that of an encrypted key, and wait."""
    return ""
