"""What programs tell of themselves: JSON lines on standard output, and the page that Prometheus reads.

No review waits for the log: if the pipe is full because its reader has stopped, lines are dropped and counted. One
process with one thread counts, so a counter is a dict and a histogram a list. No label has a value that a pod's
author chooses: such values are unbounded, and a time series lives as long as the process.

What is worth counting or logging, each program decides.
"""

import logging
import os
import stat
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Any, Final

import orjson

from webhook.core.decision import Decision
from webhook.core.kube.fields import mapping
from webhook.core.review import AdmissionRequest

LONGEST_NAME: Final = 253
"""The longest name in Kubernetes. The API server calls webhooks before it checks a pod's name, so names are cut."""

DIGEST_LENGTH: Final = 12


class Lines(logging.Handler):
    """Writes JSON lines to a file descriptor, the messages of `logging` too, and never waits for its reader."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.dropped = 0
        self._torn = False
        self._descriptor = descriptor
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return  # a regular file never blocks
        # O_NONBLOCK belongs to the open file, which this process shares with its parent: setting it there would
        # change a shell's terminal. Opening the pipe anew through /proc gives an open file of its own. A socket
        # cannot be opened so.
        try:
            self._descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.set_blocking(descriptor, False)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write one line, or count it as dropped."""
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)
        if self._torn:
            line = b"\n" + line
        try:
            written = os.write(self._descriptor, line)
        except OSError:  # full (EAGAIN), or without a reader (EPIPE): admission is worth more than a log line
            self.dropped += 1
            return
        self._torn = written < len(line)  # possible beyond PIPE_BUF; the next line begins afresh
        self.dropped += self._torn

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message of `logging`, with its traceback if it has one."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": _writable(record.getMessage()),
            "logger": record.name,
            "pid": record.process,
        }
        if record.exc_info:
            entry["traceback"] = _writable("".join(traceback.format_exception(*record.exc_info)))
        self.write(entry)


def _writable(text: str) -> str:
    """The text without lone surrogates: Python makes them of undecodable bytes, and JSON cannot hold them."""
    return text.encode("utf-8", "replace").decode()


def configure(level: str = "info") -> Lines:
    """Send every `logging` message of this process to standard output as JSON lines, those of libraries too."""
    lines = Lines(1)
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)
    return lines


def decision_line(
    path: str, request: AdmissionRequest, decision: Decision, *, seconds: float, digest: str
) -> dict[str, Any]:
    """The log line of one decision. Values from the pod are cut; JSON escapes them."""
    name = request.name or str(mapping(request.pod or {}, "metadata").get("generateName", ""))
    return {
        "time": datetime.now(UTC),
        "level": "info",
        "message": "decision",
        "uid": request.uid[:LONGEST_NAME],
        "operation": request.operation[:LONGEST_NAME],
        "path": path,
        "namespace": request.namespace[:LONGEST_NAME],
        "name" if request.name else "generateName": name[:LONGEST_NAME],
        "decision": "allow" if decision.allowed else "deny",
        "dryRun": request.dry_run,
        "backends": sorted(set(decision.backends.values())),
        "codes": sorted({violation.code for violation in decision.violations}),
        "findings": [*map(str, decision.findings)],
        "microseconds": round(seconds * 1e6),
        "patched": bool(decision.patch),
        "rulebook": digest[:DIGEST_LENGTH],
    }


# Counters of the admission server, and the page that Prometheus reads.

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0
)  # fmt: skip
"""Upper bounds in seconds, from the review of a pod without a GPU to the longest timeout of a webhook."""

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
        # A pod was admitted against an advance; a write came too late; a read or write failed; a recount was
        # requested before a pod was refused.
        self.ledger: Counter[Labels] = Counter({("drawn",): 0, ("conflict",): 0, ("error",): 0, ("recount",): 0})
        self.reloads: Counter[Labels] = Counter()
        self.unusable: dict[Labels, float] = {("certificate",): 0, ("rules",): 0, ("surroundings",): 0}
        self.surroundings_age: dict[Labels, float] = {}
        self.seconds = {path: Histogram() for path in paths}
        self.reservation_seconds = Histogram()
        self.connections = 0
        self.certificate_expiry = 0.0

    def count(self, path: str, operation: str, decision: Decision, seconds: float) -> None:
        """Count one review."""
        label = operation if operation in {"CREATE", "UPDATE", "DELETE", "CONNECT"} else "other"
        self.reviews[path, label, "allow" if decision.allowed else "deny", str(int(decision.code))] += 1
        self.seconds[path].observe(seconds)
        for violation in decision.violations:
            self.violations[(violation.code,)] += 1
        for finding in decision.findings:
            self.findings[tuple(finding)] += 1
        if decision.patch:
            for backend in decision.backends.values():
                self.translations[(backend,)] += 1

    def reloaded(self, what: str, *, usable: bool) -> None:
        """Count that changed files were read, and remember whether they are in use."""
        self.reloads[what, "done" if usable else "failed"] += 1
        self.unusable[(what,)] = not usable

    def render(self, digest: str, lines_dropped: int = 0, *, named: bool = True) -> bytes:
        """The page, with tenants if `named`; `digest` is that of the rulebook in use, empty if there is none."""
        ends: Mapping[Labels, float] = {("served",): self.certificate_expiry}
        reviewed, tenancy = (
            ("path", "operation", "decision", "code"),
            ("tenant", "rule", "code", "action", "exemption"),
        )
        families = (
            family("reviews_total", "Reviews answered.", reviewed, self.reviews),
            family("violations_total", "Violations reported.", ("code",), self.violations),
            family("findings_total", "What policies had to say about pods.", tenancy, self.findings if named else {}),
            family("translations_total", "Containers translated.", ("backend",), self.translations),
            _histogram("review_seconds", "Decoding, deciding and encoding one review.", self.seconds),
            _histogram("reservation_seconds", "Waiting for the ledger.", {"validate": self.reservation_seconds}),
            family("ledger_events_total", "What happened with ledgers.", ("event",), self.ledger),
            family("refused_requests_total", "Requests refused as HTTP.", ("status",), self.refused),
            family("dropped_total", "Connections and bodies not waited for.", ("why", "what"), self.dropped),
            family("connections", "Connections held now.", (), {(): self.connections}),
            family("reloads_total", "Reloads of changed files.", ("what", "result"), self.reloads),
            family("unusable_files", "1: the last good ones are used.", ("what",), self.unusable),
            family("surroundings_age_seconds", "How old what is known of nodes may be.", (), self.surroundings_age),
            family("certs_expiry_timestamp_seconds", "When certificates end.", ("certificate",), ends),
            family("log_lines_dropped_total", "Lines nobody read in time.", (), {(): lines_dropped}),
            rulebook(digest),
        )
        return page(chain.from_iterable(families))


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


def _histogram(name: str, text: str, histograms: Mapping[str, Histogram]) -> Iterator[str]:
    yield f"# HELP gpu_webhook_{name} {text}"
    yield f"# TYPE gpu_webhook_{name} histogram"
    for path, histogram in histograms.items():
        counts = list(accumulate(histogram.buckets))
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
            yield f"gpu_webhook_{name}_bucket{_braced(('path', 'le'), (path, bound))} {count}"
        yield f"gpu_webhook_{name}_sum{_braced(('path',), (path,))} {histogram.total:.6f}"
        yield f"gpu_webhook_{name}_count{_braced(('path',), (path,))} {counts[-1]}"


def _braced(labels: Labels, values: Labels) -> str:
    """Labels with their values; backslash, quote and line feed are escaped, as the exposition format requires."""
    escaped = [value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values]
    pairs = ",".join(f'{label}="{value}"' for label, value in zip(labels, escaped, strict=True))
    return f"{{{pairs}}}" if pairs else ""
