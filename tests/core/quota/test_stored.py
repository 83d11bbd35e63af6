"""A TenantUsage that somebody edited harms its tenant only, and only until it is counted anew."""

from fractions import Fraction
from typing import Any

import pytest

from webhook.core.quota import stored
from webhook.core.quota.ledger import UNKNOWN_VIEW, Ledger
from webhook.core.quota.tally import Tally

ONE: Tally = {"devices": Fraction(1)}
WHOLE: dict[str, Any] = {
    "hard": {"devices": "4"},
    "held": {"dev": {"devices": "1"}, "ci": {}},
    "view": "7",
    "pending": ["dev/one u-1 devices=1", "dev/one u-2 devices=1"],
    "authors": ["ann u-1 u-2"],
    "suspects": {"dev": 1, "dev ann": 2},
    "advances": ["me-1 devices=1", "me-2"],
    "joining": {"new": "me-1"},
    "recount": 3,
    "recounted": 2,
    "repaired": "",
}
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


@pytest.mark.parametrize(
    ("status", "instead"),
    [
        pytest.param({}, {}, id="nothing is wrong"),
        pytest.param(
            {"held": {"dev": {"devices": "abc"}, "ci": {"devices": "2"}}},
            {
                "held": {"dev": {}, "ci": {"devices": Fraction(2)}},
                "problems": ('held.dev: devices: "abc" is no amount, as "3", "0.5" or "8Gi"',),
            },
            id="an amount that is none",
        ),
        pytest.param(
            {"held": {"dev": {"devices": "1e300000000"}}},
            {
                "held": {"dev": {}},
                "problems": ('held.dev: devices: "1e300000000" is no amount, as "3", "0.5" or "8Gi"',),
            },
            id="an exponent",
        ),
        pytest.param(
            {"hard": {"devices": "-1000"}},
            {"hard": {}, "problems": ('hard: devices: "-1000" is no amount, as "3", "0.5" or "8Gi"',)},
            id="less than nothing",
        ),
        pytest.param(
            {"held": {"../../secrets": {}, "ci": {}}},
            {"held": {"ci": {}}, "problems": ("held: ../../secrets is no namespace",)},
            id="a namespace that is none",
        ),
        pytest.param(
            {"view": "x"},
            {"view": UNKNOWN_VIEW, "problems": ("view: x is no version of the cluster",)},
            id="a view that is none",
        ),
        pytest.param(
            {"view": "9" * 5000},
            {"view": UNKNOWN_VIEW, "problems": (f"view: {'9' * 59}… is no version of the cluster",)},
            id="a view of too many digits",
        ),
        pytest.param(
            {"recount": 1 << 62, "recounted": True},
            {
                "recount": 0,
                "recounted": 0,
                "problems": (
                    "recount: 4611686018427387904 is no number of counts",
                    "recounted: True is no number of counts",
                ),
            },
            id="counts that no other can follow",
        ),
        pytest.param(
            {"pending": ["dev/one u-1 devices=1e9", "dev/../x u-2 devices=1", "", "dev/two u-3 devices=2", 3]},
            {
                "pending": {"dev/two": {"u-3": {"devices": Fraction(2)}}},
                "unread": ("dev/one u-1 devices=1e9", "dev/../x u-2 devices=1", "", "3"),
            },
            id="reservations that are none are kept",
        ),
        pytest.param(
            {"advances": ["me-1 devices", "me-2 devices=1"]},
            {"advances": {"me-2": ONE}, "unread": ("me-1 devices",)},
            id="and escrows that are none",
        ),
        pytest.param(
            {"pending": ["dev/one u-1 devices=2", "dev/one u-1 devices=1"]},
            {"pending": {"dev/one": {"u-1": {"devices": Fraction(2)}}}},
            id="of two reservations of one pod the larger counts",
        ),
        pytest.param(
            {"held": [], "joining": "x", "pending": {}},
            {
                "held": {},
                "joining": {},
                "pending": {},
                "problems": ("held: [] is no map", "pending: {} is no list", "joining: x is no map"),
            },
            id="other kinds of values",
        ),
        pytest.param({"authors": [3, "", "bob u-2"]}, {"authors": {"u-2": "bob"}}, id="authors that are none"),
        pytest.param(
            {"suspects": {"dev": -1}},
            {"suspects": {}, "problems": ("suspects: -1 is no number of counts",)},
            id="suspects that are none",
        ),
    ],
)
def test_what_cannot_be_read_is_said_and_the_rest_is_read(status: dict[str, Any], instead: dict[str, Any]) -> None:
    assert stored.read({**WHOLE, **status}) == Ledger(**{**READ, **instead})


def test_a_status_that_is_no_object_is_an_empty_ledger_with_a_problem() -> None:
    assert stored.read("x") == Ledger(problems=("status: x is no map",))


def test_a_ledger_is_read_as_it_was_written() -> None:
    ledger = Ledger(**READ, unread=("dev/one u-9 devices=?",), repaired="held: x")
    assert stored.read(stored.write(ledger)) == ledger


def test_fields_that_nothing_reads_are_named() -> None:
    assert stored.unknown({**WHOLE, "used": {}, "percent": 3, "helds": {}, "x" * 100: 1}) == ["helds", f"{'x' * 59}…"]
