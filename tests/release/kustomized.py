"""What `kubectl kustomize` makes of manifests/base with components of manifests/components."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.binaries import ROOT

MANIFESTS = ROOT / "manifests"
COMPONENTS = sorted(path.parent.name for path in MANIFESTS.glob("components/*/kustomization.yaml"))
TOGETHER = [name for name in COMPONENTS if name not in {"own-certificates", "eks", "aks"}]
"""Those that do not exclude each other."""

Object = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text(kubectl: Path, components: Sequence[str] = ()) -> str:
    """The objects as YAML."""
    if not components:
        return _kustomize(kubectl, MANIFESTS / "base")
    with tempfile.TemporaryDirectory() as folder:
        overlay(Path(folder), components)
        return _kustomize(kubectl, Path(folder))


def objects(kubectl: Path, components: Sequence[str] = ()) -> list[Object]:
    """The objects, in the order in which they are applied."""
    return read(text(kubectl, components))


def read(stream: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [each for each in yaml.load_all(stream, _LOADER) if each]


def overlay(folder: Path, components: Sequence[str]) -> None:
    """A kustomization of the base with components, in another folder."""
    here = folder.resolve()
    named = {
        "resources": [os.path.relpath(MANIFESTS / "base", here)],
        "components": [os.path.relpath(MANIFESTS / "components" / each, here) for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(named))


def _kustomize(kubectl: Path, folder: Path) -> str:
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
