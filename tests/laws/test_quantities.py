"""An amount means the same however it is written."""

import contextlib
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases.served import canonical
from tests.laws import tried
from webhook.core import request
from webhook.core.kube import quantity

_DECIMALS = st.decimals(min_value=0, max_value=10**9, places=3, allow_nan=False).map(lambda number: f"{number:f}")
_SIZES = st.builds("{}{}".format, st.integers(1, 2**19), st.sampled_from(["Mi", "Gi"]))


@tried(500)
@given(_DECIMALS)
def test_a_number_means_the_same_when_the_api_server_has_written_it_anew(text: str) -> None:
    assert quantity.served(canonical(text)) == quantity.served(text) == quantity.decimal(text) == Fraction(text)


@tried(500)
@given(_SIZES)
def test_a_size_means_the_same_when_the_api_server_has_written_it_anew(text: str) -> None:
    assert quantity.size(canonical(text)) == quantity.size(text)


@tried(500)
@given(st.integers(1 << 20, 2**62))
def test_a_size_is_shown_as_it_can_be_written(size: int) -> None:
    shown = quantity.show_size(size)

    assert shown.isdigit() or quantity.size(shown) == size


@tried(500)
@given(st.fractions(min_value=0, max_value=10**6, max_denominator=1000))
def test_a_number_is_shown_exactly(number: Fraction) -> None:
    assert Fraction(quantity.show(number)) == number


@tried(500)
@given(
    st.integers(1, 16),
    st.fractions(min_value=0, max_value=1, max_denominator=100).filter(lambda share: 0 < share < 1),
)
def test_devices_are_shown_as_they_can_be_written(count: int, share: Fraction) -> None:
    devices = request.devices_from(count, share)
    shown = str(devices)

    assert "/" in shown or request.devices(shown) == devices


NUMBERS = ("gpu", "gpu-memory", "gpu-cores", "gpu-tflops")


@pytest.mark.parametrize("read", [quantity.decimal, quantity.served, quantity.size, *map(request.KEYS.get, NUMBERS)])
@tried(500)
@given(text=st.text(alphabet="0123456789.+-eEiknmKMG xX%_,", max_size=8))
def test_no_text_is_guessed(read: Callable[[str], object], text: str) -> None:
    """Either a reader knows the text to the last character, or it says how to write it."""
    with contextlib.suppress(quantity.QuantityError):
        read(text)
        assert not set(text.removesuffix("E")) & set("+-eE _,X")
