"""The shipped manifests, applied to a control plane of their own: nothing answers there behind the Service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, configurations

pytestmark = pytest.mark.cluster

BASE = ROOT / "manifests" / "base"
OTHERS = ["hami-webhook", "kai-admission", "koordinator-mutating-webhook", "volcano-admission-service-pods-mutate"]


@pytest.fixture(scope="module")
def installed(programs: Binaries) -> Iterator[Client]:
    with control_plane(programs, controllers=programs.has_controllers) as plane:
        done = plane.client.kubectl("apply", "-k", str(BASE))
        assert (done.returncode, done.stderr) == (0, "")
        yield plane.client


def test_applying_again_changes_nothing_and_keeps_the_issued_ca_bundle(installed: Client) -> None:
    mutating = configurations()[0]
    change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Y2E="}]
    patched = installed.kubectl("patch", mutating["kind"], "gpu-webhook", "--type=json", f"-p={change}")
    assert patched.returncode == 0, patched.stderr

    again = installed.kubectl("apply", "-k", str(BASE))

    assert (again.returncode, again.stderr) == (0, "")
    difference = installed.kubectl("diff", "-k", str(BASE))
    assert (difference.returncode, difference.stdout, difference.stderr) == (0, "", "")
    assert installed.get(mutating)["webhooks"][0]["clientConfig"]["caBundle"] == "Y2E="


@pytest.mark.usefixtures("controllers")
def test_the_deployments_pods_pass_pod_security_and_the_quota_for_critical_pods(installed: Client) -> None:
    probe = pod("any") | {"metadata": {"name": "any", "namespace": "gpu-webhook-system"}}

    pods = until(lambda: installed.list(probe), "the Deployment has pods")

    assert pods[0]["spec"]["priorityClassName"] == "system-cluster-critical"


def test_the_rules_are_mounted_whole(installed: Client) -> None:
    shipped = {path.name for path in (ROOT / "rules").glob("*.yaml")} - {"kustomization.yaml"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu-webhook", "namespace": "gpu-webhook-system"},
    }
    volumes = installed.get(deployment)["spec"]["template"]["spec"]["volumes"]
    sources = next(volume["projected"]["sources"] for volume in volumes if volume["name"] == "rules")
    mounted = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": source["configMap"]["name"], "namespace": "gpu-webhook-system"},
        }
        for source in sources
    ]

    assert sorted(name for one in mounted for name in installed.get(one)["data"]) == sorted(shipped)


def test_while_the_webhook_is_away_ordinary_pods_start(installed: Client) -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}}
    ordinary = pod("ordinary", labels={"app": "web"}, containers=[container("main", resources=resources)])

    assert installed.create(ordinary)["spec"]


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param({"labels": {"gpu": "1"}}, id="label"),
        pytest.param({"annotations": {"gpu-webhook.io/gpu": "1"}}, id="annotation"),
        pytest.param({"annotations": {"memory.gpu-webhook.io/main": "8Gi"}}, id="annotation-for-a-container"),
        pytest.param({"annotations": {"elasticgpu.io/egpuc-main": "train"}}, id="annotation-that-names-a-claim"),
        pytest.param({"annotations": {"egpuc.elasticgpu.io/main": "train"}}, id="another-that-names-a-claim"),
        pytest.param({"containers": [container("main", resources=limits(gpu="1"))]}, id="limits"),
        pytest.param({"containers": [container("main", resources={"requests": {"gpu": "1"}})]}, id="requests"),
        pytest.param({"initContainers": [container("i", resources=limits(**{"a.example/b": 1}))]}, id="init"),
        pytest.param({"resourceClaims": [{"name": "a", "resourceClaimName": "a"}]}, id="claim"),
    ],
)
def test_while_the_webhook_is_away_pods_that_ask_for_devices_wait_for_it(
    installed: Client, asking: dict[str, object]
) -> None:
    def refusal() -> str:
        try:
            installed.create(pod("asking", **asking), dry_run=True)  # type: ignore[arg-type]  # any keyword of pod
        except RefusedError as refused:
            return str(refused)
        return ""

    assert 'failed calling webhook "mutate.gpu-webhook.io"' in until(refusal, "a refusal", within=10)


def test_the_match_condition_stays_affordable_on_the_largest_ordinary_pod(installed: Client) -> None:
    sizes = {f"hugepages-{2**power}Mi": "0" for power in range(16)}
    labels = {f"key-{number}": "value" for number in range(1000)}
    many = [container(f"c{number}", resources={"limits": {"cpu": "1", **sizes}}) for number in range(300)]

    assert installed.create(pod("large", labels=labels, containers=many), dry_run=True)["spec"]


def test_the_match_condition_stays_affordable_on_a_pod_padded_with_labels(installed: Client) -> None:
    padding = {f"{'padding-' * 6}{number:06}": "" for number in range(20_000)}

    assert installed.create(pod("padded", labels=padding), dry_run=True)["spec"]


@pytest.mark.parametrize("other", OTHERS)
def test_our_configurations_sort_before_those_of_the_back_ends(other: str) -> None:
    assert all(configuration["metadata"]["name"] < other for configuration in configurations())


def test_both_webhooks_have_the_same_condition() -> None:
    mutate, validate = (configuration["webhooks"][0] for configuration in configurations())

    assert mutate["matchConditions"] == validate["matchConditions"]
    assert mutate["namespaceSelector"] == validate["namespaceSelector"]


def test_every_manifest_is_listed() -> None:
    listed = (BASE / "kustomization.yaml").read_text()

    assert all(path.name in listed for path in Path(BASE).glob("*.yaml") if path.name != "kustomization.yaml")
