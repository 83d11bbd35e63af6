"""Builds the image of the working tree with buildah, and keeps it in the user's cache under a name of its content.

The bases are made once a day: a release has the security updates of its day, and two builds have the same base.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.image import debian
from tests.missing import Announce, UnavailableError

ROOT = Path(__file__).parents[2]
CONTAINERFILE = "manifests/image/Containerfile"
SOURCES = ("pyproject.toml", "uv.lock", "README.md", "webhook", "certs", "manifests/image")
TOOLS = ("buildah", "mmdebstrap")
NAME = "gpu-webhook"


@dataclass(frozen=True, slots=True)
class Image:
    """An image as an OCI layout: a folder of blobs, each named by its digest."""

    layout: Path

    @property
    def digest(self) -> str:
        """What a registry would call it."""
        return str(self._json(self.layout / "index.json")["manifests"][0]["digest"])

    @property
    def config(self) -> dict[str, Any]:
        """User, entrypoint, environment: what a runtime is told."""
        return dict(self._json(self._blob(self._manifest["config"]))["config"])

    @property
    def compressed(self) -> int:
        """The bytes that a node pulls."""
        return sum(layer["size"] for layer in self._manifest["layers"])

    def unpack(self, folder: Path) -> None:
        """Write the root file system into a folder; it takes root to own files as the image says."""
        for layer in self._manifest["layers"]:
            with tarfile.open(self._blob(layer)) as archive:
                archive.extractall(folder, filter="tar")

    @property
    def _manifest(self) -> dict[str, Any]:
        return self._json(self.layout / "blobs" / self.digest.replace(":", "/"))

    def _blob(self, described: dict[str, Any]) -> Path:
        return self.layout / "blobs" / str(described["digest"]).replace(":", "/")

    def _json(self, file: Path) -> dict[str, Any]:
        return dict(json.loads(file.read_text()))


def require_tools() -> None:
    """Raise UnavailableError where the image cannot be built."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise UnavailableError(f"no {' and no '.join(missing)} here (Debian: apt-get install {' '.join(missing)})")
    if os.geteuid() != 0:
        raise UnavailableError("buildah and mmdebstrap are run by root here, and this is another user")


def find(announce: Announce = print) -> Image:
    """The image of the working tree, built now if there is none yet."""
    require_tools()
    cache = _cache()
    with _alone(cache / "lock"):
        store = bases(announce)
        layout = cache / _digest(store)
        if not layout.is_dir():
            announce("building the image: about two minutes, the first time only")
            _forget(cache, keep=store)
            build(store, layout)
        return Image(layout)


def bases(announce: Announce = print) -> Path:
    """A store of buildah with the images that the Containerfile begins with, those of today."""
    cache = _cache()
    told = repr((debian.SUITE, debian.CONTENTS, (ROOT / ".ci" / "uv.txt").read_text(), datetime.now(UTC).date()))
    store = cache / f"bases-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if store.is_dir():
        return store
    announce("making the image's bases of Debian packages: about a minute, once a day")
    for old in cache.glob("bases-*"):
        shutil.rmtree(old)
    with tempfile.TemporaryDirectory(prefix="debian-", dir=cache) as scratch:
        _make_bases(Path(scratch), Path(scratch, "store"))
        Path(scratch, "store").rename(store)
    return store


def build(store: Path, layout: Path) -> Image:
    """Build the image of the working tree on the bases of a store, into a folder; all packages are fetched anew."""
    with tempfile.TemporaryDirectory(prefix="image-", dir=store.parent) as scratch:
        context = Path(scratch, "context")
        _copy_sources(context)
        _buildah(
            store,
            "bud",
            "--isolation=chroot",
            "--identity-label=false",
            f"--timestamp={committed()}",
            *(f"--build-arg={stage.upper()}=localhost/{stage}" for stage in ("base", "builder", "uv")),
            *_authorities(),
            f"--tag={NAME}",
            f"--file={context / CONTAINERFILE}",
            str(context),
        )
        _buildah(store, "push", f"localhost/{NAME}", f"oci:{scratch}/layout:{NAME}")
        _buildah(store, "rm", "--all")
        _buildah(store, "rmi", f"localhost/{NAME}")
        Path(scratch, "layout").rename(layout)
    return Image(layout)


def archive(image: Image, folder: Path) -> Path:
    """Write the image as one file that `podman load` and `ctr images import` read, the same for the same image."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    file = folder / f"gpu-webhook-{version}.oci.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as written:
        for path in sorted(path for path in image.layout.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(image.layout)))
            entry.size, entry.mtime, entry.mode = path.stat().st_size, committed(), 0o644
            with path.open("rb") as content:
                written.addfile(entry, content)
    return file


def committed() -> int:
    """When the commit was made, in seconds since 1970."""
    return int(_run(["git", "log", "-1", "--format=%ct"]))


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-webhook" / "image"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _make_bases(scratch: Path, store: Path) -> None:
    made = {name: debian.start(name, scratch / f"{name}.tar") for name in debian.CONTENTS}
    shutil.copy(Path(sys.executable).with_name("uv"), scratch / "uv")
    _commit(store, "uv", "COPY uv /uv", scratch)
    for image, name in (("base", "python"), ("builder", "compiler")):
        if made[name].wait() != 0:
            raise UnavailableError(f"mmdebstrap cannot make {name}.tar")
        _commit(store, image, f"ADD {name}.tar /", scratch)


def _commit(store: Path, name: str, content: str, context: Path) -> None:
    """Make an image of one layer."""
    recipe = context / "Containerfile"
    recipe.write_text(f"FROM scratch\n{content}\n")
    options = ("--isolation=chroot", "--identity-label=false", "--timestamp=0")
    _buildah(store, "bud", *options, f"--tag={name}", f"--file={recipe}", str(context))


def _buildah(store: Path, command: str, *words: str) -> None:
    """Run buildah with a store of its own: images and settings of this machine are neither seen nor changed."""
    policy = store.with_name("policy.json")
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    verify = [f"--signature-policy={policy}"] if command in {"bud", "push"} else []
    _run(["buildah", "--storage-driver=vfs", f"--root={store}", f"--runroot={store}/run", command, *verify, *words])


def _authorities() -> list[str]:
    """The certificate authorities of a network that has some of its own."""
    if file := os.environ.get("SSL_CERT_FILE"):
        return [f"--secret=id=authorities,src={file}", "--build-arg=SSL_CERT_FILE=/run/secrets/authorities"]
    return []


def _digest(store: Path) -> str:
    """Of everything that the image is made of."""
    digest = hashlib.sha256(f"{store.name} {committed()}".encode())
    for file in _sources():
        digest.update(f"\0{file}\0".encode() + (ROOT / file).read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[str]:
    """The files of the build, of the working tree; what git ignores is none of them."""
    listed = _run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCES])
    yield from sorted(file for file in listed.split("\0") if file and (ROOT / file).is_file())


def _copy_sources(folder: Path) -> None:
    for file in _sources():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes((ROOT / file).read_bytes())
        (folder / file).chmod(0o644)


def _forget(cache: Path, keep: Path) -> None:
    """Remove the images of other commits."""
    for old in cache.iterdir():
        if old.is_dir() and old != keep:
            shutil.rmtree(old)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise UnavailableError(f"{' '.join(command[:6])} ... failed:\n{said}")
    return done.stdout
