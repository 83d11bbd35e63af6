"""Pods come and go, by hand and by controllers, and what they held is free again at once."""

import time
from collections.abc import Collection
from typing import Any

import pytest

from tests.cluster.client import Client, RefusedError
from tests.cluster.pods import pod
from tests.cluster.tenancy.town import Town, create, delete_all, failures, gpu_pod, refusal
from tests.cluster.tenancy.world import GRACE
from tests.cluster.waiting import until

pytestmark = pytest.mark.cluster


def workload(kind: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """A Deployment or a StatefulSet whose pods hold one device each."""
    labels = {"app": "web"}
    made = gpu_pod("ignored")
    template = {"metadata": {**made["metadata"], "labels": {**made["metadata"]["labels"], **labels}}}
    template["metadata"].pop("name")
    template["spec"] = made["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


def pods_of(there: Client) -> dict[str, str]:
    """The pods there are, by UID."""
    return {each["metadata"]["uid"]: each["metadata"]["name"] for each in there.list(pod("any"))}


def await_pods(there: Client, count: int, *, but: Collection[str] = ()) -> set[str]:
    """Await so many pods beside some; the UIDs of all."""
    until(lambda: len(pods_of(there).keys() - set(but)) == count, f"there are {count} pods")
    return {*pods_of(there)}


def test_pods_that_are_deleted_in_bulk_make_room_at_once(town: Town) -> None:
    [there] = town.tenant("bulk", quota={"devices": 4})

    with town.watched(there) as witness:
        for _ in range(3):
            create(there, *(gpu_pod(f"p{number}") for number in range(4)))
            assert refusal(there, gpu_pod("one-more")).code == 403
            delete_all(there)

    assert witness.peak.devices == 4
    town.await_used("bulk", "0")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_end_make_room(town: Town, phase: str) -> None:
    [there] = town.tenant(f"ended-{phase.lower()}", quota={"devices": 1})
    [ended] = create(there, gpu_pod("one"))
    refusal(there, gpu_pod("two"))

    there.patch(ended, {"status": {"phase": phase}}, subresource="status")

    create(there, gpu_pod("two"))
    assert sorted(pods_of(there).values()) == ["one", "two"]


def test_a_stateful_set_that_uses_all_of_its_quota_gets_all_of_its_pods_back(town: Town) -> None:
    [there] = town.tenant("stateful", quota={"devices": 4})
    there.create(workload("StatefulSet", 4, serviceName="web", podManagementPolicy="Parallel"))
    before = await_pods(there, 4)

    with town.watched(there) as witness:
        delete_all(there)
        after = await_pods(there, 4, but=before)

    assert len(after) == 4
    assert failures(there) == []
    assert witness.peak.devices == 4


def test_a_deployment_that_uses_all_of_its_quota_is_rolled_out(town: Town) -> None:
    [there] = town.tenant("rolled", quota={"devices": 3})
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 3}}
    made = there.create(workload("Deployment", 3, strategy=strategy))
    before = await_pods(there, 3)

    with town.watched(there) as witness:
        there.patch(made, {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})
        after = await_pods(there, 3, but=before)

    assert len(after) == 3
    assert failures(there) == []
    assert witness.peak.devices == 3


def end_one(there: Client) -> bool:
    """Let one pod succeed that has not, as a kubelet would; whether there was any."""
    going = [each for each in there.list(pod("any")) if each["status"]["phase"] == "Pending"]
    for each in going[:1]:
        there.patch(
            {**each, "apiVersion": "v1", "kind": "Pod"}, {"status": {"phase": "Succeeded"}}, subresource="status"
        )
    return bool(going)


def test_a_job_runs_to_its_end_within_a_quota_that_its_first_pods_use_up(town: Town) -> None:
    [there] = town.tenant("job", quota={"devices": 2})
    template = {**workload("Job", 0)["spec"]["template"]}
    template["spec"] |= {"restartPolicy": "Never"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    spec = {"parallelism": 2, "completions": 6, "template": template}

    with town.watched(there) as witness:
        there.create({**job, "spec": spec})
        until(lambda: len(pods_of(there)) == 2, "the first two are there")
        until(
            lambda: not end_one(there) and there.get(job)["status"].get("succeeded") == 6, "all of it has succeeded"
        )

    assert failures(there) == []
    assert witness.peak.devices == 2
    town.await_used("job", "0")


def test_a_namespace_that_is_deleted_makes_room_for_the_others_and_may_be_made_again(town: Town) -> None:
    here, there = town.tenant("emptied", namespaces=2, quota={"devices": 2})
    create(here, gpu_pod("one"), gpu_pod("two"))
    refusal(there, gpu_pod("one"))

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "emptied-a"}}
    town.client.delete(namespace)
    until(lambda: not pods_of(here), "its pods are gone")

    create(there, gpu_pod("one"), gpu_pod("two"))
    town.await_used("emptied", "2")
    until(lambda: not town.client.exists(namespace), "it is gone")
    town.client.in_namespace("emptied-a")
    assert refusal(here, gpu_pod("one")).code == 403
    there.delete(pod("one"))
    create(here, gpu_pod("one"))


def test_pods_of_a_namespace_made_a_moment_ago_wait_for_nothing(town: Town) -> None:
    town.tenant("fresh", quota={"devices": 1})  # its first namespace has waited for longer than GRACE
    began = time.monotonic()

    there = town.client.in_namespace("fresh-new")
    create(there, gpu_pod("one"))

    assert time.monotonic() - began < GRACE
    assert refusal(there, gpu_pod("two")).code == 403


def test_a_create_on_dry_run_is_judged_and_reserves_nothing(town: Town) -> None:
    [there] = town.tenant("dry", quota={"devices": 1})

    for number in range(3):
        there.create(gpu_pod(f"p{number}"), dry_run=True)
    with pytest.raises(RefusedError, match="uses 0, asks 2, limit 1 device"):
        there.create(gpu_pod("many", "2"), dry_run=True)

    create(there, gpu_pod("one"))
    town.await_used("dry", "1")


def test_a_native_resource_quota_counts_the_same_whole_cards(town: Town) -> None:
    [there] = town.tenant("native", quota={"devices": 8})
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "cards"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    there.create(quota)

    create(there, gpu_pod("one"), gpu_pod("two", "2"), gpu_pod("three", "3"))
    there.delete(pod("two"))

    town.await_used("native", "4")
    until(lambda: there.get(quota)["status"].get("used") == {"requests.nvidia.com/gpu": "4"}, "Kubernetes agrees")
