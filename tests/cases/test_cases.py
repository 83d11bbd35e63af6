"""Every folder beside this file, run. How to add one stands in the package's docstring."""

import pytest

from tests.cases import golden
from tests.cases.golden import Case

CASES = golden.find()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_happens_is_what_the_folder_says(case: Case) -> None:
    assert golden.outcome(case) == case.expected()


@pytest.mark.parametrize("case", [case for case in CASES if case.has_pod], ids=lambda case: case.name)
def test_the_result_stands_and_is_accepted(case: Case) -> None:
    assert list(golden.broken_promises(case)) == []
