"""`gpu-webhook render`."""

from pathlib import Path

import yaml

from tests import tables
from tests.cli.program import SHIPPED, run
from tests.cluster.webhook import MANIFEST, OF_LEASES, configurations


def test_the_committed_configurations_are_what_the_shipped_rules_make() -> None:
    ran = run("render", "webhooks", "--rules", SHIPPED)

    assert ran.code == 0
    assert ran.out == MANIFEST.read_text(), f"run: gpu-webhook render webhooks > {MANIFEST}"


def test_without_the_certificate_program_they_can_be_active_at_once() -> None:
    ran = run("render", "webhooks", "--rules", SHIPPED, "--active")

    without = [{**each, "metadata": {"name": "gpu-webhook"}} for each in configurations()]
    assert [*yaml.safe_load_all(ran.out)] == without


def _with(text: str, folder: Path) -> Path:
    """The shipped rules with another list of exempt namespaces."""
    for file in SHIPPED.glob("*.yaml"):
        lines = file.read_text().splitlines(keepends=True)
        changed = (f"  systemNamespaces: {text}\n" if "systemNamespaces:" in line else line for line in lines)
        (folder / file.name).write_text("".join(changed))
    return folder


def test_the_namespaces_left_out_are_the_exempt_ones_of_the_cluster(tmp_path: Path) -> None:
    rules = _with("[kube-system, mine, storage]", tmp_path)

    ran = run("render", "webhooks", "--rules", rules, "--namespace", "mine")

    hooks = [hook for configuration in yaml.safe_load_all(ran.out) for hook in configuration["webhooks"]]
    names = ["kube-system", "mine", "storage"]
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}
    selectors = {h["name"]: h["namespaceSelector"] for h in hooks if h["name"] not in OF_LEASES}
    assert selectors.pop("policies.gpu-webhook.io") == {}
    removing = {"matchLabels": {"gpu-webhook.io/device-access": "remove"}}
    assert selectors.pop("remove.gpu-webhook.io") == {"matchExpressions": [left_out], **removing}
    assert [*selectors.values()] == [{"matchExpressions": [left_out]}] * 6
    assert {hook["clientConfig"]["service"]["namespace"] for hook in hooks} == {"mine"}


def test_a_cluster_that_could_not_start_while_nobody_answers_is_not_rendered(tmp_path: Path) -> None:
    ran = run("render", "webhooks", "--rules", _with("[gpu-webhook-system]", tmp_path))

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "gpu-webhook: cluster.yaml:27:3: spec.systemNamespaces: has no kube-system: while no replica answers "
        "reviews, the cluster could not start; add it\n"
    )


def test_what_decides_fails_closed_in_every_version_of_the_api_and_without_side_effects() -> None:
    """All but what only warns, or takes out what is refused otherwise."""
    hooks = [hook for each in configurations() for hook in each["webhooks"] if hook["name"] not in OF_LEASES]

    assert {(hook["matchPolicy"], hook["sideEffects"]) for hook in hooks} == {
        ("Equivalent", "None"),
        ("Equivalent", "NoneOnDryRun"),
    }
    assert {hook["name"].partition(".")[0]: hook["failurePolicy"] for hook in hooks} == {
        "mutate": "Fail",
        "validate": "Fail",
        "bindings": "Fail",
        "unfit-templates": "Ignore",
        "remove": "Ignore",
        "templates": "Ignore",
        "workloads": "Ignore",
        "policies": "Ignore",
    }


TENANTS: str = tables.table(__file__, "tenants")


def test_policies_are_rendered_of_tenants_as_kubectl_prints_them(tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text(TENANTS % 4)

    ran = run("render", "policies", "--rules", SHIPPED, "--with", tmp_path / "tenants.yaml")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == (
        "# Printed by `gpu-webhook render policies`, of 1 TenantPolicies and 0 Exemptions. "
        "Changed ones have to be rendered again."
    )
    objects = [*yaml.safe_load_all(ran.out)]
    assert [(each["kind"], each["metadata"]["name"]) for each in objects] == [
        *(
            (kind, f"gpu-webhook-{family}")
            for family in ("shorthand", "namespaces", "ledgers", "device-names")
            for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        ),
        ("ResourceQuota", "gpu-webhook"),
    ]
    assert objects[-1]["spec"] == {"hard": {"requests.amd.com/gpu": "4", "requests.nvidia.com/gpu": "4"}}


def test_a_mutating_policy_is_rendered_where_it_is_asked_for_and_a_tenant_minds(tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text(TENANTS % 4)

    asked = ("render", "policies", "--mutating", "--rules", SHIPPED)
    with_tenant, without = run(*asked, "--with", tmp_path / "tenants.yaml"), run(*asked)

    policy, binding = (*yaml.safe_load_all(with_tenant.out),)[-2:]
    assert (policy["kind"], binding["kind"]) == ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    assert policy["spec"]["variables"][-1] == {
        "name": "entries",
        "expression": "[{'name': 'NVIDIA_VISIBLE_DEVICES', 'value': 'void'},"
        " {'name': 'NVIDIA_IMEX_CHANNELS', 'value': 'void'}, {'name': 'AMD_VISIBLE_DEVICES', 'value': 'void'}]",
    }
    assert "MutatingAdmissionPolicy" not in without.out


def test_policies_are_not_rendered_of_a_tenant_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text(TENANTS % "many")

    ran = run("render", "policies", "--rules", SHIPPED, "--with", tmp_path / "tenants.yaml")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("gpu-webhook: vision: its policy cannot be used: ")


def test_policies_are_not_rendered_where_the_webhook_only_observes(tmp_path: Path) -> None:
    rules = _with("[kube-system, gpu-webhook-system]\n  observe: true", tmp_path)

    ran = run("render", "policies", "--rules", rules)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "gpu-webhook: spec.observe of the Cluster document is true: the webhook refuses nothing, so nor may this\n"
    )
