"""Who has a way to devices that no request names: a kubelet its own pods, parts of Kubernetes annotations."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import policy, quota
from webhook.core.review import AdmissionRequest
from webhook.core.rules.cluster import protected_names
from webhook.core.rules.tenant_policy import Namespaces
from webhook.core.validate import validate

RULES = tenants.rules(policy(quota=quota(devices=4)))
INJECTED = "nvidia.cdi.k8s.io/pod"
HERE = "vision-dev"


def _codes(request: AdmissionRequest, user: str) -> list[str]:
    decision = validate(request._replace(user=user, namespace=HERE), RULES)
    return [f"{each.code} {each.path}" for each in decision.violations]


@tables.rows
def test_a_kubelet_shows_what_runs_on_its_own_node_and_nobody_else_has_the_node(
    user: str, node: str, annotations: Mapping[str, str], *, let: bool
) -> None:
    privileged = builders.container(securityContext={"privileged": True})
    shown = builders.pod(privileged, annotations=annotations, nodeName=node)

    refused = _codes(builders.creating(shown), user)

    assert refused == ([] if let else ["GPU116 spec.containers[0].securityContext.privileged"])


def _debugged(**fields: Any) -> AdmissionRequest:
    debugger = builders.container("debugger", **fields)
    added = builders.updating(builders.pod(), builders.pod(ephemeralContainers=[debugger]))
    return added._replace(subresource="ephemeralcontainers")


ACCOUNTS = (
    "ada",
    "system:serviceaccount:vision-ci:ci",
    "system:serviceaccount:elsewhere:ci",
    "system:kube-scheduler",
)


@pytest.mark.parametrize("user", ACCOUNTS)
def test_whoever_debugs_a_pod_adds_no_container_with_devices(user: str) -> None:
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}

    assert _codes(_debugged(env=[variable]), user) == ["GPU116 spec.ephemeralContainers[0].env[0]"]
    assert _codes(_debugged(securityContext={"privileged": True}), user) == [
        "GPU116 spec.ephemeralContainers[0].securityContext.privileged"
    ]
    assert _codes(_debugged(), user) == []


@pytest.mark.parametrize(("user", "let"), [*zip(ACCOUNTS, (False, False, True, True), strict=True)])
def test_parts_of_kubernetes_and_accounts_of_others_write_annotations(user: str, *, let: bool) -> None:
    update = builders.updating(builders.pod(), builders.pod(annotations={INJECTED: "nvidia.com/gpu=0"}))

    assert _codes(update, user) == ([] if let else [f'GPU116 metadata.annotations["{INJECTED}"]'])


@pytest.mark.parametrize(("user", "let"), [*zip(ACCOUNTS, (False, False, True, True), strict=True)])
def test_what_a_part_of_kubernetes_has_written_is_changed_by_no_tenant(user: str, *, let: bool) -> None:
    stored = builders.pod(annotations={INJECTED: "nvidia.com/gpu=0"})
    update = builders.updating(stored, builders.pod(annotations={INJECTED: "nvidia.com/gpu=all"}))

    assert _codes(update, user) == ([] if let else [f'GPU116 metadata.annotations["{INJECTED}"]'])
    assert _codes(builders.updating(stored, builders.pod(annotations={INJECTED: "nvidia.com/gpu=0"})), user) == []


def test_an_account_of_another_tenant_writes_no_annotation_that_gives_devices() -> None:
    others = policy("others", namespaces=Namespaces(names=("elsewhere",)))
    update = builders.updating(builders.pod(), builders.pod(annotations={INJECTED: "nvidia.com/gpu=0"}))
    request = update._replace(user="system:serviceaccount:elsewhere:ci", namespace=HERE)

    decision = validate(request, tenants.rules(policy(quota=quota(devices=4)), others))

    assert [each.code for each in decision.violations] == ["GPU116"]


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

    assert [each for each in written if known[each[1]].find(each[2])] == []
    assert len(written) > 200
