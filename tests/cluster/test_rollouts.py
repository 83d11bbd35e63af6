"""Replicas come and go while clients create pods."""

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.accounts import BASE
from tests.cluster.binaries import Binaries
from tests.cluster.installation import SERVING, servers
from tests.cluster.load import ASKING, CLIENTS, ORDINARY, Load
from tests.cluster.rollouts import Rollouts
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, configurations
from tests.laws import SOAK
from tests.results import Page

pytestmark = [pytest.mark.cluster, pytest.mark.large]

RESTARTS = 50 if SOAK else 3
FAILURES = 20 if SOAK else 1
PODS = (ASKING, ORDINARY)
TIMEOUT = configurations()[0]["webhooks"][0]["timeoutSeconds"]


@pytest.fixture(scope="module")
def rollouts(programs: Binaries) -> Iterator[Rollouts]:
    """The shipped manifests, on two API servers."""
    with ExitStack() as stack:
        installed = stack.enter_context(servers(programs))
        installed.lay_out()
        applied = installed.client.kubectl("apply", "--server-side", "-k", str(BASE))
        assert applied.returncode == 0, applied.stderr
        stack.enter_context(installed.issuer())
        until(lambda: installed.stored(SERVING), "the serving Secret", within=60)
        made = Rollouts(installed)
        stack.callback(made.close)
        made.scale()
        until(installed.works, "pods are rewritten through both API servers", within=60)
        yield made


def test_nobody_notices_that_replicas_are_replaced(rollouts: Rollouts, soaked: Page) -> None:
    with Load(rollouts.installed.clients, CLIENTS, PODS) as load:
        for _ in range(RESTARTS):
            rollouts.replace()
        rollouts.await_ends()
    soaked.add(f"- {RESTARTS} replicas replaced: {load.told()}")

    assert load.failures == []
    assert all(load.created[each["metadata"]["name"]] > 10 * RESTARTS for each in PODS)
    assert [code for code, _ in rollouts.ended] == [0] * RESTARTS


def test_whom_a_quota_counts_gets_every_pod_too(rollouts: Rollouts, soaked: Page) -> None:
    """A write of a ledger that comes too late is retried by clients; it happens where the API server lacks CPU."""
    settler = world.start_settler(rollouts.installed.planes[0], rules=ROOT / "rules")
    rollouts.installed.client.create(world.policy("others", "default"))
    rollouts.installed.client.create(world.policy("counted", "counted", quota={"devices": 1_000_000}))
    there = [client.in_namespace("counted") for client in rollouts.installed.clients]
    world.await_counted(rollouts.installed.client, "counted", "counted")
    ended = len(rollouts.ended)

    with Load(there, CLIENTS, (ASKING,), stored=True) as load:
        for _ in range(RESTARTS // 2):
            rollouts.replace()
        rollouts.await_ends()
    soaked.add(f"- {RESTARTS // 2} replicas replaced under a quota: {load.told()}")
    settler.stop()

    assert [each for each in load.failures if "[GPU111]" not in each] == []
    assert len(load.failures) <= load.created["asking"] / 100
    assert load.created["asking"] > 10 * RESTARTS
    assert [code for code, _ in rollouts.ended[ended:]] == [0] * (RESTARTS // 2)


OF_CALLS = 'failed calling webhook "(mutate|validate).gpu-webhook.io": .*'
CUT = "connection (reset by peer|refused)|broken pipe|EOF|server closed idle connection|closed network connection"
FAILING = {
    signal.SIGKILL: f"{OF_CALLS}({CUT})",
    signal.SIGSTOP: f"{OF_CALLS}({CUT}|context deadline exceeded)",
}
TRIES = 8
"""One new connection in three goes to the replica that is away: so many in a row are one in 6,561."""


@pytest.mark.parametrize("how", FAILING)
def test_a_replica_that_is_killed_or_hangs_fails_some_creates_that_succeed_when_tried_again(
    rollouts: Rollouts, how: signal.Signals, soaked: Page
) -> None:
    """API servers ask no other replica by themselves, and go on calling the dead one until its endpoint is gone."""
    for _ in range(FAILURES):
        with Load(rollouts.installed.clients, CLIENTS, PODS) as load:
            _creates_go_on(load)
            rollouts.fail(rollouts.pods[0], how)
            _creates_go_on(load)
            before = len(load.failures)
            _creates_go_on(load)
            assert load.failures[before:] == []
            rollouts.scale()
        soaked.add(f"- one of three replicas, {how.name}: {load.told()}")

        assert [each for each in load.failures if not re.search(FAILING[how], each)] == []
        assert len(load.failures) <= load.created["asking"] / 20
        assert load.in_a_row <= TRIES
        assert load.slowest < (TIMEOUT if how is signal.SIGKILL else 2 * TIMEOUT + 1)


def _creates_go_on(load: Load) -> None:
    """Await that each client has created some pods more."""
    wanted = load.created.total() + 12 * CLIENTS
    until(lambda: load.created.total() > wanted, "creates go on", within=60)
