"""What cannot be meant is refused, and the person who wrote it reads why, where and what to write instead."""

import json
from typing import Any

import pytest

from tests import tables
from tests.cluster.client import Client, RefusedError
from tests.cluster.pods import container, pod
from tests.cluster.waiting import until

pytestmark = pytest.mark.cluster

MORE_THAN_ONE = """\
[GPU201] gpu: 1.5 is neither a share of one GPU nor a whole number
  at   metadata.labels.gpu
  fix  write "1", "2" or "2x0.75"
"""
NO_UNIT = """\
[GPU201] gpu-memory: "8" has no unit
  at   metadata.labels.gpu-memory
  fix  write 8Gi or 8Mi
"""


@pytest.mark.parametrize("verb", ["create", "apply"])
def test_kubectl_prints_the_whole_message_with_its_lines(cluster: Client, verb: str) -> None:
    asking = json.dumps(pod("asking", labels={"gpu": "1.5"}))

    done = cluster.kubectl(verb, "-f", "-", stdin=asking)

    said = (
        f'error when creating "STDIN": admission webhook "mutate.gpu-webhook.io" denied the request: {MORE_THAN_ONE}'
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error from server: {said}"


def test_everything_wrong_is_said_at_once(cluster: Client) -> None:
    with pytest.raises(RefusedError) as refused:
        cluster.create(pod("asking", labels={"gpu": "1.5", "gpu-memory": "8"}))

    assert str(refused.value).endswith((MORE_THAN_ONE + NO_UNIT).rstrip("\n"))


def test_a_program_gets_the_field_paths(cluster: Client) -> None:
    with pytest.raises(RefusedError) as refused:
        cluster.create(pod("asking", labels={"gpu": "1.5", "gpu-memory": "8"}))

    status = refused.value.status
    assert (refused.value.code, status.get("reason", "")) == (422, "")
    fields = [cause["field"] for cause in status["details"]["causes"]]
    assert fields == ["metadata.labels.gpu", "metadata.labels.gpu-memory"]


def test_the_way_out_that_a_refusal_names_is_one(cluster: Client) -> None:
    stored = cluster.create(pod("asking", labels={"gpu": "2x0.75"}))

    assert stored["spec"]["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "nvidia.com/gpumem-percentage": "75",
        "nvidia.com/gpucores": "75",
    }


@pytest.mark.usefixtures("controllers")
def test_a_refused_pod_of_a_deployment_is_explained_in_its_status(cluster: Client) -> None:
    labels = {"app": "web", "gpu": "1.5"}
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": labels}, "spec": pod("ignored")["spec"]},
        },
    }
    cluster.create(deployment)

    def explanations() -> list[str]:
        conditions = cluster.get(deployment).get("status", {}).get("conditions", [])
        return [condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure"]

    assert MORE_THAN_ONE.rstrip("\n") in until(explanations, "the Deployment says why it has no pods")[0]

    # Its ReplicaSet would try again for as long as this cluster runs, in the midst of tests that count calls.
    cluster.patch(deployment, {"spec": {"replicas": 0}})
    until(lambda: not explanations(), "the Deployment wants no pods any more")


def test_a_request_other_than_its_limit_is_refused(cluster: Client) -> None:
    resources = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}

    with pytest.raises(RefusedError, match="GPUs cannot be overcommitted") as refused:
        cluster.create(pod("asking", containers=[container("main", resources=resources)]))

    assert "remove nvidia.com/gpu from requests" in str(refused.value)


def test_a_request_without_a_limit_gets_one_and_a_hint(cluster: Client) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}}

    stored = cluster.create(pod("asking", containers=[container("main", resources=resources)]))

    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    field = 'spec.containers[0].resources.requests["nvidia.com/gpu"]'
    assert stored.warnings == (
        f"{field} has no limit; the webhook adds a limit of the same amount. Write limits only",
    )


@tables.rows
def test_zero_is_no_gpu_and_no_mistake(cluster: Client, asking: dict[str, Any], stays: dict[str, Any]) -> None:
    stored = cluster.create(pod("asking", **asking))

    assert stored["spec"]["containers"][0]["resources"] == stays
    assert "gpu-webhook.io/translated" not in stored["metadata"].get("annotations", {})
    assert stored.warnings == ()
