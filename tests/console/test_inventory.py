"""The global view on the page: what it says and where it gets it from."""

import json
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.cli.objects import NODES_AND_PODS, listed, node, pod
from tests.cli.program import RULES
from tests.console.test_page import seen
from webhook.console import Source, create_app

WAITS = pod("p3", "", card="2")
MORE = (
    *NODES_AND_PODS,
    WAITS,
    {**node("n4", card="8"), "spec": {"unschedulable": True}},
    node("n5-" + "x" * 200, card="1"),
    pod("p4", "n1", share="101"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "all.json"
    written.write_text(listed(*NODES_AND_PODS))
    return written


def client(source: Source) -> FlaskClient:
    return create_app(RULES, source=source).test_client()


def test_the_view_has_cards_back_ends_applications_and_nodes(file: Path) -> None:
    text = seen(client(Source(file)).get("/inventory").text)

    assert f"Cluster made-up, from {file}: 2 nodes with devices, 1 without." in text
    assert "Devices 4.5 free 1.5 asked, of 6" in text
    assert "acme-share 1 0.5 of 2 1.5 ? of ? ? 30 of 200% 170%" in text
    assert "web vision Deployment acme-card, acme-share 2 1.5 ? 130%" in text
    assert "n1 ready acme-card unknown 1 of 4 3 ? of ? ? 100 of 400% 300%" in text
    assert "Not counted" not in text


def test_what_waits_takes_no_pods_or_is_not_counted_is_said(file: Path) -> None:
    file.write_text(listed(*MORE))

    text = seen(client(Source(file)).get("/inventory").text)

    assert "Waiting 2 devices" in text
    assert "Devices 5.5 free 1.5 asked, 8 on nodes that take no pods, of 15" in text
    assert "n4 cordoned acme-card unknown 0 of 8 0" in text
    assert "Not counted vision/p4 acme.example/share: 101" in text


def test_the_numbers_of_a_tile_add_up_where_more_is_asked_than_exists(file: Path) -> None:
    file.write_text(listed(node("n1", card="2"), pod("p1", "n1", card="3"), node("n2", card="4")))

    text = seen(client(Source(file)).get("/inventory").text)

    assert "Devices 4 free 3 asked, 1 of it beyond what exists, of 6" in text
    assert "Compute 400% free 300% asked, 100% of it beyond what exists, of 600%" in text


def test_a_file_that_changes_is_read_again(file: Path) -> None:
    page = client(Source(file))
    page.get("/inventory")
    file.write_text(listed(node(card="7")))

    assert "0 asked, of 7" in seen(page.get("/inventory").text)


def test_the_same_for_scripts(file: Path) -> None:
    answer = client(Source(file)).get("/api/inventory")

    assert answer.status_code == 200
    assert json.loads(answer.text)["total"]["exists"]["devices"] == 6


def test_the_watchers_file_has_no_pods_and_the_page_says_so(tmp_path: Path) -> None:
    file = tmp_path / "surroundings.json"
    file.write_text(json.dumps({"nodes": [node(card="4")]}))

    text = seen(client(Source(around=file)).get("/inventory").text)

    assert "Pods are not in this file, so nothing is known of what they ask." in text
    assert "0 asked, of 4" in text


def test_nobody_said_where_nodes_are() -> None:
    page = client(Source())

    assert "Start the console with one of these: gpu-webhook console --cluster" in seen(page.get("/inventory").text)
    answer = page.get("/api/inventory")
    assert (answer.status_code, answer.json) == (
        503,
        {"error": "nobody said where nodes and pods are: start the console with --inventory FILE or --cluster"},
    )


@pytest.mark.parametrize("around", [False, True])
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, *, around: bool) -> None:
    missing = tmp_path / "none.json"
    page = client(Source(around=missing) if around else Source(missing))

    assert f"{missing}: No such file or directory" in seen(page.get("/inventory").text)
    assert page.get("/api/inventory").status_code == 503


def test_rules_that_do_not_load_are_said_here_too(rules: Path, file: Path) -> None:
    (rules / "cluster.yaml").unlink()
    page = create_app(rules, source=Source(file)).test_client()

    assert "The rules do not load: 1 problem" in seen(page.get("/inventory").text)
    assert page.get("/api/inventory").status_code == 503


def test_surroundings_that_cannot_be_read_leave_pods_explained_by_the_rules_alone(tmp_path: Path) -> None:
    file = tmp_path / "surroundings.json"
    file.write_text("{")
    page = client(Source(around=file))

    text = seen(page.get("/").text)
    assert "Allowed Pod train" in text
    assert f"Nothing is known of the cluster's nodes: {file} is not JSON" in text
    file.write_text("{}")
    assert "Nothing is known" not in seen(page.get("/").text)
