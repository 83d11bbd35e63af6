"""Amounts in a ledger are read back as they were written: one that cannot be read stops its tenant for good."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("device", "3", "device is neither devices nor memory, of all cards or of one, as devices/A100-80GB"),
        ("devices", "-3", 'devices: "-3" is no amount, as "3", "0.5" or "8Gi"'),
        ("devices", "1e300000000", 'devices: "1e300000000" is no amount, as "3", "0.5" or "8Gi"'),
        ("devices", "1_000", 'devices: "1_000" is no amount, as "3", "0.5" or "8Gi"'),
        ("devices", "9" * 1001, f'devices: "{"9" * 59}…" is no amount, as "3", "0.5" or "8Gi"'),
        ("memory", "9" * 5000 + "Gi", f'memory: "{"9" * 59}…" is no amount, as "3", "0.5" or "8Gi"'),
        (3, "3", '3: 3 is no amount in quotes, as "3", "0.5" or "8Gi"'),
        ("devices", "1/0", 'devices: "1/0" is no amount, as "3", "0.5" or "8Gi"'),
        ("devices", 3, 'devices: 3 is no amount in quotes, as "3", "0.5" or "8Gi"'),
        ("T4", {}, 'T4: {} is no amount in quotes, as "3", "0.5" or "8Gi"'),
    ],
)
def test_what_is_wrong_with_a_tally_that_somebody_wrote_by_hand_is_said(key: Any, text: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"amount|neither") as error:
        tally.read({key: text})

    assert str(error.value) == said
