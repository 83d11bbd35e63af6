"""Workloads of which nothing is said, and one whose claim is not there yet; golden cases show the others."""

from dataclasses import replace
from typing import Any

import pytest

from tests import builders
from webhook.cli import workload_advice
from webhook.core.decision import UNTOUCHED
from webhook.core.review import AdmissionRequest

RULES = builders.rulebook(builders.shipped_files())


def review(pod: dict[str, Any], kind: str = "Deployment") -> AdmissionRequest:
    """The creation of a workload that makes pods of this one."""
    made = {"kind": kind, "metadata": {"name": "web"}, "spec": {"template": pod}}
    return builders.creating(made, "vision")._replace(resource=f"{kind.lower()}s", user="ada")


ASKING = review(builders.pod(labels={"gpu": "0.3"}))


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(ASKING._replace(namespace="kube-system"), id="exempt"),
        pytest.param(ASKING._replace(subresource="scale"), id="scale"),
        pytest.param(ASKING._replace(pod={"kind": "Pod", **builders.pod(labels={"gpu": "0.3"})}), id="a pod"),
        pytest.param(review(builders.pod(labels={"gpu": "0.3"}), "Machine"), id="an unknown kind"),
        pytest.param(ASKING._replace(pod=None), id="nothing"),
        pytest.param(ASKING._replace(pod={"spec": {"template": "x"}}), id="no template"),
        pytest.param(ASKING._replace(pod={"metadata": {"ownerReferences": "x"}, "spec": None}), id="no spec"),
    ],
)
def test_nothing_is_said_of(request_: AdmissionRequest) -> None:
    assert workload_advice.warn(request_, RULES) == UNTOUCHED


def test_what_waits_for_a_claim_is_not_said_to_be_refused() -> None:
    kind = next(source.claims for source in RULES.sources if source.claims.kind == "ElasticGPUClaim")
    aware = replace(RULES, surroundings=replace(RULES.surroundings, objects={kind.name: {}}))

    decision = workload_advice.warn(review(builders.pod(annotations={"elasticgpu.io/egpuc-main": "train"})), aware)

    [warning] = decision.warnings
    assert warning == (
        "pods of this template have to wait for now: [GPU205] the namespace vision has no ElasticGPUClaim "
        '"train", or it is not seen yet; create it, and the client retries automatically'
    )
