"""The verbs of a rule: exact, rounded up where the rule says so, and never down; and what they wrote, read back."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.core import acme
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError, express, near
from webhook.core.request import GpuRequest
from webhook.core.rules.verbs import Amount

Request = Mapping[str, Any]

SHIPPED = builders.rulebook(builders.shipped_files())
T4 = SHIPPED.devices["t4"]


def _amount(verb: str) -> Amount:
    """The amount that a rule writes so."""
    [mode] = acme.backend(f"modes: [{{limits: {{acme.example/n: count, acme.example/x: {verb}}}}}]").modes
    output = mode.limits["acme.example/x"]
    assert isinstance(output, Amount)
    return output


def _request(fields: Request) -> GpuRequest:
    request = builders.request(fields)
    assert request is not None
    return request


@tables.rows
def test_a_verb_says_what_was_asked(verb: str, request_: Request, number: int | None) -> None:
    assert express(_amount(verb), _request(request_), T4)[0] == number


@tables.rows
def test_whatever_is_rounded_is_told(verb: str, request_: Request, number: int, warning: str | None) -> None:
    assert express(_amount(verb), _request(request_), T4) == (number, warning)


@tables.rows
def test_what_cannot_be_said_is_refused_with_what_can(
    verb: str, request_: Request, code: str, message: str, fix: str
) -> None:
    with pytest.raises(CannotExpressError) as refused:
        express(_amount(verb), _request(request_), T4)

    assert (refused.value.code, refused.value.message, refused.value.fix) == (code, message, fix)


SHARE = GpuRequest(share=Fraction(3, 10), memory_share=Fraction(3, 10), cores=Fraction(30))


@pytest.mark.parametrize("verb", ["{memory: {unit: GiB, round: up}}", "{memory: {unit: MiB, absent: none}}"])
def test_a_share_of_an_unknown_card_is_no_size(verb: str) -> None:
    with pytest.raises(CannotExpressError) as refused:
        express(_amount(verb), SHARE, None)

    assert refused.value.code == "GPU304"


def test_a_share_of_an_unknown_card_is_a_percentage_all_the_same() -> None:
    assert express(_amount("{memory: {unit: percent}}"), SHARE, None) == (30, None)


@tables.rows
def test_the_nearest_values_are_below_and_above(verb: str, value: int, nearest: list[int]) -> None:
    assert near(_amount(verb), Fraction(value)) == nearest


@tables.rows
def test_what_a_back_end_writes_reads_back(backend: str, limits: Mapping[str, int], request_: Request) -> None:
    assert read_back.understand(limits, SHIPPED.backends[backend])[0] == _request(request_)


@tables.rows
def test_what_no_back_end_could_have_written_is_refused_with_what_it_could(
    backend: str, limits: Mapping[str, int], message: str, fix: str
) -> None:
    with pytest.raises(CannotExpressError) as refused:
        read_back.understand(limits, SHIPPED.backends[backend])

    assert (refused.value.code, refused.value.message, refused.value.fix) == ("GPU405", message, fix)


@tables.rows
def test_what_a_rule_of_ones_own_writes_reads_back(mode: str, limits: Mapping[str, int], request_: Request) -> None:
    assert read_back.understand(limits, acme.backend(f"modes: [{mode}]"))[0] == _request(request_)


def test_a_constant_has_to_be_there_as_it_is() -> None:
    backend = acme.backend("modes: [{when: {devices: whole}, limits: {acme.example/x: 7, acme.example/n: count}}]")

    with pytest.raises(CannotExpressError) as refused:
        read_back.understand({"acme.example/x": 8, "acme.example/n": 2}, backend)
    assert (refused.value.message, refused.value.fix) == ("acme.example/x has to be 7, not 8", "write 7")


@tables.rows
def test_at_least_as_much_is_enough(given: Request, asked: Request) -> None:
    assert read_back.gives(_request(given), _request(asked), T4)


@tables.rows
def test_less_of_anything_is_not(given: Request, asked: Request) -> None:
    assert not read_back.gives(_request(given), _request(asked), T4)


def test_bytes_and_parts_of_an_unknown_card_are_not_held_against_anybody() -> None:
    assert read_back.gives(GpuRequest(memory=1 << 30), GpuRequest(memory_share=Fraction(1, 2)), None)
    assert not read_back.gives(GpuRequest(memory=1 << 30), GpuRequest(), None)
