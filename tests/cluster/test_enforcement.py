"""When the API server asks us, when it does not, and what it stores, however pods are rewritten."""

from typing import Any

import pytest

from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import ControlPlane
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import MUTATE, VALIDATE, Webhook, calls

pytestmark = pytest.mark.cluster

SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "namespace", "managedFields", "generation")


def _as_written(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored pod without what the API server sets anew each time."""
    metadata = {key: value for key, value in stored["metadata"].items() if key not in SERVER_FIELDS}
    return {**stored, "metadata": metadata}


def test_a_pod_without_a_gpu_is_stored_as_if_we_were_not_there_and_we_are_not_called(cluster: Client) -> None:
    ordinary = pod(
        "ordinary",
        labels={"app": "web"},
        annotations={"example.com/note": "a\nb"},
        containers=[container("main", resources=limits(cpu="1"), env=[{"name": "A", "value": "b"}])],
        initContainers=[container("init")],
    )
    before = calls(cluster)

    stored = cluster.create(ordinary)

    exempt = cluster.in_namespace("kube-system").create(ordinary)
    assert _as_written(stored) == _as_written(exempt)
    assert stored.warnings == ()
    assert calls(cluster) == before


def test_every_create_of_a_gpu_pod_is_seen_by_both(cluster: Client) -> None:
    before = calls(cluster)

    cluster.create(pod("seen", labels={"gpu": "1"}))

    after = calls(cluster)
    assert after[MUTATE] > before[MUTATE]
    assert after[VALIDATE] > before[VALIDATE]


def test_an_update_that_takes_the_only_trace_of_a_gpu_away_is_seen(cluster: Client) -> None:
    labelled = cluster.create(pod("labelled", labels={"gpu": "none"}))
    before = calls(cluster)

    bare = cluster.patch(labelled, {"metadata": {"labels": {"gpu": None}}})
    cluster.patch(bare, {"metadata": {"labels": {"app": "web"}}})

    assert calls(cluster) == {**before, VALIDATE: before[VALIDATE] + 1}


def test_a_dry_run_is_answered_like_a_create_and_stores_nothing(cluster: Client) -> None:
    asking = pod("asking", labels={"gpu": "0.3"})

    tried = cluster.create(asking, dry_run=True)

    assert not cluster.exists(asking)
    stored = cluster.create(asking)
    assert tried["spec"] == stored["spec"]
    assert _as_written(tried) == _as_written(stored)
    assert tried.warnings == stored.warnings


def test_a_dry_run_is_refused_like_a_create(cluster: Client) -> None:
    asking = pod("asking", labels={"gpu": "1.5"})
    refusals = []
    for dry_run in (True, False):
        with pytest.raises(RefusedError) as refused:
            cluster.create(asking, dry_run=dry_run)
        refusals.append((refused.value.code, refused.value.status))

    assert refusals[0] == refusals[1]
    assert not cluster.exists(asking)


def test_an_old_pod_that_would_be_refused_today_can_be_cleaned_up(
    plane: ControlPlane, webhook: Webhook, old_pod: dict[str, Any]
) -> None:
    client = plane.client
    with pytest.raises(RefusedError):
        client.create({**old_pod, "metadata": {**old_pod["metadata"], "name": "new"}})
    webhook.process.assert_running()
    before = calls(client)

    client.patch(old_pod, {"metadata": {"annotations": {"example.com/seen": "yes"}}})
    client.delete(old_pod)
    client.patch(old_pod, {"metadata": {"finalizers": None}})

    until(lambda: not client.exists(old_pod), "the old pod is gone")
    assert calls(client)[VALIDATE] == before[VALIDATE] + 1  # the finalizers concern nobody here
