"""The watcher against an API server that misbehaves: it lists again, waits, and keeps what it has."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests import builders, tables
from tests.cluster.waiting import until
from tests.server.test_surroundings import files

Object = dict[str, Any]

NODES = "/api/v1/nodes"
CLAIMS = "/apis/elasticgpu.io/{}/elasticgpuclaims"
CLASSES = "/apis/elasticgpu.io/{}/elasticgpuclasses"
KNOWING_CLAIMS = {name: builders.shipped_files()[name] for name in ("elastic-gpu-claims.yaml",)}


def node(name: str, **labels: str) -> Object:
    resources = {"tke.cloud.tencent.com/qgpu-core": "100"}
    return {
        "metadata": {"name": name, "resourceVersion": "7", "labels": labels},
        "status": {"allocatable": resources},
    }


def page(*nodes: Object, following: str = "") -> Object:
    return {"metadata": {"resourceVersion": "5", "continue": following}, "items": list(nodes)}


def event(kind: str, what: Object) -> Object:
    return {"type": kind, "object": what}


GONE = event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
BOOKMARK = event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "9"}})


class Script:
    """What the API server says to each list and to each watch of nodes.

    A watch lasts `held` seconds; the last stays open. `others` are the lists of other kinds, by their path.
    """

    def __init__(
        self,
        lists: list[Object | int],
        watches: list[list[Object]],
        held: float = 0,
        others: Mapping[str, Object | int] | None = None,
    ) -> None:
        self.held = held
        self.others = others or {}
        self.lists, self.watches = lists, watches
        self.asked: list[dict[str, str]] = []
        self.over = threading.Event()


@contextmanager
def api(script: Script) -> Iterator[str]:
    """An API server that follows a script; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if path != NODES and "watch" in query:
                script.over.wait()
            elif path != NODES:
                self._list(script.others.get(path, 404))
            else:
                script.asked.append({key: values[0] for key, values in query.items()})
                self._watch() if "watch" in query else self._list(script.lists.pop(0))

        def _list(self, answer: Object | int) -> None:
            failed = isinstance(answer, int)
            body = json.dumps({"kind": "Status", "message": "etcd is away"} if failed else answer).encode()
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _watch(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for each in script.watches.pop(0) if script.watches else []:
                line = json.dumps(each).encode() + b"\n"
                for part in (line[:10], line[10:]):  # events come in pieces
                    self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            script.over.wait(script.held if script.watches else None)
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        script.over.set()
        server.shutdown()
        server.server_close()


@contextmanager
def watching(script: Script, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Path]:
    """A watcher of that API server, and the file it writes; it has to end well."""
    rules, file, kubeconfig = folder / "rules", folder / "surroundings.json", folder / "kubeconfig"
    rules.mkdir()
    for name, text in {**files(), **(more or {})}.items():
        (rules / name).write_text(text)
    with api(script) as url:
        kubeconfig.write_text(json.dumps(config(url)))
        command = [sys.executable, "-m", "webhook.cli", "watch", "--write", str(file), "--rules", str(rules)]
        log = (folder / "log").open("wb")
        with log, subprocess.Popen(command, stdout=log, stderr=log, env={"KUBECONFIG": str(kubeconfig)}) as process:
            try:
                yield file
                process.terminate()
                assert process.wait(10) == 0
            finally:
                process.kill()


def config(url: str) -> Object:
    return {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def names(file: Path) -> list[str]:
    if not file.exists():
        return []
    return [found["metadata"]["name"] for found in json.loads(file.read_bytes())["nodes"]]


def _listed(answer: Any) -> Object | int:
    """The names of nodes, the last of which may be `more`; or a status."""
    if isinstance(answer, int):
        return answer
    return page(*(node(name) for name in answer if name != "more"), following="more" if "more" in answer else "")


def _event(said: str) -> Object:
    kind, _, name = said.partition(" ")
    return {"GONE": GONE, "BOOKMARK": BOOKMARK}.get(kind) or event(
        kind, node(name, **{"example.com/heartbeat": kind})
    )


@tables.rows
def test_a_watcher(lists: list[Any], watches: list[list[str]], then: Mapping[str, Any], tmp_path: Path) -> None:
    """Then it has these nodes, has said so often, and has asked from which version, or page, each time."""
    script = Script([_listed(answer) for answer in lists], [list(map(_event, watch)) for watch in watches], held=1.2)

    with watching(script, tmp_path) as file:
        until(lambda: names(file) == then["nodes"], "the nodes")

    said = (tmp_path / "log").read_text()
    assert {text: said.count(text) for text in then["log"]} == then["log"]
    asked = [query.get("continue") or query.get("resourceVersion") for query in script.asked]
    assert asked[: len(then["asked"])] == then["asked"]


def test_a_watch_that_ends_at_once_is_not_begun_again_at_once(tmp_path: Path) -> None:
    script = Script([page(node("a")), page(node("b"))], [[], []])

    with watching(script, tmp_path) as file:
        until(lambda: names(file) == ["b"], "the second list")

    assert "the watch of /api/v1/nodes ended at once" in (tmp_path / "log").read_text()


def test_a_change_that_says_nothing_new_is_not_written(tmp_path: Path) -> None:
    script = Script([page(node("a"))], [[_event("MODIFIED a"), event("ADDED", node("b"))]])

    with watching(script, tmp_path) as file:
        until(lambda: names(file) == ["a", "b"], "the change after it")

    assert (tmp_path / "log").read_text().count("written") <= 2


def test_a_file_beside_it_says_up_to_when_nodes_were_heard_of(tmp_path: Path) -> None:
    script = Script([page(node("a"))], [[]])
    beside = tmp_path / "surroundings.json.heard"

    with watching(script, tmp_path) as file:
        until(beside.exists, "the list")
        listed = beside.stat()
        until(lambda: beside.stat().st_ctime > listed.st_ctime + 1, "it is written again while the watch is silent")
        assert abs(beside.stat().st_mtime - listed.st_mtime) < 0.1
        assert names(file) == ["a"]


CLAIM: dict[str, Any] = tables.table(__file__, "claim")


def written(file: Path) -> Object:
    found: Object = json.loads(file.read_bytes()) if file.exists() else {}
    return found


def test_claims_are_read_in_the_version_that_the_cluster_has_and_kept_as_their_author_wrote_them(
    tmp_path: Path,
) -> None:
    others: dict[str, Object | int] = {CLAIMS.format("v1alpha"): page(CLAIM), CLASSES.format("v1alpha"): page()}

    with watching(Script([page(node("a"))], [[]], others=others), tmp_path, KNOWING_CLAIMS) as file:
        until(lambda: "elasticgpuclasses.elasticgpu.io" in written(file), "the file")

    found = written(file)
    assert found.keys() == {"nodes", "elasticgpuclaims.elasticgpu.io", "elasticgpuclasses.elasticgpu.io"}
    assert found["elasticgpuclaims.elasticgpu.io"] == [
        {"metadata": {"namespace": "team-a", "name": "train"}, "spec": CLAIM["spec"]}
    ]


@pytest.mark.parametrize(("status", "why"), [(404, "the cluster has no elasticgpuclaims"), (403, "etcd is away")])
def test_a_kind_that_is_not_there_or_cannot_be_read_is_left_out_and_holds_up_nothing(
    tmp_path: Path, status: int, why: str
) -> None:
    others: dict[str, Object | int] = {CLAIMS.format(version): status for version in ("v1alpha1", "v1alpha")}
    others[CLASSES.format("v1alpha1")] = page()

    with watching(Script([page(node("a"))], [[]], others=others), tmp_path, KNOWING_CLAIMS) as file:
        until(lambda: names(file) == ["a"], "the nodes")

    assert written(file).keys() == {"nodes", "elasticgpuclasses.elasticgpu.io"}
    assert why in (tmp_path / "log").read_text()


def test_a_kind_that_the_rules_no_longer_ask_for_is_left(tmp_path: Path) -> None:
    others: dict[str, Object | int] = {CLAIMS.format("v1alpha1"): page(CLAIM), CLASSES.format("v1alpha1"): page()}

    with watching(Script([page(node("a"))], [[]], others=others), tmp_path, KNOWING_CLAIMS) as file:
        until(lambda: len(written(file)) == 3, "the claims")
        (tmp_path / "rules" / "elastic-gpu-claims.yaml").unlink()
        until(lambda: written(file).keys() == {"nodes"}, "the file without them")
