"""The two questions: what /mutate leaves alone, and what /validate still has to say."""

from collections.abc import Mapping
from typing import Any

import jsonpatch

from tests import builders, tables
from tests.cases.served import as_served
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.validate import validate

RULES = builders.rulebook(builders.shipped_files())
HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "30", "nvidia.com/gpucores": "30"}
NOTE = {"gpu-webhook.io/translated": "gpu=0.3 -> hami-vgpu"}


def _request(operation: str = "CREATE", **fields: Any) -> AdmissionRequest:
    """A review of a pod that asks for a share."""
    return builders.creating(builders.pod(labels={"gpu": "0.3"}))._replace(operation=operation, **fields)


def test_a_decision_names_the_back_ends_and_leaves_a_trace() -> None:
    decision = mutate(_request(), RULES)

    assert decision.backends == {"main": "hami-vgpu"}
    assert decision.audit == {"rules": RULES.backends["hami-vgpu"].rule, "rulebook": RULES.digest[:12]}


@tables.rows
def test_mutate_leaves_alone(review: dict[str, Any]) -> None:
    assert mutate(_request(**review), RULES) == Decision(allowed=True)


@tables.rows
def test_the_author_of_a_pod_cannot_switch_it_off(who: Mapping[str, Any]) -> None:
    pod = builders.pod(**{"labels": {"gpu": "0.3"}} | {key: {"gpu": "0.3", **value} for key, value in who.items()})

    assert mutate(_request(pod=pod), RULES) != Decision(allowed=True)


@tables.rows
def test_what_is_no_pod_is_refused_with_the_field(resource: str, value: Any) -> None:
    decision = mutate(_request(pod={resource: value}), RULES)

    assert [violation.code for violation in decision.violations] == ["GPU001"]


def _validated(pod: dict[str, Any]) -> str:
    decision = validate(_request(pod=as_served(pod)), RULES)
    return "\n".join(map(str, decision.violations))


def test_a_claim_that_another_webhook_made_of_the_resources_of_a_translated_pod_is_enough() -> None:
    """Project-HAMi/HAMi-DRA, pkg/webhook/dra/mutating.go: limits go, and a claim by its name comes."""
    claim = {"name": "default-train-main", "resourceClaimName": "default-train-main"}
    main = {**builders.container(), "resources": {"claims": [{"name": "default-train-main"}]}}
    swapped = builders.pod(main, labels={"gpu": "0.3", "hami.io/dra": "true"}, resourceClaims=[claim])

    assert _validated({**swapped, "metadata": {**swapped["metadata"], "annotations": NOTE}}) == ""
    assert "GPU601" in _validated(swapped)
    bare = builders.pod(labels={"gpu": "0.3"}, annotations=NOTE, resourceClaims=[claim])
    assert "GPU601" in _validated(bare)


def test_validate_refuses_what_was_not_translated() -> None:
    assert _validated(builders.pod(labels={"gpu": "0.3"})) == (
        '[GPU601] the container "main" asks for gpu=0.3 and has no GPU resource: '
        "the mutating webhook did not run, or another one took its work away\n"
        "  at   metadata.labels.gpu\n"
        "  fix  create the pod again; if it happens again, show this to an operator of the cluster"
    )


def test_validate_refuses_less_than_was_asked() -> None:
    less = HAMI | {"nvidia.com/gpumem-percentage": "20"}
    pod = builders.pod(builders.container(limits=less), labels={"gpu": "0.3"}, annotations=NOTE)

    assert _validated(pod) == (
        '[GPU602] the container "main" asks for gpu=0.3 and would get nvidia.com/gpu: 1, '
        "nvidia.com/gpucores: 30, nvidia.com/gpumem-percentage: 20 (gpu=0.3 -> hami-vgpu)\n"
        '  at   spec.containers[0].resources.limits["nvidia.com/gpu"]\n'
        "  fix  remove nvidia.com/gpu, nvidia.com/gpucores, nvidia.com/gpumem-percentage; "
        "the shorthand writes what it needs"
    )


@tables.rows
def test_validate_accepts(labels: dict[str, str], limits: dict[str, str]) -> None:
    assert _validated(builders.pod(builders.container(limits=limits), labels=labels, annotations=NOTE)) == ""


def test_validate_still_refuses_a_request_that_differs() -> None:
    resources = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}

    assert _validated(builders.pod(builders.container(resources=resources))).startswith("[GPU401] ")


@tables.rows
def test_an_update_is_never_refused(before: dict[str, str], after: dict[str, str], warnings: list[str]) -> None:
    decision = validate(builders.updating(builders.pod(labels=before), builders.pod(labels=after)), RULES)

    assert (decision.allowed, list(decision.warnings)) == (True, warnings)


def test_the_whole_way_of_a_pod() -> None:
    arrives = as_served(builders.pod(labels={"gpu": "0.3"}))
    mutated = jsonpatch.apply_patch(arrives, mutate(_request(pod=arrives), RULES).patch)
    stored = as_served(mutated)

    assert stored["spec"]["containers"][0]["resources"] == {"limits": HAMI, "requests": HAMI}
    assert validate(_request(pod=stored), RULES) == Decision(allowed=True)
