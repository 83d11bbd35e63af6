"""Every folder beside this file, run. How to add one stands in the package's docstring."""

import pytest

from tests.cases import golden
from webhook.core.review import WARNING_LENGTH


@pytest.mark.parametrize("case", golden.find(), ids=lambda case: case.name)
def test_what_happens_is_what_the_folder_says_and_stands(case: golden.Case) -> None:
    assert golden.outcome(case) == case.expected()
    assert list(golden.broken_promises(case)) == []


def test_the_fix_of_every_warning_stands_before_the_letter_at_which_servers_cut_it() -> None:
    warnings = [line for case in golden.find() for line in case.expected().get("warnings.txt", "").splitlines()]
    long = [warning for warning in warnings if len(warning) > WARNING_LENGTH]

    assert len(long) > 3
    assert [warning for warning in long if "; because " not in warning[:WARNING_LENGTH]] == []
