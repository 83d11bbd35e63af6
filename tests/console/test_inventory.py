"""The global view on the page: what it says, where it gets it from, and how it looks in Chromium."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Browser, Page, expect

from tests.cli.objects import NODES_AND_PODS, listed, node, pod
from tests.cli.program import RULES
from tests.console.process import Console, running
from tests.console.test_browser import CONTRASTS
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
    assert "Devices 4.5 free 1.5 of 6 asked" in text
    assert "acme-share 1 0.5 of 2 1.5 ? of ? ? 30 of 200% 170%" in text
    assert "web vision Deployment acme-card, acme-share 2 1.5 ? 130%" in text
    assert "n1 ready acme-card unknown 1 of 4 3 ? of ? ? 100 of 400% 300%" in text
    assert "Not counted" not in text


def test_what_waits_takes_no_pods_or_is_not_counted_is_said(file: Path) -> None:
    file.write_text(listed(*MORE))

    text = seen(client(Source(file)).get("/inventory").text)

    assert "Waiting 2 devices" in text
    assert "n4 cordoned acme-card unknown 0 of 8 0" in text
    assert "Not counted vision/p4 acme.example/share: 101" in text


def test_a_file_that_changes_is_read_again(file: Path) -> None:
    page = client(Source(file))
    page.get("/inventory")
    file.write_text(listed(node(card="7")))

    assert "0 of 7 asked" in seen(page.get("/inventory").text)


def test_the_same_for_scripts(file: Path) -> None:
    answer = client(Source(file)).get("/api/inventory")

    assert answer.status_code == 200
    assert json.loads(answer.text)["total"]["exists"]["devices"] == 6


def test_the_watchers_file_has_no_pods_and_the_page_says_so(tmp_path: Path) -> None:
    file = tmp_path / "surroundings.json"
    file.write_text(json.dumps({"nodes": [node(card="4")]}))

    text = seen(client(Source(around=file)).get("/inventory").text)

    assert "Pods are not in this file, so nothing is known of what they ask." in text
    assert "0 of 4 asked" in text


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


# In Chromium


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    file = tmp_path_factory.mktemp("inventory") / "all.json"
    file.write_text(listed(*MORE))
    with running(RULES, "--inventory", str(file)) as started:
        yield started


@pytest.fixture
def view(browser: Browser, viewed: Console) -> Iterator[Page]:
    """The global view, which must not complain in the browser's own console."""
    context = browser.new_context(base_url=viewed.url, viewport={"width": 1400, "height": 900})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto("/inventory")
    yield opened
    context.close()
    assert complaints == []


@pytest.mark.browser
def test_the_view_is_one_press_from_the_page_and_back(view: Page) -> None:
    view.goto("/")
    view.get_by_role("link", name="Global view").click()
    expect(view).to_have_title("Global view · gpu-webhook")
    expect(view.get_by_role("link", name="Global view")).to_have_attribute("aria-current", "page")
    expect(view.get_by_role("row", name="acme-card")).to_have_count(5)
    view.get_by_role("link", name="Try a pod").click()

    expect(view.get_by_role("heading", name="What would become of this pod?")).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 768, 1400])
def test_only_tables_scroll_sideways(view: Page, width: int) -> None:
    view.set_viewport_size({"width": width, "height": 900})

    assert view.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_of_the_view_can_be_told_from_its_ground(browser: Browser, viewed: Console, scheme: str) -> None:
    page = browser.new_page(base_url=viewed.url, color_scheme="dark" if scheme == "dark" else "light")
    page.goto("/inventory")

    assert page.evaluate(CONTRASTS) == []
    page.close()


@pytest.mark.browser
def test_a_bar_is_as_long_as_what_it_stands_for(view: Page) -> None:
    bar = view.get_by_role("row", name=re.compile(r"^acme-share")).locator(".bar rect")
    widths = bar.evaluate_all("all => all.map(one => one.getAttribute('width'))")

    assert widths == ["100", "25.00", "25.00"]


@pytest.mark.browser
def test_regions_have_names_and_headings_are_in_order(view: Page) -> None:
    for control in view.locator("a, [role=region]").all():
        expect(control).to_have_accessible_name(re.compile(r"\S"))
    levels = [int(tag[1]) for tag in view.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
