"""`gpu-webhook console` as a process: how it starts, how it ends, and large bodies over a real socket."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cli.program import RULES, pod, start
from tests.cluster.waiting import until
from tests.console.process import Console, running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told_to(number: signal.Signals) -> None:
    with running(RULES) as console:
        assert console.ask("GET", "/").status == 200
        assert console.stop(number) == 0


def test_a_port_in_use_is_one_readable_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = start("console", "--bind", address)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"gpu-webhook: {address} is in use; end what listens there, or choose another with --bind HOST:PORT\n"
    )


@pytest.mark.parametrize(
    ("bind", "reason"), [("192.0.2.1:8080", "Cannot assign requested address"), ("host.invalid:8080", "")]
)
def test_an_address_that_is_not_ours_is_one_readable_line(bind: str, reason: str) -> None:
    ran = start("console", "--bind", bind)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"gpu-webhook: cannot listen on {bind}: {reason}")
    assert ran.err.count("\n") == 1


def test_it_comes_up_without_rules(tmp_path: Path) -> None:
    with running(tmp_path / "nowhere") as console:
        answer = console.ask("GET", "/")

    assert answer.status == 200
    assert b"The rules do not load" in answer.body


def test_a_body_that_is_too_large_gets_an_answer_and_no_reset(console: Console) -> None:
    answer = console.ask("POST", "/api/explain", b"x" * (8 << 20))

    assert answer.status == 413
    assert b"more than 1 MiB" in answer.body


def test_a_body_in_chunks_that_is_too_large_gets_an_answer(console: Console) -> None:
    body = iter([b"x" * 65536] * 40)
    answer = console.ask("POST", "/api/explain", body)  # type: ignore[arg-type] # http.client sends it in chunks

    assert answer.status == 413


def test_silent_connections_keep_nobody_waiting(console: Console) -> None:
    silent = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(10)]
    try:
        asked = time.monotonic()
        assert console.ask("POST", "/api/explain", pod().encode()).status == 200
        assert time.monotonic() - asked < 4
    finally:
        for connection in silent:
            connection.close()


def test_a_worker_that_is_killed_is_replaced() -> None:
    with running(RULES) as console:
        (worker,) = until(lambda: _children(console.popen.pid), "a worker")
        os.kill(worker, signal.SIGKILL)

        def replaced() -> bool:
            return _children(console.popen.pid) not in ([], [worker])

        until(replaced, "another worker")
        assert console.ask("GET", "/").status == 200
        assert console.stop() == 0
        assert "Worker" in console.printed()


def test_it_ends_when_its_parent_process_is_killed() -> None:
    with running(RULES) as console:
        (worker,) = until(lambda: _children(console.popen.pid), "a worker")
        console.popen.kill()
        console.popen.wait()

        status = Path(f"/proc/{worker}/status")
        until(lambda: not status.exists() or "\nState:\tZ" in status.read_text(), "the worker leaving")


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
