"""A pod that runs cannot be deleted so that it counts no more at once; while no replica answers, as at any time."""

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import create, gpu_pod, owner
from tests.cluster.waiting import until
from tests.cluster.webhook import register

pytestmark = pytest.mark.cluster

FORBIDDEN = http.client.FORBIDDEN
NODE = "gpu-7"
KUBELET = f"system:node:{NODE}"
COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
NEIGHBOUR = "system:serviceaccount:neighbour:default"
RUNNING = {"phase": "Running"}


def _on_a_node(made: Object) -> Object:
    return {**made, "spec": {**made["spec"], "nodeName": NODE}}


PODS: Mapping[str, tuple[Object, Object]] = {
    made["metadata"]["name"]: (made, status)
    for made, status in [
        (_on_a_node(gpu_pod("running")), RUNNING),
        (_on_a_node(gpu_pod("twice")), RUNNING),
        (_on_a_node(gpu_pod("starting")), {}),
        (_on_a_node(gpu_pod("succeeded")), {"phase": "Succeeded"}),
        (_on_a_node(gpu_pod("failed")), {"phase": "Failed"}),
        (gpu_pod("waiting"), {}),
        (_on_a_node(pod("without")), RUNNING),
    ]
}
_BEFORE = _on_a_node(gpu_pod("from-before"))
FROM_BEFORE = {**_BEFORE, "spec": {**_BEFORE["spec"], "terminationGracePeriodSeconds": 0}}
TENANTS = ("eve", "system:serviceaccount:bounded:default", NEIGHBOUR)
PLATFORM = (KUBELET, COLLECTOR, "system:kube-scheduler")


@pytest.fixture(scope="module")
def there(programs: Binaries) -> Iterator[Client]:
    """An administrator, in a tenant's namespace with pods that replicas have admitted; these are gone."""
    with control_plane(programs) as plane:
        world.define(plane.client)
        world.start_settler(plane)
        with world.attached_webhook(plane, "webhook") as webhook:
            register(plane.client, webhook)
            before = plane.client.in_namespace("neighbour")
            owner(before, "eve")
            create(before, FROM_BEFORE)
            before.patch(FROM_BEFORE, {"status": RUNNING}, subresource="status")
            for name in ("bounded", "warned", "neighbour"):
                action = "warn" if name == "warned" else "deny"
                plane.client.create(world.policy(name, name, quota={"devices": 9, "enforcementAction": action}))
                world.await_counted(plane.client.in_namespace(name), name, name)
            made, warned = plane.client.in_namespace("bounded"), plane.client.in_namespace("warned")
            for user in (*TENANTS, *PLATFORM):
                owner(made, user)
            create(made, *(planned for planned, _ in PODS.values()))
            for planned, status in PODS.values():
                made.patch(planned, {"status": status}, subresource="status")
            create(warned, PODS["running"][0])
            owner(warned, "eve")
        eve = made.with_rights_of("eve")
        until(partial(_is_refused, eve, "running"), "the policies are filled in")
        yield made


def _is_refused(client: Client, name: str) -> bool:
    return deleted(client, name)[0] == FORBIDDEN


def deleted(client: Client, name: str, seconds: int | None = 0, *, dry_run: bool = True) -> tuple[int, str]:
    """The code and the words, or the warnings, of an answer to a DELETE of one pod; of all pods if it has no name."""
    collection = client.collection(pod("any"))
    query = {"gracePeriodSeconds": str(seconds)} if seconds is not None else {}
    return _told(client, "DELETE", f"{collection}/{name}" if name else collection, None, query, dry_run=dry_run)


def evicted(client: Client, name: str, seconds: int | None = 0) -> tuple[int, str]:
    options = {} if seconds is None else {"deleteOptions": {"gracePeriodSeconds": seconds}}
    made = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": client.namespace}}
    return _told(client, "POST", client.path(pod(name), "eviction"), {**made, **options}, {}, dry_run=True)


def _told(
    client: Client, method: str, path: str, body: Object | None, query: Mapping[str, str], *, dry_run: bool
) -> tuple[int, str]:
    try:
        answer = client.send(method, path, body, query={**query, **({"dryRun": "All"} if dry_run else {})})
    except RefusedError as refused:
        return refused.code, str(refused)
    return http.client.OK, " ".join(answer.warnings)


@pytest.mark.parametrize("name", ["running", "starting"])
@pytest.mark.parametrize("user", TENANTS)
def test_a_tenant_does_not_delete_a_pod_that_may_run_at_once(there: Client, user: str, name: str) -> None:
    code, words = deleted(there.with_rights_of(user), name)

    assert code == FORBIDDEN
    assert words == (
        f"pods \"{name}\" is forbidden: ValidatingAdmissionPolicy 'gpu-webhook-deletions' with binding "
        "'gpu-webhook-deletions' denied request: [GPU117] a grace period of 0 would free the quota while the pod "
        "runs on: leave out --force, or grant 1 s or more; if the node of the pod is gone, ask an operator of the "
        "cluster to delete the pod"
    )


@pytest.mark.parametrize("seconds", [None, 1, 30])
def test_with_a_grace_period_it_does_and_evicts_too(there: Client, seconds: int | None) -> None:
    eve = there.with_rights_of("eve")

    assert [deleted(eve, "running", seconds), evicted(eve, "running", seconds)] == [(http.client.OK, "")] * 2


def test_nor_does_it_evict_one_at_once(there: Client) -> None:
    eve = there.with_rights_of("eve")

    code, words = evicted(eve, "running")

    assert (code, "[GPU117]" in words) == (FORBIDDEN, True), words
    assert evicted(there.with_rights_of(KUBELET), "running") == (http.client.OK, "")


@pytest.mark.parametrize("name", ["succeeded", "failed", "waiting", "without"])
def test_what_does_not_run_or_has_no_gpu_may_go_at_once(there: Client, name: str) -> None:
    assert deleted(there.with_rights_of("eve"), name) == (http.client.OK, "")


@pytest.mark.parametrize("user", PLATFORM)
def test_parts_of_kubernetes_delete_as_they_have_to(there: Client, user: str) -> None:
    assert deleted(there.with_rights_of(user), "running") == (http.client.OK, "")


def test_so_does_whoever_says_which_namespaces_are_whose(there: Client) -> None:
    assert deleted(there, "running") == (http.client.OK, "")


def test_a_pod_that_is_ending_is_not_hurried_away_but_by_its_kubelet(there: Client) -> None:
    eve, kubelet = there.with_rights_of("eve"), there.with_rights_of(KUBELET)

    assert deleted(eve, "twice", None, dry_run=False) == (http.client.OK, "")
    code, words = deleted(eve, "twice", dry_run=False)

    assert (code, "[GPU117]" in words, there.exists(pod("twice"))) == (FORBIDDEN, True, True), words
    assert deleted(kubelet, "twice", dry_run=False) == (http.client.OK, "")
    assert not there.exists(pod("twice"))


def test_nor_are_all_pods_of_a_namespace_deleted_at_once(there: Client) -> None:
    eve = there.with_rights_of("eve")

    code, words = deleted(eve, "")

    assert (code, "[GPU117]" in words) == (FORBIDDEN, True), words
    assert deleted(eve, "", None) == (http.client.OK, "")


def test_where_a_quota_only_warns_so_does_this(there: Client) -> None:
    warned = replace(there, namespace="warned").with_rights_of("eve")
    until(lambda: deleted(warned, "running")[1], "it warns")

    code, words = deleted(warned, "running")

    assert (code, "gpu-webhook-deletions-warn" in words, "[GPU117]" in words) == (http.client.OK, True, True), words


@pytest.mark.parametrize("name", ["from-before", ""])
@pytest.mark.parametrize("seconds", [None, 0, 1])
def test_a_pod_from_before_the_quota_that_has_no_time_to_end_may_go_as_its_kubelet_takes_no_longer(
    there: Client, name: str, seconds: int | None
) -> None:
    """The API server tells a policy that such a DELETE has a grace period of 0, if it does not say one."""
    eve = replace(there, namespace="neighbour").with_rights_of("eve")

    assert deleted(eve, name, seconds) == (http.client.OK, "")
