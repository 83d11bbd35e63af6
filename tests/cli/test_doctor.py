"""`gpu-webhook doctor` where there is no cluster to examine; tests/cluster/test_doctor.py has the rest."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.program import RULES, run
from tests.cluster.plane import free_port


@contextmanager
def answering(status: int) -> Iterator[str]:
    """An API server that answers whatever it is asked with a refusal; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"kind": "Status", "message": "so it says"}')

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _asking(url: str, folder: Path) -> str:
    """What it says to standard error, with a kubeconfig for this API server."""
    named = {"name": "it", "cluster": {"server": url}, "user": {}, "context": {"cluster": "it", "user": "it"}}
    kinds = {f"{kind}s": [{"name": "it", kind: named[kind]}] for kind in ("cluster", "user", "context")}
    (folder / "kubeconfig").write_text(json.dumps({**kinds, "current-context": "it"}))
    ran = run("doctor", kubeconfig=folder / "kubeconfig")
    assert (ran.code, ran.out) == (2, "")
    return ran.err


DEPLOYMENT = "/apis/apps/v1/namespaces/gpu-webhook-system/deployments/gpu-webhook"


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (HTTPStatus.NOT_FOUND, " is it installed in this cluster? Elsewhere: --namespace NAME;"),
        (HTTPStatus.FORBIDDEN, ""),
    ],
    ids=["where nothing is installed", "where the account may not read them"],
)
def test_without_the_rules_of_the_cluster_it_says_how_to_give_them(
    status: HTTPStatus, asked: str, tmp_path: Path
) -> None:
    with answering(status) as url:
        said = _asking(url, tmp_path)

    assert said == (
        f"gpu-webhook: {DEPLOYMENT} was answered with {status.value}: so it says;{asked}"
        " to examine it without its ConfigMaps, give the rules that should be in force: --rules DIR\n"
    )


def test_an_api_server_that_is_not_reached_is_said_and_nothing_is_advised_of_rules(tmp_path: Path) -> None:
    port = free_port()

    said = _asking(f"http://127.0.0.1:{port}", tmp_path)

    assert said.startswith(f"gpu-webhook: {DEPLOYMENT} cannot be read: Cannot connect to host 127.0.0.1:{port}")
    assert "--rules" not in said


def test_without_a_cluster_it_is_an_error_and_no_finding() -> None:
    ran = run("doctor", "--rules", RULES, kubeconfig=Path("/nowhere"))

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "gpu-webhook: no cluster to ask: there is no kubeconfig /nowhere\n"


@pytest.mark.parametrize("endpoint", ["8443", "127.0.0.1:", "127.0.0.1:99999"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    ran = run("doctor", "--endpoint", endpoint)

    assert (ran.code, ran.err) == (2, f"gpu-webhook: --endpoint {endpoint}: write HOST:PORT, as 127.0.0.1:8443\n")
