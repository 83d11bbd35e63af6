"""File systems of Debian packages and nothing else, made by mmdebstrap: no registry of images is needed.

Packages are unpacked and not configured: their scripts would need a shell, and it would stay in the image. Security
updates are in it; times are zero, so that the same packages make the same bytes.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SUITE = "trixie"

PYTHON = ("base-files", "python3")
COMPILER = (*PYTHON, "libpython3-dev", "gcc", "libc6-dev")

# Where scanners of images look for packages if dpkg has installed none.
_RECORD = (
    "mkdir -p var/lib/dpkg/status.d; for deb in var/cache/apt/archives/*.deb; do"
    ' dpkg-deb --field "$deb" > "var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"; done'
)
# mmdebstrap copies two files of this machine; texts in other languages are read by nobody.
_SLIM = "rm -rf etc/resolv.conf etc/hostname usr/share/locale"
# Most of a compiler's bytes are of no use to one extension in C.
_SLIM_COMPILER = (
    "rm -rf usr/share usr/bin/*lto-dump* usr/libexec/gcc/*/*/lto1 usr/lib/python3*/config-*/*.a usr/lib/*/lib*san.*"
)

CONTENTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "python": (PYTHON, f"{_SLIM}; {_RECORD}"),
    "compiler": (COMPILER, f"{_SLIM}; {_SLIM_COMPILER}"),
}
"""What is made, by name: packages with all that they depend on, and what is done before it is packed."""


def start(name: str, archive: Path) -> subprocess.Popen[bytes]:
    """Start to make one of CONTENTS as a tar archive."""
    packages, hook = CONTENTS[name]
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        f"--include={','.join(packages)}",
        f'--extract-hook=set -e; cd "$1"; {hook}',
        SUITE,
        str(archive),
    ]
    return subprocess.Popen(command, env={**os.environ, "SOURCE_DATE_EPOCH": "0"}, stdout=subprocess.DEVNULL)
