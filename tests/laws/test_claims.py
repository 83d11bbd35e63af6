"""What a claim says is said once: a pod that was served by it is changed by nothing that becomes of the claim."""

from collections import Counter
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import clusters, surroundings, tried
from webhook.core.interpret import claims
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

Object = dict[str, Any]

DOMAINS = st.sampled_from(["elasticgpu.com", "elasticgpu.io", "gpushare.provisioner.elasticgpu.io"])
PERCENTS, CARDS, MEBIBYTES, GIBIBYTES = (st.integers(1, most) for most in (100, 8, 81920, 80))
RESOURCES = st.one_of(
    st.builds(lambda domain, cards: {f"{domain}/gpu-core": 100 * cards}, DOMAINS, CARDS),
    st.builds(lambda domain, memory: {f"{domain}/gpu-memory": memory}, DOMAINS, MEBIBYTES),
    st.builds(
        lambda domain, cores, memory: {f"{domain}/gpu-core": cores, f"{domain}/gpu-memory": memory},
        DOMAINS,
        PERCENTS,
        MEBIBYTES,
    ),
    st.builds(
        lambda cores, memory: {"tke.cloud.tencent.com/qgpu-core": cores, "tke.cloud.tencent.com/qgpu-memory": memory},
        PERCENTS,
        GIBIBYTES,
    ),
    st.builds(lambda cards: {"nvidia.com/gpu": cards}, CARDS),
)
NAMED = ("elasticgpu.io/egpuc-{}", "egpuc.elasticgpu.io/{}", "claim.gpu-webhook.io/{}")


def _around(rules: Rulebook, resources: Object, backend: str | None) -> Rulebook:
    """The cluster with a claim for these resources, of a class that the back end serves."""
    claim = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClaim",
        "metadata": {"name": "train"},
        "spec": {"resources": {"limits": resources}, "elasticGPUClassName": "fast"},
    }
    class_ = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClass",
        "metadata": {"name": "fast"},
        "provisioner": "some.example",
    }
    provisioners = {} if backend is None else {"some.example": backend}
    rules = replace(rules, cluster=replace(rules.cluster, provisioners=provisioners))
    return claims.given([claim, class_], rules)


@pytest.mark.large
def test_a_pod_that_was_served_by_a_claim_is_changed_by_nothing_that_becomes_of_it() -> None:
    served: Counter[str] = Counter()
    rules = clusters.rulebook(clusters.ALL)

    @tried(1_000)
    @given(
        surroundings.pods(),
        RESOURCES,
        RESOURCES,
        st.sampled_from(NAMED),
        st.sampled_from([None, *clusters.names()]),
        st.randoms(use_true_random=False),
    )
    def law(pod: Object, asked: Object, later: Object, named: str, backend: str | None, random: Any) -> None:
        kind = random.choice([kind for kind in ("containers", "initContainers") if kind in pod["spec"]])
        container = random.choice(pod["spec"][kind])["name"]
        pod["metadata"].setdefault("annotations", {})[named.format(container)] = "train"

        decision = mutate(builders.creating(pod), _around(rules, asked, backend))

        if not decision.allowed:
            return
        assert decision.backends.keys() == {container}
        served[decision.backends[container]] += 1
        assert backend in {None, decision.backends[container]}
        stored = as_served(jsonpatch.apply_patch(pod, decision.patch))
        for around in (_around(rules, asked, backend), _around(rules, later, None), rules):
            again = mutate(builders.creating(stored), around)
            assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)
            assert validate(builders.creating(stored), around).allowed

    law()

    assert len(served) > 20
