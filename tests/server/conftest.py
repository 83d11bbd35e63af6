import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.reviews import fraction_review, plain_review
from tests.server.peer import Peer
from tests.server.process import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that leave it as it was."""
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with contextlib.closing(server.connect()) as connected:
        yield connected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For the server that a test starts for itself."""
    return tmp_path / "server"


@pytest.fixture(scope="session")
def fraction() -> bytes:
    """A review of a pod that asks for a part of a GPU."""
    return fraction_review()


@pytest.fixture(scope="session")
def plain() -> bytes:
    """A review of a pod without a GPU."""
    return plain_review()
