"""The files of a release: install.yaml, the chart, a bill of materials, the image, and their checksums.

Two releases of one commit are equal to the byte: times are that of the commit.
"""

import gzip
import hashlib
import io
import json
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


def write(kubectl: Path, folder: Path, image: str = IMAGE, archives: Sequence[Path] = ()) -> None:
    """Write the files into a folder; objects are to run `image`, a name with a tag or a digest.

    `archives` are files that are there already, and get a checksum, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # What the image holds of other people's Python, by uv.lock, in CycloneDX.
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "export", "--locked", "--quiet", "--no-dev", "--no-emit-project", "--format=cyclonedx1.5"]
    said = subprocess.run(
        [*command, "--preview-features=sbom-export"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    bill: dict[str, Any] = json.loads(said)
    bill["metadata"]["timestamp"] = datetime.fromtimestamp(_committed(), UTC).isoformat()
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill["components"])).urn
    made = {
        "install.yaml": kustomized.text(kubectl).replace(f"image: {IMAGE}\n", f"image: {image}\n").encode(),
        f"gpu-webhook-{VERSION}.tgz": _chart(kubectl, image),
        "sbom.cdx.json": json.dumps(bill, indent=2).encode(),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    summed = sorted([*(folder / name for name in made), *archives])
    (folder / "SHA256SUMS").write_text("".join(f"{_checksum(file)}  {file.name}\n" for file in summed))


def _checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _chart(kubectl: Path, image: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "gpu-webhook")
        chart.write(kubectl, folder)
        _name(folder / "values.yaml", image)
        # A tar archive of a folder, the same for the same content.
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = tarfile.TarInfo(str(path.relative_to(folder.parent)))
                entry.size, entry.mtime, entry.mode = path.stat().st_size, _committed(), 0o644
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
