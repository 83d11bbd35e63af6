"""The process of the console: gunicorn with one worker of a few threads, on a socket that is bound beforehand.

gunicorn, and not Werkzeug's server, which starts a thread for every connection without a bound, waits for ever for a
silent peer, and says itself that it is for development. gunicorn is here anyway: it serves the reviews.
"""

import os
import socket
import sys
from contextlib import suppress
from errno import EADDRINUSE
from pathlib import Path
from typing import Any, Final

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker

from webhook.console.app import create_app
from webhook.console.sources import Source, Standings

FAILED: Final = 2


class _Worker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """A worker that Ctrl-C ends at once."""

    def handle_quit(self, _sig: int, _frame: object) -> None:
        """Leave at once: gunicorn would ask the pool of threads for its lock, which the main thread may hold."""
        os._exit(0)


SETTINGS: Final = {
    "workers": 1,
    "worker_class": _Worker,
    "threads": 16,  # browsers open connections ahead and say nothing on them: each holds a thread for 5 s
    "control_socket_disable": True,  # gunicorn 27 opens one by default: a way in that has no use here
    "accesslog": None,
    "loglevel": "warning",
    "graceful_timeout": 2,
    "keepalive": 5,
}


def serve(host: str, port: int, rules: Path, source: Source | None = None, standings: Standings | None = None) -> int:
    """Serve the console until told to stop; the exit code."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        print(f"gpu-webhook: {_refused(host, port, error)}", file=sys.stderr)  # noqa: T201 - this is the command line
        return FAILED
    name, number = listener.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    print(f"console: http://{shown}:{number}/ with the rules of {rules}", flush=True)  # noqa: T201 - as above
    application = _Application(create_app(rules, host, source, standings), listener.detach())
    parent = os.getpid()
    with suppress(KeyboardInterrupt):  # before gunicorn has set its own handlers
        try:
            application.run()
        except SystemExit as stop:
            if os.getpid() != parent:
                raise  # the worker leaves through here as well
            return FAILED if stop.code else 0
    return 0


def _refused(host: str, port: int, error: OSError) -> str:
    shown = f"[{host}]" if ":" in host else host
    if error.errno == EADDRINUSE:
        return f"{shown}:{port} is in use: end what listens there, or choose another with --bind HOST:PORT"
    reason = str(error.strerror).partition(" (while ")[0]  # Python adds the address, which is said already
    return f"cannot listen on {shown}:{port}: {reason}"


class _Application(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's view of the console."""

    def __init__(self, app: Flask, listener: int) -> None:
        self.app = app
        self.listener = listener
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn up from here alone: no file, no GUNICORN_CMD_ARGS."""
        for name, value in {**SETTINGS, "bind": f"fd://{self.listener}"}.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """The application, made before the fork."""
        return self.app
