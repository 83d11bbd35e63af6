"""The image of the working tree and its root, and the programs of a control plane for those who run it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import programs
from tests.image import building
from tests.image.building import Image

__all__ = ["programs"]


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Image:
    """Built once; without CI=true, a machine that cannot build it skips these tests."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def announce(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", flush=True)  # noqa: T201  two silent minutes would look like a hang

    try:
        return building.find(announce)
    except building.UnavailableError as reason:
        if os.environ.get("CI"):
            pytest.fail(f"no image: {reason}")
        pytest.skip(f"no image: {reason}")


@pytest.fixture(scope="session")
def root(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's root file system; mount points are added to it, as runtimes do."""
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    image.unpack(folder)
    yield folder
    shutil.rmtree(folder)
