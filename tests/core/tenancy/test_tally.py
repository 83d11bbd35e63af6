"""Amounts in a ledger are read back as they were written: one that cannot be read stops its tenant for good."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.tenancy import tally

BYTES = st.integers(min_value=1, max_value=2**80)


@given(BYTES)
@example(85_899)
@example(1)
@example(9_437_184 << 40)
def test_any_number_of_bytes_is_read_as_it_was_written(size: int) -> None:
    amounts = {"memory": Fraction(size), "memory/T4": Fraction(size)}
    assert tally.read(tally.write(amounts)) == amounts


@given(st.fractions(min_value=0, max_value=10**12).filter(bool))
def test_any_share_of_devices_is_read_as_it_was_written(devices: Fraction) -> None:
    assert tally.read(tally.write({"devices": devices})) == {"devices": devices}


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "8 Gi", "x", "1.2345k"])
def test_anything_else_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="Fraction"):
        tally.read({"memory": text})
