"""Runs a container from the image's root as a runtime does, with its user, a read-only root, and volumes."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.image.building import Image

UID = 65532

_ENTER = Path(__file__).with_name("enter.sh").read_text()


def command(
    image: Image,
    root: Path,
    arguments: Sequence[str],
    *,
    mounts: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """What starts the image's entrypoint, or a program that the arguments begin with: it begins with a slash."""
    mounts = mounts or {}
    for inside in mounts:
        point = root / inside.lstrip("/")
        assert point.resolve().is_relative_to(root.resolve()), f"{inside} leads out of the image"
        point.mkdir(parents=True, exist_ok=True)
    variables = [*image.config["Env"], *(f"{name}={value}" for name, value in (environment or {}).items())]
    entrypoint = [] if arguments[0].startswith("/") else image.config["Entrypoint"]
    return [
        *("unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, "sh"),
        *(str(root), str(len(mounts))),
        *(str(each) for inside, outside in mounts.items() for each in (outside, inside)),
        *variables,
        *(str(shutil.which("chroot")), f"--userspec={image.config['User']}", "--groups=", str(root)),
        *(*entrypoint, *arguments),
    ]


def give(folder: Path) -> None:
    """Let the user of the container own a folder and all files in it, as `fsGroup` and emptyDir do."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, UID)
