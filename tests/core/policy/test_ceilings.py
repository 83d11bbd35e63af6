"""What one container, and one pod, may ask for at most, and what is said of more."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from tests.core.policy.tenants import ceiling, fate, policy, shorthand
from webhook.core.rules.tenant_policy import Ceiling

Words = Mapping[str, str]


def _most(amounts: Mapping[str, str | int]) -> Ceiling:
    read: Mapping[str, Callable[[str | int], Any]] = {"memory": builders.size}
    return ceiling(**{key: read.get(key, Fraction)(amount) for key, amount in amounts.items()})


@tables.rows
def test_a_ceiling_says_what_is_asked_what_is_allowed_and_what_would_be(
    pod: Words, most: Mapping[str, str | int], message: str, fix: str
) -> None:
    found = fate(shorthand(**pod), tenants.rules(policy(container=_most(most))))

    (violation,) = found.validated.violations
    assert message in violation.message
    assert (violation.fix, violation.rule) == (fix, "vision (tenants.yaml:9)")


@tables.rows
def test_who_does_as_a_ceiling_says_is_admitted(pod: Words, follows: Words, most: Mapping[str, str | int]) -> None:
    rules = tenants.rules(policy(container=_most(most)))

    assert (bool(fate(shorthand(**pod), rules).codes), fate(shorthand(**follows), rules).codes) == (True, [])


def _several(*, init: bool) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "2"}
    pod = builders.pod(builders.container(limits=limits), builders.container("other", limits=limits))
    if init:
        pod["spec"]["initContainers"] = [builders.container("first", limits={"nvidia.com/gpu": "4"})]
    return pod


@pytest.mark.parametrize("init", [False, True])
def test_the_containers_of_a_pod_are_added_up_and_init_containers_run_before(*, init: bool) -> None:
    allowing, refusing = (policy(pod=ceiling(devices=Fraction(devices))) for devices in (4, 3))

    assert fate(_several(init=init), tenants.rules(allowing)).codes == []
    assert fate(_several(init=init), tenants.rules(refusing)).codes == ["GPU103"]
