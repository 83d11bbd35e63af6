"""JSON lines on standard output: one a decision, and every message of this program and of gunicorn.

No review waits for the log: if the pipe is full because its reader has stopped, lines are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import stat
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from gunicorn import glogging

from webhook.core.decision import Decision
from webhook.core.review import AdmissionRequest

LONGEST_NAME: Final = 253
"""The longest name in Kubernetes. The API server calls webhooks before it checks a pod's name, so names are cut."""

DIGEST_LENGTH: Final = 12
STDOUT: Final = 1


class Lines:
    """Writes JSON lines to a file descriptor and never waits for its reader."""

    def __init__(self, descriptor: int) -> None:
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


def decision_line(
    path: str, request: AdmissionRequest, decision: Decision, *, seconds: float, digest: str, now: datetime
) -> dict[str, Any]:
    """The log line of one decision. Values from the pod are cut; JSON escapes them."""
    name = request.name
    metadata = (request.pod or {}).get("metadata")
    if not name and isinstance(metadata, dict):
        name = str(metadata.get("generateName", ""))
    return {
        "time": now,
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
        "findings": [f"{finding.policy}: {finding.code} {finding.action}" for finding in decision.findings],
        "microseconds": round(seconds * 1e6),
        "patched": bool(decision.patch),
        "rulebook": digest[:DIGEST_LENGTH],
    }


def configure(lines: Lines, level: str) -> None:
    """Send every `logging` message of this process to `lines`, those of libraries too."""
    logging.basicConfig(level=level.upper(), handlers=[LineHandler(lines)], force=True)


class LineHandler(logging.Handler):
    """The standard library's messages as JSON lines."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, with its traceback if it has one."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": _writable(record.getMessage()),
            "logger": record.name,
            "pid": record.process,
        }
        if record.exc_info:
            entry["traceback"] = _writable("".join(traceback.format_exception(*record.exc_info)))
        self._lines.write(entry)


def _writable(text: str) -> str:
    """The text without lone surrogates: Python makes them of undecodable bytes, and JSON cannot hold them."""
    return text.encode("utf-8", "replace").decode()


class GunicornLogger(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's logger without a stream of its own: its messages go to the root logger."""

    def setup(self, cfg: Any) -> None:
        """Let messages propagate to the root logger, where `configure` put the only handler."""
        super().setup(cfg)
        self.error_log.propagate = True

    def _set_handler(self, *_: Any, **__: Any) -> None:
        """Add no handler."""
