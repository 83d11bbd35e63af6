"""The admission server's two processes: gunicorn's arbiter, and one worker with an event loop.

What can fail at the start fails in the arbiter, with one sentence, before a port is open. The rules are loaded once,
before the fork, so that both processes share their memory.

gunicorn's own ASGI worker accepts without limit, never reloads its TLS context, serves without TLS if the context
cannot be made, and stops accepting at once on SIGTERM (gunicorn/workers/gasgi.py, 27.0.1). Of gunicorn remain the
arbiter, the signals between the two processes, the heartbeat, and the HTTP parser.
"""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from email.utils import formatdate
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, NamedTuple

import uvloop
from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from webhook import telemetry
from webhook.core.decision import Decision
from webhook.core.forms.document import UnreadableError
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import rule_files, surroundings
from webhook.files.rule_files import ReloadedRules
from webhook.server.connections import Door, within_descriptors
from webhook.server.handler import Lane, advice_on_policy, advice_on_workload
from webhook.server.settings import Settings

log = logging.getLogger(__name__)


_AT_ANY_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: certificates that have expired are read, too."""


def tls_context(pair: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    """A server's context; raises UnreadableError if the files are not what they should be.

    With a `client_ca` a client may present a certificate, which that CA must have signed. Without one a client gets
    no review answered (`connections.py`); the kubelet's probes, which have none, still get their answer.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # they cost a sixth of a handshake, and the API server's client never uses one
    certificate, key = pair
    try:
        # The password is empty: OpenSSL would ask the terminal for that of an encrypted key, and wait.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise UnreadableError(f"{certificate} and {key} are no certificate with its key: {error}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise UnreadableError(f"{client_ca} of --client-ca has no certificate of a CA: {error}") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def certificate_expiry(context: ssl.SSLContext, certificate: bytes) -> float:
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
        ends = client.wrap_bio(received, sent), context.wrap_bio(sent, received, server_side=True)
        for end in (*ends, *ends, ends[0]):  # TLS 1.2 takes two steps of each more than 1.3
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError:
        return inf
    return float(ssl.cert_time_to_seconds(str((ends[0].getpeercert() or {})["notAfter"])))


# The arbiter: certificate, rules, then gunicorn with one worker.

FAILED: Final = 2  # as in every subcommand: the program or its environment is at fault

ABANDON_SECONDS: Final = 4
"""After the drain and the last reviews: time to close escrows and to cut connections that are still open."""

HEARTBEAT_SECONDS: Final = 30
"""The arbiter replaces a worker whose heartbeat is older than this."""

MEMORY: Final = "/dev/shm"  # noqa: S108 - gunicorn makes the file there with mkstemp and unlinks it at once
"""For the heartbeat's file: a container's root is read-only, and a slow disk delays heartbeats."""

Attach = Callable[[Lane], Coroutine[Any, Any, None]]
"""Makes a task beside the lane, in the same process; it runs until it is cancelled."""


class Program(NamedTuple):
    """What the worker serves, loaded before the fork. One process keeps counters simple; replicas are for scale."""

    settings: Settings
    lane: Lane
    rules: ReloadedRules
    attach: Attach | None


def serve(settings: Settings, attach: Attach | None = None, prepare: Callable[[Lane], None] | None = None) -> int:
    """Serve until a signal ends it; returns the exit code.

    `attach` is called in the worker, before it listens. `prepare` is before that: it may raise OSError and
    UnreadableError.
    """
    lines = telemetry.configure(settings.log_level)
    rules = ReloadedRules(settings.rules)

    def warn(request: AdmissionRequest, rulebook: Rulebook) -> Decision:
        return advice_on_workload(request, rulebook, dict(lane.reservations.known()))

    judges = {"mutate": mutate, "validate": validate, "templates": warn, "policies": advice_on_policy}
    try:
        _load(settings, rules)
        lane = Lane(judges, rules.rulebook, lines)
        if prepare is not None:
            prepare(lane)
    except (OSError, UnreadableError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        log.critical("cannot start: %s", why)
        return FAILED
    certificate, key = settings.certificate
    application = Application(
        Program(settings, lane, rules, attach),
        bind=[settings.bind, *([settings.metrics] if settings.metrics else [])],
        backlog=4096,  # what Linux allows (net.core.somaxconn); who does not fit tries again a second later
        worker_class=AdmissionWorker,
        worker_tmp_dir=MEMORY if os.access(MEMORY, os.W_OK) else None,
        proc_name="gpu-webhook",
        certfile=str(certificate),
        keyfile=str(key),
        logger_class=GunicornLogger,
        loglevel=settings.log_level,
        timeout=HEARTBEAT_SECONDS,
        graceful_timeout=round(settings.drain_seconds + settings.finish_seconds + ABANDON_SECONDS),
    )
    gc.collect()
    gc.freeze()  # what is loaded stays; the collector need not touch its pages, which would copy them
    return application.serve()


def _load(settings: Settings, rules: ReloadedRules) -> None:
    """Load the rules, and see that there is a certificate; raises UnreadableError."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise UnreadableError("give both a certificate and its key, or neither")
    if settings.tls_cert is None:
        # The certificate program replaces the pair only if it has to.
        command = [sys.executable, "-P", "-m", "certs", "self-signed", "--directory", str(settings.state)]
        issued = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - no shell, and a program of this project
        complaint = issued.stderr.strip()
        if issued.returncode:
            raise UnreadableError(complaint or f"the certificate program ended with {issued.returncode}")
        if complaint:
            log.info("%s", complaint)
    rules.refresh()
    tls_context(settings.certificate, settings.client_ca)


class GunicornLogger(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's logger without a stream of its own: its messages go to the root logger."""

    def setup(self, cfg: Any) -> None:
        """Let messages propagate to the root logger, whose only handler writes JSON lines."""
        super().setup(cfg)
        self.error_log.propagate = True

    def _set_handler(self, *_: Any, **__: Any) -> None:
        """Add no handler."""


class Application(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's view of a program of one worker: set up by `chosen` alone, by no file and no GUNICORN_CMD_ARGS."""

    def __init__(self, program: Any, **chosen: object) -> None:
        self.program, self.chosen = program, chosen
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn up; 27 opens a control socket by default, and nothing here uses it."""
        for name, value in {"workers": 1, "accesslog": None, "control_socket_disable": True, **self.chosen}.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """The program, made before the fork."""
        return self.program

    def serve(self) -> int:
        """Serve until a signal ends it; returns the exit code."""
        arbiter = os.getpid()
        try:
            self.run()
        except SystemExit as stop:
            if os.getpid() != arbiter:
                raise  # the worker leaves through here as well
            return FAILED if stop.code else 0
        return 0


JUST_MADE_SECONDS: Final = 0.5
"""A connection this young probably has a request on its way, so it is not closed as idle."""


class AdmissionWorker(Worker):  # type: ignore[misc] # gunicorn has no types
    """One process, one thread, one event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        program: Program = self.app.program
        self.settings, self.lane, self.rules, self.attach = program
        self._door: Door
        self._stops_accepting = self._gives_up = inf
        self._certificate, self._surroundings = rule_files.Change(), rule_files.Change()
        self._attached: asyncio.Task[None] | None = None
        self._started = time()

    def run(self) -> None:
        """Serve until a signal ends it; gunicorn calls this once, in the new process."""
        faulthandler.enable()  # the arbiter ends a hanging worker with SIGABRT: print where it hung
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()

        def end_at_once() -> None:
            self.alive = False

        loop.add_signal_handler(signal.SIGTERM, self._begin_to_leave)
        loop.add_signal_handler(signal.SIGINT, end_at_once)
        loop.add_signal_handler(signal.SIGQUIT, end_at_once)
        self._door = Door(within_descriptors(settings), self.lane)
        self._use_certificate(starting=True)
        self._look_around()
        if self.attach is not None:
            self._attached = loop.create_task(self.attach(self.lane))
        if settings.surroundings is not None and not settings.surroundings.exists():
            log.info("nothing is known of the cluster's nodes yet: %s is not there", settings.surroundings)
        following = loop.create_task(self._follow_rules())
        log.info("serving on %s", ", ".join(str(listener) for listener in self.sockets))
        while self.alive:
            self._tick(monotonic())
            await asyncio.sleep(settings.tick_seconds)
        following.cancel()

        # Cut the connections that are still open, and wait until they are closed.
        self._door.close()
        open_still = list(self._door.connections)
        for connection in open_still:
            connection.abort()
        if self._attached is not None:
            self._attached.cancel()
            await asyncio.wait([self._attached], timeout=settings.linger_seconds)
        if open_still:
            log.warning("%d connections are cut", len(open_still))
        for _ in range(100):
            if self._door.connections:
                await asyncio.sleep(0.01)

    def _tick(self, now: float) -> None:
        """The periodic work: heartbeat, deadlines, changed files, the drain."""
        self.notify()
        self._door.date = formatdate(usegmt=True).encode()
        if self.ppid != os.getppid() and not self.lane.draining:
            log.warning("the parent process is gone")
            self._begin_to_leave()
        attached = self._attached
        if attached is not None and attached.done() and not (attached.cancelled() or self.lane.draining):
            fault = attached.exception()
            if fault is not None:
                log.critical("the cluster is not followed any more: a fault of this program", exc_info=fault)
                self._begin_to_leave()  # the arbiter starts another worker
        for connection in [connection for connection in self._door.connections if connection.deadline < now]:
            connection.expire()
        self._use_certificate()
        self._look_around()
        if now <= self._stops_accepting:
            self._door.open([listener.sock for listener in self.sockets])
            return
        # After the drain: accept no more, close idle connections, end when none is left.
        self._door.close()
        for connection in list(self._door.connections):
            connection.retire(JUST_MADE_SECONDS)
        if now > self._gives_up or not self._door.connections:
            self.alive = False

    def _begin_to_leave(self) -> None:
        """SIGTERM: go on answering for a while, each answer with `Connection: close`."""
        if not self.lane.draining:
            self.lane.draining = True
            self._stops_accepting = monotonic() + self.settings.drain_seconds
            self._gives_up = self._stops_accepting + self.settings.finish_seconds
            log.info("leaving: new requests are answered for %g s more", self.settings.drain_seconds)

    def _use_certificate(self, *, starting: bool = False) -> None:
        """Use changed files for new handshakes; if they do not fit together, the present pair stays in use."""
        files, counted = (*self.settings.certificate, self.settings.client_ca), self.lane.metrics
        if not self._certificate.due([rule_files.file_stamp(file) for file in files if file]):
            return
        try:
            self._door.context, counted.certificate_expiry = self._certificate_now(counted.certificate_expiry)
        except UnreadableError as error:
            if starting:
                log.critical("no certificate: %s", error)
                raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from error
            if self._certificate.failed(error):
                counted.reloaded("certificate", usable=False)
                log.error("the changed certificate is not usable, the last good one stays: %s", error)  # noqa: TRY400 - the sentence says it all
        else:
            if not starting:
                counted.reloaded("certificate", usable=True)
                log.info("the certificate was reloaded")

    def _certificate_now(self, expiry_before: float) -> tuple[ssl.SSLContext, float]:
        """What the files have now, and when it expires; raises UnreadableError.

        An expired pair does not replace one that has not expired. If both have, this clock may be wrong.
        """
        certificate = self.settings.certificate[0]
        context = tls_context(self.settings.certificate, self.settings.client_ca)
        try:
            expiry = certificate_expiry(context, certificate.read_bytes())
        except OSError as error:
            raise UnreadableError(f"{certificate} cannot be read: {error.strerror}") from None
        if expiry < time() < expiry_before:
            raise UnreadableError(f"{certificate} has expired")
        return context, expiry

    async def _follow_rules(self) -> None:
        """Use changed rules, which a thread reads: meanwhile reviews are answered by those before."""
        while True:
            await asyncio.sleep(self.settings.rules_seconds)
            before = self.rules.rulebook
            if not await asyncio.to_thread(self.rules.refresh):
                continue
            rules = self.rules.rulebook
            if rules is None or rules is before:
                self.lane.metrics.reloaded("rules", usable=False)
                continue
            if self.lane.rules is not None:
                rules = replace(rules, surroundings=self.lane.rules.surroundings)
            self.lane.use(rules)
            self._surroundings = rule_files.Change()  # what follows from the file depends on the rules
            self._look_around()
            self.lane.metrics.reloaded("rules", usable=True)
            gc.freeze()  # what is loaded stays: the collector would look at all of it, in the midst of a review

    def _look_around(self) -> None:
        """Load the watcher's file if it has changed; if it cannot be read, the last good content stays in force."""
        file = self.settings.surroundings
        if file is None:
            return
        heard = rule_files.file_stamp(surroundings.heard(file))
        age = time() - (heard[1] / 1e9 if heard else self._started)
        self.lane.metrics.surroundings_age = {(): round(age)}
        if self.lane.rules is None:
            return
        stamp = rule_files.file_stamp(file)
        if stamp is None or not self._surroundings.due(stamp):
            return
        try:
            around = surroundings.around(self.lane.rules, file)
        except UnreadableError as error:
            if self._surroundings.failed(error):
                self.lane.metrics.reloaded("surroundings", usable=False)
                log.error("the changed surroundings are not usable, the last good ones stay: %s", error)  # noqa: TRY400 - the sentence is all there is to say
        else:
            self.lane.metrics.reloaded("surroundings", usable=True)
            self.lane.use(around)
            log.info("the surroundings were loaded: %s", surroundings.describe(around.surroundings))
