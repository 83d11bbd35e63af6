"""The shipped manifests, applied to a control plane of their own: nothing answers there behind the Service."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests import builders, tables
from tests.cluster.accounts import BASE, NAMESPACE
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, activate, configurations
from webhook.core import projection, request
from webhook.core.interpret import locations
from webhook.core.policy import updates
from webhook.core.registration import conditions
from webhook.core.rules import rulebook
from webhook.core.rules.verbs import Slot

pytestmark = pytest.mark.cluster

STORED = pod("stored", labels={"app": "web"}, containers=[container("main", resources=limits(**{"a.example/b": 1}))])
"""A pod with a device from before the webhook was installed."""

OTHERS = ["hami-webhook", "kai-admission", "koordinator-mutating-webhook", "volcano-admission-service-pods-mutate"]


@pytest.fixture(scope="module")
def installed(programs: Binaries) -> Iterator[Client]:
    with control_plane(programs, controllers=programs.has_controllers) as plane:
        plane.client.create(STORED)
        done = plane.client.kubectl("apply", "--server-side", "--validate=strict", "-k", str(BASE))
        assert (done.returncode, done.stderr) == (0, "")
        activate(plane.client)
        yield plane.client


def test_applying_again_changes_nothing_and_keeps_the_issued_ca_bundle_and_the_rules(installed: Client) -> None:
    mutating = configurations()[0]
    change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Y2E="}]
    patched = installed.kubectl("patch", mutating["kind"], "gpu-webhook", "--type=json", f"-p={change}")
    assert patched.returncode == 0, patched.stderr

    again = installed.kubectl("apply", "--server-side", "-k", str(BASE))

    assert (again.returncode, again.stderr) == (0, "")
    difference = installed.kubectl("diff", "--server-side", "-k", str(BASE))
    assert (difference.returncode, difference.stdout, difference.stderr) == (0, "", "")
    assert installed.get(mutating)["webhooks"][0]["clientConfig"]["caBundle"] == "Y2E="
    assert [hook["rules"] for hook in installed.get(mutating)["webhooks"]] == [
        hook["rules"] for hook in mutating["webhooks"]
    ]


@pytest.mark.usefixtures("controllers")
def test_the_deployments_pods_pass_pod_security_and_the_quota_for_critical_pods(installed: Client) -> None:
    probe = pod("any") | {"metadata": {"name": "any", "namespace": "gpu-webhook-system"}}

    def of_all() -> list[str]:
        found = (each["spec"] for each in installed.list(probe))
        accounts = sorted(
            each["serviceAccountName"] for each in found if each["priorityClassName"] == "system-cluster-critical"
        )
        return accounts if len(accounts) >= 5 else []

    expected = [*["gpu-webhook"] * 3, "gpu-webhook-certs", "gpu-webhook-settler"]
    assert until(of_all, "the Deployments have pods") == expected


def test_requests_of_our_accounts_have_a_priority_level_of_their_own(installed: Client) -> None:
    for account in ("gpu-webhook", "gpu-webhook-certs", "gpu-webhook-settler"):
        asked = installed.kubectl(
            "get", "--raw=/version", f"--as=system:serviceaccount:{NAMESPACE}:{account}", "-v=8"
        )
        assert asked.returncode == 0, asked.stderr

        level = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration"}
        uid = installed.get({**level, "metadata": {"name": "gpu-webhook"}})["metadata"]["uid"]
        assert uid in asked.stderr


def rights(client: Client, account: str, namespace: str = "default") -> set[str]:
    """What an account may do that one without any role may not, as `kubectl auth can-i --list` prints it."""
    asking = ("auth", "can-i", "--list", "--no-headers", f"--namespace={namespace}")
    printed = [
        client.kubectl(*asking, f"--as=system:serviceaccount:{NAMESPACE}:{each}") for each in (account, "nobody")
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
        "runtimeclasses.node.k8s.io [] [] [list watch]",
        "tenantpolicies.gpu-webhook.io [] [] [list watch]",
        "tenantusages.gpu-webhook.io [] [] [get]",
        "tenantusages.gpu-webhook.io/status [] [] [update]",
    }


def test_the_account_of_the_settler_may_do_what_it_does_and_nothing_else(installed: Client) -> None:
    assert rights(installed, "gpu-webhook-settler") == {
        "exemptions.gpu-webhook.io [] [] [list watch]",
        "namespaces [] [] [list watch]",
        "pods [] [] [get list watch]",
        "runtimeclasses.node.k8s.io [] [] [list watch]",
        "tenantpolicies.gpu-webhook.io [] [] [list watch]",
        "tenantpolicies.gpu-webhook.io/status [] [] [update]",
        "tenantusages.gpu-webhook.io [] [] [get list watch create delete]",
        "tenantusages.gpu-webhook.io/status [] [] [update]",
        *(
            f"validatingadmission{kind}.admissionregistration.k8s.io [] [gpu-webhook-{name}] [get update]"
            for kind in ("policies", "policybindings")
            for name in ("claims", "deletions", "deletions-warn", "devices", "devices-warn")
        ),
    }


def test_the_account_of_the_certificate_program_may_do_what_it_does_and_nothing_else(installed: Client) -> None:
    everywhere = {
        f"{kind}webhookconfigurations.admissionregistration.k8s.io [] {names}"
        for kind in ("mutating", "validating")
        for names in ("[gpu-webhook] [get patch]", "[] [create]")
    }

    assert rights(installed, "gpu-webhook-certs", "default") == {
        "endpointslices.discovery.k8s.io [] [] [list]",
        *everywhere,
    }
    assert rights(installed, "gpu-webhook-certs", NAMESPACE) == {
        "deployments.apps [] [gpu-webhook] [get]",
        "leases.coordination.k8s.io [] [] [create]",
        "secrets [] [] [create]",
        "secrets [] [gpu-webhook-ca] [get update]",
        "secrets [] [gpu-webhook-tls] [get update]",
        *everywhere,
    }


def test_no_pod_mounts_the_key_of_the_ca(installed: Client) -> None:
    deployments = installed.list(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": NAMESPACE}}
    )

    assert len(deployments) == 3
    assert "gpu-webhook-tls" in str(deployments)
    assert "'gpu-webhook-ca'" not in str(deployments)


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
    main = container("main", resources=resources, env=[{"name": "A", "value": "gpu"}])
    ordinary = pod("ordinary", labels={"app": "web"}, annotations={"a.example/note": "gpu"}, containers=[main])
    plain: dict[str, Any] = {
        "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "log", "hostPath": {"path": "/var/log"}}],
        "initContainers": [container("first"), container("beside", restartPolicy="Always")],
        "resources": {"limits": {"cpu": "2", "memory": "2Gi"}},
    }

    _awaits(partial(_try, installed, labels={"gpu": "1"}), "mutate.gpu-webhook.io")
    _awaits(partial(_try, installed, labels={"Gpus": "1"}), "mutate.gpu-webhook.io")

    assert installed.create(ordinary)["spec"]
    assert installed.create(pod("plain", **plain))["spec"]
    for namespace in ("kube-system", "gpu-operator"):
        assert installed.in_namespace(namespace).create(pod("exempt", labels={"gpu": "1"}), dry_run=True)["spec"]


@tables.rows
def test_while_the_webhook_is_away_pods_that_ask_for_devices_wait_for_it(
    installed: Client, asking: dict[str, object]
) -> None:
    _awaits(partial(_try, installed, **asking), "mutate.gpu-webhook.io")


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


def test_the_condition_on_bindings_is_affordable_up_to_a_thousand_keys_and_longer_ones_come_to_us(
    installed: Client,
) -> None:
    padding = [f"{'padding-' * 6}{number:06}" for number in range(20_000)]

    assert _bind(installed, labels=dict.fromkeys(padding[:1000], ""), annotations=dict.fromkeys(padding[:1000], ""))
    _awaits(partial(_bind, installed, annotations=dict.fromkeys(padding, "")), "bindings.gpu-webhook.io")


def test_a_binding_that_carries_any_key_that_the_shipped_rules_count_by_or_reserve_comes_to_us(
    installed: Client,
) -> None:
    rules = rulebook.with_every_backend(builders.rulebook(builders.shipped_files()))
    read = projection.allow_list(rules)
    theirs = {glob.replace("*", "main") for glob in updates.reserved(rules)}
    carried = [("labels", key) for key in read.labels.exact] + [
        ("annotations", key) for key in read.annotations.exact | theirs
    ]
    counting = [
        (section, key)
        for section, key in carried
        for binding in [builders.creating({"metadata": {"name": "train", section: {key: "1"}}})]
        if updates.unnamed(binding, binding, rules)
    ]
    _awaits(partial(_bind, installed, labels={"gpu": "1"}), "bindings.gpu-webhook.io")

    unseen = [key for section, key in counting if not _refused(partial(_bind, installed, **{section: {key: "1"}}))]

    assert len(counting) > 80
    assert unseen == []


def test_a_pod_in_every_back_ends_own_words_comes_to_us(installed: Client) -> None:
    rules = rulebook.with_every_backend(builders.rulebook(builders.shipped_files()))
    resources = [name for name in [*rules.resources, *locations.RESOURCES] if not isinstance(name, Slot)]
    said = [key for by_key in rules.slots.values() for key in by_key]
    forms: list[Mapping[str, Any]] = [
        *({"containers": [container("main", resources={"requests": {name: "1"}})]} for name in resources),
        *({"containers": [container("main", resources=limits(**{name: "1"}))]} for name in resources),
        *({"annotations": {key.partition(" ")[2]: "1"}} for key in said if key.startswith("annotation ")),
        *({"annotations": {slot.named("main"): "1"}} for slot in rules.per_container),
        *({"labels": {key: "1"}} for key in request.KEYS),
        *({kind: {f"gpu-webhook.io/{key.removeprefix('gpu-')}": "1"}} for key in request.KEYS for kind in METADATA),
        *({"annotations": {locations.annotation(key, "main"): "1"}} for key in request.KEYS),
        *({"annotations": {f"{prefix}main": "a"}} for source in rules.sources for prefix in source.prefixes),
    ]
    _awaits(partial(_try, installed, labels={"gpu": "1"}), "mutate.gpu-webhook.io")

    unseen = [form for form in forms if not _refused(partial(_try, installed, **form))]

    assert len(resources) > 150
    assert unseen == []


METADATA = ("labels", "annotations")


def _try(client: Client, **asking: Any) -> object:
    return client.create(pod("asking", **asking), dry_run=True)


def _refused(send: Callable[[], object]) -> bool:
    try:
        send()
    except RefusedError as refused:
        return "failed calling webhook" in str(refused)
    return False


def _sizes(number: int) -> Object:
    return {"limits": {"cpu": "1", **{f"hugepages-{2 + each}Mi": "0" for each in range(number - 1)}}}


def test_the_match_condition_is_affordable_for_the_largest_pod_that_it_looks_into(installed: Client) -> None:
    """Twice over: it asks the old pod of an update, too."""
    most = {f"{'padding-' * 6}{number:06}": "" for number in range(conditions.MANY)}
    variables = [{"name": f"VARIABLE_{number}", "value": ""} for number in range(conditions.MANY)]
    many = [
        container(f"c{number}", resources=_sizes(conditions.FEW), env=variables)
        for number in range(conditions.CONTAINERS - 1)
    ]

    large = installed.create(pod("large", labels=most, annotations=most, containers=many))

    first = next(iter(most))
    assert installed.patch(large, {"metadata": {"labels": {first: "a"}}})["metadata"]["labels"][first] == "a"


PADDING = {f"{'padding-' * 6}{number:06}": "" for number in range(20_000)}
LARGER: Mapping[str, Mapping[str, Any]] = {
    "labels": {"labels": PADDING},
    "annotations": {"annotations": {f"{number:06}": "" for number in range(30_000)}},
    "containers": {"containers": [container(f"c{number}", resources=_sizes(20)) for number in range(500)]},
    "amounts": {"containers": [container("main", resources=_sizes(conditions.FEW + 2))]},
}


@pytest.mark.parametrize("kind", LARGER)
def test_of_a_larger_pod_nothing_is_looked_at_and_it_comes_to_us(installed: Client, kind: str) -> None:
    _awaits(partial(_try, installed, **LARGER[kind]), "mutate.gpu-webhook.io")


@pytest.mark.parametrize("other", OTHERS)
def test_our_configurations_sort_before_those_of_the_back_ends(other: str) -> None:
    assert all(configuration["metadata"]["name"] < other for configuration in configurations())


def test_both_are_asked_about_a_pod_that_asks() -> None:
    """One is asked more: by what it may refuse."""
    mutate, validate = (configuration["webhooks"][0] for configuration in configurations())

    asks = indent(conditions.asking(builders.rulebook(builders.shipped_files())), "  ")
    for [condition] in (mutate["matchConditions"], validate["matchConditions"]):
        assert f"exists(pod,\n{asks}) ||\n" in condition["expression"]
    assert mutate["namespaceSelector"] == validate["namespaceSelector"]


def test_every_manifest_is_listed() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]

    shipped = {str(path.relative_to(BASE)) for path in Path(BASE).rglob("*.yaml")}
    assert shipped == {*listed, "kustomization.yaml"} - {"../../rules"}
