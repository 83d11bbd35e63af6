"""Keys and certificates, and whether a pair is still good. No file, clock or cluster here.

ECDSA P-256 because every TLS stack that a Kubernetes API server is built with speaks it and a handshake costs a
tenth of RSA-2048's. A certificate that `self_signed` makes is its own CA bundle, and is no CA: a client that trusts
it trusts this server and nothing that a stolen key could sign.
"""

from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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

_NO_USE: Final = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)
_SIGNS_HANDSHAKES: Final = x509.KeyUsage(**{**_NO_USE, "digital_signature": True})
_SIGNS_CERTIFICATES: Final = x509.KeyUsage(**{**_NO_USE, "key_cert_sign": True, "crl_sign": True})


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Every DNS name of a Service; the API server asks for the third."""
    full = f"{service}.{namespace}.svc"
    return service, f"{service}.{namespace}", full, f"{full}.cluster.local"


def self_signed(names: Iterable[str], now: datetime, lifetime: timedelta = LIFETIME) -> Pair:
    """A new key and a certificate for it that serves `names` (DNS names and IP addresses)."""
    key = _new_key()
    builder = _builder("gpu-webhook", key, now, now + lifetime).issuer_name(_name("gpu-webhook"))
    return _signed(_serving(builder, names), key, key)


def authority(now: datetime, lifetime: timedelta) -> Pair:
    """A new CA, which signs serving certificates and no other CA."""
    key = _new_key()
    builder = _builder("gpu-webhook-ca", key, now, now + lifetime).issuer_name(_name("gpu-webhook-ca"))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _signed(builder.add_extension(_SIGNS_CERTIFICATES, critical=True), key, key)


def leaf(signer: Pair, names: Iterable[str], now: datetime, lifetime: timedelta) -> Pair:
    """A new key and a certificate of `signer` for it that serves `names`; it does not outlive the signer."""
    key, by = _new_key(), _loaded(signer.certificate)
    signing = serialization.load_pem_private_key(signer.key, password=None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not one of an elliptic curve")
    end = min(now + lifetime, by.not_valid_after_utc)
    builder = _serving(_builder("gpu-webhook", key, now, end), names).issuer_name(by.subject)
    whose = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return _signed(builder.add_extension(whose, critical=False), key, signing)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _builder(subject: str, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime) -> x509.CertificateBuilder:
    """What every certificate has: whose it is, a serial number, its time."""
    return x509.CertificateBuilder(
        subject_name=_name(subject),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=end,
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _serving(builder: x509.CertificateBuilder, names: Iterable[str]) -> x509.CertificateBuilder:
    """What a serving certificate is for (RFC 5280, section 4.2.1), and whether a client must understand that."""
    alternatives = x509.SubjectAlternativeName(list(map(_general_name, dict.fromkeys(names))))
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_SIGNS_HANDSHAKES, critical=True)
    return builder.add_extension(server, critical=False).add_extension(alternatives, critical=False)


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey
) -> Pair:
    made = builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return Pair(made, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def check(pair: Pair, at: datetime, names: Iterable[str] = ()) -> str | None:
    """Why a pair is not good at a time, or None: it can be read, fits together, serves `names`, and is valid."""
    try:
        certificate = _loaded(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        matching = certificate.public_key() == key.public_key()
        missing = [name for name in names if _general_name(name) not in _alternatives(certificate)]
    except _UNREADABLE as error:
        return f"it cannot be read: {error}"
    if not matching:
        return "the key is not the certificate's"
    if missing:
        return f"it does not serve {', '.join(missing)}"
    return _untimely(certificate, at)


def check_authority(pair: Pair, at: datetime) -> str | None:
    """Why a CA is not good at a time, or None: it signs what we ask it to."""
    bad = check(pair, at)
    if bad is not None:
        return bad
    try:
        leaf(pair, (), at, timedelta())
    except _UNREADABLE as error:
        return str(error)
    return None


def _alternatives(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _untimely(certificate: x509.Certificate, at: datetime) -> str | None:
    if at < certificate.not_valid_before_utc:
        return f"it is valid only from {certificate.not_valid_before_utc:%Y-%m-%d}"
    if at > certificate.not_valid_after_utc:
        return f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    return None


def issued(certificate: bytes) -> datetime:
    """When a certificate of ours was made."""
    return _loaded(certificate).not_valid_before_utc + CLOCK_SKEW


def expires(certificate: bytes) -> datetime:
    """When a certificate ends."""
    return _loaded(certificate).not_valid_after_utc


def elapsed(certificate: bytes, at: datetime) -> float:
    """The part of a certificate's lifetime that is over."""
    began = issued(certificate)
    return (at - began) / max(expires(certificate) - began, timedelta(seconds=1))


def due(certificate: bytes, at: datetime) -> str | None:
    """Why a good certificate should be renewed, or None."""
    if elapsed(certificate, at) < RENEW_AT:
        return None
    return f"it expires on {expires(certificate):%Y-%m-%d}"


def anchor(certificate: bytes, authorities: Iterable[bytes]) -> bytes | None:
    """The one of `authorities` that signed a certificate; itself, if it is among them and signed itself."""
    for candidate in authorities:
        try:
            _loaded(certificate).verify_directly_issued_by(_loaded(candidate))
        except (*_UNREADABLE, InvalidSignature):
            continue
        return candidate
    return None


def _loaded(certificate: bytes) -> x509.Certificate:
    with _strict():
        return x509.load_pem_x509_certificate(certificate)


@contextmanager
def _strict() -> Iterator[None]:
    """What the next version of the library refuses to read, as a serial number below one, is an error today."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CryptographyDeprecationWarning)
        yield


def certificates(bundle: bytes) -> Sequence[bytes]:
    """The certificates of a bundle, each in PEM; none if it is no bundle."""
    try:
        with _strict():
            found = x509.load_pem_x509_certificates(bundle)
    except _UNREADABLE:
        return ()
    return tuple(each.public_bytes(serialization.Encoding.PEM) for each in found)


def split(bundle: bytes, at: datetime) -> Sequence[bytes]:
    """The certificates of a bundle that are valid at a time."""
    return [each for each in certificates(bundle) if _untimely(_loaded(each), at) is None]
