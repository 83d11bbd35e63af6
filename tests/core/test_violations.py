"""Every code that a message can begin with is explained, and every code that is explained is used."""

import re

from tests import builders
from webhook.core.violations import CODES


def test_codes_in_use_and_codes_that_are_explained_are_the_same() -> None:
    programs = [file for file in (builders.ROOT / "webhook").rglob("*.py") if file.name != "violations.py"]
    used = {code for file in programs for code in re.findall(r"GPU\d{3}(?!\d)", file.read_text())}

    assert used == CODES.keys()


def test_codes_are_numbers_of_three_digits_in_order() -> None:
    assert list(CODES) == sorted(CODES)
    assert all(re.fullmatch(r"GPU[0-9]{3}", code) for code in CODES)
