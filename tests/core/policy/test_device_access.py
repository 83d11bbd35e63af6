"""Who has a way to devices that no request names: a kubelet its own pods, parts of Kubernetes annotations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import policy, quota
from webhook.core.review import AdmissionRequest
from webhook.core.rules.cluster import protected_names
from webhook.core.rules.rulebook import Rulebook
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
    "system:anonymous",
    "system:serviceaccount:gpu-operator:device-plugin",
    "system:kube-scheduler",
)
"""A person, an account of a tenant, one of a namespace without a policy, and nobody; then those of the platform."""

LET = (False, False, False, False, True, True)


@pytest.mark.parametrize("user", ACCOUNTS)
def test_whoever_debugs_a_pod_adds_no_container_with_devices(user: str) -> None:
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}

    assert _codes(_debugged(env=[variable]), user) == ["GPU116 spec.ephemeralContainers[0].env[0]"]
    assert _codes(_debugged(securityContext={"privileged": True}), user) == [
        "GPU116 spec.ephemeralContainers[0].securityContext.privileged"
    ]
    assert _codes(_debugged(), user) == []


@pytest.mark.parametrize(("user", "let"), [*zip(ACCOUNTS, LET, strict=True)])
def test_the_platform_writes_annotations_and_nobody_else_whatever_the_namespace(user: str, *, let: bool) -> None:
    update = builders.updating(builders.pod(), builders.pod(annotations={INJECTED: "nvidia.com/gpu=0"}))

    assert _codes(update, user) == ([] if let else [f'GPU116 metadata.annotations["{INJECTED}"]'])


@pytest.mark.parametrize(("user", "let"), [*zip(ACCOUNTS, LET, strict=True)])
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


BROKEN = policy(broken="no catalogue knows the model")
ELSEWHERE = policy("others", namespaces=Namespaces(names=("elsewhere",)))
WITHOUT: Mapping[str, tuple[Rulebook, str]] = {
    "no policy, where without one nobody has devices": (tenants.rules(without_policy="no-devices"), "GPU105"),
    "no policy, beside one of others": (tenants.rules(ELSEWHERE), "GPU105"),
    "a default policy that is not there": (tenants.rules(without_policy={"default": "gone"}), "GPU105"),
    "two policies of one priority": (tenants.rules(policy(), policy("rival")), "GPU106"),
    "a policy that cannot be read": (tenants.rules(BROKEN), "GPU113"),
    "policies that cannot be read": (tenants.rules(unknown="the API server does not answer"), "GPU111"),
    "no labels, as it is new": (tenants.rules(policy(), watched=True), "GPU111"),
}
"""Where nobody gets a device, and the code of the refusal."""


@pytest.mark.parametrize(("rulebook", "code"), WITHOUT.values(), ids=WITHOUT)
def test_where_nobody_gets_a_device_no_update_adds_one(rulebook: Rulebook, code: str) -> None:
    injected, bare = builders.pod(annotations={INJECTED: "nvidia.com/gpu=all"}), builders.pod()
    update = builders.updating(bare, injected)._replace(namespace=HERE)
    requests = (
        builders.creating(injected, HERE),
        update,
        update._replace(user="system:kube-scheduler"),
        update._replace(pod=bare, old_pod=injected),
        builders.updating(injected, {**injected, "spec": bare["spec"]})._replace(namespace=HERE),
    )

    codes = [[violation.code for violation in validate(request, rulebook).violations] for request in requests]

    assert codes == [[code], [code], [], [], []]


def test_where_the_cluster_alone_says_who_reaches_devices_a_new_namespace_waits_for_nothing() -> None:
    silent = tenants.rules(watched=True)
    silent = replace(silent, cluster=replace(silent.cluster, device_access="warn"))
    injected = builders.pod(annotations={INJECTED: "nvidia.com/gpu=all"})
    requests = (builders.creating(injected, HERE), builders.updating(builders.pod(), injected))

    decisions = [validate(request, silent) for request in requests]

    assert [(decision.allowed, len(decision.warnings)) for decision in decisions] == [(True, 1), (True, 1)]


def test_that_unknown_devices_are_let_gives_nobody_those_that_the_node_has() -> None:
    closed = tenants.rules(without_policy="no-devices")
    closed = replace(closed, cluster=replace(closed.cluster, unknown_devices="warn"))
    injected = builders.creating(builders.pod(annotations={INJECTED: "nvidia.com/gpu=all"}))
    unknown = builders.creating(builders.pod(builders.container(limits={"acme.example/gpu": "1"})))

    assert [violation.code for violation in validate(injected, closed).violations] == ["GPU105"]
    assert validate(unknown, closed).violations == ()


CLAIM: Mapping[str, Any] = {"resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "mine"}]}
CLAIMING = builders.container(resources={"claims": [{"name": "mine"}]})
HANDLERS = {"fast": "nvidia-cdi", "sandbox": "runsc"}
WITH_A_CLASS: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "alone": (builders.pod(runtimeClassName="fast"), False),
    "with a device": (
        builders.pod(builders.container(limits={"nvidia.com/gpu": "1"}), runtimeClassName="fast"),
        True,
    ),
    "with a device of no amount": (
        builders.pod(builders.container(limits={"nvidia.com/gpu": "0"}), runtimeClassName="fast"),
        False,
    ),
    "with a network card": (
        builders.pod(builders.container(limits={"nvidia.com/rdma": "1"}), runtimeClassName="fast"),
        False,
    ),
    "with a claim": (builders.pod(runtimeClassName="fast", **CLAIM), False),
    "with a claim that its container uses": (builders.pod(CLAIMING, runtimeClassName="fast", **CLAIM), False),
    "with a claim that a back end would have made": (
        builders.pod(CLAIMING, runtimeClassName="fast", labels={"gpu-claim": "mine"}, **CLAIM),
        False,
    ),
    "of another handler": (builders.pod(runtimeClassName="sandbox"), True),
}


@pytest.mark.parametrize(("made", "let"), WITH_A_CLASS.values(), ids=WITH_A_CLASS)
def test_a_runtime_class_with_a_vendors_handler_is_for_pods_with_a_device(
    made: Mapping[str, Any], *, let: bool
) -> None:
    """Where there is no quota, and claims are free."""
    cluster = builders.cluster("backends: [nvidia-gpu, dra-claim-template]")
    rulebook = builders.rulebook({**builders.shipped_files(), "cluster.yaml": cluster})
    denying = tenants.rules(policy(device_access="deny"), rulebook=rulebook, handlers=HANDLERS)

    decision = validate(builders.creating(made, HERE), denying)

    assert [f"{each.code} {each.path}" for each in decision.violations] == (
        [] if let else ["GPU116 spec.runtimeClassName"]
    )


def test_who_may_trace_the_processes_of_the_node_has_their_devices() -> None:
    tracing = builders.container(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}})

    assert _codes(builders.creating(builders.pod(tracing)), "ada") == []
    assert _codes(builders.creating(builders.pod(hostPID=True)), "ada") == []
    assert _codes(builders.creating(builders.pod(tracing, hostPID=True)), "ada") == [
        "GPU116 spec.containers[0].securityContext.capabilities.add"
    ]


def test_no_container_has_an_unmasked_proc() -> None:
    unmasked, masked = (builders.container(securityContext={"procMount": how}) for how in ("Unmasked", "Default"))

    assert _codes(builders.creating(builders.pod(masked)), "ada") == []
    assert _codes(builders.creating(builders.pod(unmasked, hostUsers=False)), "ada") == [
        "GPU116 spec.containers[0].securityContext.procMount"
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

    assert [each for each in written if known[each[1]].find(each[2])] == []
    assert len(written) > 200
