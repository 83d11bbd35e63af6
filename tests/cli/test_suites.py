"""`gpu-webhook test --watch`, and suites that need a cluster around them; transcripts show the rest."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli import objects
from tests.cli.program import PROGRAM, RULES, run

API = "gpu-webhook.io/v1alpha1"


def suite(*cases: dict[str, Any], **spec: Any) -> str:
    """A suite as JSON, which is YAML."""
    return json.dumps(
        {"apiVersion": API, "kind": "Suite", "metadata": {"name": "s"}, "spec": {"cases": cases, **spec}}
    )


def replace(file: Path, text: str) -> None:
    """At once, as editors do."""
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").replace(file)


def test_while_it_watches_each_change_of_a_suite_is_tried(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(suite({"name": "half a card", "ask": {"gpu": "0.5"}}))
    command = [*PROGRAM, "test", str(file), "--rules", str(RULES), "--watch"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        replace(file, "kind: Suite")
        unreadable = process.stdout.readline()
        replace(file, suite({"name": "half a card", "ask": {"gpu": "0.5"}, "expect": {"codes": ["GPU301"]}}))
        mended = next((line for line in process.stdout if "expects" in line), "")
        process.terminate()

    assert first == "1 case: all passed\n"
    assert unreadable.startswith(f'{file}:1:1: needs the key "apiVersion"')
    assert mended == f"{file}:1: half a card: expects GPU301, and gets it admitted\n"


def test_a_suite_has_what_a_cluster_has(tmp_path: Path) -> None:
    given = [
        objects.policy("vision", "vision", quota={"devices": 2}),
        objects.usage("vision", hard={"devices": "2"}, held={"vision": {"devices": "1.5"}}),
        objects.node("n1", card="4"),
        objects.namespace("vision"),
    ]
    fits = {"name": "what is left", "namespace": "vision", "ask": {"gpu": "0.5"}, "expect": {"tenant": "vision"}}
    over = {"name": "more", "namespace": "vision", "ask": {"gpu": "1"}, "expect": {"codes": ["GPU104"]}}
    (tmp_path / "suite.yaml").write_text(suite(fits, over, given=given))

    ran = run("test", tmp_path, "--rules", RULES)

    assert (ran.code, ran.out) == (0, "2 cases: all passed\n")
