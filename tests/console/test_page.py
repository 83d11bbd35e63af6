"""What the page says, without a browser: every word of an explanation, and what is loaded."""

import json
import re
import sys
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests import readme, tables
from tests.cli.objects import exemption, namespace, policy, usage
from tests.cli.program import pod
from webhook.console import create_app
from webhook.console.app import SHOWN, TRIES
from webhook.playground import imagined


def seen(html: str) -> str:
    """The text of a page, with one space wherever there is any."""
    return " ".join(unescape(re.sub(r"<(?!/?wbr)[^>]+>", " ", html).replace("<wbr>", "")).split())


def explained(client: FlaskClient, text: str, backend: str = "") -> str:
    answer = client.post("/", data={"text": text, "backend": backend})
    assert answer.status_code == 200
    return seen(answer.text)


def test_the_page_begins_with_a_pod_and_what_becomes_of_it(client: FlaskClient) -> None:
    begun = client.get("/")

    assert begun.status_code == 200
    assert 'gpu: "0.3"' in unescape(begun.text)
    assert "Allowed Pod train and served by acme-share" in seen(begun.text)


@tables.rows
def test_the_page_of_an_address_says(client: FlaskClient, address: str, words: list[str]) -> None:
    text = seen(client.get(address).text)

    assert [word for word in words if word not in text] == []


@tables.rows
def test_the_page_says_of_pods(
    client: FlaskClient, asked: dict[str, str], around: str, words: list[str], others: list[str]
) -> None:
    """Pods are asked for by their names; `others` are words that the page does not say."""
    text = "\n---\n".join(pod(gpu, name) for name, gpu in asked.items())
    answer = client.post("/", data={"text": text, "around": around})
    assert answer.status_code == 200

    shown = seen(answer.text)
    assert [word for word in words if word not in shown] == []
    assert [word for word in others if word in shown] == []


def test_a_pod_that_an_operator_puts_together_is_shown_by_its_changes_alone(tmp_path: Path) -> None:
    of_the_run = create_app(imagined(tmp_path / "rules")).test_client()
    executor = "{cores: 1, gpu: {name: nvidia.com/gpu, quantity: 1}}"
    application = f"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nspec: {{executor: {executor}}}"

    text = explained(of_the_run, application)

    assert ("The pod before and after" in text, "each with its field and its rule" in text) == (False, True)


def test_what_cannot_be_read_is_said_with_the_line_it_is_about(client: FlaskClient) -> None:
    text = explained(client, "kind: Pod\nmetadata:\n  name: a\n labels: {}\n")

    assert (
        "Not readable line 4, column 2: is not YAML: did not find expected key;"
        " look at the indentation and quotes here and above labels: {} ^" in text
    )


@pytest.mark.parametrize("name", TRIES)
def test_every_pod_to_begin_with_is_what_it_promises_in_the_cluster_of_make_run(name: str, tmp_path: Path) -> None:
    text = seen(create_app(imagined(tmp_path / "rules")).test_client().get(f"/?try={name}").text)

    assert ("Denied Pod train" if name == "refused" else "Allowed") in text


def test_the_page_says_what_the_tenant_may_have_and_what_is_only_tried(client: FlaskClient, rules: Path) -> None:
    spec = {"ceilings": {"container": {"devices": "0.2", "enforcementAction": "dryrun"}}, "quota": {"devices": 2}}
    (rules / "tenants.yaml").write_text(json.dumps(policy("vision", "default", **spec)))

    text = explained(client, pod("0.3"))

    assert "What the tenant may have tenant vision, by vision (tenants.yaml:1)" in text
    assert "quota devices: 0 used, 0.3 asked, 2 at most: 1.7 left quota 5 more pods like this would fit" in text
    assert "Dry run [GPU102] vision (tenants.yaml:1) would refuse it if it were enforced" in text


def test_the_page_names_the_exemption_that_lets_a_pod_in(client: FlaskClient, rules: Path) -> None:
    strict = policy("vision", "default", ceilings={"container": {"devices": "0.2"}})
    spec = {"namespaces": ["default"], "lifts": ["container"], "owner": "ada", "reason": "a deadline"}
    lifting = {**strict, "kind": "Exemption", "metadata": {"name": "night"}}
    lifting["spec"] = {**spec, "expires": "2999-01-31T00:00:00Z"}
    (rules / "tenants.yaml").write_text("\n---\n".join(map(json.dumps, (strict, lifting))))

    text = explained(client, pod("0.3"))

    assert "Exempted [GPU102] of vision (tenants.yaml:1) is lifted by the exemption night" in text
    assert "Dry run" not in text


def test_what_is_pasted_beside_a_pod_is_used(client: FlaskClient) -> None:
    limited = policy("vision", quota={"devices": 2})
    limited["spec"] = {"namespaces": {"selector": {"matchLabels": {"team": "vision"}}}, "quota": {"devices": 2}}
    used = usage("vision", held={"dev": {"devices": "1.5"}})
    given = "\n---\n".join(
        [pod("1", namespace="dev"), *map(json.dumps, (limited, used, namespace("dev", team="vision")))]
    )

    text = explained(client, given)

    assert 'GPU104 tenant "vision" is over its GPU quota: uses 1.5, asks 1, limit 2 devices' in text
    assert "Missing no Exemption was given: one may lift what refuses this pod" in text


def test_policies_can_be_tried_beside_a_manifest_that_stays_as_it_is(client: FlaskClient, rules: Path) -> None:
    (rules / "tenants.yaml").write_text(json.dumps(policy("vision", "dev", quota={"devices": 1})))
    fields = {"text": pod("2"), "namespace": "dev"}

    now = seen(client.post("/", data=fields).text)
    then = seen(client.post("/", data={**fields, "around": json.dumps(policy("vision", "dev"))}).text)

    assert "GPU104" in now
    assert "Allowed Pod demo" in then
    assert "tenant vision, by TenantPolicy/vision: no quota" in then


def test_the_user_and_the_time_decide_whether_an_exemption_holds(client: FlaskClient) -> None:
    made = exemption("deadline", timedelta(days=30))
    for_ada = {**made, "spec": {**made["spec"], "users": ["ada"]}}
    around = "\n---\n".join(map(json.dumps, (policy("vision", "vision-*", quota={"devices": 1}), for_ada)))
    fields = {"text": pod("2"), "namespace": "vision-dev", "around": around}

    def verdict(**more: str) -> str:
        answer = client.post("/", data={**fields, **more}).text
        for name, value in more.items():
            assert f'name="{name}" value="{value}"' in answer
        return "Allowed" if "Allowed Pod demo" in seen(answer) else "Denied"

    assert (verdict(), verdict(user="ada"), verdict(user="ada", at="2099-01-01T00:00:00Z")) == (
        "Denied",
        "Allowed",
        "Denied",
    )


def test_a_policy_that_cannot_be_used_is_said_above_the_answer(client: FlaskClient) -> None:
    broken = policy("audio", "audio", quota={"memory": "40"})

    text = explained(client, f"{pod('1')}\n---\n{json.dumps(broken)}")

    assert "audio its policy cannot be used: " in text


def test_what_the_api_server_refuses_is_refused_here_too(client: FlaskClient) -> None:
    labelled = pod("1").replace('"gpu": "1"', '"gpu": "1", "team": "a b"')

    assert 'GPU007 the API server refuses this: "a b" is no value of a label' in explained(client, labelled)


def test_back_ends_that_are_not_enabled_are_folded_away_unless_one_is_asked_about(client: FlaskClient) -> None:
    folded, asked = client.get("/rules").text, client.get("/rules?backend=acme-slice").text

    assert "1 more back end, not enabled" in seen(folded)
    assert '<details class="others">' in folded
    assert '<details class="others" open>' in asked


def many(client: FlaskClient, address: str = "/", **chosen: str) -> tuple[str, list[str]]:
    """The page of 130 pods, of which every thirteenth is refused, and the titles of the rows that it lists."""
    pods = [pod("0.3" if number % 13 else "1.5", f"p{number}", namespace=f"n{number % 2}") for number in range(130)]
    html = client.post(address, data={"text": "\n---\n".join(pods), **chosen}).text
    rows = re.findall(r"<li>.*?</li>", html.partition('aria-label="Pods"')[2].partition("</nav>")[0], re.DOTALL)
    return seen(html), [seen(row).partition(" ")[2] for row in rows]


def test_of_very_many_pods_the_refused_come_first_and_the_pages_have_all(client: FlaskClient) -> None:
    texts, pages = zip(*(many(client, f"/?page={number}") for number in (1, 2, 3)), strict=True)

    assert "130 pods, 10 denied" in texts[0]
    assert pages[0][0] == "Pod p0 n0 GPU201 gpu: 1.5 is neither a share of one GPU nor a whole number"
    assert [row for row in pages[0] if "GPU201" in row] == pages[0][:10]
    assert [len(page) for page in pages] == [SHOWN, SHOWN, 130 - 2 * SHOWN]
    assert len({row for page in pages for row in page}) == 130
    assert ["page 2 of 3 Previous Next" in text for text in texts] == [False, True, False]


@tables.rows
def test_pods_are_chosen(client: FlaskClient, chosen: dict[str, str], first: str, others: str) -> None:
    """`first` is the first row, and `others` is a part of the page."""
    text, rows = many(client, **chosen)

    assert (rows[0], others in text) == (first, True)


def test_a_row_that_is_pressed_is_the_one_that_is_explained(client: FlaskClient) -> None:
    before, _ = many(client, "/?page=2")
    after, _ = many(client, "/?page=2", pod="130")

    assert ["Allowed Pod p129 and served" in text for text in (before, after)] == [False, True]
    assert "Pod p1 and served" not in after


def test_a_page_that_is_not_there_is_the_nearest(client: FlaskClient) -> None:
    assert [many(client, f"/?page={page}")[1] for page in ("0", "99", "x")] == [
        many(client, f"/?page={page}")[1] for page in (1, 3, 1)
    ]


def test_the_first_page_and_all_that_it_loads_are_small_with_every_shipped_rule(tmp_path: Path) -> None:
    shipped = create_app(imagined(tmp_path / "rules")).test_client()
    html = shipped.get("/").text
    loaded = [
        readme.ROOT / "webhook" / "console" / name for name in re.findall(r'(?:href|src)="/(static/[^"]+)"', html)
    ]

    assert len(loaded) == 3
    assert len(html.encode()) + sum(path.stat().st_size for path in loaded) < 40_000
    assert len(shipped.get("/rules").data) < 70_000


def test_recorded_reviews_cost_little_each(client: FlaskClient) -> None:
    """2,000 take 0.8 s of a core; here the calls of functions are counted, which no busy machine changes."""

    def calls(pods: int) -> int:
        count = 0

        def counting(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call"

        recorded = "\n".join(pod("0.3", f"p{number}") for number in range(pods))
        sys.setprofile(counting)
        try:
            answer = client.post("/", data={"text": recorded})
        finally:
            sys.setprofile(None)
        assert f"{pods} pods, none denied" in seen(answer.text)
        return count

    calls(60)  # what is computed once
    each = (calls(160) - calls(60)) / 100
    assert each < 950, each


def test_one_back_end_can_be_tried_alone(client: FlaskClient) -> None:
    answer = client.post("/", data={"text": pod("1"), "backend": "acme-slice"})

    assert "and served by acme-slice" in seen(answer.text)
    assert '<option value="acme-slice" selected>' in answer.text


def test_the_text_comes_back_as_it_was(client: FlaskClient) -> None:
    given = "\n\n# </textarea><script>alert(1)</script> & \N{GRINNING FACE}\nkind: Pod\n"
    html = client.post("/", data={"text": given}).text
    (back,) = re.findall(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', html, re.DOTALL)

    assert unescape(back) == given
    assert "<script>alert" not in html


def test_a_pod_cannot_write_html(client: FlaskClient) -> None:
    html = client.post("/", data={"text": pod("1.5", "<b>demo</b>", labels={"gpu": "<i>1</i>"})}).text

    assert "<b>" not in html
    assert "&lt;b&gt;demo&lt;/b&gt;" in html


def test_rules_that_do_not_load_are_told_and_the_page_still_comes(client: FlaskClient, rules: Path) -> None:
    cluster = rules / "cluster.yaml"
    fine = cluster.read_text()
    cluster.write_text(fine.replace("acme-share]", "acme-shar]"))
    text = explained(client, pod("0.3"), "acme-share")

    assert "The rules do not load: 2 problems" in text
    assert 'cluster.yaml:5:25 spec.backends[1] no rule defines the back end "acme-shar"' in text
    assert "correct the files and press Explain" in text

    cluster.write_text(fine)
    assert "Allowed Pod demo and served by acme-share" in explained(client, pod("0.3"))


def test_a_folder_without_rules_is_told(client: FlaskClient, rules: Path) -> None:
    for file in rules.iterdir():
        file.unlink()
    rules.rmdir()

    assert "is not a directory" in seen(client.get("/").text)


def test_an_edit_of_a_rule_is_seen_by_the_next_request(client: FlaskClient, rules: Path) -> None:
    before = explained(client, pod("0.3"))
    acme = rules / "acme.yaml"
    acme.write_text(acme.read_text().replace("acme-scheduler", "acme-packer"))
    after = explained(client, pod("0.3"))

    assert "schedulerName: acme-scheduler" in before
    assert "schedulerName: acme-packer" in after


def test_a_new_rule_file_is_seen_by_the_next_request(client: FlaskClient, rules: Path) -> None:
    client.get("/")
    (rules / "second.yaml").write_text((rules / "cluster.yaml").read_text().replace("made-up", "second"))

    assert "a second Cluster document" in seen(client.get("/").text)
