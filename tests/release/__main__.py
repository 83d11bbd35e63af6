"""`make release`."""

import argparse
import sys
from pathlib import Path

from tests.cluster import binaries
from tests.image import building
from tests.missing import UnavailableError
from tests.release import dist


def main() -> None:
    """Write a release."""
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--image", default=dist.IMAGE, help="what the objects are to run (default: %(default)s)")
    parser.add_argument("--into", type=Path, default=binaries.ROOT / "dist", help="default: %(default)s")
    parser.add_argument("--url", default=dist.URL, help="where the files will be published (default: %(default)s)")
    given = parser.parse_args()
    try:
        archives = [building.archive(building.find(), given.into)]
    except UnavailableError as reason:
        sys.stderr.write(f"this release has no image archive: {reason}\n")
        archives = []
    dist.write(binaries.find().path("kubectl"), given.into, given.image, archives, given.url)


main()
