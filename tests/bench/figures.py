"""What is measured, the medians of it, and the table for its README."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, TypeVar

from tests.bench import reviews

Run = TypeVar("Run", bound=tuple[float, ...])

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


class Figures(NamedTuple):
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


def medians(runs: Sequence[Run]) -> Run:
    """Each figure's median, by itself."""
    return type(runs[0])(*map(median, zip(*runs, strict=True)))


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
        yield f"{name}, reviews/s: {share:.2f} x the no-op's ({met(share >= least)}: at least {least:g} x)"
    p99 = _of(rows, HIT, OURS).p99_ms / _noop(rows, HIT).p99_ms
    yield f"hits, p99: {p99:.1f} x the no-op's ({met(p99 <= MOST_P99)}: at most {MOST_P99:g} x)"
    for name, what in (("hits", reviews.HIT), ("misses", reviews.MISS)):
        counted, plain = _of(rows, f"/validate, quota, {what}", WITH_QUOTA), _of(rows, f"/validate, {what}", OURS)
        ratio = counted.cpu_us / plain.cpu_us
        is_met = met(ratio <= MOST_FOR_A_QUOTA)
        yield f"quota, CPU of {name}: {ratio:.2f} x one without ({is_met}: at most {MOST_FOR_A_QUOTA:g} x)"
    largest = max(memory[OURS])
    yield f"PSS per process: {largest:.0f} MiB ({met(largest <= MOST_MEMORY)}: at most {MOST_MEMORY:g} MiB)"


def met(target: bool) -> str:  # noqa: FBT001 - what it says is its name
    """Whether a target is met, in a verdict."""
    return "met" if target else "NOT met"


def _noop(rows: Sequence[Row], review: str) -> Figures:
    return _of(rows, review, NOOP)


def _of(rows: Sequence[Row], review: str, server: str) -> Figures:
    return next(row.figures for row in rows if (row.review, row.server) == (review, server))
