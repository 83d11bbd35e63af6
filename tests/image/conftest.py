"""The image of the working tree and its root, and the programs of a control plane for those who run it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import programs
from tests.image import building
from tests.missing import UnavailableError, announcing, skip_unless_ci

__all__ = ["programs"]


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> building.Image:
    """Built once; without CI=true, a machine that cannot build it skips these tests."""
    try:
        return building.find(announcing(request))
    except UnavailableError as reason:
        skip_unless_ci(f"no image: {reason}")


@pytest.fixture(scope="session")
def root(image: building.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's root file system; mount points are added to it, as runtimes do."""
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    image.unpack(folder)
    yield folder
    shutil.rmtree(folder)
