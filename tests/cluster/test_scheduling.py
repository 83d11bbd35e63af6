"""Where pods land: the real scheduler binds a shorthand pod of each back end to the node that serves it."""

from pathlib import Path

import pytest

from tests.cluster import nodes, rules
from tests.cluster.client import Client
from tests.cluster.pools import FOLDER, Pool, pools
from tests.cluster.verdicts import await_refusals, await_running, await_unschedulable
from webhook.files import rule_files

pytestmark = pytest.mark.cluster

POOLS = pools()
ONE_EACH = list({pool.backend: pool for pool in POOLS}.values())


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_a_pod_waits_for_the_right_node_and_the_next_one_waits_again(scheduled: Client, pool: Pool) -> None:
    pool.prepare(scheduled)
    pool.add_wrong(scheduled)
    first = scheduled.create(pool.asking("first"))
    await_refusals(scheduled, first, pool.refusals)

    pool.add_right(scheduled)
    assert await_running(scheduled, first) == pool.right

    second = scheduled.create(pool.asking("second"))
    await_refusals(scheduled, second, pool.refusals_when_full)
    assert "nodeName" not in scheduled.get(second)["spec"]


@pytest.mark.parametrize("pool", ONE_EACH, ids=lambda pool: pool.backend)
def test_a_pool_scaled_to_zero_can_grow(scheduled: Client, pool: Pool) -> None:
    """Only an ordinary node is there: the pod is admitted and marked for the autoscaler, and the new node gets it."""
    nodes.add(scheduled, [nodes.node("ordinary")])
    pool.prepare(scheduled)
    waiting = scheduled.create(pool.asking("waiting"))
    await_unschedulable(scheduled, waiting)

    pool.add_right(scheduled)

    assert await_running(scheduled, waiting) == pool.right


def test_every_back_end_that_the_default_scheduler_serves_has_a_case(tmp_path: Path) -> None:
    enabled = rule_files.load(rules.with_every_back_end(tmp_path)).enabled

    theirs = {backend.name for backend in enabled if backend.inject.scheduler and backend.inject.scheduler.value}

    assert {path.stem for path in FOLDER.glob("*.yaml")} == {backend.name for backend in enabled} - theirs
