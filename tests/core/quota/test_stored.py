"""A TenantUsage that somebody edited harms its tenant only, and only until it is counted anew."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests import tables
from webhook.core.quota import stored
from webhook.core.quota.ledger import UNKNOWN_VIEW, Ledger
from webhook.core.quota.tally import Tally

ONE: Tally = {"devices": Fraction(1)}
WHOLE: dict[str, Any] = tables.table(__file__, "whole")
READ: dict[str, Any] = {
    "hard": {"devices": Fraction(4)},
    "held": {"dev": ONE, "ci": {}},
    "view": 7,
    "pending": {"dev/one": {"u-1": ONE, "u-2": ONE}},
    "authors": {"u-1": "ann", "u-2": "ann"},
    "suspects": {"dev": 1, "dev ann": 2},
    "advances": {"me-1": ONE, "me-2": {}},
    "joining": {"new": "me-1"},
    "recount": 3,
    "recounted": 2,
}


@tables.rows
def test_what_cannot_be_read_is_said_and_the_rest_is_read(status: dict[str, Any], instead: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        key: tuple(value) if key in {"problems", "unread"} else value for key, value in instead.items()
    }

    assert stored.read({**WHOLE, **status}) == replace(Ledger(**READ), **fields)


def test_a_view_of_more_digits_than_python_reads_is_none() -> None:
    problem = f"view: {'9' * 59}… is no version of the cluster"
    found = stored.read({**WHOLE, "view": "9" * 5000})

    assert found == replace(Ledger(**READ), view=UNKNOWN_VIEW, problems=(problem,))


def test_a_status_that_is_no_object_is_an_empty_ledger_with_a_problem() -> None:
    assert stored.read("x") == Ledger(problems=("status: x is no map",))


def test_a_ledger_is_read_as_it_was_written() -> None:
    ledger = Ledger(**READ, unread=("dev/one u-9 devices=?",), repaired="held: x")
    assert stored.read(stored.write(ledger)) == ledger


def test_fields_that_nothing_reads_are_named() -> None:
    assert stored.unknown({**WHOLE, "used": {}, "percent": 3, "helds": {}, "x" * 100: 1}) == ["helds", f"{'x' * 59}…"]
