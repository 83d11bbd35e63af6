"""The serving certificate as a TLS context, and whether its files have changed."""

from __future__ import annotations

import ssl
from pathlib import Path

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time and size of each file, None where there is none; a Secret's volume changes the inode."""


def stamp(pair: tuple[Path, Path]) -> Stamp:
    """What the files look like from outside; costs two system calls."""
    return tuple(map(_stamp, pair))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def context(pair: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's context; raises OSError (ssl.SSLError is one) when the files are no certificate and its key."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    certificate, key = pair
    made.load_cert_chain(certificate, key, password=_no_password)
    return made


def _no_password() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key, and wait."""
    return ""
