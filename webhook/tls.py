"""The serving certificate as a TLS context, and whether its files have changed."""

from __future__ import annotations

import ssl
from pathlib import Path

from webhook import stamps

Stamp = tuple[stamps.Stamp | None, ...]


def stamp(pair: tuple[Path, Path], client_ca: Path | None = None) -> Stamp:
    """What the files look like from outside."""
    return tuple(map(stamps.file, pair if client_ca is None else (*pair, client_ca)))


def context(pair: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    """A server's context; raises OSError (ssl.SSLError is one) when the files are no certificate and its key.

    With a `client_ca` clients may show a certificate, which it has to have signed: whoever asks for a review must,
    and the kubelet, which has none, may still ask whether the process is well.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    made.num_tickets = 0  # a sixth of a handshake, and the API server's client never comes back with one
    certificate, key = pair
    made.load_cert_chain(certificate, key, password=_no_password)
    if client_ca is not None:
        made.load_verify_locations(client_ca)
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def _no_password() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key, and wait."""
    return ""
