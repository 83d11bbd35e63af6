"""What a pod with a GPU counts by cannot change once it is stored; all the rest can, and by whom it may."""

import re

import pytest

from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.pods import container, limits, pod

pytestmark = pytest.mark.cluster

GPU = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}
HAMI = "system:serviceaccount:kube-system:hami-scheduler"
BINDER = "system:serviceaccount:kai-scheduler:binder"


def _change(client: Client, stored: Object, section: str, **values: str | None) -> str:
    """Whose change is refused, of these labels or annotations; nothing if it is made."""
    try:
        client.patch(stored, {"metadata": {section: values}})
    except RefusedError as refusal:
        found = re.search(r"\[GPU109\] the (.*) of a pod with a GPU cannot change", str(refusal))
        return found[1] if found else str(refusal)
    return ""


def test_what_was_asked_in_shorthand_stays_and_the_rest_may_change(cluster: Client) -> None:
    stored = cluster.create(pod("shared", labels={"gpu-memory": "8Gi", "team": "a"}))

    assert _change(cluster, stored, "labels", **{"gpu-memory": "1Gi"}) == "label gpu-memory"
    assert _change(cluster, stored, "labels", **{"gpu-memory": None}) == "label gpu-memory"
    for key in ("gpu-webhook.io/card", "gpu-webhook.io/memory", "memory.gpu-webhook.io/main"):
        assert _change(cluster, stored, "annotations", **{key: "1Gi"}) == f"annotation {key}"
    assert _change(cluster, stored, "labels", **{"team": "b", "gpu-vendor": "acme"}) == ""
    theirs = {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,81920,100:;", "hami.io/bind-time": "1"}
    assert _change(cluster, stored, "annotations", **theirs) == "annotation hami.io/bind-time"
    assert _change(cluster.acting_as(HAMI), stored, "annotations", **theirs) == ""
    assert _change(cluster, stored, "annotations", **{"nvidia.com/vgpu-mode": "mig"}).endswith("vgpu-mode")
    gone = dict.fromkeys(theirs)
    assert _change(cluster, stored, "annotations", **gone) == "annotation hami.io/bind-time"
    assert cluster.get(stored)["metadata"]["labels"]["gpu-memory"] == "8Gi"


def test_own_words_are_guarded_without_any_shorthand_on_the_pod(cluster: Client) -> None:
    stored = cluster.create(pod("own", containers=[container("main", resources=limits(**GPU))]))

    assert _change(cluster, stored, "labels", **{"gpu-model": "T4"}) == "label gpu-model"
    assert _change(cluster, stored, "labels", gpu="true") == ""
    assert _change(cluster, stored, "labels", gpu="maybe") == ""


def test_a_pod_without_a_gpu_may_change_and_lose_its_finalizers(cluster: Client) -> None:
    stored = cluster.create(pod("none", labels={"gpu": "none"}, finalizers=["example.com/hold"]))

    assert _change(cluster, stored, "labels", gpu="0.5") == ""
    cluster.delete(stored)
    cluster.patch(stored, {"metadata": {"finalizers": None}})
    assert not cluster.exists(stored)


def test_only_a_part_of_the_back_end_changes_what_the_back_end_is_asked_in(scheduled: Client) -> None:
    stored = scheduled.create(pod("kai", annotations={"gpu-fraction": "0.5"}, schedulerName="kai-scheduler"))
    less = {"gpu-fraction": "0.25"}

    assert _change(scheduled, stored, "annotations", **less) == "annotation gpu-fraction"
    other = scheduled.acting_as("system:serviceaccount:team:binder")
    assert _change(other, stored, "annotations", **less) == "annotation gpu-fraction"
    more = {"nvidia.com/container.main.gpu-memory.request": "70Gi"}
    assert _change(other, stored, "annotations", **more) == f"annotation {next(iter(more))}"
    binder = scheduled.acting_as(BINDER)
    assert _change(binder, stored, "annotations", **more) == ""
    assert _change(binder, stored, "annotations", **{"received-resource-type": "Fraction"}) == ""
    assert _change(binder, stored, "annotations", **less) == ""
    assert _change(binder, stored, "labels", **{"gpu-model": "T4"}) == "label gpu-model"
