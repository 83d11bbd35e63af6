"""Runs `gpu-webhook`, with made-up rules unless a test brings others.

In this process, as most tests are about what a command says; as a program of its own where its process matters: its
environment, signals, terminals and pipes.
"""

import contextlib
import io
import json
import os
import pty
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tests.development import PYTHON
from webhook.cli import __main__

HERE = Path(__file__).parent
RULES = HERE / "rules"
SHIPPED = HERE.parents[1] / "rules"
PROGRAM = [*PYTHON, "-W", "error", "-m", "webhook.cli"]
READ_AT_IMPORT = "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
"""What the library makes of $KUBECONFIG, once in a process."""


class Ran(NamedTuple):
    """How one run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: str | Path, given: str | bytes = b"", kubeconfig: Path | None = None) -> Ran:
    """One command in this process, on the cluster of a kubeconfig; `given` is its standard input."""
    read, out, err = io.TextIOWrapper(io.BytesIO(_bytes(given))), io.StringIO(), io.StringIO()
    clusters = mock.patch(READ_AT_IMPORT, str(kubeconfig)) if kubeconfig else contextlib.nullcontext()
    with clusters, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch("sys.stdin", read):
        try:
            code = __main__.main([*map(str, arguments)])
        except SystemExit as end:  # argparse: help, or wrong usage
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def start(*arguments: str | Path, given: str | bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run the program to its end."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=_bytes(given),
        capture_output=True,
        check=False,
        env={**os.environ, **(env or {})},
        timeout=60,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def _bytes(given: str | bytes) -> bytes:
    return given.encode() if isinstance(given, str) else given


def explain(given: str | bytes, *options: str) -> Ran:
    """Explain a text by the made-up rules."""
    return run("explain", "-", "--rules", RULES, *options, given=given)


def on_a_terminal(*arguments: str | Path, given: str, env: dict[str, str] | None = None) -> str:
    """What it prints when its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=theirs,
        env={**{key: value for key, value in os.environ.items() if key != "NO_COLOR"}, **(env or {})},
    )
    os.close(theirs)
    assert process.stdin is not None
    with process, process.stdin:
        process.stdin.write(given.encode())
        process.stdin.close()
        printed = _read(ours)
    return printed.decode()


def _read(terminal: int) -> bytes:
    read = b""
    try:
        while chunk := os.read(terminal, 4096):
            read += chunk
    except OSError:  # Linux says EIO when the other side of a terminal is closed
        pass
    finally:
        os.close(terminal)
    return read


def changed_rules(folder: Path, old: str, new: str, file: str = "cluster.yaml") -> Path:
    """A copy of the made-up rules with one text replaced by another."""
    copy = folder / "rules"
    shutil.copytree(RULES, copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    return copy


def pod(gpu: str = "0.3", name: str = "demo", **metadata: Any) -> str:
    """A pod in YAML (JSON is YAML)."""
    whole = {"name": name, "labels": {"gpu": gpu}, **metadata}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": whole, "spec": spec()})


def spec() -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "demo"}]}
