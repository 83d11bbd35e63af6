"""Amounts in a ledger are read back as they were written: one that cannot be read stops its tenant for good."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import tables
from webhook.core.quota import tally


@given(st.integers(min_value=1, max_value=2**80))
@example(85_899)
@example(1)
@example(9_437_184 << 40)
def test_any_number_of_bytes_is_read_as_it_was_written(size: int) -> None:
    amounts = {"memory": Fraction(size), "memory/T4": Fraction(size)}
    assert tally.read(tally.write(amounts)) == amounts


@given(st.fractions(min_value=0, max_value=10**12).filter(bool))
def test_any_share_of_devices_is_read_as_it_was_written(devices: Fraction) -> None:
    assert tally.read(tally.write({"devices": devices})) == {"devices": devices}


def test_the_longest_shares_that_pods_can_add_up_to_are_read() -> None:
    devices = Fraction(10**999 + 7, 10**998 + 3)
    assert tally.read(tally.write({"devices": devices})) == {"devices": devices}


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "8 Gi", "x", "1.2345k"])
def test_anything_else_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount"):
        tally.read({"memory": text})


LONG = f"{'9' * 59}…"


@pytest.mark.parametrize(("key", "text"), [("devices", "9" * 1001), ("memory", "9" * 5000 + "Gi")])
def test_of_an_amount_that_is_too_long_the_beginning_is_said(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=f'^{key}: "{LONG}" is no amount, as "3", "0.5" or "8Gi"$'):
        tally.read({key: text})


@tables.rows
def test_what_is_wrong_with_a_tally_that_somebody_wrote_by_hand_is_said(key: Any, text: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"amount|neither") as error:
        tally.read({key: text})

    assert str(error.value) == said
