"""A fault of our own becomes one 500, with its trace in the log and nowhere else."""

import json
from pathlib import Path

import pytest

from webhook.core.decision import Decision
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files
from webhook.server import settings
from webhook.server.handler import Answer, Lane
from webhook.telemetry import Lines


def broken(_: AdmissionRequest, __: Rulebook) -> Decision:
    """A judge with a fault."""
    raise RuntimeError("the secret reason")


def test_a_fault_is_a_500_without_its_trace(tmp_path: Path, plain: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with (tmp_path / "log").open("wb") as output:
        lane = Lane({"mutate": broken}, rule_files.load(settings.default_rules()), Lines(output.fileno()))
        answer = lane.answer(b"POST", b"/mutate", plain)

    assert isinstance(answer, Answer)
    assert answer.status == 500
    assert answer.body.count(b"\n") == 1
    assert b"a fault of its own" in answer.body
    assert b"secret" not in answer.body
    assert "RuntimeError: the secret reason" in caplog.text
    assert json.loads(plain)["request"]["uid"] in caplog.text
    assert lane.metrics.refused[("500",)] == 1
