"""The certificates and keys of one throw-away cluster, and the kubeconfig made of them."""

import base64
import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of PEM files: who signs, who serves, who asks, and what signs service account tokens."""

    authority: Path
    server: Path
    server_key: Path
    admin: Path
    admin_key: Path
    service_account_key: Path

    def kubeconfig(self, url: str) -> str:
        """A kubeconfig (JSON, which is YAML) that contains all it needs."""
        cluster = {"server": url, "certificate-authority-data": _encoded(self.authority)}
        user = {"client-certificate-data": _encoded(self.admin), "client-key-data": _encoded(self.admin_key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "gpu-webhook", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "gpu-webhook", "context": {"cluster": "gpu-webhook", "user": "admin"}}],
            "current-context": "gpu-webhook",
        }
        return json.dumps(config, indent=2)


def issue(folder: Path) -> Credentials:
    """Make new credentials and write them to the folder."""
    signer = ec.generate_private_key(ec.SECP256R1())
    name = _name("gpu-webhook-test-ca")
    unlimited = x509.BasicConstraints(ca=True, path_length=None)
    authority = _certificate(name, signer.public_key()).add_extension(unlimited, critical=True)
    _write(folder / "ca.crt", authority.issuer_name(name).sign(signer, hashes.SHA256()))
    loopback = x509.SubjectAlternativeName(
        [
            x509.DNSName("kubernetes.default.svc"),
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
    )
    leaves = {
        "server": (_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH),
        "admin": (_name("admin", "system:masters"), ExtendedKeyUsageOID.CLIENT_AUTH),
    }
    for stem, (subject, usage) in leaves.items():
        key = _new_key(folder / f"{stem}.key")
        leaf = _certificate(subject, key.public_key()).issuer_name(name)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        leaf = leaf.add_extension(loopback, critical=False)
        _write(folder / f"{stem}.crt", leaf.sign(signer, hashes.SHA256()))
    _new_key(folder / "service-account.key")
    return Credentials(
        authority=folder / "ca.crt",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        admin=folder / "admin.crt",
        admin_key=folder / "admin.key",
        service_account_key=folder / "service-account.key",
    )


def _name(common: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # the API server reads the public half of this form only
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(encoded)
    return key


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
