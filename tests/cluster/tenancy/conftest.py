"""Three admission servers behind one address; and what the storms have shown, written down after `make soak`."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.plane import control_plane
from tests.cluster.processes import Process
from tests.cluster.tenancy import fleet
from tests.cluster.tenancy import town as towns
from tests.cluster.tenancy.crowd import Row
from tests.laws import SOAK
from tests.results import Page

TENANTS = 48 if SOAK else 16
"""As many as there are storms."""

RESULTS = Path(__file__).with_name("SOAK.md")
HEAD = """\
# What the storms have shown

Written by `make soak`. Every row is a storm on a real API server: so many creates by 64 clients through three
admission servers, how many were admitted, and how often somebody was told to come again; the most devices that live
pods ever held together, at any of so many versions of the cluster; what the admission servers counted of their
ledger: pods that were admitted against an advance, conflicts, recounts, and how long a review waited, on average (a
server that was killed has begun at nothing again).

{when:%Y-%m-%d}, commit {commit}

| storm | seed | creates | admitted | again | limit | held | versions | drawn | conflicts | recounts | ms | seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


@pytest.fixture(scope="module")
def served(programs: Binaries, controllers: None) -> Iterator[fleet.Fleet]:  # noqa: ARG001 - asked for what it checks
    """A control plane of its own: here servers are killed."""
    with control_plane(programs, controllers=True) as plane, fleet.running(plane, TENANTS) as running:
        yield running


@pytest.fixture(scope="package")
def town(programs: Binaries, controllers: None) -> Iterator[towns.Town]:  # noqa: ARG001 - as above
    """A control plane of its own, too: once there is a policy, who has none may use no GPU."""
    with control_plane(programs, controllers=True) as plane, towns.running(plane) as running:
        yield running


@pytest.fixture(scope="session")
def results() -> Callable[[Row], None]:
    """Takes the row of a storm; a soak writes all of them down."""
    page = Page(RESULTS, HEAD)
    return lambda row: page.add(f"| {' | '.join(map(str, row))} |")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the programs of a fleet printed stands under a test that failed, without the decisions."""
    report = yield
    if report.failed:
        for running in getattr(item, "funcargs", {}).values():
            if isinstance(running, fleet.Fleet):
                report.sections.extend((each.name, _messages(each)) for each in (running.settler, *running.replicas))
    return report


def _messages(process: Process) -> str:
    return "\n".join([line for line in process.log.read_text().splitlines() if '"decision"' not in line][-15:])
