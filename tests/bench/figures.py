"""What is measured, the medians of it, and the table for the README."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

OURS = "gpu-webhook"
NOOP = "Go, only says yes"

LEAST_THROUGHPUT = 0.4
MOST_P99 = 3.0
MOST_MEMORY = 80.0


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


def table(rows: Sequence[Row], memory: dict[str, float]) -> Iterator[str]:
    """Markdown: every row, and how ours compares with the no-op server on the same review."""
    yield "| review | server | reviews/s | p50 ms | p99 ms | CPU µs | of the no-op's reviews/s | PSS MiB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        figures = row.figures
        ratio = figures.per_second / _of(rows, row.review, NOOP).per_second
        yield (
            f"| {row.review} ({row.size / 1000:.1f} KB) | {row.server} | {figures.per_second:,.0f} "
            f"| {figures.p50_ms:.2f} | {figures.p99_ms:.2f} | {figures.cpu_us:.0f} | {ratio:.2f} "
            f"| {memory[row.server]:.0f} |"
        )


def verdicts(rows: Sequence[Row], memory: dict[str, float]) -> Iterator[str]:
    """Whether the targets are met, on the first kind of review."""
    ours, noop = (_of(rows, rows[0].review, server) for server in (OURS, NOOP))
    throughput, p99 = ours.per_second / noop.per_second, ours.p99_ms / noop.p99_ms
    yield _verdict("reviews/s", f"{throughput:.2f} x the no-op's", throughput >= LEAST_THROUGHPUT, "at least 0.4 x")
    yield _verdict("p99", f"{p99:.1f} x the no-op's", p99 <= MOST_P99, "at most 3 x")
    yield _verdict("PSS", f"{memory[OURS]:.0f} MiB", memory[OURS] < MOST_MEMORY, "under 80 MiB")


def _verdict(what: str, value: str, met: bool, target: str) -> str:  # noqa: FBT001 - a sentence, read in order
    return f"{what}: {value} ({'' if met else 'NOT '}met: {target})"


def _of(rows: Sequence[Row], review: str, server: str) -> Figures:
    return next(row.figures for row in rows if (row.review, row.server) == (review, server))
