"""Starts the admission server: certificate, rules, then gunicorn with one worker.

What can fail at the start fails here, with one sentence, before a port is open. The rules are loaded once, before the
fork, so that gunicorn's arbiter and its worker share their memory.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

from gunicorn import glogging
from gunicorn.app.base import BaseApplication

from webhook import telemetry
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import rule_files
from webhook.files.rule_files import ReloadedRules
from webhook.server import advice
from webhook.server.handler import Lane
from webhook.server.settings import Settings

# The serving certificate as a TLS context, and whether its files have changed.

_AT_ANY_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: certificates that have expired are read, too."""

CertificateStamp = tuple[rule_files.Stamp | None, ...]


def certificate_stamp(pair: tuple[Path, Path], client_ca: Path | None = None) -> CertificateStamp:
    """The inode, time and size of the files."""
    return tuple(map(rule_files.file_stamp, pair if client_ca is None else (*pair, client_ca)))


class CertificateError(Exception):
    """Which files cannot be used, and why, in a sentence."""


def tls_context(pair: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    """A server's context; raises CertificateError if the files are not what they should be.

    With a `client_ca` a client may present a certificate, which that CA must have signed. Without one a client gets
    no review answered (connection.py); the kubelet's probes, which have none, still get their answer.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    made.num_tickets = 0  # they cost a sixth of a handshake, and the API server's client never uses one
    certificate, key = pair
    try:
        made.load_cert_chain(certificate, key, password=_no_password)
    except OSError as error:
        raise CertificateError(f"{certificate} and {key} are no certificate with its key: {error}") from None
    if client_ca is None:
        return made
    try:
        made.load_verify_locations(client_ca)
    except OSError as error:
        raise CertificateError(f"{client_ca} of --client-ca has no certificate of a CA: {error}") from None
    made.verify_mode = ssl.CERT_OPTIONAL
    return made


def certificate_expiry(made: ssl.SSLContext, certificate: bytes) -> float:
    """When a certificate (PEM) of a context ends, in seconds since the epoch; infinity if a client cannot tell.

    A handshake in memory shows it: the standard library has no other way to read a certificate.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, not its issuer
    client.verify_flags |= _AT_ANY_TIME
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))
        ends = client.wrap_bio(received, sent), made.wrap_bio(sent, received, server_side=True)
        for end in (*ends, *ends, ends[0]):  # TLS 1.2 takes two steps of each more than 1.3
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError:
        return inf
    return float(ssl.cert_time_to_seconds(str((ends[0].getpeercert() or {})["notAfter"])))


def read_certificate(certificate: Path) -> bytes:
    """A certificate file; raises CertificateError."""
    try:
        return certificate.read_bytes()
    except OSError as error:
        raise CertificateError(f"{certificate} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """No password: OpenSSL would ask the terminal for that of an encrypted key, and wait."""
    return ""


# Starts the admission server: certificate, rules, then gunicorn with one worker.

FAILED: Final = 2  # as in every subcommand: the program or its environment is at fault

ABANDON_SECONDS: Final = 4
"""After the drain and the last reviews: time to close escrows and to cut connections that are still open."""

HEARTBEAT_SECONDS: Final = 30
"""The arbiter replaces a worker whose heartbeat is older than this."""

MEMORY: Final = "/dev/shm"  # noqa: S108 - gunicorn makes the file there with mkstemp and unlinks it at once
"""For the heartbeat's file: a container's root is read-only, and a slow disk delays heartbeats."""

log = logging.getLogger(__name__)


class CannotStartError(Exception):
    """Why the server cannot start, in a sentence."""


class Attached(Protocol):
    """A task beside the lane, in the same process (`webhook.server.quotas`)."""

    async def run(self) -> None:
        """Run until cancelled."""


def serve(
    settings: Settings,
    attach: Callable[[Lane], Attached] | None = None,
    prepare: Callable[[Lane], None] | None = None,
) -> int:
    """Serve until a signal ends it; returns the exit code.

    `attach` is called in the worker, before it listens, and `prepare` before that: it may raise CannotStartError.
    """
    lines = telemetry.configure(settings.log_level)

    def warn(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
        return advice.of_workload(request, rulebook, dict(lane.ledger.known()))

    judges = {"mutate": mutate, "validate": validate, "templates": warn, "policies": advice.of_policy}
    rules = ReloadedRules(settings.rules)
    try:
        _check(settings)
        rules.refresh()
        lane = Lane(judges, rules.rulebook, lines)
        if prepare is not None:
            prepare(lane)
    except CannotStartError as error:
        log.critical("cannot start: %s", error)
        return FAILED
    application = Application(settings, lane, rules, attach)
    gc.collect()
    gc.freeze()  # what is loaded stays; the collector need not touch its pages, which would copy them
    arbiter = os.getpid()
    try:
        application.run()
    except SystemExit as stop:
        if os.getpid() != arbiter:
            raise  # the worker leaves through here as well
        return FAILED if stop.code else 0
    return 0


def _check(settings: Settings) -> None:
    if problem := settings.problem():
        raise CannotStartError(problem)
    if settings.self_signed:
        # Run the certificate program, which replaces the pair only if it has to: 0.2 s at each start.
        command = [sys.executable, "-P", "-m", "certs", "self-signed", "--directory", str(settings.state)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - no shell, and a program of this project
        if done.returncode:
            raise CannotStartError(done.stderr.strip() or f"the certificate program ended with {done.returncode}")
        if complaint := done.stderr.strip():
            log.info(complaint)
    try:
        tls_context(settings.certificate, settings.client_ca)
    except CertificateError as error:
        raise CannotStartError(str(error)) from None


def gunicorn_settings(settings: Settings) -> dict[str, Any]:
    """The settings of gunicorn that differ from its defaults."""
    certificate, key = settings.certificate
    return {
        "bind": settings.bind,
        "backlog": 4096,  # what Linux allows (net.core.somaxconn); who does not fit tries again a second later
        "workers": 1,  # one process keeps counters simple; a Deployment scales by replicas
        "worker_class": "webhook.server.worker.AdmissionWorker",
        "worker_tmp_dir": MEMORY if os.access(MEMORY, os.W_OK) else None,
        "proc_name": "gpu-webhook",
        "certfile": str(certificate),
        "keyfile": str(key),
        "control_socket_disable": True,  # gunicorn 27 opens one by default; nothing here uses it
        "logger_class": GunicornLogger,
        "loglevel": settings.log_level,
        "accesslog": None,  # a decision line says more
        "timeout": HEARTBEAT_SECONDS,
        "graceful_timeout": round(settings.drain_seconds + settings.finish_seconds + ABANDON_SECONDS),
    }


class GunicornLogger(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's logger without a stream of its own: its messages go to the root logger."""

    def setup(self, cfg: Any) -> None:
        """Let messages propagate to the root logger, whose only handler writes JSON lines."""
        super().setup(cfg)
        self.error_log.propagate = True

    def _set_handler(self, *_: Any, **__: Any) -> None:
        """Add no handler."""


class Application(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's view of this program."""

    def __init__(
        self, settings: Settings, lane: Lane, rules: ReloadedRules, attach: Callable[[Lane], Attached] | None
    ) -> None:
        self.settings = settings
        self.lane = lane
        self.rules = rules
        self.attach = attach
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn up from `settings` alone: no file, no GUNICORN_CMD_ARGS."""
        for name, value in gunicorn_settings(self.settings).items():
            self.cfg.set(name, value)

    def load(self) -> Lane:
        """The application, loaded before the fork."""
        return self.lane
