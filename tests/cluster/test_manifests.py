"""The shipped manifests, applied to a control plane of their own: nothing answers there behind the Service."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests import builders
from tests.cluster.accounts import BASE, NAMESPACE
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, configurations
from webhook.core import projection
from webhook.core.policy import immutable
from webhook.core.rules import index

pytestmark = pytest.mark.cluster

STORED = pod("stored", labels={"app": "web"}, containers=[container("main", resources=limits(**{"a.example/b": 1}))])
"""A pod with a device from before the webhook was installed."""

OTHERS = ["hami-webhook", "kai-admission", "koordinator-mutating-webhook", "volcano-admission-service-pods-mutate"]


@pytest.fixture(scope="module")
def installed(programs: Binaries) -> Iterator[Client]:
    with control_plane(programs, controllers=programs.has_controllers) as plane:
        plane.client.create(STORED)
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

    def of_all() -> list[str]:
        found = (each["spec"] for each in installed.list(probe))
        accounts = sorted(
            each["serviceAccountName"] for each in found if each["priorityClassName"] == "system-cluster-critical"
        )
        return accounts if len(accounts) >= 3 else []

    assert until(of_all, "the Deployments have pods") == ["gpu-webhook", "gpu-webhook", "gpu-webhook-settler"]


def test_they_can_be_applied_on_the_servers_side(installed: Client) -> None:
    done = installed.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(BASE))

    assert done.returncode == 0, done.stderr
    assert all(line.endswith(" serverside-applied (server dry run)") for line in done.stdout.splitlines())


def rights(client: Client, account: str) -> set[str]:
    """What an account may do that one without any role may not, as `kubectl auth can-i --list` prints it."""
    printed = [
        client.kubectl("auth", "can-i", "--list", "--no-headers", f"--as=system:serviceaccount:{NAMESPACE}:{each}")
        for each in (account, "nobody")
    ]
    assert [one.returncode for one in printed] == [0, 0]
    mine, everybodys = ({" ".join(line.split()) for line in one.stdout.splitlines()} for one in printed)
    return mine - everybodys


def test_the_account_of_the_admission_servers_may_do_what_they_do_and_nothing_else(installed: Client) -> None:
    assert rights(installed, "gpu-webhook") == {
        "elasticgpuclaims.elasticgpu.io [] [] [list watch]",
        "elasticgpuclasses.elasticgpu.io [] [] [list watch]",
        "events [] [] [create]",
        "exemptions.gpu-webhook.io [] [] [list watch]",
        "namespaces [] [] [list watch]",
        "nodes [] [] [list watch]",
        "pods [] [] [get]",
        "tenantpolicies.gpu-webhook.io [] [] [list watch]",
        "tenantusages.gpu-webhook.io [] [] [get]",
        "tenantusages.gpu-webhook.io/status [] [] [update]",
    }


def test_the_account_of_the_settler_may_do_what_it_does_and_nothing_else(installed: Client) -> None:
    assert rights(installed, "gpu-webhook-settler") == {
        "exemptions.gpu-webhook.io [] [] [list watch]",
        "namespaces [] [] [list watch]",
        "pods [] [] [get list watch]",
        "tenantpolicies.gpu-webhook.io [] [] [list watch]",
        "tenantpolicies.gpu-webhook.io/status [] [] [update]",
        "tenantusages.gpu-webhook.io [] [] [get list watch create delete]",
        "tenantusages.gpu-webhook.io/status [] [] [update]",
    }


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


def _awaits(send: Callable[[], object], webhook: str) -> None:
    """Await that a request is refused because this webhook does not answer."""

    def refusal() -> str:
        try:
            send()
        except RefusedError as refused:
            return str(refused)
        return ""

    assert f'failed calling webhook "{webhook}"' in until(refusal, f"a refusal by {webhook}", within=10)


def test_while_the_webhook_is_away_kubelets_write_the_status_of_pods_and_nobody_their_labels_with_it(
    installed: Client,
) -> None:
    def write(phase: str, **labels: str) -> object:
        change = {"metadata": {"labels": labels}, "status": {"phase": phase}}
        return installed.patch(STORED, change, subresource="status")

    _awaits(lambda: write("Pending", team=uuid4().hex), "validate.gpu-webhook.io")

    write("Running")
    assert installed.get(STORED)["status"]["phase"] == "Running"


def _bind(client: Client, **metadata: object) -> object:
    target = {"apiVersion": "v1", "kind": "Node", "name": "somewhere"}
    made = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "stored", **metadata}, "target": target}
    return client.send("POST", f"{client.path(STORED)}/binding", made, query={"dryRun": "All"})


def test_while_the_webhook_is_away_pods_are_bound_unless_the_binding_carries_what_they_count_by(
    installed: Client,
) -> None:
    for carried in ({"labels": {"gpu-model": "T4"}}, {"annotations": {"memory.gpu-webhook.io/main": "1Gi"}}):
        _awaits(partial(_bind, installed, **carried), "bindings.gpu-webhook.io")

    assert _bind(installed)
    assert _bind(installed, labels={"topology.kubernetes.io/zone": "a"}, annotations={"volcano.sh/task-spec": "x"})


def test_the_condition_on_bindings_stays_affordable_on_one_that_is_padded(installed: Client) -> None:
    assert _bind(installed, annotations={f"{'padding-' * 6}{number:06}": "" for number in range(4_000)})


def test_the_condition_on_bindings_names_every_key_that_the_shipped_rules_count_by() -> None:
    [hook] = (hook for hook in configurations()[1]["webhooks"] if hook["name"] == "bindings.gpu-webhook.io")
    [condition] = hook["matchConditions"]
    rules = index.every(builders.rulebook(builders.shipped_files()))
    read = projection.allow_list(rules)

    def counts(section: str, key: str) -> bool:
        binding = builders.creating({"metadata": {"name": "train", section: {key: "1"}}})
        return bool(immutable.unnamed(binding, rules))

    counting = {key for key in read.labels if counts("labels", key)}
    counting |= {key for key in read.annotations if counts("annotations", key)}

    assert len(counting) > 15
    named = {key for key in counting if f"'{key}'" in condition["expression"]}
    assert [key for key in counting - named if not key.startswith("gpu") and "gpu-webhook.io/" not in key] == []


def test_the_match_condition_stays_affordable_on_the_largest_ordinary_pod(installed: Client) -> None:
    sizes = {f"hugepages-{2**power}Mi": "0" for power in range(16)}
    labels = {f"key-{number}": "value" for number in range(1000)}
    many = [container(f"c{number}", resources={"limits": {"cpu": "1", **sizes}}) for number in range(300)]

    assert installed.create(pod("large", labels=labels, containers=many), dry_run=True)["spec"]


def test_the_match_condition_stays_affordable_on_a_pod_padded_with_labels(installed: Client) -> None:
    padding = {f"{'padding-' * 6}{number:06}": "" for number in range(20_000)}

    padded = installed.create(pod("padded", labels=padding))

    assert (
        installed.patch(padded, {"status": {"phase": "Running"}}, subresource="status")["status"]["phase"]
        == "Running"
    )
    assert installed.patch(padded, {"metadata": {"finalizers": ["a.example/b"]}})["metadata"]["finalizers"]
    assert installed.patch(padded, {"metadata": {"finalizers": None}})["metadata"]["name"] == "padded"


@pytest.mark.parametrize("other", OTHERS)
def test_our_configurations_sort_before_those_of_the_back_ends(other: str) -> None:
    assert all(configuration["metadata"]["name"] < other for configuration in configurations())


def test_both_webhooks_have_the_same_condition() -> None:
    mutate, validate = (configuration["webhooks"][0] for configuration in configurations())

    assert mutate["matchConditions"] == validate["matchConditions"]
    assert mutate["namespaceSelector"] == validate["namespaceSelector"]


def test_namespaces_that_are_never_asked_about_are_never_counted_either() -> None:
    [cluster] = yaml.safe_load_all((ROOT / "rules" / "cluster.yaml").read_text())

    for configuration in configurations():
        for hook in configuration["webhooks"]:
            [expression] = hook["namespaceSelector"]["matchExpressions"]
            assert expression["operator"] == "NotIn"
            assert {*expression["values"]} <= {*cluster["spec"]["systemNamespaces"]}


def test_every_manifest_is_listed() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]

    shipped = {str(path.relative_to(BASE)) for path in Path(BASE).rglob("*.yaml")}
    assert shipped == {*listed, "kustomization.yaml"} - {"../../rules"}
