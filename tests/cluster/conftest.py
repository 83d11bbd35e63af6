"""A control plane and a webhook for all tests of this folder, a second pair with nodes, a namespace for each test."""

import itertools
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster import binaries, nodes, rules
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.pods import pod
from tests.cluster.webhook import Webhook, register, running_webhook
from tests.missing import UnavailableError, announcing, skip_unless_ci
from tests.release import chart
from tests.results import Page

_numbers = itertools.count(1)

RESULTS = Path(__file__).with_name("SOAK.md")
HEAD = """\
# What the certificate program and the replicas have shown

Written by `make soak`: pods that 16 clients created through two API servers meanwhile, and what failed.

{when:%Y-%m-%d}, commit {commit}

"""


@pytest.fixture(scope="session")
def soaked() -> Page:
    """What rotations and rollouts have shown."""
    return Page(RESULTS, HEAD)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Binaries:
    """kube-apiserver and its company; without CI=true, a machine that cannot build them skips these tests."""
    try:
        return binaries.find(announcing(request))
    except UnavailableError as reason:
        skip_unless_ci(f"no control plane: {reason}")


@pytest.fixture(scope="session")
def charted(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Helm chart of this checkout."""
    folder = tmp_path_factory.mktemp("chart") / "gpu-webhook"
    chart.write(programs.path("kubectl"), folder)
    return folder


@pytest.fixture(scope="session")
def controllers(programs: Binaries) -> None:
    """For tests in which a Deployment makes pods."""
    if not programs.has_controllers:
        skip_unless_ci(f"{programs.folder} holds no {binaries.CONTROLLERS}")


@pytest.fixture(scope="session")
def plane(programs: Binaries) -> Iterator[ControlPlane]:
    with control_plane(programs, controllers=programs.has_controllers) as running:
        yield running


@pytest.fixture(scope="session")
def old_pod(plane: ControlPlane) -> dict[str, object]:
    """A pod from before the webhook was registered, which would be refused today; a finalizer holds it."""
    made = pod("old", labels={"gpu": "1.5"}, finalizers=["example.com/hold"])
    plane.client.create(made)
    return made


@pytest.fixture(scope="session")
def webhook(plane: ControlPlane, old_pod: dict[str, object]) -> Iterator[Webhook]:
    assert plane.client.exists(old_pod)
    with running_webhook(plane) as running:
        register(plane.client, running)
        yield running


@pytest.fixture
def cluster(plane: ControlPlane, webhook: Webhook) -> Client:
    """The cluster with the webhook enforced, in a namespace nobody else uses."""
    webhook.process.assert_running()
    return plane.client.in_namespace(f"test-{next(_numbers)}")


@pytest.fixture(scope="session")
def scheduling_plane(programs: Binaries) -> Iterator[ControlPlane]:
    """A control plane of its own: elsewhere a scheduler would bind, or mark, the pods of other tests."""
    if not programs.has_scheduling:
        skip_unless_ci(f"{programs.folder} lacks one of {', '.join(binaries.SCHEDULING)}")
    with control_plane(programs, controllers=True) as running:
        nodes.start_scheduling(running, programs)
        yield running


@pytest.fixture(scope="session")
def every_back_end(scheduling_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The webhook with all shipped back ends, registered where there is a scheduler."""
    folder = rules.with_every_back_end(tmp_path_factory.mktemp("rules"))
    with running_webhook(scheduling_plane, rules=folder) as running:
        register(scheduling_plane.client, running)
        yield running


@pytest.fixture
def scheduled(scheduling_plane: ControlPlane, every_back_end: Webhook) -> Iterator[Client]:
    """The cluster with a scheduler and every back end, in a namespace nobody else uses; nodes go with the test."""
    every_back_end.process.assert_running()
    client = scheduling_plane.client.in_namespace(f"scheduling-{next(_numbers)}")
    yield client
    nodes.clear(client)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the webhook printed stands under a test that failed."""
    report = yield
    used = getattr(item, "funcargs", {})
    if report.failed:
        logs = [webhook.process.tail() for webhook in used.values() if isinstance(webhook, Webhook)]
        report.sections.extend(("the webhook's log", log) for log in logs)
    return report
