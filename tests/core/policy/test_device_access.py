"""Who has a way to devices that no request names: a kubelet its own pods, parts of Kubernetes annotations."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import policy, quota, rulebook_of
from webhook.core.review import AdmissionRequest
from webhook.core.rules.cluster import protected_names
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces
from webhook.core.validate import validate

Object = Mapping[str, Any]

RULES = tenants.rules(policy(quota=quota(devices=4)))
INJECTED = builders.pod(annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"})
HERE = "vision-dev"
PLATFORM = ("system:serviceaccount:gpu-operator:device-plugin", "system:kube-scheduler")
TENANTS = ("ada", "system:serviceaccount:vision-ci:ci", "system:serviceaccount:elsewhere:ci", "system:anonymous")
"""A person, an account of a tenant, one of a namespace without a policy, and nobody."""


def _refused(request: AdmissionRequest, user: str = "ada", rulebook: Rulebook = RULES) -> list[str]:
    decision = validate(request._replace(user=user, namespace=HERE), rulebook)
    return [f"{violation.code} {violation.path}" for violation in decision.violations]


def _updating(before: Object, after: Object) -> AdmissionRequest:
    return builders.updating(builders.written(before), builders.written(after))


@tables.rows
def test_a_kubelet_shows_what_runs_on_its_own_node_and_nobody_else_has_the_node(
    user: str, node: str, annotations: Mapping[str, str], *, let: bool
) -> None:
    privileged = builders.container(securityContext={"privileged": True})
    shown = builders.pod(privileged, annotations=annotations, nodeName=node)

    refused = _refused(builders.creating(shown), user)

    assert refused == ([] if let else ["GPU116 spec.containers[0].securityContext.privileged"])


@pytest.mark.parametrize("user", [*TENANTS, *PLATFORM])
@tables.rows
def test_a_user_who_debugs_a_pod_adds_no_container_with_devices(
    user: str, debugger: Object, refused: list[str]
) -> None:
    added = _updating({}, {"ephemeralContainers": [builders.container("debugger", **debugger)]})

    assert _refused(added._replace(subresource="ephemeralcontainers"), user) == refused


@tables.rows
def test_the_platform_writes_annotations_and_nobody_else_whatever_the_namespace(
    before: Object, after: Object, refused: list[str]
) -> None:
    update = _updating({"annotations": before}, {"annotations": after})

    assert {user: _refused(update, user) for user in TENANTS} == dict.fromkeys(TENANTS, refused)
    assert {user: _refused(update, user) for user in PLATFORM} == {user: [] for user in PLATFORM}


def test_an_account_of_another_tenant_writes_no_annotation_that_gives_devices() -> None:
    others = policy("others", namespaces=Namespaces(names=("elsewhere",)))
    both = tenants.rules(policy(quota=quota(devices=4)), others)
    update = builders.updating(builders.pod(), INJECTED)

    assert _refused(update, "system:serviceaccount:elsewhere:ci", both) == [
        'GPU116 metadata.annotations["nvidia.cdi.k8s.io/pod"]'
    ]


@tables.rows
def test_where_nobody_gets_a_device_no_update_adds_one(given: Object, code: str) -> None:
    bare = builders.pod()
    update = builders.updating(bare, INJECTED)._replace(namespace=HERE)
    requests = (
        builders.creating(INJECTED, HERE),
        update,
        update._replace(user="system:kube-scheduler"),
        update._replace(pod=bare, old_pod=INJECTED),
        builders.updating(INJECTED, {**INJECTED, "spec": bare["spec"]})._replace(namespace=HERE),
    )
    rulebook = rulebook_of(given)

    codes = [[violation.code for violation in validate(request, rulebook).violations] for request in requests]

    assert codes == [[code], [code], [], [], []]


def test_where_the_cluster_alone_says_who_reaches_devices_a_new_namespace_waits_for_nothing() -> None:
    silent = rulebook_of({"tenancy": {"watched": True}, "cluster": {"device_access": "warn"}})
    requests = (builders.creating(INJECTED, HERE), builders.updating(builders.pod(), INJECTED))

    decisions = [validate(request, silent) for request in requests]

    assert [(decision.allowed, len(decision.warnings)) for decision in decisions] == [(True, 1), (True, 1)]


def test_that_unknown_devices_are_let_gives_nobody_those_that_the_node_has() -> None:
    closed = rulebook_of({"tenancy": {"without_policy": "no-devices"}, "cluster": {"unknown_devices": "warn"}})
    unknown = builders.pod(builders.container(limits={"acme.example/gpu": "1"}))

    assert [violation.code for violation in validate(builders.creating(INJECTED), closed).violations] == ["GPU105"]
    assert validate(builders.creating(unknown), closed).violations == ()


@tables.rows
def test_a_runtime_class_with_a_vendors_handler_is_for_pods_with_a_device(
    pod: Object, resources: Object, *, let: bool
) -> None:
    """Where there is no quota, and claims are free."""
    cluster = builders.cluster("backends: [nvidia-gpu, dra-claim-template]")
    rulebook = builders.rulebook({**builders.shipped_files(), "cluster.yaml": cluster})
    handlers = {"fast": "nvidia-cdi", "sandbox": "runsc"}
    denying = tenants.rules(policy(device_access="deny"), rulebook=rulebook, handlers=handlers)

    raw = builders.pod(builders.container(resources=resources), **{"runtimeClassName": "fast", **pod})

    refused = _refused(builders.creating(raw), rulebook=denying)

    assert refused == ([] if let else ["GPU116 spec.runtimeClassName"])


@tables.rows
def test_a_container_reaches_the_node(context: Object, spec: Object, refused: list[str]) -> None:
    raw = builders.pod(builders.container(securityContext=context), **spec)

    assert _refused(builders.creating(raw)) == [
        f"GPU116 spec.containers[0].securityContext.{path}" for path in refused
    ]


def test_no_shipped_rule_writes_what_is_protected() -> None:
    """A webhook that sets `all` itself takes its own isolation away."""
    known = protected_names(tenants.RULES.protections)
    written = [
        (backend.name, section, key)
        for backend in tenants.RULES.backends.values()
        for outputs in (backend.inject.outputs, *(mode.outputs for mode in backend.modes))
        for section in ("env", "labels", "annotations")
        for key in getattr(outputs, section)
    ]

    assert [(name, section, key) for name, section, key in written if known[section].find(key)] == []
    assert len(written) > 200
