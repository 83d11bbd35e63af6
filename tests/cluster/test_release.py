"""`make release`: what it writes is complete, equal from run to run, and can be applied."""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests import readme
from tests.cluster.binaries import Binaries, helm
from tests.release import dist, kustomized
from webhook.cli.options import JUDGED_BY_DEMO

pytestmark = pytest.mark.cluster

IMAGE = "registry.example:5000/gpu-webhook@sha256:" + "0" * 64


@pytest.fixture(scope="module")
def released(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    image = folder / "image.oci.tar"  # tests/image has the real one
    image.write_bytes(b"layers")
    dist.write(programs.path("kubectl"), folder, IMAGE, [image])
    return folder


def test_it_has_seven_files_and_the_checksum_of_six(released: Path) -> None:
    names = {
        "gpu.yaml",
        dist.PLUGIN,
        "install.yaml",
        f"gpu-webhook-{dist.VERSION}.tgz",
        "sbom.cdx.json",
        "image.oci.tar",
    }
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


def test_the_manifest_of_the_plugin_is_what_krew_takes(released: Path) -> None:
    """What krew validates: internal/index/validation/validate.go. It installs it, tried with krew 0.4.3."""
    manifest = yaml.safe_load((released / "gpu.yaml").read_text())
    [platform] = manifest["spec"].pop("platforms")

    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["metadata"] == {"name": "gpu"}
    assert manifest["spec"].keys() <= {"version", "shortDescription", "description", "caveats", "homepage"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+", manifest["spec"]["version"])
    assert len(manifest["spec"]["shortDescription"]) <= 50
    assert platform == {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]},
        "uri": f"{dist.URL}/{dist.PLUGIN}",
        "sha256": hashlib.sha256((released / dist.PLUGIN).read_bytes()).hexdigest(),
        "bin": "kubectl-gpu",
    }


def test_the_plugin_explains_the_first_pod_with_the_packages_that_it_names(released: Path, tmp_path: Path) -> None:
    with tarfile.open(released / dist.PLUGIN) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    program, linked = tmp_path / "store" / "kubectl-gpu", tmp_path / "bin" / "kubectl-gpu"
    linked.parent.mkdir()
    linked.symlink_to(program)
    cache = tmp_path / "cache" / "gpu-webhook"
    cache.mkdir(parents=True)
    requirements = (tmp_path / "store" / "requirements.txt").read_bytes()
    digest = subprocess.run(["cksum"], input=requirements, capture_output=True, check=True).stdout.split()[0].decode()
    (cache / f"packages-{digest}").symlink_to(sys.prefix)  # the same packages, without asking a registry for them
    pod = readme.block("before", readme.README.read_text())

    ran, version = (
        subprocess.run(
            [linked, *arguments],
            input=pod,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(cache.parent)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        for arguments in (["explain", "-", "-o", "yaml"], ["--version"])
    )

    assert yaml.safe_load(ran.stdout) == yaml.safe_load(readme.block("after", readme.README.read_text()))
    assert ran.stderr == f"{JUDGED_BY_DEMO}\n"
    assert version.stdout == f"gpu-webhook {dist.VERSION}\n"
    assert b"orjson==" in requirements
    assert b"--hash=sha256:" in requirements
    assert not re.search(rb"^(gunicorn-h1c|pytest)==", requirements, re.MULTILINE)
