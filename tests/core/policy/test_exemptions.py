"""What exemptions lift, and who is told that one of them ends."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.core.policy import tenants
from tests.core.policy.tenants import DAY, NOW, ceiling, exemption, fate, policy, quota, whole

BOTH = policy(container=ceiling(devices=Fraction(1)), pod=ceiling(devices=Fraction(1)), quota=quota(devices=1))


@pytest.mark.parametrize(
    ("exemptions", "codes"),
    [
        pytest.param([], ["GPU102", "GPU103"], id="none"),
        pytest.param([exemption("container", "pod")], [], id="one that lifts both"),
        pytest.param([exemption("container", "pod"), exemption("pod")], ["GPU102"], id="what both of two lift"),
        pytest.param([exemption("container"), exemption("pod")], ["GPU102", "GPU103"], id="nothing that both lift"),
        pytest.param([exemption("container", "pod", users=("bo*",))], [], id="of this user"),
        pytest.param([exemption("container", "pod", users=("ada",))], ["GPU102", "GPU103"], id="of another user"),
        pytest.param([exemption("pod", namespaces=("audio-*",))], ["GPU102", "GPU103"], id="of another namespace"),
        pytest.param([exemption("container", "pod", expires=NOW)], ["GPU102", "GPU103"], id="one that has ended"),
        pytest.param([exemption("container"), exemption("pod", expires=NOW)], ["GPU103"], id="one that goes on"),
    ],
)
def test_only_what_every_exemption_lifts_is_lifted(exemptions: list[Any], codes: list[str]) -> None:
    assert fate(whole(2), tenants.rules(BOTH, exemptions=exemptions)).codes == codes


def test_a_quota_that_is_lifted_is_counted_and_not_enforced() -> None:
    found = fate(whole(), tenants.rules(BOTH, exemptions=[exemption("quota")]))

    assert found.validated.reservation is not None
    assert (found.validated.reservation.ask.enforced, found.validated.reservation.action) == (False, "dryrun")
    assert found.validated.audit == {"exemptions": "night (tenants.yaml:60), owner ada"}


@pytest.mark.parametrize(
    ("left", "words"), [(8 * DAY, None), (7 * DAY, "7 days"), (DAY, "1 day"), (DAY - 1, "23 hours"), (60.0, "1 hour")]
)
def test_who_needs_an_exemption_is_told_when_it_ends_soon(left: float, words: str | None) -> None:
    exempt = exemption("container", "pod", "quota", expires=NOW + left)

    warnings = fate(whole(2), tenants.rules(BOTH, exemptions=[exempt])).validated.warnings

    assert warnings == (
        []
        if words is None
        else [
            (
                f"the exemption night (tenants.yaml:60) of ada ends in {words}; then [GPU102] the container "
                '"main" asks for 2 devices, and the policy "vision" lets a container have 1; ask for 1 or fewer'
            )
        ]
    )


def test_who_does_not_need_an_exemption_is_not_told() -> None:
    exempt = exemption("container", "pod", expires=NOW + DAY)

    assert fate(whole(1), tenants.rules(BOTH, exemptions=[exempt])).validated.warnings == []


def test_nothing_exempts_from_a_policy_that_cannot_be_used() -> None:
    everything = exemption("container", "pod", "allowed", "forbidden", "quota")
    broken = replace(BOTH, broken="spec.quota: has no unit")

    found = fate(whole(), tenants.rules(broken, exemptions=[everything]))

    assert found.codes == ["GPU113"]
    assert found.validated.violations[0].message == (
        'the policy "vision" cannot be used, so its namespaces get no GPU: spec.quota: has no unit'
    )
