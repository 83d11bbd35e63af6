"""Figures of pods created through an API server: their medians, the table for README.md here, and the targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

NONE = "no webhook"
NATIVE = "native ResourceQuota"
NOOP = "no-op webhook, validating"
NOOPS = "no-op webhook, mutating and validating"
LEDGER = "gpu-webhook with its ledger"
SETUPS = (NONE, NATIVE, NOOP, NOOPS, LEDGER)

ONE, MANY = 1, 32
"""Clients at once."""

LEAST_OF_NATIVE = 0.5
MOST_ADDED = 2.0


@dataclass(frozen=True, slots=True)
class Creates:
    """One run, or the medians of several."""

    per_second: float
    p50_ms: float
    p99_ms: float


def medians(runs: Sequence[Creates]) -> Creates:
    """Each figure's median, by itself."""
    return Creates(
        per_second=median(run.per_second for run in runs),
        p50_ms=median(run.p50_ms for run in runs),
        p99_ms=median(run.p99_ms for run in runs),
    )


def table(found: Mapping[tuple[str, int], Creates]) -> Iterator[str]:
    """Markdown: every setup, at one client and at many."""
    yield "| setup | clients | pods/s | p50 ms | p99 ms | of native quota's pods/s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for clients in (ONE, MANY):
        for setup in SETUPS:
            run = found[setup, clients]
            share = run.per_second / found[NATIVE, clients].per_second
            yield (
                f"| {setup} | {clients} | {run.per_second:,.0f} | {run.p50_ms:.2f} | {run.p99_ms:.2f} | {share:.2f} |"
            )


def verdicts(found: Mapping[tuple[str, int], Creates], put: Creates) -> Iterator[str]:
    """Whether the targets are met."""
    share = found[LEDGER, MANY].per_second / found[NATIVE, MANY].per_second
    met = _met(share >= LEAST_OF_NATIVE)
    yield f"pods/s, {MANY} clients: {share:.2f} x native quota's ({met}: at least {LEAST_OF_NATIVE} x)"
    none = found[NONE, ONE].p50_ms
    call, added = found[NOOP, ONE].p50_ms - none, found[LEDGER, ONE].p50_ms - none
    ratio = added / (put.p50_ms + call)
    yield (
        f"added p50, 1 client: {added:.2f} ms, {ratio:.2f} x (one status PUT {put.p50_ms:.2f} ms + one no-op call "
        f"{call:.2f} ms) ({_met(ratio <= MOST_ADDED)}: at most {MOST_ADDED:g} x)"
    )


def _met(met: bool) -> str:  # noqa: FBT001 - what it says is its name
    return "met" if met else "NOT met"
