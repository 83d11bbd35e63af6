"""The page that Prometheus reads."""

import contextlib
import re
import ssl
from pathlib import Path

from tests import tables
from tests.server.peer import Peer
from tests.server.process import Server, running
from tests.server.test_quota import create
from webhook.core.decision import Decision
from webhook.telemetry import Metrics

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def samples(page: str) -> dict[str, float]:
    """The samples of a page in the text format, which each have to belong to a family announced before them."""
    assert page.endswith("\n")
    found: dict[str, float] = {}
    family = ""
    for line in page.splitlines():
        if line.startswith("# "):
            _, keyword, family, rest = line.split(" ", 3)
            assert keyword == "HELP" or rest in {"counter", "gauge", "histogram"}
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert re.fullmatch(rf"{family}(_bucket|_sum|_count)?", match[1])
        assert line.rsplit(" ", 1)[0] not in found
        found[line.rsplit(" ", 1)[0]] = float(match[3])
    return found


def test_the_page_is_what_prometheus_expects(peer: Peer) -> None:
    answered = peer.ask("GET", "/metrics")

    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [
        value for name, value in samples(answered.body.decode()).items() if name.startswith("gpu_webhook_rulebook{")
    ] == [1]


def test_what_happened_is_counted(folder: Path, fraction: bytes, plain: bytes) -> None:
    with running(folder) as server, contextlib.closing(server.connect()) as peer:
        for path, body in [("/mutate", fraction), ("/mutate", plain), ("/mutate", plain), ("/validate", fraction)]:
            peer.ask("POST", path, body)
        peer.ask("POST", "/mutate", b"{")
        peer.ask("GET", "/nowhere")
        found = samples(server.get("/metrics"))

    reviews = 'gpu_webhook_reviews_total{path="%s",operation="CREATE",decision="%s",code="%s"}'
    assert found[reviews % ("mutate", "allow", 200)] == 3
    assert found[reviews % ("validate", "deny", 422)] == 1
    assert found['gpu_webhook_violations_total{code="GPU601"}'] == 1
    assert sum(value for name, value in found.items() if name.startswith("gpu_webhook_translations_total")) == 1
    assert found['gpu_webhook_refused_requests_total{status="400"}'] == 1
    assert found['gpu_webhook_refused_requests_total{status="404"}'] == 1
    assert found['gpu_webhook_review_seconds_count{path="mutate"}'] == 3
    assert found['gpu_webhook_review_seconds_bucket{path="mutate",le="+Inf"}'] == 3
    assert 0 < found['gpu_webhook_review_seconds_sum{path="mutate"}'] < 1
    assert found["gpu_webhook_connections"] >= 1


POLICY: str = tables.table(__file__, "policy")


def test_tenants_are_named_on_a_port_of_its_own_and_on_loopback_only(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text(POLICY)
    pages = {}
    with running(folder, tenants=str(tmp_path / "tenants.yaml"), metrics="127.0.0.1:0") as server:
        with contextlib.closing(server.connect()) as peer:
            peer.ask("POST", "/validate", create("train", "3"))
        reviews, of_metrics = map(int, re.findall(r":(\d+)", server.lines("serving on")[0]["message"]))
        context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        for port, source in ((reviews, "127.0.0.1"), (reviews, "127.0.0.2"), (of_metrics, "127.0.0.2")):
            with contextlib.closing(Peer.connect(port, context, source)) as peer:
                pages[port, source] = peer.ask("GET", "/metrics").body.decode()

    whole = samples(pages[reviews, "127.0.0.1"]).keys()
    of_tenants = {name for name in whole if "red" in name.partition("{")[2]}
    assert [name.partition("{")[0] for name in of_tenants] == ["gpu_webhook_findings_total"]
    assert samples(pages[of_metrics, "127.0.0.2"]).keys() == whole
    assert samples(pages[reviews, "127.0.0.2"]).keys() == whole - of_tenants


def test_nothing_of_a_pod_becomes_a_label(server: Server, peer: Peer, fraction: bytes) -> None:
    peer.ask("POST", "/mutate", fraction.replace(b'"CREATE"', b'"INVENTED"'))
    page = server.get("/metrics")

    assert 'operation="other"' in page
    for word in ("INVENTED", "vision", "classifier"):
        assert word not in page


def test_buckets_add_up_and_labels_are_escaped() -> None:
    metrics = Metrics(["mutate"])
    for seconds in (0.0, 0.0001, 0.003, 99.0):
        metrics.count("mutate", "CREATE", Decision(allowed=True, patch=[{}], backends={"c": 'a"b\\c\nd'}), seconds)
    found = samples(metrics.render("").decode())

    assert found['gpu_webhook_review_seconds_bucket{path="mutate",le="0.0001"}'] == 2
    assert found['gpu_webhook_review_seconds_bucket{path="mutate",le="0.005"}'] == 3
    assert found['gpu_webhook_review_seconds_bucket{path="mutate",le="10.0"}'] == 3
    assert found['gpu_webhook_review_seconds_bucket{path="mutate",le="+Inf"}'] == 4
    assert found['gpu_webhook_translations_total{backend="a\\"b\\\\c\\nd"}'] == 4
    assert found['gpu_webhook_rulebook{digest=""}'] == 0
