"""`make release`."""

import argparse
from pathlib import Path

from tests.cluster import binaries
from tests.release import dist


def main() -> None:
    """Write a release."""
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--image", default=dist.IMAGE, help="what the objects are to run (default: %(default)s)")
    parser.add_argument("--into", type=Path, default=binaries.ROOT / "dist", help="default: %(default)s")
    given = parser.parse_args()
    dist.write(binaries.find().path("kubectl"), given.into, given.image)


main()
