"""The server that editors of YAML ask for completion and for what a key means (yaml-language-server of Red Hat).

npm installs it once, into a folder of the user's cache, by a lock file with the hash of each package.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.missing import Announce, UnavailableError

PACKAGES = ("package.json", "package-lock.json")
HERE = Path(__file__).parent


def find(announce: Announce = print) -> Path:
    """The program, installed now when it is not there yet; raises UnavailableError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-webhook" / "editor"
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in PACKAGES)).hexdigest()[:16]
    folder = cache / digest
    if not folder.is_dir():
        if missing := [program for program in ("node", "npm") if not shutil.which(program)]:
            raise UnavailableError(f"no {' and no '.join(missing)} here (Debian: apt-get install nodejs npm)")
        announce("installing yaml-language-server: some seconds, the first time only")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            building = Path(scratch, "packages")
            building.mkdir()
            for name in PACKAGES:
                shutil.copy(HERE / name, building)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            ran = subprocess.run(command, cwd=building, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise UnavailableError(f"npm ci fails:\n{ran.stderr}")
            building.rename(folder)
    return folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"


class Editor:
    """A client of the server, over its standard streams. Lines and columns begin at 0."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Of a server that has just been started."""
        self.process = process
        self.numbers = count(1)
        self.versions = count(1)
        self.opened: set[str] = set()
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.tell("initialized", {})

    def ask(self, method: str, params: Any) -> Any:
        """The answer to a request; the server's own requests meanwhile are answered with nothing."""
        number = next(self.numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" not in message and message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]
            if "id" in message and "method" in message:
                sections = [item["section"] for item in (message.get("params") or {}).get("items", ())]
                self._send({"id": message["id"], "result": [SETTINGS.get(section, {}) for section in sections]})

    def tell(self, method: str, params: Any) -> None:
        """Send what has no answer."""
        self._send({"method": method, "params": params})

    def open(self, file: Path, text: str) -> None:
        """Show a text as a file, or another text of it."""
        uri = file.as_uri()
        if uri in self.opened:
            document = {"uri": uri, "version": next(self.versions)}
            self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        else:
            document = {"uri": uri, "languageId": "yaml", "version": next(self.versions), "text": text}
            self.tell("textDocument/didOpen", {"textDocument": document})
        self.opened.add(uri)

    def hover(self, file: Path, line: int, column: int) -> str:
        """What is shown beside the pointer."""
        answer = self.ask("textDocument/hover", _at(file, line, column))
        return "" if answer is None else str(answer["contents"]["value"])

    def completed(self, file: Path, line: int, column: int) -> list[str]:
        """The words that are offered."""
        answer = self.ask("textDocument/completion", _at(file, line, column))
        return [item["label"] for item in (answer["items"] if isinstance(answer, dict) else answer or [])]

    def _send(self, message: Any) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        self.process.stdin.flush()

    def _receive(self) -> Any:
        assert self.process.stdout
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the server has ended"
        return json.loads(self.process.stdout.read(length))


SETTINGS = {"yaml": {"completion": True, "hover": True, "validate": True, "schemaStore": {"enable": False}}}


def _at(file: Path, line: int, column: int) -> Any:
    return {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": column}}


@contextmanager
def running(program: Path) -> Iterator[Editor]:
    """The server, until the block is left."""
    with subprocess.Popen(
        ["node", program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield Editor(process)
        finally:
            process.kill()
