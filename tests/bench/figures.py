"""What is measured, the medians of it, and the table for its README."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench import reviews

OURS = "gpu-webhook"
WITH_QUOTA = "gpu-webhook with a quota"
NOOP = "Go, only says yes"

HIT, MISS = f"/mutate, {reviews.HIT}", f"/mutate, {reviews.MISS}"
LEAST_HITS = 0.8
LEAST_MISSES = 0.4
MOST_P99 = 1.5
MOST_FOR_A_QUOTA = 1.3
MOST_MEMORY = 45.0
"""MiB of one process, what it shares with others divided among them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run, or the medians of several."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Row:
    """One server answering one kind of review."""

    review: str
    size: int
    server: str
    figures: Figures


def medians(runs: Sequence[Figures]) -> Figures:
    """Each figure's median, by itself."""
    return Figures(
        per_second=median(run.per_second for run in runs),
        p50_ms=median(run.p50_ms for run in runs),
        p99_ms=median(run.p99_ms for run in runs),
        cpu_us=median(run.cpu_us for run in runs),
    )


def table(rows: Sequence[Row], memory: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Markdown: every row, and how ours compares with the no-op server on the same review."""
    yield "| review | server | reviews/s | p50 ms | p99 ms | CPU µs | of the no-op's reviews/s | PSS MiB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        figures = row.figures
        ratio = figures.per_second / _noop(rows, row.review).per_second
        yield (
            f"| {row.review} ({row.size / 1000:.1f} KB) | {row.server} | {figures.per_second:,.0f} "
            f"| {figures.p50_ms:.2f} | {figures.p99_ms:.2f} | {figures.cpu_us:.0f} | {ratio:.2f} "
            f"| {sum(memory[row.server]):.0f} |"
        )


def verdicts(rows: Sequence[Row], memory: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Whether the targets are met."""
    for name, review, least in (("hits", HIT, LEAST_HITS), ("misses", MISS, LEAST_MISSES)):
        share = _of(rows, review, OURS).per_second / _noop(rows, review).per_second
        yield _verdict(f"{name}, reviews/s", f"{share:.2f} x the no-op's", share >= least, f"at least {least:g} x")
    p99 = _of(rows, HIT, OURS).p99_ms / _noop(rows, HIT).p99_ms
    yield _verdict("hits, p99", f"{p99:.1f} x the no-op's", p99 <= MOST_P99, f"at most {MOST_P99:g} x")
    for name, what in (("hits", reviews.HIT), ("misses", reviews.MISS)):
        counted, plain = _of(rows, f"/validate, quota, {what}", WITH_QUOTA), _of(rows, f"/validate, {what}", OURS)
        ratio = counted.cpu_us / plain.cpu_us
        met = ratio <= MOST_FOR_A_QUOTA
        yield _verdict(f"quota, CPU of {name}", f"{ratio:.2f} x one without", met, f"at most {MOST_FOR_A_QUOTA:g} x")
    largest = max(memory[OURS])
    yield _verdict("PSS per process", f"{largest:.0f} MiB", largest <= MOST_MEMORY, f"at most {MOST_MEMORY:g} MiB")


def _verdict(what: str, value: str, met: bool, target: str) -> str:  # noqa: FBT001 - a sentence, read in order
    return f"{what}: {value} ({'' if met else 'NOT '}met: {target})"


def _noop(rows: Sequence[Row], review: str) -> Figures:
    return _of(rows, review, NOOP)


def _of(rows: Sequence[Row], review: str, server: str) -> Figures:
    return next(row.figures for row in rows if (row.review, row.server) == (review, server))
