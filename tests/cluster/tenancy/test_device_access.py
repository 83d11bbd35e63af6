"""A tenant with all rights in its namespace tries to reach a GPU past its quota, by every protected name."""

import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from tests.cluster.client import Client, RefusedError
from tests.cluster.pods import container, pod
from tests.cluster.tenancy import attempts, world
from tests.cluster.tenancy.town import Town, create, owner, refusal, told
from tests.cluster.waiting import until
from webhook.core.registration.configurations import REMOVING

pytestmark = pytest.mark.cluster

MINE = "ada"
FORBIDDEN = 403


@pytest.fixture(scope="module")
def mine(town: Town) -> Client:
    """The tenant: it may do everything in its one namespace, whose quota is one device, and nothing elsewhere."""
    [there] = town.tenant("doors", quota={"devices": 1})
    for each in attempts.names("runtime_classes"):
        name = attempts.one(each.name)
        made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "x"}
        town.client.create(made)
    return owner(there, MINE)


def test_no_protected_name_gives_a_tenant_a_gpu(mine: Client, capsys: pytest.CaptureFixture[str]) -> None:
    families: Mapping[str, list[dict[str, Any]]] = {
        "variables": [*attempts.variables()],
        "annotations and labels": [*attempts.metadata()],
        "host paths": [*attempts.host_paths()],
        "resources": [*attempts.resources()],
        "mounts": [*attempts.mounts()],
        "privileges": [*attempts.privileges()],
        "runtime classes": [*attempts.runtime_classes()],
    }

    answers = {name: [(made, *told(mine, made, dry_run=True)) for made in tried] for name, tried in families.items()}

    free = {
        name: [one for one in got if one[1] != FORBIDDEN or "[GPU1" not in one[2]] for name, got in answers.items()
    }
    with capsys.disabled():
        sys.stdout.write(
            f"\nattempts to reach a device: { ({name: len(tried) for name, tried in families.items()}) }\n"
        )
    assert free == {name: [] for name in families}


def test_an_ephemeral_container_gets_no_more_than_its_pod(mine: Client) -> None:
    [stored] = create(mine, pod("debugged"))
    asking = {"name": "debug", "image": "none", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    harmless = {**asking, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}

    with pytest.raises(RefusedError) as refused:
        mine.update(_debugged(stored, asking), subresource="ephemeralcontainers")
    mine.update(_debugged(stored, harmless), subresource="ephemeralcontainers")

    assert 'the variable NVIDIA_VISIBLE_DEVICES of the container "debug" may give devices' in str(refused.value)


def _debugged(stored: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    return {**stored, "spec": {**stored["spec"], "ephemeralContainers": [added]}}


def test_an_annotation_that_gives_a_device_is_not_added_later(mine: Client) -> None:
    [stored] = create(mine, pod("annotated"))

    with pytest.raises(RefusedError) as refused:
        mine.patch(stored, {"metadata": {"annotations": {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}}})
    mine.patch(stored, {"metadata": {"annotations": {"example.com/note": "fine"}}})

    assert "the annotation nvidia.cdi.k8s.io/pod gives any device" in str(refused.value)


def test_what_gives_nothing_is_nobodys_concern(mine: Client) -> None:
    harmless = [
        attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]),
        attempts.trying(env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}]),
        attempts.trying(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]),
        attempts.trying(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}}),
        attempts.on_host("/dev/shm"),  # noqa: S108 - a path of a pod, not of this machine
        attempts.on_host("/var/log"),
    ]

    assert [told(mine, made, dry_run=True) for made in harmless] == [(201, "")] * len(harmless)


def test_where_a_policy_says_remove_a_pod_starts_without_it(town: Town) -> None:
    [there] = town.tenant("swept", quota={"devices": 2}, deviceAccess="remove")
    asking = pod(
        "swept",
        labels={"gpu": "1"},
        containers=[
            container("main", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "b"}]),
            container("other", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        ],
    )

    [stored] = create(there, asking)

    assert [each.get("env") for each in stored["spec"]["containers"]] == [
        [{"name": "A", "value": "b"}],
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
    ]
    assert str(refusal(there, attempts.trying(securityContext={"privileged": True}))).count("[GPU116]") == 1


def test_no_text_is_too_long_to_be_refused(mine: Client) -> None:
    """The API server writes `<` in six bytes: no replica reads a review that long."""
    privileged = attempts.trying(securityContext={"privileged": True}, args=["<" * 1_450_000])
    naming = attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], args=["<" * 1_450_000])

    answers = [told(mine, made, dry_run=True) for made in (privileged, naming)]

    assert [(code, "[GPU116]" in words) for code, words in answers] == [(FORBIDDEN, True)] * 2


def test_what_a_policy_takes_out_can_be_applied_and_replaced_again(town: Town) -> None:
    [there] = town.tenant("restated", quota={"devices": 2}, deviceAccess="remove")
    world.label(town.client, "restated-a", {REMOVING: "remove"})
    free = container("main", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "b"}])
    tried = [pod("with", labels={"gpu": "1"}, containers=[free]), pod("without", containers=[free])]
    until(lambda: told(there, tried[1], dry_run=True)[0] == HTTPStatus.CREATED, "the label is known")

    for written in tried:
        [stored] = create(there, written)
        path = there.path(written)
        applied = there.send("PATCH", path, written, content_type="application/strategic-merge-patch+json")
        replaced = there.update(written)

        assert [applied["spec"], replaced["spec"]] == [stored["spec"]] * 2
