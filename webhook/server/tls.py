"""The serving certificate as a TLS context, and whether its files have changed."""

from __future__ import annotations

import ssl
from pathlib import Path

from webhook.files import file_stamps

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


def _no_password() -> str:
    """No password: OpenSSL would ask the terminal for that of an encrypted key, and wait."""
    return ""
