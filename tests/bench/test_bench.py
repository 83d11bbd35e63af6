"""The benchmark runs, and counts right; its figures are nobody's promise here."""

import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tests import builders, tables
from tests.bench import changes, reviews
from tests.bench.figures import HIT, MISS, NOOP, OURS, WITH_QUOTA, Figures, Row, medians, table, verdicts
from tests.bench.trace import calls
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest, decode
from webhook.core.rules.rulebook import Rulebook
from webhook.server.handler import Memo

ROOT = Path(__file__).parents[2]


def test_each_median_is_taken_by_itself() -> None:
    runs = [Figures(1, 9, 3, 5), Figures(2, 8, 1, 6), Figures(3, 7, 2, 7)]

    assert medians(runs) == Figures(2, 8, 2, 6)


def row(review: str, server: str, per_second: float, p99_ms: float, cpu_us: float) -> Row:
    return Row(review, 3400, server, Figures(per_second, 1, p99_ms, cpu_us))


def test_the_table_compares_with_the_no_op_server() -> None:
    rows = [row("r", OURS, 5000, 2.5, 100), row("r", NOOP, 10_000, 1, 50)]

    found = list(table(rows, {OURS: [24.2, 12.2], NOOP: [13.0]}))

    assert found[2] == "| r (3.4 KB) | gpu-webhook | 5,000 | 1.00 | 2.50 | 100 | 0.50 | 36 |"


def test_every_target_is_held_against_its_own_row() -> None:
    rows = [
        *(row(HIT, server, *found) for server, found in ((OURS, (8500, 1.4, 60)), (NOOP, (10_000, 1, 50)))),
        *(row(MISS, server, *found) for server, found in ((OURS, (3000, 9, 200)), (NOOP, (10_000, 1, 50)))),
        row(f"/validate, {reviews.HIT}", OURS, 1, 1, 60),
        row(f"/validate, quota, {reviews.HIT}", WITH_QUOTA, 1, 1, 72),
        row(f"/validate, {reviews.MISS}", OURS, 1, 1, 200),
        row(f"/validate, quota, {reviews.MISS}", WITH_QUOTA, 1, 1, 280),
    ]

    assert list(verdicts(rows, {OURS: [20.0, 90.0], NOOP: [1.0]})) == [
        "hits, reviews/s: 0.85 x the no-op's (met: at least 0.8 x)",
        "misses, reviews/s: 0.30 x the no-op's (NOT met: at least 0.4 x)",
        "hits, p99: 1.4 x the no-op's (met: at most 1.5 x)",
        "quota, CPU of hits: 1.20 x one without (met: at most 1.3 x)",
        "quota, CPU of misses: 1.40 x one without (NOT met: at most 1.3 x)",
        "PSS per process: 90 MiB (NOT met: at most 45 MiB)",
    ]


def test_hits_are_remembered_and_misses_are_not() -> None:
    rules = builders.rulebook(builders.shipped_files())
    asked: dict[str, int] = {}
    for review in reviews.all_measured():
        known = Memo()
        judged: list[object] = []

        def judge(request: AdmissionRequest, _: Rulebook, judged: list[object] = judged) -> Decision:
            judged.append(request)
            return Decision(allowed=True)

        for number in range(3):
            body = review.body.replace(reviews.PLACEHOLDER.encode(), f"{number:036}".encode())
            known.decide(review.path, judge, decode(body), rules)
        asked[review.name] = len(judged)

    assert asked == {name: 3 if reviews.MISS in name else 1 for name in asked}


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go, which would have to be installed first")
def test_a_short_run_answers_every_review_as_it_should() -> None:
    shortly = ("--only", "reviews", "--rounds", "1", "--seconds", "0.2", "--connections", "2")
    command = [sys.executable, "-m", "tests.bench", *shortly]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"| {OURS} |") == 6
    assert done.stdout.count(f"| {WITH_QUOTA} |") == 2
    assert done.stdout.count(f"| {NOOP} |") == 8


FEW, MANY = 4, 400
CLUSTER = "backends: [nvidia-gpu, hami-vgpu, amd-gpu, tencent-qgpu%s], defaults: {whole: nvidia-gpu, part: hami-vgpu}"


@cache
def with_back_ends(number: int) -> Rulebook:
    """The shipped rules, of which four are enabled, and as many made-up back ends as it takes."""
    names = [f"many-{made_up}" for made_up in range(number - FEW)]
    files = {f"{name}.yaml": tables.table(__file__, "one of many").replace("NAME", name) for name in names}
    enabled = builders.cluster(CLUSTER % "".join(f", {name}" for name in names))
    return builders.rulebook({**builders.shipped_files(), **files, "cluster.yaml": enabled})


@tables.rows
def test_with_four_hundred_back_ends_a_review_calls_a_quarter_more_at_most(pod: dict[str, Any]) -> None:
    request = builders.creating(builders.written(pod))
    few, many = (calls(partial(mutate, request, with_back_ends(number))) for number in (FEW, MANY))

    assert many <= 1.25 * few


def test_the_benchmark_of_differences_runs() -> None:
    first, _ = changes.report(20, 1000)

    assert first.startswith("20 of 20 pods: 20 served by another back end; devices 0.3 -> 1; memory")
