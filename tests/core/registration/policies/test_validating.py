"""The policies that a small rulebook becomes; what they refuse is tried in tests/cluster/tenancy/test_net.py."""

from dataclasses import replace
from textwrap import indent
from typing import Any

from tests import tables
from tests.core import acme
from webhook.core.registration.policies import filled_in, render_resource_quotas, render_validating

MODES = """\
modes:
- when: {devices: whole}
  limits: {acme.example/gpu: count}
"""
SHARES: str = tables.table(__file__, "shares")
HEAD = "apiVersion: gpu-webhook.io/v1alpha1\nkind:"
PROTECTION: str = tables.table(__file__, "protection")
NOT_ENABLED = acme.BACKEND.replace("{name: acme}", "{name: other}") + indent(MODES.replace("acme", "other"), "  ")
POLICY = """\
metadata: {name: %s}
spec: %s
"""


def tenants(**specs: str) -> str:
    return "---\n".join(f"{HEAD} TenantPolicy\n{POLICY % (name, spec)}" for name, spec in specs.items())


def exemption(spec: str) -> str:
    return f"---\n{HEAD} Exemption\n{POLICY % ('e', '{owner: a, reason: b, expires: 2099-01-01T00:00:00Z, ' + spec)}"


BY_DEFAULT = f"{acme.CLUSTER}  namespacesWithoutPolicy: {{default: a}}\n"
"""A cluster where the policy a holds in each namespace that no other one selects."""


def rendered(
    policies: str, modes: str = MODES, observe: str = "false", cluster: str = acme.CLUSTER
) -> dict[str, dict[str, Any]]:
    files = {"other.yaml": NOT_ENABLED, "protect.yaml": PROTECTION, "tenants.yaml": policies}
    files["cluster.yaml"] = f"{cluster}  observe: {observe}\n"
    rulebook = acme.rulebook(modes, files)
    objects = {
        f"{made['kind'].removeprefix('ValidatingAdmission')} {made['metadata']['name']}": made
        for made in render_validating(rulebook)
    }
    for name, policy, binding in filled_in(rulebook, 0):
        objects |= {f"Policy {name}": {"spec": policy}, f"PolicyBinding {name}": {"spec": binding}}
    return objects


def variable(policy: dict[str, Any], name: str) -> str:
    [found] = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == name]
    return str(found)


def quotas(policies: str, modes: str = MODES, cluster: str = acme.CLUSTER) -> list[tuple[str, dict[str, str]]]:
    rulebook = acme.rulebook(modes, {"cluster.yaml": cluster, "tenants.yaml": policies})
    return [(each["metadata"]["namespace"], each["spec"]["hard"]) for each in render_resource_quotas(rulebook)]


def test_what_the_settler_writes_does_not_depend_on_the_order_in_which_policies_were_heard_of() -> None:
    every = "{namespaces: {names: ['*']}, deviceAccess: deny}"
    policies = tenants(z="{namespaces: {names: [z]}, deviceAccess: deny, priority: 1}", a=every)
    rulebook = acme.rulebook(MODES, {"cluster.yaml": acme.CLUSTER, "tenants.yaml": policies})
    tenancy = rulebook.tenancy
    later = replace(rulebook, tenancy=replace(tenancy, policies=tenancy.policies[::-1]))

    assert [policy.name for policy in tenancy.policies] == ["z", "a"]
    assert [*filled_in(rulebook, 0)] == [*filled_in(later, 0)]


def test_without_a_tenant_only_shorthand_and_what_is_ours_is_looked_at() -> None:
    objects = rendered("")

    kept = [f"{name}{end}" for name in ("devices", "deletions") for end in ("", "-warn")]
    assert [name for name in objects if name.startswith("Policy ")] == [
        f"Policy gpu-webhook-{name}" for name in ("shorthand", "namespaces", "ledgers", *kept, "claims")
    ]
    assert [expressions(objects, name) for name in kept] == [[NOWHERE]] * 4


NOWHERE = {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}
EXEMPT = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["acme-system"]}
THERE = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]}
WHERE = {"nowhere": NOWHERE, "in all but the exempt ones": EXEMPT, "in a": THERE}


def expressions(objects: dict[str, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Which namespaces a policy that the settler fills in is asked about."""
    selected = objects[f"PolicyBinding gpu-webhook-{name}"]["spec"]["matchResources"]["namespaceSelector"]
    return list(selected["matchExpressions"])


def test_what_becomes_of_a_pod_is_the_action_of_the_binding_of_the_namespaces_that_have_it() -> None:
    objects = rendered(tenants(a="{namespaces: {names: [b, a]}, deviceAccess: warn}"))

    there = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert objects["PolicyBinding gpu-webhook-device-names-warn"]["spec"] == {
        "policyName": "gpu-webhook-device-names-warn",
        "validationActions": ["Warn"],
        "matchResources": {
            "namespaceSelector": {"matchExpressions": [there]},
            "objectSelector": {},
            "matchPolicy": "Equivalent",
        },
    }
    asked = [expressions(objects, name) for name in ("devices", "devices-warn")]
    assert asked == [[EXEMPT], [there]]  # others get no device


@tables.rows
def test_by_this_policy_these_namespaces_are_asked_about(
    spec: str, cluster: str, observe: str, asked: dict[str, str]
) -> None:
    clusters = {"usual": acme.CLUSTER, "by default": BY_DEFAULT}
    objects = rendered(tenants(a=spec), observe=observe, cluster=clusters[cluster])

    assert {name: expressions(objects, name) for name in asked} == {name: [WHERE[at]] for name, at in asked.items()}


def test_without_a_quota_or_for_what_an_exemption_lifts_no_deletion_is_refused() -> None:
    several = tenants(a="{namespaces: {names: [a]}}", b="{namespaces: {names: [b]}, quota: {devices: 1}}")
    objects = rendered(several + exemption("namespaces: [b-x], lifts: [quota]}"))

    [refused] = objects["Policy gpu-webhook-deletions"]["spec"]["validations"]
    assert refused["expression"].partition(" || authorizer")[0] == (
        "!(variables.policy in ['?'] || (variables.policy in ['b'] && "
        "!(variables.policy != '' && (((request.namespace in ['b-x']) && (true))) && !(false))))"
    )


def test_a_variable_is_judged_by_the_first_entry_that_its_name_fits_and_only_by_enabled_back_ends() -> None:
    names = rendered(tenants(a="{namespaces: {names: [a]}, deviceAccess: deny}"))["Policy gpu-webhook-devices"]

    lines = [line.strip() for line in variable(names, "env").partition("exists(value,\n")[2].splitlines()]
    assert lines[:6] == [
        "name in ['ACME_CARDS'] ?",
        "(value in ['none'] ||",
        "(variables.served && (value.startsWith('configMapKeyRef ')))) :",
        "name.startsWith('ACME_') ?",
        "(false) :",
        "true))",
    ]


def test_a_host_path_is_compared_with_those_below_and_above() -> None:
    nodes = rendered(tenants(a="{namespaces: {names: [a]}, deviceAccess: deny}"))["Policy gpu-webhook-devices"]

    paths = variable(nodes, "hostPaths")
    assert "path.startsWith('/dev/acme')" in paths
    assert "path in ['/', '/dev']" in paths
    assert "!(path.startsWith('/dev/'))" in paths


@tables.rows
def test_whose_pods_are_judged(specs: dict[str, str], more: str, theirs: str) -> None:
    names = rendered(tenants(**specs) + more)["Policy gpu-webhook-device-names"]

    expressions = " ".join(variable["expression"] for variable in names["spec"]["variables"])
    assert " ".join(theirs.split()) in " ".join(expressions.split())


def test_a_ceiling_bounds_the_whole_devices_that_its_devices_and_its_compute_allow() -> None:
    policies = tenants(
        a='{namespaces: {names: [a]}, ceilings: {pod: {devices: "4.5", cores: 300}}}',
        b="{namespaces: {names: [b]}, ceilings: {container: {devices: 2},"
        " pod: {devices: 8, enforcementAction: warn}}}",
        c="{namespaces: {names: [c]}, ceilings: {pod: {memory: 40Gi}}}",
    )

    denied, warned = (rendered(policies)[f"Policy gpu-webhook-ceilings{end}"] for end in ("", "-warn"))

    assert variable(denied, "container") == "{'b': 2.0}[?variables.policy].orValue(1000000000.0)"
    assert variable(denied, "pod") == "{'a': 3.0}[?variables.policy].orValue(1000000000.0)"
    assert variable(warned, "pod") == "{'b': 8.0}[?variables.policy].orValue(1000000000.0)"


def test_a_ceiling_of_shares_is_the_webhooks_alone() -> None:
    policies = tenants(a="{namespaces: {names: [a]}, ceilings: {pod: {devices: 4}}}")

    assert "Policy gpu-webhook-ceilings" not in rendered(policies, SHARES)


def test_a_tenant_with_one_namespace_gets_a_bound_of_kubernetes_own() -> None:
    assert quotas(tenants(a='{namespaces: {names: [a]}, quota: {devices: "2.5"}}')) == [
        ("a", {"requests.acme.example/gpu": "2"})
    ]


@tables.rows
def test_a_bound_that_might_be_lower_than_the_quota_is_not_written(
    specs: dict[str, str], modes: str, more: str
) -> None:
    assert quotas(tenants(**specs) + more, {"whole": MODES, "shares": SHARES}[modes]) == []


def test_the_default_policy_bounds_no_namespace_of_its_own() -> None:
    assert quotas(tenants(a="{namespaces: {names: [a]}, quota: {devices: 2}}"), cluster=BY_DEFAULT) == []
