"""The Helm chart and the kustomizations are the same objects."""

import json
import re
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
from webhook.cli.__main__ import parser

pytestmark = pytest.mark.cluster

VERSION = "1.36.0"


@pytest.fixture(scope="module")
def helm() -> Path:
    return binaries.helm()


def _template(helm: Path, charted: Path, values: Any, namespace: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    command = [
        str(helm),
        "template",
        "gpu-webhook",
        str(charted),
        f"--namespace={namespace}",
        f"--kube-version={VERSION}",
    ]
    given = json.dumps(values)
    return subprocess.run([*command, "--values=-"], input=given, capture_output=True, text=True, check=False)


def _rendered(helm: Path, charted: Path, values: Any, namespace: str = NAMESPACE) -> list[Object]:
    ran = _template(helm, charted, values, namespace)
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
    programs: binaries.Binaries, helm: Path, charted: Path, components: list[str]
) -> None:
    values = {"components": {chart.value(each): True for each in components}}

    by_helm = _by_name(_rendered(helm, charted, values))

    by_kustomize = _by_name(kustomized.objects(programs.path("kubectl"), components))
    assert by_kustomize.pop(f"Namespace /{NAMESPACE}")
    if "observe-only" in components:  # whose second half is a line of the Cluster document
        by_kustomize[RULES]["data"]["cluster.yaml"]["spec"]["observe"] = True
    assert by_helm == by_kustomize


def _deployment(objects: Sequence[Object], name: str = "gpu-webhook") -> Any:
    return _by_name(objects)[f"Deployment {NAMESPACE}/{name}"]["spec"]


PROGRAMS = {"webhook", "watcher", "settler", "certs", "console", "doctor"}


def _containers(objects: Sequence[Object]) -> list[Any]:
    specs = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]
    specs += [each["spec"] for each in objects if each["kind"] == "Pod"]
    return [container for spec in specs for container in spec["containers"]]


def test_each_value_does_what_it_says(helm: Path, charted: Path) -> None:
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
        "logLevel": "warning",
        "extraArgs": {"webhook": ["--client-ca=/etc/ca.crt"]},
        "extraEnv": {"settler": [{"name": "A", "value": "b"}]},
        "resources": {name: {"limits": {"memory": "1Gi"}} for name in PROGRAMS},
        "topologySpreadConstraints": [{"topologyKey": "rack"}],
        "podDisruptionBudget": {"maxUnavailable": 2},
        "hostNetwork": True,
        "failurePolicy": "Ignore",
        "timeoutSeconds": 7,
        "namespaceSelector": {"matchLabels": {"gpus": "some"}, "matchExpressions": [nowhere]},
        "tlsSecretName": "ours",
        "issuerRef": {"name": "corporate", "kind": "ClusterIssuer"},
        "apiServerPorts": [16443],
        "prometheusNamespace": "watching",
        "components": {"prometheus": True, "certManager": True, "console": True, "doctor": True},
        "crds": False,
        "rules": {"acme.yaml": "kind: Backend\n"},
        "cluster": {"observe": True},
    }
    objects = _rendered(helm, charted, values)

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
    assert pod["containers"][0]["args"][-2:] == ["--log-level=warning", "--client-ca=/etc/ca.crt"]
    assert settler["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
    metadata = deployment["template"]["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/name": "gpu-webhook", "pods": "ours"}
    assert metadata["annotations"] == {"seen": "often"}
    of_accounts = [each["metadata"]["annotations"] for each in objects if each["kind"] == "ServiceAccount"]
    assert of_accounts == [{"identity": "ours"}] * 5
    labels = {each["kind"]: each["metadata"]["labels"] for each in objects}
    ours = {**STANDARD, "team": "gpu"}
    assert [kind for kind, own in labels.items() if not own.items() >= ours.items()] == []
    released = [kind for kind, own in labels.items() if own.get("release") == "kube-prometheus-stack"]
    assert sorted(released) == ["PrometheusRule", "ServiceMonitor"]
    assert (pod["priorityClassName"], settler["template"]["spec"]["priorityClassName"]) == ("mine", "mine")
    containers = _containers(objects)
    assert {each["name"] for each in containers} == PROGRAMS
    assert [each["name"] for each in containers if each["resources"]["limits"] != {"memory": "1Gi"}] == []
    for container in containers:
        if "command" not in container:
            parser(container["args"]).parse_args(container["args"])
    assert pod["topologySpreadConstraints"] == [{"topologyKey": "rack"}]
    assert (pod["hostNetwork"], deployment["strategy"]["rollingUpdate"]["maxSurge"]) == (True, 0)
    [budget] = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 2
    hooks = {hook["name"]: hook for each in objects for hook in each.get("webhooks", ())}
    failing = {name for name, hook in hooks.items() if hook["failurePolicy"] == "Fail"}
    assert failing == OF_LEASES
    assert hooks["validate.gpu-webhook.io"]["timeoutSeconds"] == 7
    assert hooks["templates.gpu-webhook.io"]["timeoutSeconds"] == 2
    [_, *selected] = hooks["validate.gpu-webhook.io"]["namespaceSelector"]["matchExpressions"]
    assert selected == [{"key": "gpus", "operator": "In", "values": ["some"]}, nowhere]
    [certificate] = [each for each in objects if each["kind"] == "Certificate"]
    assert certificate["spec"]["issuerRef"] == {"name": "corporate", "kind": "ClusterIssuer"}
    assert [each for each in objects if each["kind"] == "Issuer"] == []
    [tls] = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls"]
    assert (tls["secretName"], certificate["spec"]["secretName"]) == ("ours", "ours")
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


def test_with_rules_of_the_site_the_settler_writes_what_depends_on_them(helm: Path, charted: Path) -> None:
    objects = _by_name(_rendered(helm, charted, {"rules": {"acme.yaml": "kind: Backend\n"}}))

    hooks = [hook for each in objects.values() for hook in each.get("webhooks", ())]
    assert [hook["name"] for hook in hooks if "matchConditions" in hook] == []
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert not objects[f"{kind} /gpu-webhook"]["metadata"].get("annotations")
    settler = objects[f"Deployment {NAMESPACE}/gpu-webhook-settler"]["spec"]["template"]["spec"]["containers"][0]
    assert settler["args"][-1] == "--registers"
    assert objects["ClusterRole /gpu-webhook-settler"]["rules"][-1] == {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": ["gpu-webhook"],
        "verbs": ["get", "update"],
    }


@tables.rows
def test_a_mirror_stands_in_place_of_the_registry(helm: Path, charted: Path, repository: str, expected: str) -> None:
    values = {"global": {"imageRegistry": "mirror:5000"}, "image": {"repository": repository, "tag": "1"}}

    images = {container["image"] for container in _containers(_rendered(helm, charted, values))}

    assert images == {f"{expected}:1"}


def test_the_readme_of_the_chart_has_a_meaning_for_each_value(charted: Path) -> None:
    rows = re.findall(r"^\| `(\S+)` \| (.+) \| (.*) \|$", (charted / "README.md").read_text(), re.MULTILINE)
    schema = json.loads((charted / "values.schema.json").read_text())["properties"]

    meanings = {path: meaning for path, _, meaning in rows}
    assert {path.partition(".")[0] for path in meanings} == schema.keys()
    for name in ("image", "components", "podDisruptionBudget", "global"):
        assert {path.partition(".")[2] for path in meanings if path.startswith(f"{name}.")} == {
            *schema[name]["properties"]
        }
    assert [path for path, meaning in meanings.items() if len(meaning) < len("Of all pods.")] == []
    assert dict(row[:2] for row in rows)["timeoutSeconds"] == "`3`"
    assert meanings["components.console"] == "a page that explains pods, behind a port-forward"


def test_in_another_namespace_everything_is_there_and_the_namespace_is_exempt(helm: Path, charted: Path) -> None:
    objects = _rendered(helm, charted, {}, namespace="mine")

    assert NAMESPACE not in {each["metadata"].get("namespace") for each in objects}
    hooks = [hook for each in objects if "webhooks" in each for hook in each["webhooks"]]
    namespaced = [hook for hook in hooks if hook["name"] not in {*OF_LEASES, "policies.gpu-webhook.io"}]
    asked = [hook["namespaceSelector"] for hook in namespaced]
    exempt = {tuple(selector["matchExpressions"][0]["values"]) for selector in asked}
    assert exempt == {("gpu-operator", "gpu-webhook-system", "kube-system", "mine")}
    assert {hook["clientConfig"]["service"]["namespace"] for hook in hooks} == {"mine"}


@tables.rows
def test_a_wrong_value_is_refused_by_its_name(helm: Path, charted: Path, values: Object, said: str) -> None:
    ran = _template(helm, charted, values)

    assert ran.returncode != 0
    assert said in ran.stderr


def test_helm_has_nothing_to_say_about_the_chart(helm: Path, charted: Path) -> None:
    ran = subprocess.run(
        [helm, "lint", "--strict", f"--kube-version={VERSION}", charted], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout
    assert "[ERROR]" not in ran.stdout
    assert "[WARNING]" not in ran.stdout
