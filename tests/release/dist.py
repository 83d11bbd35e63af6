"""The files of a release: install.yaml, the chart, a plugin of kubectl with its manifest for krew, and others.

Those are a bill of materials, the image, and the checksums of all.

Two releases of one commit are equal to the byte: times are that of the commit.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.cluster.binaries import ROOT
from tests.release import chart, kustomized

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"gpu-webhook:{VERSION}"
"""The image that the manifests name."""


URL = "https://releases.example/gpu-webhook"
"""Where the files of a release are, unless it says so."""


def write(kubectl: Path, folder: Path, image: str = IMAGE, archives: Sequence[Path] = (), url: str = URL) -> None:
    """Write the files into a folder; objects are to run `image`, a name with a tag or a digest.

    `archives` are files that are there already, and get a checksum, too. All will be published below `url`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # What the image holds of other people's Python, by uv.lock, in CycloneDX.
    bill: dict[str, Any] = json.loads(_exported("--format=cyclonedx1.5", "--preview-features=sbom-export"))
    bill["metadata"]["timestamp"] = datetime.fromtimestamp(_committed(), UTC).isoformat()
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill["components"])).urn
    plugin = _plugin()
    made = {
        PLUGIN: plugin,
        "gpu.yaml": _manifest(f"{url}/{PLUGIN}", hashlib.sha256(plugin).hexdigest()).encode(),
        "install.yaml": kustomized.text(kubectl).replace(f"image: {IMAGE}\n", f"image: {image}\n").encode(),
        f"gpu-webhook-{VERSION}.tgz": _chart(kubectl, image),
        "sbom.cdx.json": json.dumps(bill, indent=2).encode(),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    summed = sorted([*(folder / name for name in made), *archives])
    (folder / "SHA256SUMS").write_text("".join(f"{_checksum(file)}  {file.name}\n" for file in summed))


def _exported(*options: str) -> str:
    """The locked packages of the installed programs, in a format of uv."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "export", "--locked", "--quiet", "--no-dev", "--no-emit-project", *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


PLUGIN = "kubectl-gpu.tar.gz"


def _plugin() -> bytes:
    """The command as krew installs it: without what only the server needs compiled, and with the rules beside it."""
    listed = subprocess.run(
        ["git", "ls-files", "webhook", "rules"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    metadata = f"Metadata-Version: 2.1\nName: gpu-webhook\nVersion: {VERSION}\n"
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("tests/release/kubectl-gpu", *listed.splitlines()):
            target = Path(scratch, name.removeprefix("tests/release/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        described = Path(scratch, f"gpu_webhook-{VERSION}.dist-info")
        described.mkdir()
        (described / "METADATA").write_text(metadata)
        requirements = _exported("--no-header", "--no-annotate", "--no-emit-package=gunicorn-h1c")
        Path(scratch, "requirements.txt").write_text(requirements)
        return _packed(Path(scratch), Path(scratch))


def _manifest(uri: str, digest: str) -> str:
    """The plugin as krew's index describes one (krew: docs/developer/plugin-manifest)."""
    written = Path(__file__).with_name("krew.yaml").read_text()
    return written.replace("VERSION", VERSION).replace("URI", uri).replace("DIGEST", digest)


def _checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _chart(kubectl: Path, image: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "gpu-webhook")
        chart.write(kubectl, folder)
        _name(folder / "values.yaml", image)
        return _packed(folder, folder.parent)


def _packed(folder: Path, base: Path) -> bytes:
    """A tar archive of a folder, the same for the same content, with paths from `base`."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(base)))
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            entry.size, entry.mtime, entry.mode = path.stat().st_size, _committed(), mode
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(written.getvalue(), mtime=0)


def _name(values: Path, image: str) -> None:
    """Write an image into the values of the chart."""
    if image == IMAGE:
        return
    named, _, digest = image.partition("@")
    registry, slash, last = named.rpartition("/")  # which may have a port
    name, _, tag = last.partition(":")
    repository = f"{registry}{slash}{name}"
    text = values.read_text().replace("  repository: gpu-webhook\n", f"  repository: {repository}\n")
    values.write_text(
        text.replace('  tag: ""\n', f'  tag: "{tag}"\n').replace('digest: ""\n', f'digest: "{digest}"\n')
    )


def _committed() -> int:
    """When the commit was made, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
