"""How the server leaves: in an orderly way on SIGTERM, at once on SIGINT."""

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.server.process import Server, running


def asker(server: Server, body: bytes, outcomes: Counter[str], stop: threading.Event) -> None:
    """Ask for reviews, on a new connection whenever the server closes one, until nobody accepts any more."""
    while not stop.is_set():
        try:
            peer = server.connect()
        except OSError:
            outcomes["not accepted"] += 1
            return
        with contextlib.closing(peer):
            while not stop.is_set():
                try:
                    answered = peer.ask("POST", "/mutate", body)
                except (OSError, EOFError) as error:
                    outcomes[f"failed: {error!r}"] += 1
                    return
                outcomes[str(answered.status)] += 1
                if answered.closes:
                    break


@contextlib.contextmanager
def asked_by(clients: int, server: Server, body: bytes) -> Iterator[Counter[str]]:
    """What becomes of the reviews of these clients, who have begun, and ask until this is over."""
    outcomes: Counter[str] = Counter()
    stop = threading.Event()
    askers = [threading.Thread(target=asker, args=(server, body, outcomes, stop)) for _ in range(clients)]
    try:
        for thread in askers:
            thread.start()
        until(lambda: outcomes["200"] > 10 * clients, "some load")
        yield outcomes
    finally:
        stop.set()
        for thread in askers:
            thread.join(30)


def test_no_request_fails_while_the_server_leaves_under_load(folder: Path, fraction: bytes) -> None:
    with running(folder, drain_seconds=1) as server:
        with asked_by(8, server, fraction) as outcomes:
            before = outcomes["200"]
            assert server.stop() == 0

        assert outcomes["200"] > before
        assert set(outcomes) == {"200", "not accepted"}
        assert not server.lines("connections are cut")


def test_while_leaving_every_answer_is_the_last_on_its_connection(folder: Path, plain: bytes) -> None:
    with running(folder, drain_seconds=2) as server:
        early = [server.connect() for _ in range(2)]
        assert not early[0].ask("GET", "/healthz").closes
        server.popen.send_signal(signal.SIGTERM)
        server.await_line("new requests are answered")
        answered = early[0].ask("POST", "/mutate", plain)
        probed = early[1].ask("GET", "/readyz")
        with contextlib.closing(server.connect()) as late:
            accepted = late.ask("POST", "/mutate", plain)
            assert late.ended()

        assert (answered.status, answered.closes) == (200, True)
        assert early[0].ended()
        assert (probed.status, probed.body, probed.closes) == (503, b"leaving\n", True)
        assert (accepted.status, accepted.closes) == (200, True)
        for peer in early:
            peer.close()
        server.popen.send_signal(signal.SIGTERM)  # a second one changes nothing
        assert server.popen.wait(20) == 0


def test_a_request_under_way_is_answered_after_the_drain(folder: Path, plain: bytes) -> None:
    with running(folder, drain_seconds=0.1) as server, contextlib.closing(server.connect()) as peer:
        head = f"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(plain)}\r\n\r\n".encode()
        peer.send(head + plain[:100])
        peer_idle = server.connect()
        server.popen.send_signal(signal.SIGTERM)
        assert peer_idle.ended()  # the drain is over
        peer.send(plain[100:])
        answered = peer.answer()

        assert (answered.status, answered.closes) == (200, True)
        peer_idle.close()
        peer.close()
        assert server.popen.wait(20) == 0


def test_a_request_that_never_ends_does_not_keep_the_server(folder: Path) -> None:
    with (
        running(folder, drain_seconds=0.1, finish_seconds=0.3) as server,
        contextlib.closing(server.connect()) as peer,
    ):
        peer.send(b"POST /mutate HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
        until(lambda: server.metric("connections") == 2, "the request under way")

        assert server.stop() == 0
        assert peer.ended()
        assert server.lines("1 connections are cut")


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGQUIT])
def test_an_interrupt_ends_at_once(folder: Path, by: signal.Signals) -> None:
    with running(folder, drain_seconds=100) as server, contextlib.closing(server.connect()) as peer:
        assert peer.ask("GET", "/healthz").status == 200
        assert server.stop(by) == 0
        assert peer.ended()


def test_a_worker_that_dies_is_replaced(folder: Path) -> None:
    with running(folder) as server:
        os.kill(server.worker, signal.SIGKILL)
        until(lambda: len(server.lines("serving on")) == 2, "a new worker")
        assert server.get("/healthz") == "ok\n"


def test_a_hangup_replaces_the_worker_and_no_request_fails(folder: Path, fraction: bytes) -> None:
    with running(folder) as server:
        with asked_by(1, server, fraction) as outcomes:
            server.popen.send_signal(signal.SIGHUP)
            until(lambda: len(server.lines("Worker exiting")) == 1, "the old worker gone")
            before = outcomes["200"]
            until(lambda: outcomes["200"] > before + 10, "some load on the new one")

        assert set(outcomes) == {"200"}


def test_who_does_not_follow_the_cluster_any_more_makes_way_for_another(folder: Path) -> None:
    with running(folder, followed_for=0.5) as server:
        first = server.worker
        server.await_line("the cluster is not followed any more")
        until(lambda: server.worker != first, "another process serves")
