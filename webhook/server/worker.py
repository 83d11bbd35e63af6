"""The process that serves: a gunicorn worker with an event loop, deadlines, changed files and a drain.

gunicorn's own ASGI worker accepts without limit, never reloads its TLS context, serves without TLS if the context
cannot be made, and stops accepting at once on SIGTERM (gunicorn/workers/gasgi.py, 27.0.1). Of gunicorn remain the
arbiter, the signals between the two processes, the heartbeat, and the HTTP parser.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
from dataclasses import replace
from email.utils import formatdate
from math import inf
from time import monotonic, time
from typing import Any, Final

import uvloop
from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files, surroundings
from webhook.files.rule_files import ReloadedRules
from webhook.server import serve
from webhook.server.handler import Lane
from webhook.server.listener import Door, within_descriptors
from webhook.server.settings import Settings

log = logging.getLogger(__name__)

JUST_MADE_SECONDS: Final = 0.5
"""A connection this young probably has a request on its way, so it is not closed as idle."""


class AdmissionWorker(Worker):  # type: ignore[misc] # gunicorn has no types
    """One process, one thread, one event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings: Settings = self.app.settings
        self.lane: Lane = self.app.lane
        self._door: Door
        self._stops_accepting = self._gives_up = inf
        self._loop: asyncio.AbstractEventLoop
        self._certificate, self._surroundings = rule_files.Change(), rule_files.Change()
        self._attached: asyncio.Task[None] | None = None
        self._rules: ReloadedRules = self.app.rules

    def run(self) -> None:
        """Serve until a signal ends it; gunicorn calls this once, in the new process."""
        faulthandler.enable()  # the arbiter ends a hanging worker with SIGABRT: print where it hung
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGTERM, self._begin_to_leave)
        for at_once in (signal.SIGINT, signal.SIGQUIT):
            self._loop.add_signal_handler(at_once, self._stop)
        self._door = Door(within_descriptors(self.settings), self.lane)
        self._load_certificate()
        self._look_around()
        if self.app.attach is not None:
            self._attached = self._loop.create_task(self.app.attach(self.lane).run())
        if self.settings.surroundings is not None and not self.settings.surroundings.exists():
            log.info("nothing is known of the cluster's nodes yet: %s is not there", self.settings.surroundings)
        following = self._loop.create_task(self._follow_rules())
        self._door.open([listener.sock for listener in self.sockets])
        log.info("serving on %s", ", ".join(str(listener) for listener in self.sockets))
        while self.alive:
            self._tick(monotonic())
            await asyncio.sleep(self.settings.tick_seconds)
        following.cancel()
        await self._abandon()

    def _tick(self, now: float) -> None:
        """The periodic work: heartbeat, deadlines, changed files, the drain."""
        self.notify()
        self._door.date = formatdate(usegmt=True).encode()
        if self.ppid != os.getppid() and not self.lane.draining:
            log.warning("the parent process is gone")
            self._begin_to_leave()
        if self._attached is not None and self._attached.done() and not self.lane.draining:
            self._leave_if_failed(self._attached)
        for connection in [each for each in self._door.connections if each.deadline < now]:
            connection.expire()
        self._reload_certificate()
        self._look_around()
        if now > self._stops_accepting:
            self._leave(now)
        else:
            self._door.resume()

    # Leaving

    def _begin_to_leave(self) -> None:
        """SIGTERM: go on answering for a while, each answer with `Connection: close`."""
        if not self.lane.draining:
            self.lane.draining = True
            self._stops_accepting = monotonic() + self.settings.drain_seconds
            self._gives_up = self._stops_accepting + self.settings.finish_seconds
            log.info("leaving: new requests are answered for %g s more", self.settings.drain_seconds)

    def _leave_if_failed(self, attached: asyncio.Task[None]) -> None:
        """Leave if the task that follows the cluster has failed; the arbiter starts another worker."""
        if attached.cancelled() or attached.exception() is None:
            return
        log.critical("the cluster is not followed any more: a fault of this program", exc_info=attached.exception())
        self._begin_to_leave()

    def _stop(self) -> None:
        """SIGINT, SIGQUIT: end at once."""
        self.alive = False

    def _leave(self, now: float) -> None:
        """After the drain: accept no more, close idle connections, end when none is left."""
        self._door.close()
        for connection in list(self._door.connections):
            connection.retire(JUST_MADE_SECONDS)
        if now > self._gives_up or not self._door.connections:
            self.alive = False

    async def _abandon(self) -> None:
        """Cut the connections that are still open, and wait until they are closed."""
        self._door.close()
        open_still = list(self._door.connections)
        for connection in open_still:
            connection.abort()
        if self._attached is not None:
            self._attached.cancel()
            await asyncio.wait([self._attached], timeout=self.settings.linger_seconds)
        if open_still:
            log.warning("%d connections are cut", len(open_still))
        for _ in range(100):
            if self._door.connections:
                await asyncio.sleep(0.01)

    # The certificate

    def _load_certificate(self) -> None:
        self._certificate.due(serve.certificate_stamp(self.settings.certificate, self.settings.client_ca))
        try:
            self._use_certificate()
        except serve.CertificateError as error:
            log.critical("no certificate: %s", error)
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from error

    def _use_certificate(self) -> None:
        """Use the pair in the files for new handshakes; raises CertificateError.

        An expired pair does not replace one that has not expired. If both have, this clock may be wrong.
        """
        certificate = self.settings.certificate[0]
        made = serve.tls_context(self.settings.certificate, self.settings.client_ca)
        expiry = serve.certificate_expiry(made, serve.read_certificate(certificate))
        if expiry < time() < self.lane.metrics.certificate_expiry:
            raise serve.CertificateError(f"{certificate} has expired")
        self._door.context, self.lane.metrics.certificate_expiry = made, expiry

    def _reload_certificate(self) -> None:
        """Use changed files for new handshakes; if they do not fit together, the present pair stays in use."""
        if not self._certificate.due(serve.certificate_stamp(self.settings.certificate, self.settings.client_ca)):
            return
        try:
            self._use_certificate()
        except serve.CertificateError as error:
            if self._certificate.failed(error):
                self.lane.metrics.reloads["certificate", "failed"] += 1
                log.error("the changed certificate is not usable, the last good one stays: %s", error)  # noqa: TRY400 - the sentence says it all
        else:
            self.lane.metrics.reloads["certificate", "done"] += 1
            log.info("the certificate was reloaded")

    # The rules, and the cluster around

    async def _follow_rules(self) -> None:
        """Use changed rules, which a thread reads: meanwhile reviews are answered by those before."""
        while True:
            await asyncio.sleep(self.settings.rules_seconds)
            before = self._rules.rulebook
            if not await asyncio.to_thread(self._rules.refresh):
                continue
            rules = self._rules.rulebook
            if rules is None or rules is before:
                self.lane.metrics.reloads["rules", "failed"] += 1
                continue
            self.lane.use(await asyncio.to_thread(self._surrounded, rules))
            self._surroundings = rule_files.Change()  # the file may have changed meanwhile
            self.lane.metrics.reloads["rules", "done"] += 1
            gc.freeze()  # what is loaded stays: the collector would look at all of it, in the midst of a review

    def _surrounded(self, rules: Rulebook) -> Rulebook:
        """Rules with what is known of the nodes: what the file says now, else what was concluded from it before."""
        try:
            if self.settings.surroundings is not None and self.settings.surroundings.exists():
                return surroundings.around(rules, self.settings.surroundings)
        except surroundings.SurroundingsError as error:
            log.warning("the surroundings stay as they were read for the rules before: %s", error)
        return rules if self.lane.rules is None else replace(rules, surroundings=self.lane.rules.surroundings)

    def _look_around(self) -> None:
        """Load the watcher's file if it has changed; if it cannot be read, the last good content stays in force."""
        file = self.settings.surroundings
        if file is None or self.lane.rules is None:
            return
        stamp = rule_files.file_stamp(file)
        if stamp is None or not self._surroundings.due(stamp):
            return
        try:
            found = surroundings.around(self.lane.rules, file)
        except surroundings.SurroundingsError as error:
            if self._surroundings.failed(error):
                self.lane.metrics.reloads["surroundings", "failed"] += 1
                log.error("the changed surroundings are not usable, the last good ones stay: %s", error)  # noqa: TRY400 - the sentence is all there is to say
        else:
            self.lane.metrics.reloads["surroundings", "done"] += 1
            self.lane.use(found)
            log.info("the surroundings were loaded: %s", surroundings.describe(found.surroundings))
