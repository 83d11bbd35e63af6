"""Amounts are read exactly, or refused with how to write them."""

from fractions import Fraction

import pytest

from tests import tables
from webhook.core.kube import quantity
from webhook.core.kube.quantity import QuantityError


@tables.rows
def test_a_person_writes_decimals(text: str, number: str) -> None:
    assert quantity.decimal(text) == Fraction(number)


@tables.rows
def test_nothing_else_is_a_decimal(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        quantity.decimal(text)

    assert str(refused.value) == message


@tables.rows
def test_the_api_server_writes_suffixes(text: str, number: str) -> None:
    assert quantity.served(text) == Fraction(number)


@pytest.mark.parametrize("text", ["0.32147483648", "1.5n", "0.0000001m"])
def test_what_is_finer_than_kubernetes_keeps_is_refused_and_not_shown_as_a_fraction(text: str) -> None:
    with pytest.raises(QuantityError, match=r"is finer than Kubernetes keeps; write nine decimals at most, as 0.5"):
        quantity.served(text)


@pytest.mark.parametrize("text", ["1Ki", "8Gi", "1e3", "-300m", "+1", "10E", "k", "m", "1kk"])
def test_binary_suffixes_and_exponents_are_no_numbers(text: str) -> None:
    with pytest.raises(QuantityError):
        quantity.served(text)


@tables.rows
def test_a_size_has_a_unit(text: str, size: int) -> None:
    assert quantity.size(text) == size


@tables.rows
def test_a_size_without_one_is_not_guessed(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        quantity.size(text)

    assert str(refused.value) == message


@tables.rows
def test_the_same_amount_in_two_forms_is_the_same(one: object, other: object) -> None:
    assert quantity.same(one, other)


@pytest.mark.parametrize(("one", "other"), [(1, 2), ("1", "1Gi"), ("x", "y"), (None, "0"), ("1", "1e0")])
def test_different_amounts_are_different(one: object, other: object) -> None:
    assert not quantity.same(one, other)


@tables.rows
def test_a_number_is_shown_as_people_write_it(number: str, text: str) -> None:
    assert quantity.show(Fraction(number)) == text


@tables.rows
def test_a_size_is_shown_in_the_unit_that_needs_the_fewest_digits(size: int, text: str) -> None:
    assert quantity.show_size(size) == text


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (0.5, "0.5"), (3, "3"), ("x", "x")])
def test_a_scalar_is_quoted_as_its_author_wrote_it(value: object, text: str) -> None:
    assert quantity.text_of(value) == text
