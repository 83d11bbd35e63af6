"""Fixtures of the rooms whose servers are attacked, and the figures of a soak."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import controllers, programs
from tests.laws import SOAK, dated
from tests.server.conftest import fraction

__all__ = ["controllers", "fraction", "programs"]

RESULTS = Path(__file__).with_name("SOAK.md")
HEAD = """# What the attacks have shown

Written by `make soak`: memory before and after, calls of API servers beside thousands of sockets, creates of a
bystander beside six attackers.

{when:%Y-%m-%d}, commit {commit}

"""

Figure = Callable[[str], None]


@pytest.fixture(scope="session")
def figures() -> list[str]:
    """Of all attacks so far."""
    return []


@pytest.fixture
def figure(figures: list[str], capsys: pytest.CaptureFixture[str]) -> Figure:
    """Takes a line for the log; a soak writes all of them down."""

    def add(line: str) -> None:
        figures.append(line)
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201 - a figure for the log
        if SOAK:
            RESULTS.write_text(_page(figures))

    return add


def _page(lines: list[str]) -> str:
    return dated(HEAD) + "".join(f"- {line}\n" for line in lines)
