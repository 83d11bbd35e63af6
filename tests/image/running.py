"""Runs a container from the image's root as a runtime does, with its user, a read-only root, and volumes."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.image.building import Image

UID = 65532

_ENTER = """
set -eu
root=$1 mounts=$2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
shift 2
while [ "$mounts" -gt 0 ]; do
    mount --bind "$1" "$root$2"
    mounts=$((mounts - 1))
    shift 2
done
mount -o remount,bind,ro "$root"
exec env -i "$@"
"""


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
