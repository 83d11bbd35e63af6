"""The tenant that rules/README.md shows to policy authors, and what becomes of pods in its namespaces."""

from fractions import Fraction
from functools import cache
from typing import Any

import jsonpatch

from tests import builders, readme
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

TEXT = readme.POLICIES.read_text()
BEFORE_IT_EXPIRES = 1_800_000_000.0
AFTER_IT_EXPIRES = 1_801_400_000.0
"""2027-01-15 and 2027-02-01."""


@cache
def _rulebook() -> Rulebook:
    return builders.rulebook(builders.shipped_files() | {"tenants.yaml": readme.block("tenants", TEXT)})


def _admitted(
    labels: dict[str, str], namespace: str = "vision-dev", user: str = "ada", at: float = BEFORE_IT_EXPIRES
) -> tuple[Any, Decision]:
    """The pod as it would be stored, and whether it may be."""
    made = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}]}}
    asking = builders.creating(made, namespace)._replace(user=user, at=at)
    mutated = mutate(asking, _rulebook())
    assert mutated.allowed, mutated.violations
    stored = jsonpatch.apply_patch(made, mutated.patch)
    return stored, validate(asking._replace(pod=stored), _rulebook())


def test_a_pod_gets_the_tenants_model_queue_and_nodes_and_is_counted() -> None:
    stored, decision = _admitted({"gpu": "2"})

    assert stored["metadata"]["labels"] == {"gpu": "2", "kai.scheduler/queue": "vision"}
    (term,) = stored["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert {"key": "pool", "operator": "In", "values": ["vision", "shared"]} in term["matchExpressions"]
    assert decision.allowed, decision.violations
    assert decision.reservation is not None
    memory = Fraction(2 * _rulebook().devices["a100-80gb"].memory)
    assert (decision.reservation.tenant, decision.reservation.ask.amount) == (
        "vision",
        {
            "devices": Fraction(2),
            "memory": memory,
            "devices/A100-80GB": Fraction(2),
            "memory/A100-80GB": memory,
        },
    )


def test_a_container_gets_no_more_than_its_ceiling() -> None:
    _, decision = _admitted({"gpu": "3"})

    assert [f"{found}\n" for found in decision.violations] == [readme.block("over a ceiling", TEXT)]


def test_who_is_exempt_gets_more_until_the_exemption_expires() -> None:
    runner = "system:serviceaccount:vision-train:runner"

    _, before = _admitted({"gpu": "4"}, "vision-train", runner)
    _, after = _admitted({"gpu": "4"}, "vision-train", runner, AFTER_IT_EXPIRES)
    _, somebody = _admitted({"gpu": "4"}, "vision-train")

    assert before.allowed
    assert [found.code for found in after.violations] == ["GPU102"]
    assert [found.code for found in somebody.violations] == ["GPU102"]


def test_a_forbidden_model_is_a_warning_here() -> None:
    _, decision = _admitted({"gpu": "1", "gpu-model": "T4"})

    assert decision.allowed
    assert any("[GPU101]" in warning for warning in decision.warnings)


def test_a_namespace_without_a_policy_may_not_use_gpus_any_more() -> None:
    _, decision = _admitted({"gpu": "1"}, "speech")

    assert [found.code for found in decision.violations] == ["GPU105"]
