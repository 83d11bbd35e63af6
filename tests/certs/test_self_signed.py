import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.__main__ import keep, main
from certs.issue import LIFETIME, LOOPBACK, Pair, check, self_signed

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES = [*LOOPBACK, "gpu-webhook.gpu-system.svc"]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return self_signed(NAMES, NOW)


def read(folder: Path) -> Pair:
    return Pair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())


def test_the_certificate_is_for_serving_those_names_and_for_a_year(pair: Pair) -> None:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    extensions = certificate.extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert alternatives.get_values_for_type(x509.DNSName) == ["localhost", "gpu-webhook.gpu-system.svc"]
    assert [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert certificate.not_valid_after_utc == NOW + LIFETIME
    assert certificate.not_valid_before_utc < NOW
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


def test_a_directory_is_kept(tmp_path: Path) -> None:
    assert keep(tmp_path, NAMES, NOW) == "there was none"
    first = read(tmp_path)
    assert keep(tmp_path, NAMES, NOW) is None
    assert read(tmp_path) == first
    (tmp_path / "tls.key").unlink()
    assert keep(tmp_path, NAMES, NOW) == "there was none"
    assert read(tmp_path) != first
    assert keep(tmp_path, NAMES, NOW + LIFETIME / 2) is None
    assert keep(tmp_path, NAMES, NOW + LIFETIME * 2 / 3) == "it expires on 2027-11-21"
    assert keep(tmp_path, ["other.example"], NOW + LIFETIME) == "it does not serve other.example"


def test_only_its_owner_reads_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"

    assert main(["self-signed", "--directory", str(folder), "--name", "host.example"]) == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "tls.key").stat().st_mode) == 0o600
    assert sorted(each.name for each in folder.iterdir()) == ["tls.crt", "tls.key"]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(folder / "tls.crt", folder / "tls.key")


def test_a_directory_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["self-signed", "--directory", "/proc/certificates"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("certs: no certificate could be written to /proc/certificates: ")
    assert said.count("\n") == 1


def test_many_starts_at_once_leave_one_pair_that_fits(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "certs", "self-signed", "--directory", str(tmp_path)]
    started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(6)]
    codes = [each.wait(60) for each in started]

    assert codes == [0] * 6
    assert check(read(tmp_path), datetime.now(UTC), LOOPBACK) is None


def test_neither_program_imports_the_other() -> None:
    code = "import sys, certs.__main__; print([name for name in sys.modules if name.startswith('webhook')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said == "[]\n"
