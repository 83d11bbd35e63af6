"""Whoever writes a Deployment learns what its pods become, or why they will be refused; nothing is denied."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests import builders
from webhook.cli import explanation, workload_advice
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.mutate import mutate
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest, printable
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Ceiling, Namespaces, Quota, Tenancy, TenantPolicy

RULES = builders.rulebook(builders.shipped_files())

BECOMES = (
    "pods of this template become "
    "nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 30, nvidia.com/gpucores: 30 (hami-vgpu)"
)


def workload(kind: str, pod: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """An object of a kind that makes pods of this one."""
    template = {
        "metadata": {key: value for key, value in pod["metadata"].items() if key != "name"},
        "spec": pod["spec"],
    }
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "web", **metadata}, "spec": spec}


def review(kind: str, new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> AdmissionRequest:
    """The review of it, created or, where there is an old one, updated."""
    return builders.creating(new, "vision")._replace(
        operation="UPDATE" if old else "CREATE",
        resource=f"{kind.lower()}s",
        old_pod=old,
        user="ada",
    )


def warnings(kind: str, pod: Mapping[str, Any], **metadata: Any) -> list[str]:
    decision = workload_advice.warn(review(kind, workload(kind, pod, **metadata)), RULES)
    assert decision == Decision(allowed=True, warnings=decision.warnings)
    assert list(printable(decision.warnings)) == list(decision.warnings)
    return list(decision.warnings)


SHARE = builders.pod(labels={"gpu": "0.3"})
ASKING = review("Deployment", workload("Deployment", SHARE))


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_every_kind_says_what_its_pods_become(kind: str) -> None:
    assert warnings(kind, SHARE) == [BECOMES]


def test_of_several_containers_each_is_named() -> None:
    asking = {f"gpu.gpu-webhook.io/{name}": "1" for name in ("one", "two")}
    pod = builders.pod(builders.container("one"), builders.container("two"), annotations=asking)

    assert warnings("Deployment", pod) == [
        'pods of this template become "one": nvidia.com/gpu: 1 (nvidia-gpu)',
        'pods of this template become "two": nvidia.com/gpu: 1 (nvidia-gpu)',
    ]


def test_pods_that_will_be_refused_are_announced_with_every_reason() -> None:
    refused = "pods of this template will be refused:"

    assert warnings("Deployment", builders.pod(labels={"gpu": "1.5", "gpu-memory": "8"})) == [
        f"{refused} [GPU201] gpu: 1.5 is neither a share of one GPU nor a whole number; ask for 1, 2 or 2x0.75",
        f'{refused} [GPU201] gpu-memory: "8" has no unit; write 8Gi or 8Mi',
    ]


def test_a_reason_too_long_for_a_warning_goes_without_its_fix() -> None:
    [said] = warnings("Deployment", builders.pod(annotations={f"gpu-webhook.io/{'a' * 60}": "1"}))

    assert said.startswith('pods of this template will be refused: [GPU201] "gpu-webhook.io/aaa')
    assert said.endswith("is not a key of the shorthand")


def under(observing: bool = False, **policy: Any) -> Rulebook:  # noqa: FBT001, FBT002  named by its only caller
    """The rulebook with a policy for the namespace of these workloads."""
    made = TenantPolicy(name="vision", rule="vision (a.yaml:1)", namespaces=Namespaces(names=("vision",)), **policy)
    return replace(RULES, tenancy=Tenancy(policies=[made], observing=observing))


def test_what_a_policy_will_refuse_is_announced() -> None:
    none = under(container=Ceiling(devices=Fraction(1, 10), rule="vision (a.yaml:9)"))

    [over] = workload_advice.warn(ASKING, none).warnings
    [elsewhere] = workload_advice.warn(ASKING._replace(namespace="other"), none).warnings

    assert over.startswith(
        'pods of this template will be refused: [GPU102] the container "main" asks for 0.3 devices, and the policy'
    )
    assert elsewhere.startswith(
        "pods of this template will be refused: [GPU105] no TenantPolicy selects the namespace"
    )


def test_a_pod_that_only_a_quota_may_refuse_is_told_what_it_becomes_and_reserves_nothing() -> None:
    limited = under(quota=Quota(hard={"devices": Fraction(1)}))

    assert workload_advice.warn(ASKING, limited) == Decision(allowed=True, warnings=[BECOMES])


FULL = Ledger(view=7, hard={"devices": Fraction(1)}, held={"vision": {"devices": Fraction(4, 5)}})


def test_what_is_known_to_be_over_the_quota_is_announced() -> None:
    limited = under(quota=Quota(hard={"devices": Fraction(1)}))

    [said] = workload_advice.warn(ASKING, limited, {"vision": FULL}).warnings

    assert said == (
        'pods of this template will be refused: [GPU104] tenant "vision" is over its GPU quota: '
        "uses 0.8, asks 0.3, limit 1 device; ask for 0.2 or less, or free some: namespace vision holds 0.8"
    )


def test_of_several_pods_those_that_fit_are_told_from_the_others() -> None:
    limited = under(quota=Quota(hard={"devices": Fraction(2)}))
    several = workload("Deployment", SHARE)
    several["spec"]["replicas"] = 5

    said = workload_advice.warn(review("Deployment", several), limited, {"vision": FULL}).warnings

    assert said[0] == BECOMES
    assert said[1] == (
        "pods of this template: of its 5 pods 4 fit, and the others will be refused: "
        '[GPU104] tenant "vision" is over its GPU quota: uses 2, asks 0.3, limit 2 devices'
    )


def test_an_update_replaces_pods_that_are_counted_already_so_nothing_is_said_of_the_quota() -> None:
    limited = under(quota=Quota(hard={"devices": Fraction(1)}))
    updated = review("Deployment", workload("Deployment", SHARE), workload("Deployment", builders.pod()))

    assert workload_advice.warn(updated, limited, {"vision": FULL}).warnings == [BECOMES]


def test_where_the_webhook_only_observes_nothing_is_said_to_become() -> None:
    [said] = workload_advice.warn(ASKING, under(observing=True)).warnings

    assert said == BECOMES.replace("pods of this template become", "pods of this template: the pod would become")


def test_what_waits_for_a_claim_is_not_said_to_be_refused() -> None:
    kind = next(source.claims for source in RULES.sources if source.claims.kind == "ElasticGPUClaim")
    aware = replace(RULES, surroundings=replace(RULES.surroundings, objects={kind.name: {}}))
    pod = builders.pod(annotations={"elasticgpu.io/egpuc-main": "train"})

    [said] = workload_advice.warn(review("Deployment", workload("Deployment", pod)), aware).warnings

    assert said == (
        'pods of this template have to wait for now: [GPU205] the namespace vision has no ElasticGPUClaim "train", '
        "or it is not seen yet; create it, and the client retries automatically"
    )


def test_what_the_webhook_would_warn_the_controller_of_is_passed_on() -> None:
    pod = builders.pod(labels={"gpu": "yes"})

    assert warnings("Deployment", pod) == [f"pods of this template: {one}" for one in _told(pod)]


def _told(pod: Mapping[str, Any]) -> list[str]:
    said = list(mutate(builders.creating(pod), RULES).warnings)
    assert said
    return said


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(builders.pod(), id="no GPU"),
        pytest.param(builders.pod(builders.container(limits={"nvidia.com/gpu": 1})), id="the words of a back end"),
    ],
)
def test_what_stays_as_it_is_needs_no_words(pod: Mapping[str, Any]) -> None:
    assert warnings("Deployment", pod) == []


@pytest.mark.parametrize(("kind", "owner"), [("ReplicaSet", "Deployment"), ("Job", "CronJob")])
def test_what_a_controller_makes_of_a_workload_is_not_warned_of_again(kind: str, owner: str) -> None:
    made = {"kind": owner, "name": "web", "controller": True}

    assert warnings(kind, SHARE, ownerReferences=[made]) == []
    assert warnings(kind, SHARE, ownerReferences=[{**made, "controller": False}]) == [BECOMES]
    assert warnings(kind, SHARE, ownerReferences=[{**made, "kind": "Machine"}]) == [BECOMES]


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_an_update_speaks_of_a_template_that_changes_and_of_no_other(kind: str) -> None:
    before, after = workload(kind, builders.pod()), workload(kind, SHARE)

    assert workload_advice.warn(review(kind, after, before), RULES).warnings == [BECOMES]
    assert workload_advice.warn(review(kind, {**after, "metadata": {"name": "other"}}, after), RULES) == UNTOUCHED


def test_shorthand_on_the_workload_instead_of_its_template_is_pointed_out() -> None:
    hint = "metadata.labels.gpu is of the workload, and its pods do not get it."
    said = [f"{hint} Write it in spec.template.metadata.labels"]

    assert warnings("Deployment", builders.pod(), labels={"gpu": "0.3"}) == said
    assert warnings("Deployment", SHARE, labels={"gpu": "0.3"}) == [BECOMES]
    assert warnings("Job", builders.pod(labels={"gpu": "none"}), labels={"gpu": "none"}) == []


def test_an_annotation_on_the_workload_instead_of_its_template_is_pointed_out() -> None:
    said = (
        'metadata.annotations["gpu-webhook.io/memory"] is of the workload, and its pods do not get it. '
        "Write it in spec.jobTemplate.spec.template.metadata.annotations"
    )

    assert warnings("CronJob", builders.pod(), annotations={"gpu-webhook.io/memory": "8Gi"}) == [said]


def test_each_key_on_the_workload_instead_of_its_template_is_named() -> None:
    labels = {"gpu": "1", "gpu-model": "T4", "app": "web"}

    assert warnings("Deployment", builders.pod(), labels=labels, annotations={"gpu": "1"}) == [
        (
            "metadata.labels.gpu and metadata.labels.gpu-model are of the workload, and its pods do not get them. "
            "Write them in spec.template.metadata.labels"
        ),
        (
            "metadata.annotations.gpu is of the workload, and its pods do not get it. "
            "Write it in spec.template.metadata.annotations"
        ),
    ]


@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        ({"gpu": "300m"}, 'write gpu-webhook.io/percent: 30 instead of gpu, or label the template gpu: "0.3"'),
        ({"gpu": "2"}, 'write gpu-webhook.io/gpu: 2 instead of gpu, or label the template gpu: "2"'),
        (
            {"gpu-memory": "8Gi"},
            "write gpu-webhook.io/memory: 8Gi instead of gpu-memory, or label the template gpu-memory: 8Gi",
        ),
        (
            {"gpu-webhook.io/gpu": "500m"},
            'write gpu-webhook.io/percent: 50 instead of gpu-webhook.io/gpu, or label the template gpu: "0.5"',
        ),
        (
            {"nvidia.com/gpu": "333m"},
            'remove it, and label the template gpu: "0.333"',
        ),
        ({"nvidia.com/gpu": "1", "example.com/nic": "500m"}, "write a whole number"),
    ],
)
def test_what_no_template_may_have_is_told_with_what_it_may(limits: dict[str, str], fix: str) -> None:
    pod = builders.pod(builders.container(limits=limits))

    found = explanation.explain(workload("Deployment", pod), RULES)

    assert [one.fix for one in found[0].decision.violations if one.code == "GPU002"] == [fix]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(ASKING._replace(namespace="kube-system"), id="exempt"),
        pytest.param(ASKING._replace(subresource="scale"), id="scale"),
        pytest.param(review("Pod", {"kind": "Pod", **SHARE}), id="a pod"),
        pytest.param(review("Machine", workload("Machine", SHARE)), id="an unknown kind"),
        pytest.param(review("Deployment", {})._replace(pod=None), id="nothing"),
        pytest.param(review("Deployment", {"spec": {"template": "x"}}), id="no template"),
        pytest.param(review("Deployment", {"metadata": {"ownerReferences": "x"}, "spec": None}), id="no spec"),
    ],
)
def test_nothing_is_said_of(request_: AdmissionRequest) -> None:
    assert workload_advice.warn(request_, RULES) == UNTOUCHED


def test_a_template_without_a_spec_is_a_warning_and_no_error() -> None:
    asking = {"kind": "Deployment", "metadata": {}, "spec": {"template": {"metadata": {"labels": {"gpu": "1"}}}}}

    assert workload_advice.warn(review("Deployment", asking), RULES) == Decision(
        allowed=True,
        warnings=["pods of this template will be refused: [GPU001] the pod has no spec; write its spec"],
    )
