"""Keys and self-signed certificates, and whether a pair on disk is still good. No file, clock or cluster here.

ECDSA P-256 because every TLS stack that a Kubernetes API server is built with speaks it and a handshake costs a
tenth of RSA-2048's. The certificate signs itself, so it is its own CA bundle, and is no CA: a client that trusts
it trusts this server and nothing that a stolen key could sign.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
CLOCK_SKEW: Final = timedelta(hours=1)
"""A certificate is valid this long before its making: the clocks of API servers and nodes differ."""

_SIGNS_HANDSHAKES: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def self_signed(names: Iterable[str], now: datetime, lifetime: timedelta = LIFETIME) -> Pair:
    """A new key and a certificate for it that serves `names` (DNS names and IP addresses)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpu-webhook")])
    alternatives = list(map(_general_name, dict.fromkeys(names)))
    builder = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=now + lifetime,
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    for extension, critical in _usage(key.public_key()):
        builder = builder.add_extension(extension, critical=critical)
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def _usage(key: ec.EllipticCurvePublicKey) -> Iterable[tuple[x509.ExtensionType, bool]]:
    """What the certificate is for (RFC 5280, section 4.2.1), and whether a client must understand that."""
    yield x509.BasicConstraints(ca=False, path_length=None), True
    yield _SIGNS_HANDSHAKES, True
    yield x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False
    yield x509.SubjectKeyIdentifier.from_public_key(key), False


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def why_reissue(pair: Pair, names: Iterable[str], now: datetime) -> str | None:
    """Why a pair should be replaced, or None while it is good: readable, matching, serving `names`, not due."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        return f"it cannot be read: {error}"
    if certificate.public_key() != key.public_key():
        return "the key is not the certificate's"
    if missing := [name for name in names if _general_name(name) not in alternatives]:
        return f"it does not serve {', '.join(missing)}"
    if now < certificate.not_valid_before_utc:
        return f"it is valid only from {certificate.not_valid_before_utc:%Y-%m-%d}"
    if now > certificate.not_valid_after_utc - RENEW_BEFORE:
        return f"it expires on {certificate.not_valid_after_utc:%Y-%m-%d}"
    return None
