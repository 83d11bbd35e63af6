"""One line for each decision, whatever is in the pod and whoever reads the log."""

import base64
import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import builders, tables
from tests.bench import reviews
from tests.cluster.waiting import until
from tests.server.peer import Peer
from tests.server.process import Server, running
from webhook.telemetry import Lines

FIELDS: list[str] = tables.table(__file__, "fields")


def reviewed(server: Server, peer: Peer, path: str, uid: str, change: Callable[[Any], None]) -> dict[str, Any]:
    """The line of one review, of a fraction pod that is changed first."""
    review = json.loads(reviews.fraction_review())
    review["request"]["uid"] = uid
    change(review["request"])
    assert peer.ask("POST", path, json.dumps(review).encode()).status == 200
    return until(lambda: [line for line in server.lines("decision") if line["uid"] == uid], "the line")[0]


def test_a_decision_is_one_line_with_everything(server: Server, peer: Peer) -> None:
    line = reviewed(server, peer, "/mutate", "log-1", lambda _: None)

    assert set(line) == {*FIELDS}
    assert line["path"] == "mutate"
    assert (line["operation"], line["namespace"]) == ("CREATE", "vision-dev")
    assert line["generateName"] == "classifier-7d9f8c6b5-"
    assert (line["decision"], line["dryRun"], line["patched"], line["codes"]) == ("allow", False, True, [])
    assert (len(line["backends"]), line["findings"]) == (1, [])
    assert len(line["rulebook"]) == 12
    assert 0 < line["microseconds"] < 1_000_000
    assert line["time"].endswith("Z")


@tables.rows
def test_a_line_says_of_its_review(path: str, request_: dict[str, Any], said: dict[str, Any], server: Server) -> None:
    with contextlib.closing(server.connect()) as peer:
        line = reviewed(server, peer, path, f"log-{path}", lambda request: request.update(request_))

    assert {key: line.get(key) for key in said} == said


def test_a_pod_cannot_forge_a_line_or_flood_one(server: Server, peer: Peer) -> None:
    forged = 'x"}\n{"message":"decision","uid":"forged","decision":"allow"}\n'
    line = reviewed(
        server, peer, "/mutate", "log-4", lambda request: request.update(name=forged, namespace="n" * 9999)
    )

    assert line["name"] == forged
    assert line["namespace"] == "n" * 253
    assert not [line for line in server.lines() if line.get("uid") == "forged"]


@pytest.mark.parametrize("access", ["deny", "warn", "remove"])
def test_what_a_variable_holds_is_in_no_line_of_the_log(folder: Path, access: str) -> None:
    """Its author reads it in the refusal; a value may be a secret by mistake."""
    held = "hunter2-in-a-variable"
    rules = folder / "rules"
    rules.mkdir(parents=True)
    for name, text in builders.shipped_files().items():
        (rules / name).write_text(f"{text}  deviceAccess: {access}\n" if name == "cluster.yaml" else text)
    pod = builders.pod(builders.container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": held}]))
    review = json.loads(reviews.encoded(pod))

    with running(folder, rules=str(rules)) as server, contextlib.closing(server.connect()) as peer:
        answers = [peer.ask("POST", path, json.dumps(review).encode()) for path in ("/mutate", "/validate")]
        until(lambda: len(server.lines("decision")) == len(answers), "both lines")
        printed = json.dumps(server.lines()) + server.get("/metrics")

    assert held in answers[access != "remove"].body.decode()
    assert held not in printed


@pytest.mark.parametrize("odd", [None, 7, [], {"metadata": []}, {"metadata": {"generateName": {"a": []}}}])
def test_a_pod_of_any_shape_is_logged(peer: Peer, odd: Any) -> None:
    uid = f"log-5-{base64.b16encode(repr(odd).encode()).decode()[:30]}"
    review = json.loads(reviews.fraction_review())
    review["request"].update(uid=uid, object=odd, operation="DELETE")
    answered = peer.ask("POST", "/mutate", json.dumps(review).encode())

    assert answered.status == (200 if odd is None or isinstance(odd, dict) else 400)


def test_gunicorn_says_its_part_in_lines_too(server: Server) -> None:
    line = server.await_line("Booting worker")

    assert (line["logger"], line["level"]) == ("gunicorn.error", "info")


def test_a_reader_that_stands_still_delays_nobody(folder: Path, plain: bytes) -> None:
    """Standard output is a pipe that nobody reads: a thousand decisions later the server still answers."""
    reading, writing = os.pipe()
    server = Server(folder, pipe=writing)
    try:
        while not server.port:
            server.record(os.read(reading, 65536))
        with contextlib.closing(server.connect()) as peer:
            for _ in range(1000):
                assert peer.ask("POST", "/mutate", plain).status == 200
        assert server.metric("log_lines_dropped_total") > 100
        assert os.get_blocking(writing)  # the pipe is this test's as well, and is left as it was
        assert server.stop() == 0
    finally:
        server.popen.kill()
        os.close(reading)
        os.close(writing)


def test_a_line_after_a_torn_one_stands_alone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        lines = Lines(writing)
        lines.write({"long": "x" * 10_000})
        torn = os.read(reading, 65536)
        lines.write({"short": 1})
        after = os.read(reading, 65536)
    finally:
        os.close(reading)
        os.close(writing)

    assert not torn.endswith(b"\n")
    assert after == b'\n{"short":1}\n'
    assert lines.dropped == 1
    assert not list(tmp_path.iterdir())


def test_a_message_that_is_no_unicode_is_still_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("wb") as output:
        handler = Lines(output.fileno())
        record = logging.LogRecord("test", logging.ERROR, "", 0, "file \udcff.yaml", None, None)
        handler.emit(record)

    assert json.loads(file.read_text())["message"] == "file ?.yaml"
