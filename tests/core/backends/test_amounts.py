"""The verbs of a rule: exact, rounded up where the rule says so, and never down."""

from fractions import Fraction

import pytest

from tests import tables
from tests.core import acme
from webhook.core.backends import translate
from webhook.core.backends.translate import CannotExpressError
from webhook.core.request import GpuRequest
from webhook.core.rules.catalog import Card
from webhook.core.rules.verbs import Amount

GI = 1 << 30
SHARE = GpuRequest(share=Fraction(3, 10), memory_share=Fraction(3, 10), cores=Fraction(30))
SIZE = GpuRequest(memory=8 * GI)
WHOLE = GpuRequest(count=2)


def _amount(verb: str) -> Amount:
    """The amount that a rule writes so."""
    [mode] = acme.backend(f"modes: [{{limits: {{acme.example/n: count, acme.example/x: {verb}}}}}]").modes
    output = mode.limits["acme.example/x"]
    assert isinstance(output, Amount)
    return output


def _card(model: str = "T4") -> Card:
    return acme.rulebook("modes: [{limits: {acme.example/n: count}}]").devices[model.lower()]


@pytest.mark.parametrize(
    ("verb", "request_", "number"),
    [
        ("count", WHOLE, 2),
        ("{count: {absent: 1}}", SHARE, 1),
        ("{memory: {unit: MiB}}", SIZE, 8192),
        ("{memory: {unit: GiB}}", SIZE, 8),
        ("{memory: {unit: 256MiB}}", SIZE, 32),
        ("{memory: {unit: 512MiB}}", SIZE, 16),
        ("{memory: {unit: percent, round: up}}", SIZE, 54),
        ("{memory: {unit: bytes}}", SIZE, 8 * GI),
        ("{memory: {unit: quantity}}", SIZE, 8 * GI),
        ("{memory: {unit: percent}}", SHARE, 30),
        ("{memory: {unit: MiB}}", SHARE, 4608),
        ("{memory: {unit: MiB}}", WHOLE, 15360),
        ("{memory: {unit: MiB, absent: whole}}", WHOLE, None),
        ("{cores: {}}", SHARE, 30),
        ("{cores: {}}", WHOLE, 100),
        ("{cores: {absent: none}}", SIZE, None),
        ("{cores: {per: total}}", WHOLE, 200),
        ("{cores: {parts: 16, round: up}}", SHARE, 5),
        ("{cores: {step: 5, round: up, min: 35}}", SHARE, 35),
        ("{share: {}}", SHARE, 30),
        ("{memory: {unit: GiB, fit: [4, 8, 16]}}", SIZE, 8),
        ("{memory: {unit: GiB, fit: [5, 10, 16]}}", SIZE, 10),
    ],
)
def test_a_verb_says_what_was_asked(verb: str, request_: GpuRequest, number: int | None) -> None:
    assert translate.express(_amount(verb), request_, _card())[0] == number


@pytest.mark.parametrize(
    ("verb", "request_", "number", "warning"),
    [
        ("{memory: {unit: GiB, round: up}}", SHARE, 5, "4608Mi becomes 5Gi"),
        ("{cores: {step: 20, round: up}}", SHARE, 40, "30% becomes 40%"),
        ("{memory: {unit: GiB, fit: [16, 32]}}", SIZE, 16, "8Gi becomes 16Gi"),
        ("{cores: {}}", SHARE, 30, None),
    ],
)
def test_whatever_is_rounded_is_told(verb: str, request_: GpuRequest, number: int, warning: str | None) -> None:
    assert translate.express(_amount(verb), request_, _card()) == (number, warning)


@pytest.mark.parametrize(
    ("verb", "request_", "code", "message", "fix"),
    [
        ("{memory: {unit: GiB}}", SHARE, "GPU305", "4608Mi is not a whole number", "ask for gpu-memory: 4Gi or 5Gi"),
        ("{cores: {step: 20}}", SHARE, "GPU305", "30% is not a multiple of 20%", "ask for gpu-cores: 20% or 40%"),
        (
            "{cores: {max: 20}}",
            SHARE,
            "GPU305",
            "30% is more than 20%, the most it can express",
            "ask for gpu-cores: 20%",
        ),
        (
            "{cores: {min: 40}}",
            SHARE,
            "GPU305",
            "30% is less than 40%, the least it can express",
            "ask for gpu-cores: 40%",
        ),
        (
            "{memory: {unit: GiB, fit: [1, 2]}}",
            SIZE,
            "GPU305",
            "8Gi is not one of 1Gi, 2Gi",
            "ask for gpu-memory: 2Gi",
        ),
        ("{cores: {}}", SIZE, "GPU305", "it needs to know gpu-cores as well", 'add gpu-cores: "30"'),
        (
            "{memory: {unit: GiB}}",
            GpuRequest(cores=Fraction(30)),
            "GPU305",
            "it needs to know gpu-memory as well",
            "add gpu-memory: 8Gi",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_what_can(
    verb: str, request_: GpuRequest, code: str, message: str, fix: str
) -> None:
    with pytest.raises(CannotExpressError) as refused:
        translate.express(_amount(verb), request_, _card())

    assert (refused.value.code, refused.value.message, refused.value.fix) == (code, message, fix)


@pytest.mark.parametrize("verb", ["{memory: {unit: GiB, round: up}}", "{memory: {unit: MiB, absent: none}}"])
def test_a_share_of_an_unknown_card_is_no_size(verb: str) -> None:
    with pytest.raises(CannotExpressError) as refused:
        translate.express(_amount(verb), SHARE, None)

    assert refused.value.code == "GPU304"


def test_a_share_of_an_unknown_card_is_a_percentage_all_the_same() -> None:
    assert translate.express(_amount("{memory: {unit: percent}}"), SHARE, None) == (30, None)


@tables.rows
def test_the_nearest_values_are_below_and_above(verb: str, value: int, nearest: list[int]) -> None:
    assert translate.near(_amount(verb), Fraction(value)) == nearest
