"""`python -m tests.image` builds the image and writes it as an archive into dist/."""

import sys

from tests.image import building
from tests.missing import UnavailableError


def main() -> int:
    """Build and write; says what it is called, and how large it is."""
    try:
        image = building.find()
    except UnavailableError as reason:
        sys.stderr.write(f"no image: {reason}\n")
        return 1
    file = building.archive(image, building.ROOT / "dist")
    print(f"{file.relative_to(building.ROOT)}  {image.compressed / 2**20:.0f} MiB  {image.digest}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
