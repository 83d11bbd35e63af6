"""Who writes a workload reads what its pods will become; nothing is denied, and nothing needs us."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import builders, tables
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, calls, configurations, register, running_webhook
from webhook.cli import explanation

pytestmark = pytest.mark.cluster

TEMPLATES = "templates.gpu-webhook.io"
GROUPS = {"Job": "batch/v1", "CronJob": "batch/v1"}
BECOMES = (
    "pods of this template become "
    "nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 30, nvidia.com/gpucores: 30 (hami-vgpu)"
)
REFUSED = (
    "pods of this template will be refused: "
    '[GPU201] gpu: 1.5 is neither a share of one GPU nor a whole number; write "1", "2" or "2x0.75"'
)
KINDS = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"]


def workload(kind: str, *, metadata: Mapping[str, Any] | None = None, **asking: Any) -> dict[str, Any]:
    """An object of a kind that makes pods; what is asked is as for a pod. It is scaled to nothing."""
    labels = {"app": "web", **asking.pop("labels", {})}
    made = pod("ignored", labels=labels, **asking)
    template = {"metadata": {key: made["metadata"][key] for key in made["metadata"] if key != "name"}}
    template["spec"] = made["spec"]
    spec: dict[str, Any] = {"template": template}
    if kind in GROUPS:
        made["spec"]["restartPolicy"] = "Never"
        spec["suspend"] = True
    else:
        spec["selector"] = {"matchLabels": {"app": "web"}}
    if kind == "CronJob":
        spec = {"schedule": "@yearly", "suspend": True, "jobTemplate": {"spec": spec}}
    if kind in {"Deployment", "StatefulSet", "ReplicaSet"}:
        spec["replicas"] = 0
    api = GROUPS.get(kind, "apps/v1")
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "web", **(metadata or {})}, "spec": spec}


@pytest.mark.parametrize("kind", KINDS)
def test_who_creates_a_workload_reads_what_its_pods_become(cluster: Client, kind: str) -> None:
    stored = cluster.create(workload(kind, labels={"gpu": "0.3"}))

    assert stored.warnings == (BECOMES,)


@pytest.mark.parametrize("kind", KINDS)
def test_one_whose_pods_will_be_refused_is_created_with_a_warning(cluster: Client, kind: str) -> None:
    asking = workload(kind, labels={"gpu": "1.5"})

    assert cluster.create(asking).warnings == (REFUSED,)
    assert cluster.exists(asking)


def test_kubectl_shows_it(cluster: Client) -> None:
    done = cluster.kubectl("apply", "-f", "-", stdin=json.dumps(workload("Deployment", labels={"gpu": "0.3"})))

    assert (done.returncode, done.stdout) == (0, "deployment.apps/web created\n")
    assert done.stderr == f"Warning: {BECOMES}\n"


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_an_update_is_answered_where_it_changes_the_template_and_asked_about_where_that_has_a_gpu(
    cluster: Client, kind: str
) -> None:
    stored = cluster.create(workload(kind))
    asked = calls(cluster).get(TEMPLATES, 0)

    assert cluster.patch(stored, {"metadata": {"annotations": {"example.com/a": "b"}}}).warnings == ()
    assert calls(cluster).get(TEMPLATES, 0) == asked
    labels = {"metadata": {"labels": {"gpu": "0.3"}}}
    template = {"jobTemplate": {"spec": {"template": labels}}} if kind == "CronJob" else {"template": labels}
    assert cluster.patch(stored, {"spec": template}).warnings == (BECOMES,)
    scaled = {"spec": {"suspend": False} if kind == "CronJob" else {"replicas": 0, "paused": True}}
    assert cluster.patch(stored, scaled).warnings == ()
    then = calls(cluster)[TEMPLATES]
    assert then >= asked + 2  # an API server asks again where another update came first
    assert cluster.patch(stored, {"metadata": {"finalizers": ["example.com/a"]}}).warnings == ()
    assert calls(cluster)[TEMPLATES] == then


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_shorthand_that_a_workload_is_labelled_with_later_is_pointed_out(cluster: Client, kind: str) -> None:
    stored = cluster.create(workload(kind))
    where = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    hint = f"is of the workload, and its pods do not get it. Write it in {where}.metadata.labels"

    labelled = {"metadata": {"labels": {"gpu": "1"}}}
    assert cluster.patch(stored, labelled).warnings == (f"metadata.labels.gpu {hint}",)
    assert cluster.patch(stored, {"metadata": {"labels": {"team": "a"}}}).warnings == ()
    if kind == "CronJob":
        of_jobs = cluster.patch(stored, {"spec": {"jobTemplate": labelled}}).warnings
        assert of_jobs == (f"spec.jobTemplate.metadata.labels.gpu {hint}",)


def test_a_workload_without_a_gpu_is_not_asked_about(cluster: Client) -> None:
    before = calls(cluster)

    cluster.create(workload("Deployment", containers=[container("main", resources=limits(cpu="1", memory="1Gi"))]))

    assert calls(cluster) == before


def test_what_a_controller_makes_is_not_asked_about(cluster: Client) -> None:
    before = calls(cluster)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": True}

    made = cluster.create(workload("ReplicaSet", labels={"gpu": "0.3"}, metadata={"ownerReferences": [owner]}))

    assert made.warnings == ()
    assert calls(cluster) == before


def test_shorthand_beside_the_template_is_pointed_out(cluster: Client) -> None:
    stored = cluster.create(workload("Deployment", metadata={"labels": {"gpu": "0.3"}}))

    hint = "metadata.labels.gpu is of the workload, and its pods do not get it."
    assert stored.warnings == (f"{hint} Write it in spec.template.metadata.labels",)


def test_shorthand_in_annotations_beside_the_template_is_pointed_out_too(cluster: Client) -> None:
    asked = {"gpu": "0.3", "gpu-webhook.io/model": "T4"}

    stored = cluster.create(workload("Deployment", metadata={"annotations": asked}))

    keys = 'metadata.annotations.gpu and metadata.annotations["gpu-webhook.io/model"]'
    hint = f"{keys} are of the workload, and its pods do not get them."
    assert stored.warnings == (f"{hint} Write them in spec.template.metadata.annotations",)


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_template_may_have_is_refused_by_kubernetes_and_we_say_what_to_write_instead(
    cluster: Client, kind: str
) -> None:
    asking = workload(kind, containers=[container("main", resources=limits(gpu="0.3"))])

    with pytest.raises(RefusedError, match="must be a standard resource type or fully qualified") as refused:
        cluster.create(asking)

    assert refused.value.warnings == (
        (
            "pods of this template will be refused: "
            "[GPU002] gpu is no resource name that Kubernetes takes in a pod template; "
            'write gpu-webhook.io/percent: 30 instead of gpu, or remove it, and label the template gpu: "0.3"'
        ),
    )


def test_a_fraction_in_a_template_is_refused_by_kubernetes_and_we_say_how_to_ask_for_it(cluster: Client) -> None:
    asking = workload("Deployment", containers=[container("main", resources=limits(**{"nvidia.com/gpu": "0.5"}))])

    with pytest.raises(RefusedError, match="must be an integer") as refused:
        cluster.create(asking)

    [warning] = refused.value.warnings
    assert warning.endswith(
        'write gpu-webhook.io/percent: 50 instead of nvidia.com/gpu, or remove it, and label the template gpu: "0.5"'
    )
    percent = workload(
        "Deployment", containers=[container("main", resources=limits(**{"gpu-webhook.io/percent": 50}))]
    )
    assert cluster.create(percent).warnings[0].startswith("pods of this template become nvidia.com/gpu: 1, ")


def test_a_job_that_kubernetes_gives_the_labels_of_its_template_is_not_told_to_move_them(cluster: Client) -> None:
    stored = cluster.create(workload("Job", labels={"gpu": "none"}))

    assert stored["metadata"]["labels"]["gpu"] == "none"
    assert stored.warnings == ()


def test_explain_reads_a_null_as_the_api_server_stores_it(cluster: Client) -> None:
    nulls = workload(
        "Deployment",
        labels={"team": None},
        annotations={"note": None},
        containers=[container("main", resources=limits(**{"nvidia.com/gpu": None}))],
    )
    [read] = explanation.explain(nulls, builders.rulebook(builders.shipped_files()))

    template = cluster.create(nulls)["spec"]["template"]

    [stored_container], [read_container] = template["spec"]["containers"], read.before["spec"]["containers"]
    assert read.before["metadata"] == template["metadata"]
    assert read_container["resources"] == stored_container["resources"]
    assert read.decision.allowed


def test_the_conditions_stay_affordable_on_a_large_template(cluster: Client) -> None:
    padding = {f"{'padding-' * 6}{number:06}": "" for number in range(15_000)}
    large = workload("Deployment", labels={**padding, "gpu": "0.3"})

    [warning] = cluster.create(large, dry_run=True).warnings

    assert warning.startswith("pods of this template will be refused: [GPU003] ")
    assert "the pod has 15002 labels" in warning


CUSTOM = "workloads.gpu-webhook.io"
DEFINITION: Mapping[str, Any] = tables.table(__file__, "definition")


@pytest.fixture
def defined(cluster: Client) -> Client:
    """A cluster that has a kind of custom resource with pods."""
    if not cluster.exists(DEFINITION):
        cluster.create(DEFINITION)
    until(lambda: _is_served(cluster), "the API server serves the kind")
    return cluster


def _is_served(cluster: Client) -> bool:
    try:
        return bool(cluster.send("GET", "/apis/ray.io/v1/rayclusters"))
    except (RefusedError, json.JSONDecodeError):  # before a group is served, its paths are not found, and no JSON
        return False


def ray_cluster(*gpus: str) -> dict[str, Any]:
    """A RayCluster with a group of workers for each."""
    groups = [
        {"replicas": 2, "template": {"metadata": {"labels": {"gpu": gpu}}, "spec": pod("ignored")["spec"]}}
        for gpu in gpus
    ]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "a"},
        "spec": {"workerGroupSpecs": groups},
    }


def test_who_creates_a_custom_resource_with_pods_reads_what_becomes_of_each_template(defined: Client) -> None:
    stored = defined.create(ray_cluster("0.3", "1.5"))

    first, second = (text.partition("pods of this template")[2] for text in (BECOMES, REFUSED))
    where = "pods of spec.workerGroupSpecs"
    assert stored.warnings == (f"{where}[0].template{first}", f"{where}[1].template{second}")

    asked = calls(defined)[CUSTOM]
    assert defined.patch(stored, {"status": {"state": "ready"}}).warnings == ()
    assert calls(defined)[CUSTOM] == asked
    assert defined.patch(stored, {"spec": {"suspend": True}}).warnings == ()
    assert defined.patch(stored, {"spec": ray_cluster("0.3")["spec"]}).warnings == ()
    assert defined.patch(stored, {"spec": ray_cluster("1.5")["spec"]}).warnings == (REFUSED,)
    [hint] = defined.patch(stored, {"metadata": {"labels": {"gpu-model": "T4"}}}).warnings
    assert hint.startswith("metadata.labels.gpu-model is of the workload")


@pytest.fixture
def away(programs: Binaries) -> Iterator[Client]:
    """A cluster whose webhook was enforced, and has gone."""
    with control_plane(programs, controllers=False) as plane:
        with running_webhook(plane) as webhook:
            register(plane.client, webhook)
        yield plane.client


def test_with_the_webhook_down_workloads_are_created_all_the_same(away: Client) -> None:
    asking = workload("Deployment", labels={"gpu": "0.3"})

    assert away.create(asking).warnings == ()
    assert away.exists(asking)


@pytest.fixture
def limited(programs: Binaries, tmp_path: Path) -> Iterator[Client]:
    """A cluster whose tenant `vision` may use four devices."""
    for file in (ROOT / "rules").glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    policy = {"namespaces": {"names": ["vision"]}, "quota": {"devices": 4}}
    head = {"apiVersion": "gpu-webhook.io/v1alpha1", "kind": "TenantPolicy", "metadata": {"name": "vision"}}
    probe = {**head, "metadata": {"name": "probes"}, "spec": {"namespaces": {"names": ["default"]}}}
    (tmp_path / "tenants.yaml").write_text(f"{json.dumps({**head, 'spec': policy})}\n---\n{json.dumps(probe)}\n")
    with control_plane(programs, controllers=False) as plane, running_webhook(plane, rules=tmp_path) as webhook:
        register(plane.client, webhook)
        yield plane.client.in_namespace("vision")


def test_a_quota_that_is_nearly_full_is_announced_and_the_workload_created(limited: Client) -> None:
    limited.create(pod("first", labels={"gpu": "3"}))
    asking = workload("Deployment", labels={"gpu": "1"})
    asking["spec"]["replicas"] = 2

    becomes, of_two = limited.create(asking).warnings
    limited.create(pod("second", labels={"gpu": "1"}))
    [refused] = limited.create({**asking, "metadata": {"name": "other"}}).warnings

    more = limited.patch(asking, {"spec": {"replicas": 3}}).warnings

    over = '[GPU104] tenant "vision" is over its GPU quota: uses 4, asks 1, limit 4 devices'
    assert more == (refused,)
    assert becomes == "pods of this template become nvidia.com/gpu: 1 (nvidia-gpu)"
    assert of_two == f"pods of this template: of its 2 new pods 1 fit, and the others will be refused: {over}"
    assert refused == f"pods of this template will be refused: {over}; free some: namespace vision holds 4"


def test_it_never_waits_long_and_never_fails_anybody() -> None:
    hooks: list[Object] = [hook for configuration in configurations() for hook in configuration["webhooks"]]
    found = until(lambda: [hook for hook in hooks if hook["name"] == TEMPLATES], "the webhook is in the manifest")[0]

    assert (found["failurePolicy"], found["sideEffects"], found["timeoutSeconds"]) == ("Ignore", "None", 2)
