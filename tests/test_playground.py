"""What `make run` starts, as a newcomer meets it: what it prints works, and nothing of it stays."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import builders, readme, tables
from tests.cli.program import RULES, pod
from tests.cluster.plane import free_port
from tests.cluster.waiting import until
from tests.development import PYTHON
from webhook.playground import imagined

ROOT = Path(__file__).parents[1]
LAST = "Ctrl-C ends everything."

Start = Callable[..., "Playground"]


class Playground:
    """One run, on ports of its own; `state` is where its certificate goes."""

    def __init__(self, state: Path, *options: str) -> None:
        self.webhook, self.console = free_port(), free_port()
        self.certificate = state / "gpu-webhook" / "tls.crt"
        binds = ["--bind", f"127.0.0.1:{self.webhook}", "--console", f"127.0.0.1:{self.console}"]
        self.popen = subprocess.Popen(
            [*PYTHON, "-m", "webhook.playground", *binds, *options],
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_until(self, last: str) -> str:
        """What it prints, up to and with the line that holds `last`."""
        assert self.popen.stdout is not None
        lines = []
        for line in self.popen.stdout:
            lines.append(line)
            if last in line:
                return "".join(lines)
        raise AssertionError(f"it has ended: {self.complaints()}")

    def children(self) -> list[int]:
        """Its processes and theirs."""
        return _descendants(self.popen.pid)

    def end(self, number: signal.Signals) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(30)

    def complaints(self) -> str:
        assert self.popen.stderr is not None
        return self.popen.stderr.read()


def _descendants(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [found for child in map(int, children) for found in (child, *_descendants(child))]


def _gone(processes: list[int]) -> bool:
    """Whether all have ended; one that nobody has reaped yet has."""
    return not any(_runs(process) for process in processes)


def _runs(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts playgrounds; none of their processes may be left at the end of the test."""
    started: list[Playground] = []
    known: list[int] = []

    def start(*options: str) -> Playground:
        started.append(Playground(tmp_path / "state", *options))
        return started[-1]

    yield start
    for each in started:
        known += each.children()
        with each.popen:
            each.popen.kill()
    until(lambda: _gone(known), "the end of every process")


def review(port: int, certificate: Path, request: dict[str, Any], path: str = "mutate") -> Any:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    asked = urllib.request.Request(
        f"https://127.0.0.1:{port}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=certificate)) as answer:  # noqa: S310
        return json.load(answer)["response"]


REVIEW: dict[str, Any] = tables.table(__file__, "review")


def test_everything_it_says_is_there_works_and_an_interrupt_ends_it_all(start: Start) -> None:
    playground = start()
    printed = playground.read_until(LAST)
    assert f"https://127.0.0.1:{playground.webhook}" in printed
    assert f"http://127.0.0.1:{playground.console}/" in printed
    assert str(playground.certificate) in printed
    assert re.search(r"\d+ back ends, \d+ card models, \d+ examples", printed)

    shown = readme.block("make run", readme.README.read_text()).removeprefix("$ make run\n")
    places = {
        f":{playground.webhook}": ":8443",
        f":{playground.console}": ":8080",
        str(playground.certificate): "~/.local/state/gpu-webhook/tls.crt",
    }
    for here, there in places.items():
        printed = printed.replace(here, there)
    assert printed.partition(LAST)[0] == shown.partition(LAST)[0]

    pasted = subprocess.run(["bash", "-c", _command(printed)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Pod demo" in pasted.stdout
    assert re.search(r"^\+ ", pasted.stdout, re.MULTILINE)

    with urllib.request.urlopen(f"http://127.0.0.1:{playground.console}/") as page:
        assert page.status == 200
    assert review(playground.webhook, playground.certificate, REVIEW)["allowed"] is False
    decision = json.loads(playground.read_until('"decision"').strip().splitlines()[-1])
    assert (decision["message"], decision["decision"], decision["codes"]) == ("decision", "deny", ["GPU201"])

    children = playground.children()
    assert len(children) == 4
    assert playground.end(signal.SIGINT) == 0
    assert _gone(children)
    assert playground.complaints() == ""


def test_it_shows_nodes_and_tenants_of_an_imagined_cluster_and_both_programs_judge_by_them(start: Start) -> None:
    playground = start()
    playground.read_until(LAST)

    def told(path: str, body: str | None = None) -> Any:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{playground.console}{path}", body.encode() if body else None
        ) as page:
            return json.load(page)

    inventory, tenants = told("/api/inventory"), told("/api/tenants")
    assert (inventory["nodes"], inventory["unclaimed"], inventory["notUnderstood"]) == (5, [], [])
    assert [(one["name"], one["percent"]) for one in tenants["tenants"]] == [("vision", 93), ("everybody", 18)]
    assert tenants["problems"] == []

    namespace = {"namespace": "vision-dev", "uid": "1"}
    pod_of_five = json.loads(pod("5", **namespace))
    page = told("/api/explain", json.dumps(pod_of_five))
    stored = {
        **pod_of_five,
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "5"}}}]},
    }
    answer = review(
        playground.webhook,
        playground.certificate,
        {**REVIEW, "namespace": "vision-dev", "name": "demo", "object": stored},
        "validate",
    )
    assert page["violations"][0]["code"] == "GPU102"
    assert answer["status"]["details"]["causes"][0]["message"].startswith(page["violations"][0]["message"])


def _command(printed: str) -> str:
    (command,) = re.findall(r"^  (printf .*)$", printed, re.MULTILINE)
    return str(command)


def test_a_signal_at_the_very_start_ends_it_as_well(start: Start) -> None:
    playground = start()
    children = until(playground.children, "a child")

    assert playground.end(signal.SIGINT) == 0
    assert _gone(children)
    assert "Traceback" not in playground.complaints()


def test_nothing_outlives_it_even_when_it_is_killed(start: Start) -> None:
    playground = start("--rules", str(RULES))
    playground.read_until(LAST)
    children = playground.children()
    playground.popen.kill()
    playground.popen.wait()

    until(lambda: _gone(children), "the end of its children")


@pytest.mark.parametrize(("index", "name"), [(0, "webhook"), (1, "console")])
def test_when_one_ends_so_does_the_other(start: Start, index: int, name: str) -> None:
    playground = start("--rules", str(RULES))
    playground.read_until(LAST)
    children = playground.children()
    direct = [child for child in children if _parent(child) == playground.popen.pid]
    os.kill(direct[index], signal.SIGKILL)

    assert playground.popen.wait(30) == 2
    assert _gone(children)
    assert playground.complaints() == f"gpu-webhook: the {name} was ended by SIGKILL\n"


def _parent(process: int) -> int:
    found = re.search(r"^PPid:\t(\d+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.mark.parametrize(("option", "variable"), [("--bind", "BIND"), ("--console", "CONSOLE")])
def test_a_port_in_use_is_one_line_with_what_to_do(start: Start, option: str, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        playground = start(option, address)

        assert playground.popen.wait(30) == 2
    complaint = playground.complaints()
    assert complaint.startswith(f"gpu-webhook: {address} is in use; ")
    assert f"make run {variable}=127.0.0.1:" in complaint
    assert complaint.count("\n") == 1


def test_an_address_that_is_none_is_wrong_usage(start: Start) -> None:
    playground = start("--bind", "8443")

    assert playground.popen.wait(30) == 2
    assert "write HOST:PORT" in playground.complaints()


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "cannot write "), (("--rules", str(RULES)), "the webhook ended with exit code 2: cannot start: ")],
)
def test_what_cannot_start_says_why(start: Start, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "state").write_text("in the way")
    playground = start(*options)

    assert playground.popen.wait(30) == 2
    complaint = playground.complaints()
    assert complaint.startswith(f"gpu-webhook: {said}")
    assert complaint.count("\n") == 1


def test_the_imagined_cluster_has_the_shipped_rules_as_they_stand_now_and_a_cluster_document_of_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "of-yesterday.yaml").write_text("kind: [")

    made = imagined(tmp_path / "rules")

    assert {file.name: file.read_text() for file in made.iterdir()} == builders.shipped_files()
    assert [file.name for file in made.iterdir() if file.resolve().parent != builders.RULES] == ["cluster.yaml"]


def test_rules_that_do_not_load_are_said_and_the_console_shows_them(start: Start, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "broken.yaml").write_text("kind: [")
    playground = start("--rules", str(tmp_path / "rules"))

    assert "not usable" in (printed := playground.read_until(LAST))
    assert "broken.yaml:2:1: is not YAML" in printed
    with urllib.request.urlopen(f"http://127.0.0.1:{playground.console}/") as page:
        assert "The rules do not load" in page.read().decode()
    assert playground.end(signal.SIGINT) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_rules_can_be_chosen_and_the_line_to_paste_has_them(start: Start, number: signal.Signals) -> None:
    playground = start("--rules", str(RULES))
    printed = playground.read_until(LAST)
    children = playground.children()

    assert ("3 back ends, 1 card" in printed, "imagined" in printed) == (True, False)
    pasted = subprocess.run(["bash", "-c", _command(printed)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "acme-share" in pasted.stdout
    assert (playground.end(number), _gone(children), playground.complaints()) == (0, True, "")


def test_make_says_what_it_does_before_it_waits_for_packages() -> None:
    """Only what it would do is asked: the packages are there already."""
    command = ["make", "--dry-run", "--assume-new=uv.lock", "setup"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    said, _, _ = planned.partition("pip install")
    assert (
        "echo 'Setting up .venv with the hash-locked dependencies. Only the first time, and when they change" in said
    )
