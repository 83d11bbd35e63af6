"""`make release`: what it writes is complete, equal from run to run, and can be applied."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries, helm
from tests.release import dist, kustomized

pytestmark = pytest.mark.cluster

IMAGE = "registry.example:5000/gpu-webhook@sha256:" + "0" * 64


@pytest.fixture(scope="module")
def released(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    image = folder / "image.oci.tar"  # tests/image has the real one
    image.write_bytes(b"layers")
    dist.write(programs.path("kubectl"), folder, IMAGE, [image])
    return folder


def test_it_has_five_files_and_the_checksum_of_four(released: Path) -> None:
    names = {"install.yaml", f"gpu-webhook-{dist.VERSION}.tgz", "sbom.cdx.json", "image.oci.tar"}
    sums = {name: digest for digest, name in map(str.split, (released / "SHA256SUMS").read_text().splitlines())}

    assert {path.name for path in released.iterdir()} == names | {"SHA256SUMS"}
    assert sums == {name: hashlib.sha256((released / name).read_bytes()).hexdigest() for name in names}


def test_two_releases_of_a_commit_are_equal_to_the_byte(released: Path, programs: Binaries, tmp_path: Path) -> None:
    copied = tmp_path / "image.oci.tar"
    copied.write_bytes((released / copied.name).read_bytes())
    dist.write(programs.path("kubectl"), tmp_path, IMAGE, [copied])

    assert (tmp_path / "SHA256SUMS").read_text() == (released / "SHA256SUMS").read_text()


def test_both_ways_to_install_run_the_image_that_was_named(released: Path) -> None:
    chart = released / f"gpu-webhook-{dist.VERSION}.tgz"
    rendered = subprocess.run(
        [helm(), "template", "gpu-webhook", chart, "--kube-version=1.36.0"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    for stream in ((released / "install.yaml").read_text(), rendered):
        specs = [each["spec"]["template"]["spec"] for each in kustomized.read(stream) if each["kind"] == "Deployment"]
        assert {container["image"] for spec in specs for container in spec["containers"]} == {IMAGE}


def test_the_bill_of_materials_names_what_the_server_imports_and_no_tool_of_ours(released: Path) -> None:
    bill = json.loads((released / "sbom.cdx.json").read_text())
    named = {each["name"] for each in bill["components"]}

    assert bill["bomFormat"] == "CycloneDX"
    assert {"gunicorn", "orjson", "kubernetes", "cryptography"} <= named
    assert not {"pytest", "mypy", "ruff"} & named
