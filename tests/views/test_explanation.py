"""What people are told of a pod, before it is painted."""

from fractions import Fraction
from typing import Any

import pytest

from tests.core.policy.tenants import ceiling, exemption, policy, quota, rules
from webhook.cli import explanation
from webhook.cli.explain import View
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Defaults


def _explained(pod: dict[str, Any], rulebook: Rulebook) -> View:
    (one,) = explanation.foreseen(explanation.explain(pod, rulebook), rulebook.tenancy)
    return View(one)


def seen(rulebook: Rulebook, gpu: str = "0.5") -> View:
    """What is said of a pod in a namespace of the tenant."""
    metadata: dict[str, Any] = {"name": "train", "namespace": "vision-a", "labels": {"gpu": gpu}}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    return _explained(pod, rulebook)


def test_what_the_tenant_may_have_is_said_in_rows() -> None:
    assert seen(rules(policy(quota=quota(devices=2)))).tenant == [
        ("tenant", "vision, by vision (tenants.yaml:1)"),
        ("quota", "devices: 0 used, 0.5 asked, 2 at most: 1.5 left"),
        ("quota", "3 more pods like this would fit"),
    ]


def test_what_is_only_tried_is_said_and_refuses_nothing() -> None:
    shown = seen(rules(policy(container=ceiling(devices=Fraction(1, 4), action="dryrun"))))

    assert (shown.verdict, shown.explained.decision.violations) == ("Allowed", ())
    assert shown.tried == ["[GPU102] vision (tenants.yaml:9) would refuse it if it were enforced"]


def test_the_exemption_that_lets_a_pod_in_is_named() -> None:
    strict = policy(container=ceiling(devices=Fraction(1, 4)), quota=quota(devices=1))

    shown = seen(rules(strict, exemptions=[exemption("container", "quota")]))

    assert (shown.verdict, shown.tried) == ("Allowed", [])
    assert shown.exempted == ["[GPU102] of vision (tenants.yaml:9) is lifted by the exemption night"]
    assert shown.tenant[0] == ("tenant", "vision, by vision (tenants.yaml:1): the exemption night lifts its quota")


def test_a_webhook_that_only_observes_shows_no_change() -> None:
    shown = seen(rules(policy(), observing=True))

    assert (shown.lead, shown.changes, shown.pod) == ("as it is: the webhook only observes", [], ())


LATER = "comes later in the cluster's order"
ANOTHER = "the policy of the tenant wants another"


@pytest.mark.parametrize(
    ("preferred", "others"),
    [
        (None, {"hami-vgpu": LATER, "amd-gpu": LATER, "tencent-qgpu": LATER}),
        ("amd-gpu", {"nvidia-gpu": ANOTHER, "hami-vgpu": ANOTHER, "tencent-qgpu": LATER}),
    ],
)
def test_a_back_end_that_could_serve_too_is_shown_with_why_it_does_not(
    preferred: str | None, others: dict[str, str]
) -> None:
    (asking,) = seen(rules(policy(defaults=Defaults(backend=preferred))), gpu="1").asking

    assert {one.name: one.reason for one in asking.considered if one.outcome == "could"} == others


def test_of_a_pod_that_is_refused_the_back_end_that_could_serve_it_is_shown_all_the_same() -> None:
    metadata = {"name": "train", "labels": {"gpu": "0.5", "gpu-model": "A1000"}}
    (asking,) = _explained(
        {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main"}]}}, rules()
    ).asking

    assert {one.name: (one.outcome, one.reason) for one in asking.considered if one.name == "hami-vgpu"} == {
        "hami-vgpu": ("could", "the pod is refused for another reason")
    }
