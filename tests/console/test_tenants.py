"""Tenants on the page: what it says and where it gets it from."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.cli.objects import exemption, listed, namespace, policy, usage
from tests.cli.program import RULES
from tests.console.test_page import seen
from webhook.console import Standings, create_app

OBJECTS = (
    policy("vision", "vision-*", quota={"devices": 16, "memory": "640Gi"}),
    usage(
        "vision",
        hard={"devices": "16", "memory": "640Gi"},
        held={"vision-dev": {"devices": "9", "memory": "400Gi"}, "vision-ci": {}},
        pending=["vision-ci/train u1 devices=0.3 memory=8Gi"],
    ),
    policy("speech", "speech", quota={"devices": 8, "enforcementAction": "warn"}),
    usage("speech", hard={"devices": "8"}, held={"speech": {"devices": "7.5"}}),
    policy("robots", "robots", quota={"devices": 2}),
    usage("robots", hard={"devices": "2"}, held={"robots": {"devices": "2"}}),
    policy("guests", "guests-" + "x" * 50, quota={"devices": 1}),
    namespace("vision-new"),
    exemption("deadline", timedelta(days=3, hours=1)),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "tenants.json"
    written.write_text(listed(*OBJECTS))
    return written


def client(standings: Standings, rules: Path = RULES) -> FlaskClient:
    return create_app(rules, standings=standings).test_client()


def test_the_page_has_tenants_their_namespaces_and_exemptions(file: Path) -> None:
    text = seen(client(Standings(file)).get("/tenants").text)

    assert f"From {file}: 4 tenants." in text
    assert "vision 9.3 of 16 6.7 408Gi of 640Gi 232Gi 1 refused vision-*" in text
    assert "speech 7.5 of 8 0.5 0Gi \N{EN DASH} \N{EN DASH} warned of" in text
    assert "? of 1 ?" in text
    assert "vision-ci vision 0.3 8Gi" in text
    assert "vision-new vision ? ?" in text
    assert "deadline in 3 days quota vision-dev everybody ada@example.com a deadline" in text


def test_what_has_to_be_done_stands_first(file: Path) -> None:
    text = seen(client(Standings(file)).get("/tenants").text)

    assert text.index("To do") < text.index("Tenants Name")
    assert "vision GPU pods have to wait in namespaces that are not counted yet: vision-new" in text


def test_a_file_that_changes_is_read_again(file: Path) -> None:
    page = client(Standings(file))
    page.get("/tenants")
    file.write_text(listed(policy("other", "other")))

    assert "\N{EN DASH} other" in seen(page.get("/tenants").text)


def test_the_same_for_scripts(file: Path) -> None:
    answer = client(Standings(file)).get("/api/tenants")

    assert answer.status_code == 200
    assert list(json.loads(answer.text)) == ["tenants", "problems", "exemptions"]
    assert json.loads(answer.text)["tenants"][0]["name"] == "robots"


def test_without_a_file_the_policies_of_the_rules_are_there_and_nobody_knows_what_is_used(rules: Path) -> None:
    (rules / "tenants.yaml").write_text(json.dumps(OBJECTS[0]))

    text = seen(client(Standings(), rules).get("/tenants").text)

    assert "Nobody said who uses what, so only policies of the rule files are here." in text
    assert "vision ? of 16 ? ? of 640Gi ? \N{EN DASH} refused" in text
    assert "To do" not in text


def test_without_policies_everybody_may_ask_for_anything() -> None:
    assert "There are no tenants: no TenantPolicy says" in seen(client(Standings()).get("/tenants").text)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    page = client(Standings(missing))

    assert f"{missing}: No such file or directory" in seen(page.get("/tenants").text)
    answer = page.get("/api/tenants")
    assert (answer.status_code, answer.json) == (503, {"error": f"{missing}: No such file or directory"})


def test_rules_that_do_not_load_are_said_here_too(rules: Path, file: Path) -> None:
    (rules / "cluster.yaml").unlink()
    page = client(Standings(file), rules)

    assert "The rules do not load: 1 problem" in seen(page.get("/tenants").text)
    assert page.get("/api/tenants").status_code == 503
