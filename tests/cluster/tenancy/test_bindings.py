"""Binding a pod, and writing its status, change labels and annotations too: not those that a GPU counts by."""

import re

import pytest

from tests.cluster.client import Answer, Client, Object, RefusedError
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy.town import Town, create

pytestmark = pytest.mark.cluster

BINDER = "system:serviceaccount:kai-scheduler:binder"


def binding(stored: Object, *, uid: bool = True, **metadata: dict[str, str]) -> Object:
    """The Binding of a pod to a node."""
    named = {key: stored["metadata"][key] for key in (("name", "uid") if uid else ("name",))}
    target = {"apiVersion": "v1", "kind": "Node", "name": "somewhere"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {**named, **metadata}, "target": target}


def bind(there: Client, stored: Object, made: Object) -> Answer:
    """Bind as schedulers do."""
    return there.send("POST", f"{there.path(stored)}/binding", made)


def refused(sent: object) -> str:
    """The first line of a refusal by us."""
    found = re.search(r"\[GPU109\] [^\n]*", str(sent))
    return found[0] if found else str(sent)


def shared(there: Client, name: str) -> Object:
    """A pod that asks for a share in shorthand, as it is stored."""
    [stored] = create(there, pod(name, labels={"gpu-memory": "8Gi", "team": "a"}))
    return stored


CHANGED = (
    '[GPU109] the label gpu-memory of a pod with a GPU cannot change: it is "8Gi" and would be "1Gi", '
    "and what the pod counts is read from it"
)


def test_a_binding_does_not_change_what_a_pod_counts_by_either_path(town: Town) -> None:
    stored = shared(town.free, "bound-by-stealth")
    less = binding(stored, labels={"gpu-memory": "1Gi"})

    with pytest.raises(RefusedError) as by_subresource:
        bind(town.free, stored, less)
    with pytest.raises(RefusedError) as by_resource:
        town.free.send("POST", town.free.collection(stored).replace("/pods", "/bindings"), less)
    with pytest.raises(RefusedError) as of_a_container:
        bind(town.free, stored, binding(stored, annotations={"memory.gpu-webhook.io/main": "1Gi"}))

    assert refused(by_subresource.value) == CHANGED
    assert "does not say of which pod" in str(by_resource.value)  # the API server takes the UID out of it
    assert "the annotation memory.gpu-webhook.io/main of a pod with a GPU cannot change" in str(of_a_container.value)
    assert "nodeName" not in town.free.get(stored)["spec"]


def test_only_the_platforms_accounts_take_a_device_for_a_pod_by_an_update_or_a_binding(town: Town) -> None:
    """A tenant makes a second namespace, or owns one that no policy selects, as this one."""
    stored = shared(town.free, "taken")
    taken = {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,81920,100:;"}
    owner, stranger, scheduler = (
        town.free.acting_as(f"system:serviceaccount:{name}:hami-scheduler")
        for name in (town.free.namespace, "hami-system", "kube-system")
    )

    words = []
    for account in (owner, stranger):
        with pytest.raises(RefusedError) as updated:
            account.patch(stored, {"metadata": {"annotations": taken}})
        with pytest.raises(RefusedError) as bound:
            bind(account, stored, binding(stored, annotations=taken))
        words += [refused(updated.value), refused(bound.value)]
    bind(scheduler, stored, binding(stored, annotations=taken))

    said = "[GPU109] the annotation hami.io/vgpu-devices-to-allocate of a pod with a GPU cannot change: "
    assert [text.startswith(said) for text in words] == [True] * 4, words
    assert taken.items() <= town.free.get(stored)["metadata"]["annotations"].items()


def test_a_binding_that_repeats_what_the_pod_has_binds_it_with_the_rest_that_it_carries(town: Town) -> None:
    """As Volcano's scheduler binds: with all annotations of the pod."""
    stored = shared(town.free, "bound-as-it-is")
    own = stored["metadata"]["annotations"]
    assert "gpu-webhook.io/translated" in own

    bind(town.free, stored, binding(stored, labels={"gpu-memory": "8Gi"}, annotations={**own, "a.example/b": "c"}))

    bound = town.free.get(stored)
    assert bound["spec"]["nodeName"] == "somewhere"
    assert bound["metadata"]["annotations"] == {**own, "a.example/b": "c"}


def test_a_binding_without_a_uid_carries_nothing_that_counts(town: Town) -> None:
    stored = shared(town.free, "bound-by-name")

    with pytest.raises(RefusedError) as unnamed:
        bind(town.free, stored, binding(stored, uid=False, labels={"gpu-memory": "8Gi"}))
    bind(town.free, stored, binding(stored, uid=False, labels={"gpu-vendor": "acme"}))

    assert "does not say of which pod" in str(unnamed.value)
    assert town.free.get(stored)["spec"]["nodeName"] == "somewhere"


def test_a_pod_without_a_gpu_is_bound_with_whatever_the_binding_carries(town: Town) -> None:
    [stored] = create(town.free, pod("bound-without", containers=[container("main", resources=limits(cpu="1"))]))

    bind(town.free, stored, binding(stored, labels={"gpu-memory": "1Gi"}))

    assert town.free.get(stored)["spec"]["nodeName"] == "somewhere"


def test_the_status_of_a_pod_does_not_change_what_it_counts_by(town: Town) -> None:
    stored = shared(town.free, "stated")
    started = {"status": {"phase": "Running"}}

    with pytest.raises(RefusedError) as less:
        town.free.patch(stored, {"metadata": {"labels": {"gpu-memory": "1Gi"}}, **started}, subresource="status")
    town.free.patch(stored, {"metadata": {"labels": {"team": "b"}}, **started}, subresource="status")

    assert refused(less.value) == CHANGED
    changed = town.free.get(stored)
    assert (changed["metadata"]["labels"]["gpu-memory"], changed["metadata"]["labels"]["team"]) == ("8Gi", "b")
    assert changed["status"]["phase"] == "Running"


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_other_subresources_take_no_labels(town: Town, subresource: str) -> None:
    stored = shared(town.free, f"through-{subresource}")
    less = {"metadata": {"labels": {"gpu-memory": "1Gi"}}}

    town.free.patch(stored, less, subresource=subresource)

    assert town.free.get(stored)["metadata"]["labels"]["gpu-memory"] == "8Gi"
