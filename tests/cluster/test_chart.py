"""The Helm chart and the kustomizations are the same objects."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tables
from tests.cluster import binaries
from tests.cluster.accounts import NAMESPACE
from tests.cluster.webhook import OF_LEASES
from tests.release import chart, kustomized
from tests.release.kustomized import COMPONENTS, TOGETHER, Object

pytestmark = pytest.mark.cluster

VERSION = "1.36.0"


@pytest.fixture(scope="module")
def helm() -> Path:
    return binaries.helm()


@pytest.fixture(scope="module")
def made(programs: binaries.Binaries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart") / "gpu-webhook"
    chart.write(programs.path("kubectl"), folder)
    return folder


def _template(helm: Path, made: Path, values: Any, namespace: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    command = [
        str(helm),
        "template",
        "gpu-webhook",
        str(made),
        f"--namespace={namespace}",
        f"--kube-version={VERSION}",
    ]
    given = json.dumps(values)
    return subprocess.run([*command, "--values=-"], input=given, capture_output=True, text=True, check=False)


def _rendered(helm: Path, made: Path, values: Any, namespace: str = NAMESPACE) -> list[Object]:
    ran = _template(helm, made, values, namespace)
    assert (ran.returncode, ran.stderr) == (0, "")
    return kustomized.read(ran.stdout)


STANDARD = {
    "app.kubernetes.io/instance": "gpu-webhook",
    "app.kubernetes.io/managed-by": "Helm",
    "app.kubernetes.io/version": chart.version(),
    "helm.sh/chart": f"gpu-webhook-{chart.version()}",
}
"""The labels of all that the chart makes."""


def _by_name(objects: Sequence[Object]) -> dict[str, Object]:
    """By kind and name; of rules what they say, as the chart writes the Cluster document anew."""
    found = {}
    for each in objects:
        metadata = each["metadata"]
        if metadata.get("labels", {}).items() >= STANDARD.items():
            labels = {key: text for key, text in metadata["labels"].items() if key not in STANDARD}
            metadata = {key: value for key, value in metadata.items() if key != "labels"}
            each = {**each, "metadata": {**metadata, **({"labels": labels} if labels else {})}}  # noqa: PLW2901 - the same object
        if "cluster.yaml" in each.get("data", {}):
            document = yaml.safe_load(each["data"]["cluster.yaml"])
            document["spec"]["systemNamespaces"].sort()
            each = {**each, "data": {**each["data"], "cluster.yaml": document}}  # noqa: PLW2901 - the same object
        found[f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = each
    assert len(found) == len(objects)
    return found


RULES = f"ConfigMap {NAMESPACE}/gpu-webhook-rules"
SETS = [[], *([each] for each in COMPONENTS), TOGETHER]


@pytest.mark.parametrize("components", SETS, ids=lambda names: "+".join(names) if len(names) < 2 else "all")
def test_the_chart_makes_what_kustomize_makes(
    programs: binaries.Binaries, helm: Path, made: Path, components: list[str]
) -> None:
    values = {"components": {chart.value(each): True for each in components}}

    by_helm = _by_name(_rendered(helm, made, values))

    by_kustomize = _by_name(kustomized.objects(programs.path("kubectl"), components))
    assert by_kustomize.pop(f"Namespace /{NAMESPACE}")
    if "observe-only" in components:  # whose second half is a line of the Cluster document
        by_kustomize[RULES]["data"]["cluster.yaml"]["spec"]["observe"] = True
    assert by_helm == by_kustomize


def _deployment(objects: Sequence[Object], name: str = "gpu-webhook") -> Any:
    return _by_name(objects)[f"Deployment {NAMESPACE}/{name}"]["spec"]


def test_each_value_does_what_it_says(helm: Path, made: Path) -> None:
    nowhere = {"key": "a", "operator": "Exists"}
    values = {
        "image": {"repository": "registry.example/gpu-webhook", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "replicas": 5,
        "priorityClassName": "mine",
        "nodeSelector": {"a": "b"},
        "tolerations": [nowhere],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"pods": "ours"},
        "podAnnotations": {"seen": "often"},
        "serviceAccountAnnotations": {"identity": "ours"},
        "commonLabels": {"team": "gpu"},
        "monitorLabels": {"release": "kube-prometheus-stack"},
        "extraArgs": {"webhook": ["--log-level=debug"]},
        "extraEnv": {"settler": [{"name": "A", "value": "b"}]},
        "resources": {"settler": {"limits": {"memory": "1Gi"}}},
        "apiServerPorts": [16443],
        "prometheusNamespace": "watching",
        "components": {"prometheus": True},
        "crds": False,
        "rules": {"acme.yaml": "kind: Backend\n"},
        "cluster": {"observe": True},
    }
    objects = _rendered(helm, made, values)

    deployment, settler = _deployment(objects), _deployment(objects, "gpu-webhook-settler")
    pod = deployment["template"]["spec"]
    image = f"registry.example/gpu-webhook@sha256:{'0' * 64}"
    assert deployment["replicas"] == 5
    assert {each["image"] for each in pod["containers"]} == {image}
    assert (pod["imagePullSecrets"], pod["nodeSelector"], pod["tolerations"]) == (
        [{"name": "pull"}],
        {"a": "b"},
        [nowhere],
    )
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["containers"][0]["args"][-1] == "--log-level=debug"
    assert settler["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
    metadata = deployment["template"]["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/name": "gpu-webhook", "pods": "ours"}
    assert metadata["annotations"] == {"seen": "often"}
    of_accounts = [each["metadata"]["annotations"] for each in objects if each["kind"] == "ServiceAccount"]
    assert of_accounts == [{"identity": "ours"}] * 3
    labels = {each["kind"]: each["metadata"]["labels"] for each in objects}
    ours = {**STANDARD, "team": "gpu"}
    assert [kind for kind, own in labels.items() if not own.items() >= ours.items()] == []
    released = [kind for kind, own in labels.items() if own.get("release") == "kube-prometheus-stack"]
    assert sorted(released) == ["PrometheusRule", "ServiceMonitor"]
    assert (pod["priorityClassName"], settler["template"]["spec"]["priorityClassName"]) == ("mine", "mine")
    assert settler["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert len(policies) > 2
    assert {each["spec"]["egress"][0]["ports"][0]["port"] for each in policies if "egress" in each["spec"]} == {16443}
    [let_in] = [
        peer for each in policies for rule in each["spec"].get("ingress", ()) for peer in rule.get("from", ())
    ]
    assert let_in == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watching"}}}
    assert not [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    rules = _by_name(objects)[RULES]["data"]
    assert rules["acme.yaml"] == "kind: Backend\n"
    assert rules["cluster.yaml"]["spec"]["observe"] is True


def test_in_another_namespace_everything_is_there_and_the_namespace_is_exempt(helm: Path, made: Path) -> None:
    objects = _rendered(helm, made, {}, namespace="mine")

    assert NAMESPACE not in {each["metadata"].get("namespace") for each in objects}
    hooks = [hook for each in objects if "webhooks" in each for hook in each["webhooks"]]
    namespaced = [hook for hook in hooks if hook["name"] not in {*OF_LEASES, "policies.gpu-webhook.io"}]
    asked = [hook["namespaceSelector"] for hook in namespaced]
    exempt = {tuple(selector["matchExpressions"][0]["values"]) for selector in asked}
    assert exempt == {("gpu-operator", "gpu-webhook-system", "kube-system", "mine")}
    assert {hook["clientConfig"]["service"]["namespace"] for hook in hooks} == {"mine"}


@tables.rows
def test_a_wrong_value_is_refused_by_its_name(helm: Path, made: Path, values: Object, said: str) -> None:
    ran = _template(helm, made, values)

    assert ran.returncode != 0
    assert said in ran.stderr


def test_helm_has_nothing_to_say_about_the_chart(helm: Path, made: Path) -> None:
    ran = subprocess.run(
        [helm, "lint", "--strict", f"--kube-version={VERSION}", made], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout
    assert "[ERROR]" not in ran.stdout
    assert "[WARNING]" not in ran.stdout
