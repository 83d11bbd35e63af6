"""Certificates and keys that this program never makes, and that others may leave in what it reads."""

import ssl
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from certs.issue import Pair

_THIRD = b"\xa0\x03\x02\x01\x02"
"""Of every certificate: its version, in DER."""


def versioned(certificate: bytes, version: int) -> bytes:
    """The certificate in another version of X.509: its signature is wrong, too."""
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    return ssl.DER_cert_to_PEM_cert(der.replace(_THIRD, _THIRD[:-1] + bytes([version]), 1)).encode()


def rsa_authority(now: datetime) -> Pair:
    """A CA whose key is one of RSA."""
    key, name = rsa.generate_private_key(65537, 2048), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=90))
    made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
        key, hashes.SHA256()
    )
    form, pem = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    return Pair(made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption()))
