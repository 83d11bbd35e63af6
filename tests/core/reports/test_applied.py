"""What is said of a policy that is applied: how long that may take, and what is not known there."""

from collections.abc import Iterable
from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from tests import builders
from webhook.cli import policy_advice
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.registration.configurations import WARNING_SECONDS
from webhook.core.rules.load import policies_from
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy

NAMESPACES = {f"team-{number % 500}-{number}": {"team": f"t{number % 500}"} for number in range(5000)}
RULEBOOK = builders.rulebook(builders.shipped_files())


def policy(name: str, *names: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"namespaces": {"names": [*names]}, **spec}}


def among(policies: Iterable[dict[str, Any]] = (), **tenancy: Any) -> Rulebook:
    """The shipped rules in a cluster with these policies."""
    read = policies_from(policies, RULEBOOK).read
    known = {"labels": NAMESPACES, "watched": True, **tenancy}
    return replace(RULEBOOK, tenancy=Tenancy(policies=[*read.values()], **known))


def applying(made: dict[str, Any], rulebook: Rulebook) -> Decision:
    request = builders.creating(made, "")._replace(resource="tenantpolicies", name=made["metadata"]["name"])
    return policy_advice.warn(request, rulebook)


OTHERS = [policy(f"t{number}", f"team-{number}-*") for number in range(1000)]
WORDS = [f"A100-SXM-80GB-{number}" for number in range(128)]
UNKNOWN = dict.fromkeys(("backends", "vendors", "models", "profiles"), WORDS)


@pytest.mark.parametrize(
    ("others", "made"),
    [
        pytest.param([], policy("vision", "vision-*"), id="the first policy"),
        pytest.param(OTHERS, policy("vision", "*"), id="a policy for all namespaces beside 1,000 others"),
        pytest.param([], policy("vision", *(f"*{n}*-x" for n in range(200))), id="200 patterns that match nothing"),
        pytest.param(OTHERS, policy("vision", *(f"*{n}*" for n in range(200))), id="200 patterns that match"),
        pytest.param([], policy("vision", *(f"teem-{n}-{n}" for n in range(200))), id="200 misspelt names"),
        pytest.param([], policy("vision", "*", allowed=UNKNOWN, forbidden=UNKNOWN), id="1,024 unknown words"),
        pytest.param([], policy("vision", *(f"a{n}*" for n in range(12_000))), id="more than a definition takes"),
        pytest.param([], policy("vision", *(f"a{n}*" for n in range(100_000))), id="1 MiB"),
    ],
)
def test_among_5000_namespaces_an_answer_takes_less_than_the_api_server_waits(
    others: list[dict[str, Any]], made: dict[str, Any]
) -> None:
    rulebook = among(others)
    began = process_time()

    decision = applying(made, rulebook)

    assert process_time() - began < WARNING_SECONDS
    assert decision.allowed
    assert decision.warnings


def _nested(deep: int) -> Any:
    return {"a": _nested(deep - 1)} if deep else "x"


@pytest.mark.parametrize(
    "made",
    [policy("vision", *(f"a{number}*" for number in range(100_000))), policy("vision", "*", defaults=_nested(300))],
    ids=["too large", "nested deeper than JSON is written"],
)
def test_an_object_that_cannot_be_read_is_stored_with_a_warning(made: dict[str, Any]) -> None:
    expected = Decision(allowed=True, warnings=[f"TenantPolicy/vision: {policy_advice.UNREAD}"])

    assert applying(made, among()) == expected


def test_while_policies_are_unknown_only_the_policy_itself_is_judged() -> None:
    pods_first = {"container": {"devices": 8}, "pod": {"devices": 4}}

    decision = applying(policy("vision", "vision", ceilings=pods_first), among(OTHERS, unknown="nobody answers"))

    larger = "8 is more than the 4 of spec.ceilings.pod.devices, which is reached first; raise that, or lower this"
    assert decision.warnings == [
        "TenantPolicy/vision: nobody answers, so it was compared with no other",
        f"TenantPolicy/vision spec.ceilings.container.devices: {larger}",
    ]


def test_a_name_that_a_policy_of_the_rule_files_has_is_taken() -> None:
    text = "apiVersion: gpu-webhook.io/v1alpha1\nkind: TenantPolicy\nmetadata: {name: vision}\n"
    rules = builders.rulebook(
        builders.shipped_files() | {"tenants.yaml": f"{text}spec: {{namespaces: {{names: [vision]}}}}"}
    )

    decision = applying(policy("vision", "vision"), rules)

    assert decision.warnings == ["TenantPolicy/vision: the rule files have a policy of this name, which holds"]


def test_in_observe_mode_nobody_loses_a_gpu() -> None:
    assert applying(policy("teams", "team-1-*"), among(observing=True)) == UNTOUCHED


def test_in_observe_mode_nothing_is_said_to_be_refused() -> None:
    made = policy("vision", "team-1-*", allowed={"sharing": ["mps"]}, quota={"devices": 1, "memory": "8Gi"})

    warnings = applying(made, among([policy("teams", "team-*")], observing=True)).warnings

    assert [warning.partition(": ")[0] for warning in warnings] == [
        "TenantPolicy/vision spec.priority",
        "TenantPolicy/vision spec.allowed.sharing",
        "TenantPolicy/vision spec.allowed",
    ]
    assert [warning for warning in warnings if "refused" in warning or "no GPU" in warning] == []
    assert sum("is admitted with a warning" in warning for warning in warnings) == 2


@pytest.mark.parametrize("resource", ["tenantusages", "pods", ""])
def test_of_other_objects_nothing_is_said(resource: str) -> None:
    made = policy("vision", "vision")

    assert policy_advice.warn(builders.creating(made, "")._replace(resource=resource), among()) == UNTOUCHED
