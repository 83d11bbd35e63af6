"""Keys and certificates, and whether a pair is still good. No file, clock or cluster here.

ECDSA P-256 because every TLS stack that a Kubernetes API server is built with speaks it and a handshake costs a
tenth of RSA-2048's. A certificate that `self_signed` makes is its own CA bundle, and is no CA: a client that trusts
it trusts this server and nothing that a stolen key could sign.
"""

import ipaddress
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=365)
"""Of a self-signed certificate."""

CLOCK_SKEW: Final = timedelta(hours=1)
"""A certificate is valid this long before its making: the clocks of API servers and nodes differ."""

RENEW_AT: Final = 2 / 3
"""The part of its lifetime after which a certificate is renewed."""

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    CryptographyDeprecationWarning,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for certificates and keys that are not as ours are: others may write anything."""


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def _loaded(bundle: bytes) -> list[x509.Certificate]:
    """What the next version of the library refuses to read, as a serial number below one, is an error today."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificates(bundle)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _made(
    now: datetime,
    end: datetime,
    names: Iterable[str] | None,
    signer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
) -> Pair:
    """A new key and a certificate for it that serves `names`, or is a CA if they are None (RFC 5280, section 4.2.1).

    Without a signer it signs itself.
    """
    is_ca, key = names is None, ec.generate_private_key(ec.SECP256R1())
    common_name = "gpu-webhook-ca" if is_ca else "gpu-webhook"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer, signing_key = signer or (subject, key)
    uses = {5, 6} if is_ca else {0}  # the bits keyCertSign and cRLSign, or digitalSignature
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), True),
        (x509.KeyUsage(*(bit in uses for bit in range(9))), True),
    ]
    if names is not None:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys(names)])
        extensions += [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False), (alternatives, False)]
    if signer is not None:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
        extensions.append((identifier, False))
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=end,
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificate = builder.sign(signing_key, hashes.SHA256()).public_bytes(pem)
    return Pair(certificate, key.private_bytes(pem, form, serialization.NoEncryption()))


def self_signed(names: Iterable[str], now: datetime, lifetime: timedelta = LIFETIME) -> Pair:
    """A new key and a certificate for it that serves `names` (DNS names and IP addresses)."""
    return _made(now, now + lifetime, names)


def authority(now: datetime, lifetime: timedelta) -> Pair:
    """A new CA, which signs serving certificates and no other CA."""
    return _made(now, now + lifetime, None)


def leaf(signer: Pair, names: Iterable[str], now: datetime, lifetime: timedelta) -> Pair:
    """A new key and a certificate of `signer` for it that serves `names`; it does not outlive the signer."""
    ca, key = _loaded(signer.certificate)[0], serialization.load_pem_private_key(signer.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not one of an elliptic curve")
    return _made(now, min(now + lifetime, ca.not_valid_after_utc), names, (ca.subject, key))


def _untimely(certificate: x509.Certificate, at: datetime) -> str | None:
    if at < certificate.not_valid_before_utc:
        return f"it is valid only from {certificate.not_valid_before_utc:%Y-%m-%d}"
    if at > certificate.not_valid_after_utc:
        return f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    return None


def check(pair: Pair, at: datetime, names: Iterable[str] = ()) -> str | None:
    """Why a pair is not good at a time, or None: it can be read, fits together, serves `names`, and is valid."""
    try:
        certificate, key = _loaded(pair.certificate)[0], serialization.load_pem_private_key(pair.key, password=None)
        matching = certificate.public_key() == key.public_key()
        if missing := list(names):
            served = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            missing = [name for name in missing if _general_name(name) not in served]
    except _UNREADABLE as error:
        return f"it cannot be read: {error}"
    if not matching:
        return "the key is not the certificate's"
    if missing:
        return f"it does not serve {', '.join(missing)}"
    return _untimely(certificate, at)


def check_authority(pair: Pair, at: datetime) -> str | None:
    """Why a CA is not good at a time, or None: it signs what we ask it to."""
    reason = check(pair, at)
    if reason is None:
        try:
            leaf(pair, (), at, timedelta())
        except _UNREADABLE as error:
            reason = str(error)
    return reason


def issued(certificate: bytes) -> datetime:
    """When a certificate of ours was made."""
    return _loaded(certificate)[0].not_valid_before_utc + CLOCK_SKEW


def expires(certificate: bytes) -> datetime:
    """When a certificate ends."""
    return _loaded(certificate)[0].not_valid_after_utc


def elapsed(certificate: bytes, at: datetime) -> float:
    """The part of a certificate's lifetime that is over."""
    began = issued(certificate)
    return (at - began) / max(expires(certificate) - began, timedelta(seconds=1))


def anchor(certificate: bytes, authorities: Iterable[bytes]) -> bytes | None:
    """The one of `authorities` that signed a certificate; itself, if it is among them and signed itself."""
    for candidate in authorities:
        try:
            _loaded(certificate)[0].verify_directly_issued_by(_loaded(candidate)[0])
        except (*_UNREADABLE, InvalidSignature):
            continue
        return candidate
    return None


def split(bundle: bytes, at: datetime | None = None) -> Sequence[bytes]:
    """The certificates of a bundle in PEM, if a time is given those that are valid then; none if it is no bundle."""
    try:
        certificates = _loaded(bundle)
    except _UNREADABLE:
        return []
    valid = (certificate for certificate in certificates if at is None or _untimely(certificate, at) is None)
    return [certificate.public_bytes(serialization.Encoding.PEM) for certificate in valid]
