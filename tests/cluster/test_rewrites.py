"""A request for a GPU comes out of the API server in the words of a back end, wherever in a pod it stands.

The shipped rules serve whole devices with `nvidia-gpu` and shares with `hami-vgpu`.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import tables
from tests.cluster.client import Client, RefusedError
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import VALIDATE, calls

pytestmark = pytest.mark.cluster

SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "30", "nvidia.com/gpucores": "30"}


def _both(quantities: Mapping[str, str]) -> dict[str, Any]:
    """Resources as stored: extended resources are requested as they are limited."""
    return {"limits": quantities, "requests": quantities}


@tables.rows
def test_every_way_of_asking_ends_in_the_back_ends_words(
    cluster: Client, asking: dict[str, Any], given: dict[str, str]
) -> None:
    stored = cluster.create(pod("asking", **asking))

    assert stored["spec"]["containers"][0]["resources"] == _both(given)


def test_the_stored_pod_notes_what_was_done(cluster: Client) -> None:
    stored = cluster.create(pod("asking", labels={"gpu": "0.3"}))

    assert stored["metadata"]["labels"] == {"gpu": "0.3"}
    assert stored["metadata"]["annotations"]["gpu-webhook.io/translated"] == "gpu=0.3 -> hami-vgpu"


def test_other_resources_of_the_container_stay(cluster: Client) -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi", "gpu": "0.3"}, "requests": {"cpu": "1"}}

    stored = cluster.create(pod("asking", containers=[container("main", resources=resources)]))

    assert stored["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi", **SHARE},
        "requests": {"cpu": "1", "memory": "1Gi", **SHARE},
    }


@pytest.mark.usefixtures("controllers")
@tables.rows
def test_a_deployments_pods_are_rewritten_and_no_second_replica_set_appears(
    cluster: Client, labels: dict[str, str], resources: dict[str, Any]
) -> None:
    template = pod("ignored", labels={"app": "web", **labels}, containers=[container("main", resources=resources)])
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
        },
    }
    cluster.create(deployment)

    def both() -> list[dict[str, Any]]:
        found = cluster.list(template, labelSelector="app=web")
        return found if len(found) == 2 else []

    for made in until(both, "the Deployment has two pods"):
        assert made["spec"]["containers"][0]["resources"] == _both(SHARE)
    assert len(cluster.list({"apiVersion": "apps/v1", "kind": "ReplicaSet"})) == 1


def test_an_init_container_is_rewritten(cluster: Client) -> None:
    asking = pod("asking", initContainers=[container("init", resources=limits(gpu="0.3"))])

    stored = cluster.create(asking)

    assert stored["spec"]["initContainers"][0]["resources"] == _both(SHARE)
    assert stored["spec"]["containers"][0]["resources"] == {}


def test_a_sidecar_is_rewritten(cluster: Client) -> None:
    sidecar = container("sidecar", restartPolicy="Always", resources=limits(gpu="0.3"))

    stored = cluster.create(pod("asking", initContainers=[sidecar]))

    assert stored["spec"]["initContainers"][0]["resources"] == _both(SHARE)
    assert stored["spec"]["initContainers"][0]["restartPolicy"] == "Always"


def test_a_debug_container_can_join_a_gpu_pod_and_gets_none(cluster: Client) -> None:
    asking = cluster.create(pod("asking", labels={"gpu": "0.3"}))
    before = calls(cluster)

    done = cluster.kubectl("debug", "asking", "--image=none", "--container=debugger", "--attach=false")

    assert done.returncode == 0, done.stderr
    joined = cluster.get(asking)
    assert [debugger["name"] for debugger in joined["spec"]["ephemeralContainers"]] == ["debugger"]
    assert "limits" not in joined["spec"]["ephemeralContainers"][0].get("resources", {})
    assert joined["spec"]["containers"][0]["resources"] == _both(SHARE)
    assert calls(cluster)[VALIDATE] == before[VALIDATE] + 1


def test_the_cpu_of_a_gpu_pod_can_be_resized(cluster: Client) -> None:
    resources = {"limits": {"cpu": "1", "gpu": "0.3"}}
    asking = cluster.create(pod("asking", containers=[container("main", resources=resources)]))
    before = calls(cluster)

    asking["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    resized = cluster.update(asking, subresource="resize")

    assert resized["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", **SHARE}
    assert calls(cluster)[VALIDATE] == before[VALIDATE] + 1


def test_a_generated_name_is_no_obstacle(cluster: Client) -> None:
    asking = pod("asking", labels={"gpu": "0.3"})
    asking["metadata"]["generateName"] = f"{asking['metadata'].pop('name')}-"

    stored = cluster.create(asking)

    assert stored["metadata"]["name"].startswith("asking-")
    assert stored["spec"]["containers"][0]["resources"] == _both(SHARE)


def test_server_side_apply_creates_it_and_applying_again_changes_nothing(cluster: Client) -> None:
    asking = pod("asking", labels={"gpu": "0.3"})

    first = cluster.apply(asking)
    second = cluster.apply(asking)

    assert first["spec"]["containers"][0]["resources"] == _both(SHARE)
    assert second == first


def test_what_comes_out_can_go_in_again(cluster: Client) -> None:
    first = cluster.create(pod("first", labels={"gpu": "0.3"}))
    metadata = {key: first["metadata"][key] for key in ("labels", "annotations")}

    second = cluster.create({**first, "metadata": {"name": "second", **metadata}, "status": {}})

    assert second["spec"] == first["spec"]
    assert second["metadata"]["annotations"] == first["metadata"]["annotations"]


def test_other_labels_of_a_gpu_pod_change_in_silence(cluster: Client) -> None:
    stored = cluster.create(pod("asking", labels={"gpu": "0.3"}))

    changed = cluster.patch(stored, {"metadata": {"labels": {"team": "vision"}}})

    assert changed["metadata"]["labels"] == {"gpu": "0.3", "team": "vision"}
    assert changed.warnings == ()


def test_a_new_shorthand_on_an_old_pod_is_refused(cluster: Client) -> None:
    stored = cluster.create(pod("asking", labels={"gpu": "0.3"}))

    with pytest.raises(RefusedError, match="keeps the GPU that it was created with"):
        cluster.patch(stored, {"metadata": {"labels": {"gpu": "2"}}})
