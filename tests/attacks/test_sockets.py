"""Ten thousand sockets of a kind, while API servers call: none of their calls fails.

The sockets come from one address, from two hundred, and from the API servers' own, a third each. `SOAK=1` opens
ten thousand of those, too, whose handshake costs the attacker as much as the server.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.conftest import Figure
from tests.attacks.sockets import Callers, attack
from tests.cluster.waiting import until
from tests.laws import SOAK
from tests.server.process import Server, running

pytestmark = pytest.mark.large

COUNTS = {
    "silent": 10_000,
    "half handshake": 10_000,
    "handshake": 10_000 if SOAK else 2_000,
    "half head": 10_000 if SOAK else 2_000,
    "half body": 10_000 if SOAK else 2_000,
}
SOURCES = [source for number in range(200) for source in ("127.0.0.1", "127.0.0.2", f"127.0.1.{1 + number}")]
CALLS = 20
"""Calls of each API server after the last socket is open."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Path(tmp_path_factory.mktemp("server")), python=()) as started:
        yield started


@pytest.mark.parametrize("kind", COUNTS)
def test_no_call_of_an_api_server_fails_beside_thousands_of_sockets(
    server: Server, fraction: bytes, kind: str, figure: Figure
) -> None:
    callers = Callers(server, fraction)
    with callers.calling(), attack(server, kind, COUNTS[kind], SOURCES) as attacking:
        until(lambda: attacking.whole, "all sockets", within=300)
        kept, new = len(callers.kept.seconds), len(callers.new.seconds)
        until(lambda: len(callers.kept.seconds) > kept + CALLS and len(callers.new.seconds) > new + CALLS, "calls")

    slowest = max(callers.kept.seconds), max(callers.new.seconds)
    counts = len(callers.kept.seconds), len(callers.new.seconds)
    figure(
        f"{COUNTS[kind]:,} x {kind}: {counts[0]} calls over one connection, the slowest {slowest[0]:.2f} s;"
        f" {counts[1]} over new ones, {slowest[1]:.2f} s"
    )
    assert (callers.kept.failures, callers.new.failures, callers.idle.failures) == ([], [], [])
    until(lambda: server.metric("connections") == 1, "all sockets gone")
