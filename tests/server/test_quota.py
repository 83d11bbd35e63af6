"""A server with a tenant's quota in its rule files: the answer that has to wait is one as any other."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.bench.reviews import container, encoded, pod
from tests.cluster.waiting import until
from tests.server.peer import Answered, Peer, request
from tests.server.process import ROOT, Server, running
from webhook.core.validate import validate
from webhook.files import rule_files
from webhook.server.handler import Answer, Lane
from webhook.telemetry import Lines

POLICY: str = tables.table(__file__, "policy")


@contextlib.contextmanager
def beside(folder: Path, tenants: str) -> Iterator[Server]:
    """A server with the shipped rules and these."""
    rules: Path = shutil.copytree(ROOT / "rules", folder / "rules")
    (rules / "tenants.yaml").write_text(tenants)
    with running(folder / "server", rules=str(rules)) as started:
        yield started


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with beside(tmp_path_factory.mktemp("tenants"), POLICY) as started:
        yield started


@pytest.fixture
def asking(tenants: Server) -> Iterator[Peer]:
    with contextlib.closing(tenants.connect()) as connected:
        yield connected


def create(name: str, gpus: str) -> bytes:
    """The review of a pod that is about to be stored."""
    limits = {"nvidia.com/gpu": gpus}
    main = container("main", 0) | {"resources": {"limits": limits, "requests": limits}}
    stored = pod([main], {})
    stored["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    review = json.loads(encoded(stored))
    review["request"] |= {"name": name, "dryRun": False}
    return json.dumps(review).encode()


def response(answered: Answered) -> dict[str, Any]:
    assert answered.status == 200
    found: dict[str, Any] = json.loads(answered.body)["response"]
    return found


def test_answers_come_in_the_order_of_the_questions_and_the_connection_stays(asking: Peer) -> None:
    asks = [create("one", "1"), create("one", "1"), create("two", "1"), create("three", "1")]
    asking.send(b"".join(request("POST", "/validate?timeout=5s", body) for body in asks))

    answers = [response(asking.answer()) for _ in asks]

    assert [answer["allowed"] for answer in answers] == [True, True, True, False]
    refused = answers[3]["status"]
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert refused["message"].splitlines()[0] == (
        '[GPU104] tenant "vision" is over its GPU quota: uses 2, asks 1, limit 2 devices'
    )
    assert asking.ask("GET", "/healthz").status == 200


def test_what_was_refused_is_counted_by_tenant_rule_and_code(asking: Peer) -> None:
    response(asking.ask("POST", "/validate", create("many", "4")))

    figures = asking.ask("GET", "/metrics").body.decode()

    assert (
        'gpu_webhook_findings_total{tenant="vision",rule="vision (tenants.yaml:7)",code="GPU104",action="deny",'
        'exemption=""}' in figures
    )
    assert 'gpu_webhook_reviews_total{path="validate",operation="CREATE",decision="deny",code="403"}' in figures


EXEMPTION: str = tables.table(__file__, "exemption")


def test_the_exemption_that_lets_a_pod_in_is_named_in_audit_annotation_log_and_metric(tmp_path: Path) -> None:
    with beside(tmp_path, POLICY + EXEMPTION) as server, contextlib.closing(server.connect()) as peer:
        within, over = (response(peer.ask("POST", "/validate", create(f"many-{n}", n))) for n in ("1", "4"))
        figures = peer.ask("GET", "/metrics").body.decode()
        until(lambda: len(server.lines("decision")) == 2, "the lines")
        lines = server.lines("decision")

    lifted = {"exemptions": "night (tenants.yaml:13), owner ada"}
    named = "vision: GPU104 dryrun by exemption night"
    assert (within["allowed"], over["allowed"]) == (True, True)
    assert within["auditAnnotations"] == {"decision": within["uid"], **lifted}
    assert over["auditAnnotations"] == {"decision": over["uid"], "policy": named, **lifted}
    assert [line["findings"] for line in lines] == [[], [named]]
    counted = 'rule="vision (tenants.yaml:7)",code="GPU104",action="dryrun",exemption="night"} 1'
    assert f'gpu_webhook_findings_total{{tenant="vision",{counted}' in figures


def test_a_dry_run_is_told_what_would_be_and_reserves_nothing(tmp_path: Path) -> None:
    dry = [json.loads(create(f"dry-{gpus}", gpus)) for gpus in ("2", "3", "2")]
    for review in dry:
        review["request"]["dryRun"] = True
    with beside(tmp_path, POLICY) as server, contextlib.closing(server.connect()) as peer:
        answers = [response(peer.ask("POST", "/validate", json.dumps(review).encode())) for review in dry]

    assert [answer["allowed"] for answer in answers] == [True, False, True]
    assert "uses 0, asks 3, limit 2 devices" in answers[1]["status"]["message"]


@pytest.mark.parametrize("name", ["", "../../../../api/v1/namespaces"])
def test_nothing_is_reserved_for_what_no_api_server_can_have_asked(asking: Peer, name: str) -> None:
    answered = asking.ask("POST", "/validate", create(name, "1"))
    assert (answered.status, answered.body.split(b":")[0]) == (
        400,
        b"the pod has no name, namespace and uid as an API server gives them",
    )


def test_by_policies_that_are_too_old_nobody_gets_a_gpu(tmp_path: Path, plain: bytes) -> None:
    with (tmp_path / "log").open("wb") as output:
        lane = Lane({"validate": validate}, rule_files.load(ROOT / "rules"), Lines(output.fileno()))
        gpu = create("train", "1")
        assert told(lane, gpu)["allowed"]
        lane.good_until = 0
        refused = told(lane, gpu)
        assert told(lane, plain)["allowed"]

    assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
    assert "the policies of this cluster cannot be read now" in refused["status"]["message"]


def told(lane: Lane, body: bytes) -> dict[str, Any]:
    answer = lane.answer(b"POST", b"/validate", body)
    assert isinstance(answer, Answer)
    found: dict[str, Any] = json.loads(answer.body)["response"]
    return found
