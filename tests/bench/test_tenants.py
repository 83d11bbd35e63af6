"""What is measured of pods, ledgers and tenants runs, and counts right; of its figures only ratios are asserted."""

import shutil
from dataclasses import replace

import pytest

from tests.bench import ledger, ordinary, programs, scale
from tests.bench.ledger import LEDGER, MANY, NATIVE, NONE, NOOP, ONE, SETUPS, Creates, Sizes, table, verdicts
from tests.cluster import binaries
from tests.missing import UnavailableError


def test_the_ledger_is_compared_with_the_native_quota_and_with_what_a_call_and_a_write_cost() -> None:
    same = {(setup, clients): Creates(200, 4, 9) for setup in SETUPS for clients in (ONE, MANY)}
    found = same | {
        (NATIVE, MANY): Creates(300, 100, 200),
        (LEDGER, MANY): Creates(180, 160, 300),
        (NONE, ONE): Creates(400, 2.5, 6),
        (NOOP, ONE): Creates(300, 3.5, 7),
        (LEDGER, ONE): Creates(120, 8.5, 20),
    }

    assert list(table(found))[-1] == f"| {LEDGER} | 32 | 180 | 160.00 | 300.00 | 0.60 |"
    many, one = verdicts(found, Creates(500, 1.5, 3))
    assert many == "pods/s, 32 clients: 0.60 x native quota's (met: at least 0.5 x)"
    assert one == (
        "added p50, 1 client: 6.00 ms, 2.40 x (one status PUT 1.50 ms + one no-op call 1.00 ms) "
        "(NOT met: at most 2 x)"
    )


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go, which would have to be installed first")
def test_a_few_pods_are_created_through_every_setup() -> None:
    try:
        binaries.find()
    except UnavailableError as reason:
        pytest.skip(f"no control plane: {reason}")

    said = "\n".join(ledger.report(Sizes(1, 3, 40), programs.build()))

    assert [said.count(f"| {setup} | {clients} |") for setup in SETUPS for clients in (ONE, MANY)] == [1] * 10


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go, which would have to be installed first")
def test_ordinary_pods_are_created_in_every_setup() -> None:
    try:
        binaries.find()
    except UnavailableError as reason:
        pytest.skip(f"no control plane: {reason}")

    lines = [*ordinary.report(1, 2, programs.build())]

    assert [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:] == [*ordinary.SETUPS]


def test_a_thousand_tenants_cost_a_quarter_more_at_most() -> None:
    assert scale.ratio() <= scale.MOST_OF_ONE


def test_counting_a_pod_takes_less_than_decoding_it() -> None:
    found = scale.recount(replace(scale.LARGE, pods=5000))

    assert found.whole <= 2 * found.decoding
