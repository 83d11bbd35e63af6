"""The benchmark runs, and counts right; its figures are nobody's promise here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import many
from tests.bench.figures import NOOP, OURS, Figures, Row, medians, table, verdicts
from tests.bench.reviews import all_reviews

ROOT = Path(__file__).parents[2]


def test_each_median_is_taken_by_itself() -> None:
    runs = [Figures(1, 9, 3, 5), Figures(2, 8, 1, 6), Figures(3, 7, 2, 7)]

    assert medians(runs) == Figures(2, 8, 2, 6)


def test_the_table_compares_with_the_no_op_server() -> None:
    rows = [Row("r", 3400, OURS, Figures(5000, 1, 2.5, 100)), Row("r", 3400, NOOP, Figures(10_000, 1, 1, 50))]
    memory = {OURS: 36.4, NOOP: 13.0}

    assert list(table(rows, memory))[2] == "| r (3.4 KB) | gpu-webhook | 5,000 | 1.00 | 2.50 | 100 | 0.50 | 36 |"
    assert list(verdicts(rows, {OURS: 90.0, NOOP: 1.0})) == [
        "reviews/s: 0.50 x the no-op's (met: at least 0.4 x)",
        "p99: 2.5 x the no-op's (met: at most 3 x)",
        "PSS: 90 MiB (NOT met: under 80 MiB)",
    ]


def test_the_reviews_have_the_sizes_they_are_reported_with() -> None:
    sizes = [len(body) for body in all_reviews().values()]

    assert 3000 < sizes[0] < 4000
    assert 3000 < sizes[1] < 4000
    assert 3000 < sizes[2] < 4000
    assert 55_000 < sizes[3] < 65_000


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go, which would have to be installed first")
def test_a_short_run_answers_every_review_as_it_should() -> None:
    shortly = ("--only", "reviews", "--rounds", "1", "--seconds", "0.2", "--connections", "2")
    command = [sys.executable, "-m", "tests.bench", *shortly]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"| {OURS} |") == 4
    assert done.stdout.count(f"| {NOOP} |") == 4


@pytest.mark.parametrize("name", many.reviews())
def test_four_hundred_back_ends_cost_a_quarter_more_at_most(name: str) -> None:
    few, most = many.rulebook(many.FEW), many.rulebook(many.MANY)

    assert many.ratio(many.reviews()[name], few, most) <= 1.25
