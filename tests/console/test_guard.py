"""Who may ask, and what an answer may do: a web site in the same browser may not use the console."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests import tables
from tests.cli.program import RULES, pod
from webhook.console import create_app
from webhook.console.app import MAX_BYTES


@tables.rows
def test_the_names_of_this_machine_are_answered(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/rules", "/static/page.css", "/nowhere"])
@tables.rows
def test_other_names_are_refused(client: FlaskClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})

    assert answer.status_code == 403
    assert "answers to the names of this machine" in answer.text


def test_the_name_it_was_started_with_is_answered(rules: Path) -> None:
    client = create_app(rules, bound="Desk.example").test_client()

    assert client.get("/", headers={"Host": "desk.example:8080"}).status_code == 200
    assert client.get("/", headers={"Host": "chair.example"}).status_code == 403


def test_who_listens_everywhere_answers_to_addresses_which_no_dns_can_turn() -> None:
    client = create_app(RULES, bound="0.0.0.0").test_client()  # noqa: S104 - nothing is bound

    assert client.get("/", headers={"Host": "192.0.2.1:8080"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/explain"])
@tables.rows
def test_posts_of_other_sites_are_refused(client: FlaskClient, path: str, headers: dict[str, str]) -> None:
    answer = client.post(path, data={"text": pod()}, headers=headers)

    assert answer.status_code == 403
    assert "not from other web sites" in answer.text


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}]
)
def test_posts_of_the_page_and_of_programs_are_taken(client: FlaskClient, headers: dict[str, str]) -> None:
    assert client.post("/api/explain", data=pod(), headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/rules", "/static/page.js", "/nowhere"])
def test_every_answer_is_hardened(client: FlaskClient, path: str) -> None:
    with client.get(path) as answer:
        headers = answer.headers
    policy = headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(client: FlaskClient) -> None:
    html = client.get("/").text

    assert "//" not in html.replace("registry.example//", "")
    assert "<style" not in html
    assert " style=" not in html
    assert html.count("<script") == html.count('<script src="/static/') == 1


@pytest.mark.parametrize("path", ["/", "/api/explain"])
def test_more_than_a_mebibyte_is_refused(client: FlaskClient, path: str) -> None:
    answer = client.post(path, data={"text": "x" * (2 * MAX_BYTES)})

    assert answer.status_code == 413
    assert "more than 1 MiB" in answer.text


def test_one_byte_more_than_a_mebibyte_is_refused(client: FlaskClient) -> None:
    answer = client.post("/api/explain", data="x" * (MAX_BYTES + 1))

    assert answer.status_code == 413
    assert "more than 1 MiB" in answer.text


def test_one_byte_more_than_a_mebibyte_is_refused_on_the_page(client: FlaskClient) -> None:
    assert "this is more than 1 MiB" in client.post("/", data={"text": "x" * (MAX_BYTES + 1)}).text
