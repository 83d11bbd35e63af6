"""Counters of the admission server, and the page that Prometheus reads.

One process with one thread counts, so a counter is a dict and a histogram a list. No label has a value that a pod's
author chooses: such values are unbounded, and a time series lives as long as the process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain
from typing import Final

from webhook.core.decision import Decision

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0
)  # fmt: skip
"""Upper bounds in seconds, from the review of a pod without a GPU to the longest timeout of a webhook."""

LEDGER_EVENTS: Final = ("drawn", "conflict", "error", "recount")
"""A pod was admitted against an advance; a write came too late; a read or write failed; a recount was requested
before a pod was refused."""

Labels = tuple[str, ...]


class Histogram:
    """Durations in seconds, by bucket."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Metrics:
    """What this process has counted since it started; `render` says what each is, and by which labels."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.reviews: Counter[Labels] = Counter()
        self.violations: Counter[Labels] = Counter()
        self.findings: Counter[Labels] = Counter()
        self.translations: Counter[Labels] = Counter()
        self.refused: Counter[Labels] = Counter()
        self.dropped: Counter[Labels] = Counter({("handshake", "connections"): 0})
        self.ledger: Counter[Labels] = Counter(dict.fromkeys(((event,) for event in LEDGER_EVENTS), 0))
        self.reloads: Counter[Labels] = Counter()
        self.seconds = {path: Histogram() for path in paths}
        self.reservation_seconds = Histogram()
        self.connections = 0
        self.lines_dropped = 0
        self.certificate_expiry = 0.0

    def count(self, path: str, operation: str, decision: Decision, seconds: float) -> None:
        """Count one review."""
        label = operation if operation in OPERATIONS else "other"
        self.reviews[path, label, "allow" if decision.allowed else "deny", str(int(decision.code))] += 1
        self.seconds[path].observe(seconds)
        for violation in decision.violations:
            self.violations[(violation.code,)] += 1
        for finding in decision.findings:
            self.findings[tuple(finding)] += 1
        if decision.patch:
            for backend in decision.backends.values():
                self.translations[(backend,)] += 1


def page(lines: Iterable[str]) -> bytes:
    """The lines as the bytes of a page."""
    return ("\n".join(lines) + "\n").encode()


def family(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Iterator[str]:
    """The lines of a counter, if its name ends in `_total`, or a gauge; `values` is by the values of its labels."""
    yield f"# HELP gpu_webhook_{name} {text}"
    yield f"# TYPE gpu_webhook_{name} {'counter' if name.endswith('_total') else 'gauge'}"
    for key in sorted(values):
        yield f"gpu_webhook_{name}{_braced(labels, key)} {+values[key]}"


def rulebook(digest: str) -> Iterator[str]:
    """The lines that say which rules are in use."""
    yield from family("rulebook", "The rulebook in use; 0 if there is none.", ("digest",), {(digest,): bool(digest)})


def render(metrics: Metrics, digest: str) -> bytes:
    """The page; `digest` is that of the rulebook in use, empty if there is none."""
    ends: Mapping[Labels, float] = {("served",): metrics.certificate_expiry}
    reviewed, tenancy = ("path", "operation", "decision", "code"), ("tenant", "rule", "code", "action")
    families = (
        family("reviews_total", "Reviews answered.", reviewed, metrics.reviews),
        family("violations_total", "Violations reported.", ("code",), metrics.violations),
        family("findings_total", "What policies had to say about pods.", tenancy, metrics.findings),
        family("translations_total", "Containers translated.", ("backend",), metrics.translations),
        _histogram("review_seconds", "Decoding, deciding and encoding one review.", metrics.seconds),
        _histogram("reservation_seconds", "Waiting for the ledger.", {"validate": metrics.reservation_seconds}),
        family("ledger_events_total", "What happened with ledgers.", ("event",), metrics.ledger),
        family("refused_requests_total", "Requests refused as HTTP.", ("status",), metrics.refused),
        family("dropped_total", "Connections and bodies not waited for.", ("why", "what"), metrics.dropped),
        family("connections", "Connections held now.", (), {(): metrics.connections}),
        family("reloads_total", "Reloads of changed files.", ("what", "result"), metrics.reloads),
        family("certs_expiry_timestamp_seconds", "When certificates end.", ("certificate",), ends),
        family("log_lines_dropped_total", "Lines nobody read in time.", (), {(): metrics.lines_dropped}),
        rulebook(digest),
    )
    return page(chain.from_iterable(families))


def _histogram(name: str, text: str, histograms: Mapping[str, Histogram]) -> Iterator[str]:
    yield f"# HELP gpu_webhook_{name} {text}"
    yield f"# TYPE gpu_webhook_{name} histogram"
    bounds = [*map(str, BOUNDS), "+Inf"]
    for path, histogram in histograms.items():
        counts = list(accumulate(histogram.buckets))
        for bound, count in zip(bounds, counts, strict=True):
            yield f"gpu_webhook_{name}_bucket{_braced(('path', 'le'), (path, bound))} {count}"
        yield f"gpu_webhook_{name}_sum{_braced(('path',), (path,))} {histogram.total:.6f}"
        yield f"gpu_webhook_{name}_count{_braced(('path',), (path,))} {counts[-1]}"


def _braced(labels: Labels, values: Labels) -> str:
    """Labels with their values; backslash, quote and line feed are escaped, as the exposition format requires."""
    escaped = [value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values]
    pairs = ",".join(f'{label}="{value}"' for label, value in zip(labels, escaped, strict=True))
    return f"{{{pairs}}}" if pairs else ""
