"""Fixtures of the rooms whose servers are attacked, and the figures of a soak."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import controllers, programs
from tests.results import Page
from tests.server.conftest import fraction

__all__ = ["controllers", "fraction", "programs"]

RESULTS = Path(__file__).with_name("SOAK.md")
HEAD = """# What the attacks have shown

Written by `make soak`: memory before and after, calls of API servers beside thousands of sockets, creates of a
bystander beside six attackers, a million inputs that nobody meant.

{when:%Y-%m-%d}, commit {commit}

"""

Figure = Callable[[str], None]


@pytest.fixture(scope="session")
def page() -> Page:
    """Of all attacks so far."""
    return Page(RESULTS, HEAD)


@pytest.fixture
def figure(page: Page, capsys: pytest.CaptureFixture[str]) -> Figure:
    """Takes a line for the log and for the page of a soak."""

    def add(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201 - a figure for the log
        page.add(f"- {line}")

    return add
