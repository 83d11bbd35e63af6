"""What one container, and one pod, may ask for at most, and what is said of more."""

from fractions import Fraction
from typing import Any

import pytest

from tests import builders
from tests.core.policy import tenants
from tests.core.policy.tenants import ceiling, fate, policy, shorthand

GIB = 1 << 30


@pytest.mark.parametrize(
    ("pod", "most", "message", "fix"),
    [
        pytest.param(
            shorthand(gpu="0.5"),
            {"devices": Fraction(1, 4)},
            "0.5 devices, and the policy",
            "ask for 0.25 or less of one device, of its memory and of its compute",
            id="a share",
        ),
        pytest.param(
            shorthand(gpu="1"),
            {"devices": Fraction(0)},
            "1 device, and the policy",
            "ask for no GPU here: the policy lets nobody have one",
            id="nothing at all",
        ),
        pytest.param(
            shorthand(gpu="2", memory="30Gi"),
            {"memory": 40 * GIB},
            "60Gi of memory, and the policy",
            "ask for gpu-memory: 20Gi or less of each device",
            id="memory of two devices",
        ),
        pytest.param(
            shorthand(memory="8Gi"),
            {"cores": Fraction(50)},
            "100 % of a device's compute, as nothing limits it to less, and the policy",
            'ask for gpu-cores: "50" or less',
            id="compute that nobody limits",
        ),
        pytest.param(
            shorthand(gpu="0.5"),
            {"memory": 8 * GIB},
            'and the container "main" asks for 0.5 devices of an unknown card',
            "add gpu-model with the name of the card, or ask for gpu-memory: 8Gi",
            id="memory of a card that nobody knows",
        ),
    ],
)
def test_a_ceiling_says_what_is_asked_what_is_allowed_and_what_would_be(
    pod: dict[str, Any], most: dict[str, Any], message: str, fix: str
) -> None:
    found = fate(pod, tenants.rules(policy(container=ceiling(**most))))

    (violation,) = found.validated.violations
    assert message in violation.message
    assert (violation.fix, violation.rule) == (fix, "vision (tenants.yaml:9)")


@pytest.mark.parametrize(
    ("pod", "follows", "most"),
    [
        (shorthand(gpu="0.5"), shorthand(gpu="0.25"), {"devices": Fraction(1, 4)}),
        (shorthand(gpu="2", memory="30Gi"), shorthand(gpu="2", memory="20Gi"), {"memory": 40 * GIB}),
        (shorthand(memory="8Gi"), shorthand(memory="8Gi", cores="50"), {"cores": Fraction(50)}),
        (shorthand(gpu="0.5"), shorthand(memory="8Gi"), {"memory": 8 * GIB}),
        (shorthand(gpu="4"), shorthand(gpu="4", cores="25"), {"cores": Fraction(100)}),
    ],
)
def test_who_does_as_a_ceiling_says_is_admitted(
    pod: dict[str, Any], follows: dict[str, Any], most: dict[str, Any]
) -> None:
    rules = tenants.rules(policy(container=ceiling(**most)))

    assert (bool(fate(pod, rules).codes), fate(follows, rules).codes) == (True, [])


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
