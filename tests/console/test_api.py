"""The console for scripts: JSON that is the same as the command line's."""

import json
from pathlib import Path

from flask.testing import FlaskClient

from tests import tables
from tests.cli.program import explain, pod


def test_explain_answers_as_the_command_line_does(client: FlaskClient) -> None:
    answer = client.post("/api/explain", data=pod("0.3"))

    assert answer.status_code == 200
    assert answer.mimetype == "application/json"
    assert answer.json == explain(pod("0.3"), "-o", "json").json


def test_a_denied_pod_is_an_answer_and_no_error(client: FlaskClient) -> None:
    answer = client.post("/api/explain", data=pod("1.5"))

    assert answer.status_code == 200
    assert answer.json == explain(pod("1.5"), "-o", "json").json


def test_several_pods_are_an_array(client: FlaskClient) -> None:
    answer = client.post("/api/explain", data=f"{pod('0.3')}\n---\n{pod('1.5')}")

    assert answer.json is not None
    assert [each["allowed"] for each in answer.json] == [True, False]


def test_one_back_end_can_be_tried_alone(client: FlaskClient) -> None:
    answer = client.post("/api/explain?backend=acme-slice", data=pod("1"))

    assert answer.json is not None
    assert answer.json["backends"] == {"main": "acme-slice"}


@tables.rows
def test_what_cannot_be_explained_is_a_400_with_a_sentence(
    client: FlaskClient, query: str, body: str | None, said: str
) -> None:
    answer = client.post(f"/api/explain{query}", data=pod() if body is None else body)

    assert answer.status_code == 400
    assert answer.json is not None
    assert list(answer.json) == ["error"]
    assert said in answer.json["error"]


def test_objects_a_line_each_are_read_as_recorded(client: FlaskClient) -> None:
    lines = f"{pod('0.3', 'one')}\n{pod('1.5', 'two')}\n"

    assert (
        client.post("/api/explain", data=lines).json
        == client.post("/api/explain", data=lines.replace("}\n{", "}\n---\n{")).json
    )


def test_a_line_that_is_nested_deeper_than_any_pod_is_refused(client: FlaskClient) -> None:
    deep = f'{{"kind": "Pod", "spec": {"[" * 200}{"]" * 200}}}'

    answer = client.post("/api/explain", data=f"{pod()}\n{deep}\n")

    assert (answer.status_code, answer.json) == (400, {"error": "the text is nested more than 100 deep"})


def test_a_billion_laughs_are_refused(client: FlaskClient) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    answer = client.post("/api/explain", data="\n".join(lines))

    assert answer.status_code == 400
    assert "holds more than 50000 values" in answer.text


def test_the_rules_are_summed_up(client: FlaskClient) -> None:
    summary = client.get("/api/rules").json

    assert summary is not None
    assert list(summary) == ["fine", "problems", "digest", "counts", "cluster", "backends", "devices"]
    assert summary.pop("digest")
    assert summary == tables.table(__file__, "the rules summed up")


def test_rules_that_do_not_load_are_said_with_their_places(client: FlaskClient, rules: Path) -> None:
    (rules / "cluster.yaml").write_text("kind: Clust\n")
    summary = client.get("/api/rules").json
    explained = client.post("/api/explain", data=pod())

    assert summary is not None
    assert summary["fine"] is False
    assert all(list(each) == ["file", "line", "column", "path", "message"] for each in summary["problems"])
    assert explained.status_code == 503
    assert explained.json == {"error": "the rules cannot be used", **summary}


def test_errors_of_http_are_json_here(client: FlaskClient) -> None:
    wrong_method = client.get("/api/explain")
    nowhere = client.get("/api/nowhere")

    assert (wrong_method.status_code, nowhere.status_code) == (405, 404)
    assert set(wrong_method.headers["Allow"].split(", ")) == {"POST", "OPTIONS"}
    assert list(json.loads(nowhere.text)) == ["error"]
