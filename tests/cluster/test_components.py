"""What each component changes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from certs.activation import WANTED
from tests.cluster.binaries import Binaries
from tests.cluster.webhook import OF_LEASES
from tests.release import kustomized

pytestmark = pytest.mark.cluster

Changed = Callable[[str], Sequence[kustomized.Object]]


@pytest.fixture
def changed(programs: Binaries) -> Changed:
    return lambda component: kustomized.objects(programs.path("kubectl"), [component])


def _named(objects: Sequence[kustomized.Object], kind: str, name: str = "gpu-webhook") -> Any:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def _hooks(objects: Sequence[kustomized.Object]) -> dict[str, Any]:
    """Our webhooks by name, without those that only the certificate program calls."""
    hooks = [hook for each in objects for hook in each.get("webhooks", ())]
    return {hook["name"].partition(".")[0]: hook for hook in hooks if hook["name"] not in OF_LEASES}


def test_observing_never_fails_a_create(changed: Changed) -> None:
    policies = {name: hook["failurePolicy"] for name, hook in _hooks(changed("observe-only")).items()}

    assert policies == dict.fromkeys(
        ("mutate", "unfit-templates", "remove", "validate", "bindings", "templates", "workloads", "policies"),
        "Ignore",
    )


def test_opting_in_is_by_a_label_and_exempt_namespaces_stay_exempt(changed: Changed) -> None:
    selectors = {name: hook["namespaceSelector"] for name, hook in _hooks(changed("namespace-opt-in")).items()}

    assert selectors.pop("policies") == {}  # its objects have no namespace
    opted_in = {"gpu-webhook.io/admission": "enabled"}
    assert selectors["remove"]["matchLabels"] == {**opted_in, "gpu-webhook.io/device-access": "remove"}
    assert all(opted_in.items() <= selected["matchLabels"].items() for selected in selectors.values())
    assert all(each["matchExpressions"][0]["operator"] == "NotIn" for each in selectors.values())


def test_on_gke_the_control_plane_comes_to_the_port_that_is_open(changed: Changed) -> None:
    objects = changed("gke")

    container = _named(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "--bind=0.0.0.0:10250" in container["args"]
    assert container["ports"][0]["containerPort"] == 10250


def test_on_eks_what_the_control_plane_calls_is_on_the_nodes_network(changed: Changed) -> None:
    objects = changed("eks")

    pod = _named(objects, "Deployment")["spec"]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    labels = _named(objects, "Namespace", "gpu-webhook-system")["metadata"]["labels"]
    assert {value for key, value in labels.items() if key.startswith("pod-security")} == {"privileged"}


def test_on_aks_both_configurations_are_left_alone(changed: Changed) -> None:
    labels = [each["metadata"]["labels"] for each in changed("aks") if "webhooks" in each]

    assert [each["admissions.enforcer/disabled"] for each in labels] == ["true", "true"]


def test_a_single_replica_is_replaced_without_a_gap(changed: Changed) -> None:
    spec = _named(changed("single-replica"), "Deployment")["spec"]

    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (1, {"maxSurge": 1, "maxUnavailable": 0})


def test_where_others_issue_certificates_the_program_only_activates_and_sees_no_secret(changed: Changed) -> None:
    for component in ("own-certificates", "cert-manager"):
        objects = changed(component)
        ours = [each for each in objects if each["metadata"]["name"] == "gpu-webhook-certs"]
        (container,) = _named(ours, "Deployment", "gpu-webhook-certs")["spec"]["template"]["spec"]["containers"]
        assert container["args"][0] == "activate"
        granted = [rule for each in ours for rule in each.get("rules", ())]
        assert sorted({(*rule["resources"], *rule["verbs"]) for rule in granted}) == [
            ("deployments", "get"),
            ("endpointslices", "list"),
            ("leases", "create"),
            ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "get", "patch"),
        ]


def test_cert_manager_takes_the_place_of_the_certificate_program(changed: Changed) -> None:
    objects = changed("cert-manager")

    annotations = [each["metadata"]["annotations"] for each in objects if "webhooks" in each]
    injected = {"cert-manager.io/inject-ca-from": "gpu-webhook-system/gpu-webhook"}
    assert [{key: value for key, value in each.items() if key != WANTED} for each in annotations] == [injected] * 2
    secret = _named(objects, "Certificate")["spec"]["secretName"]
    volumes = _named(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert [each["secret"]["secretName"] for each in volumes if "secret" in each] == [secret]


def test_the_console_listens_on_loopback_and_has_no_token(changed: Changed) -> None:
    pod = _named(changed("console"), "Deployment", "gpu-webhook-console")["spec"]["template"]["spec"]

    assert pod["automountServiceAccountToken"] is False
    assert not [each for each in pod["volumes"] if "serviceAccountToken" in str(each)]
    assert "--bind=127.0.0.1:8080" in pod["containers"][0]["args"]


def test_prometheus_comes_to_each_program_by_a_service_and_a_port_that_exist(changed: Changed) -> None:
    objects = changed("prometheus")
    services = [each for each in objects if each["kind"] == "Service"]
    deployments = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]

    reached = []
    for monitor in (each["spec"] for each in objects if each["kind"] == "ServiceMonitor"):
        wanted = monitor["selector"]["matchLabels"].items()
        [service] = [each for each in services if wanted <= each["metadata"].get("labels", {}).items()]
        [port] = [each for each in service["spec"]["ports"] if each["name"] == monitor["endpoints"][0]["port"]]
        selected = service["spec"]["selector"].items()
        [pod] = [each for each in deployments if selected <= each["metadata"]["labels"].items()]
        named = [one["name"] for container in pod["spec"]["containers"] for one in container.get("ports", ())]
        assert port["targetPort"] in named
        reached.append(pod["metadata"]["labels"]["app.kubernetes.io/name"])
    assert sorted(reached) == ["gpu-webhook", "gpu-webhook-certs", "gpu-webhook-settler"]


def test_nobody_but_prometheus_comes_to_the_ports_that_name_tenants(changed: Changed) -> None:
    of_reviews: list[Any] = [{"ports": [{"port": "https", "protocol": "TCP"}]}]
    closed = {"gpu-webhook": of_reviews, "gpu-webhook-settler": None, "gpu-webhook-certs": None}
    from_prometheus = [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "ports": [{"port": name, "protocol": "TCP"} for name in ("metrics", "http")],
        }
    ]

    assert _let_in(changed("single-replica")) == closed
    assert _let_in(changed("prometheus")) == {**closed, "gpu-webhook-metrics": from_prometheus}


def _let_in(objects: Sequence[kustomized.Object]) -> dict[str, Any]:
    """The rules for what comes in, by policy."""
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert all("Ingress" in each["spec"]["policyTypes"] for each in policies)
    return {each["metadata"]["name"]: each["spec"].get("ingress") for each in policies}
