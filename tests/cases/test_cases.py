"""Every folder beside this file, run. How to add one stands in the package's docstring."""

import pytest

from tests.cases import golden


@pytest.mark.parametrize("case", golden.find(), ids=lambda case: case.name)
def test_what_happens_is_what_the_folder_says_and_stands(case: golden.Case) -> None:
    assert golden.outcome(case) == case.expected()
    assert list(golden.broken_promises(case)) == []
