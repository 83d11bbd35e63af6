"""Tenants and the global view in Chromium: how they look, and that nothing complains."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import tables
from tests.cli.objects import listed
from tests.cli.program import RULES
from tests.console.process import Console, running
from tests.console.test_browser import CONTRASTS
from tests.console.test_inventory import MORE
from tests.console.test_tenants import OBJECTS

pytestmark = pytest.mark.browser


class View(NamedTuple):
    """A page, and the console that shows it."""

    path: str
    console: Console


@pytest.fixture(scope="module", params=["tenants", "inventory"])
def viewed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    file = tmp_path_factory.mktemp("viewed") / "all.json"
    file.write_text(listed(*(OBJECTS if request.param == "tenants" else MORE)))
    with running(RULES, f"--{request.param}", str(file)) as started:
        yield View(request.param, started)


@pytest.fixture
def view(browser: Browser, viewed: View) -> Iterator[Page]:
    """The page, which must not complain in the browser's own console."""
    context = browser.new_context(base_url=viewed.console.url, viewport={"width": 1400, "height": 900})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto(f"/{viewed.path}")
    yield opened
    context.close()
    assert complaints == []


of_tenants = pytest.mark.parametrize("viewed", ["tenants"], indirect=True)
of_everything = pytest.mark.parametrize("viewed", ["inventory"], indirect=True)


@of_tenants
def test_the_tenants_are_one_press_from_the_page(view: Page) -> None:
    view.goto("/")
    view.get_by_role("link", name="Tenants").click()

    expect(view).to_have_title("Tenants · gpu-webhook")
    expect(view.get_by_role("link", name="Tenants", exact=True)).to_have_attribute("aria-current", "page")
    expect(view.get_by_role("region", name="Tenants").get_by_role("row")).to_have_count(5)


@of_everything
def test_the_view_is_one_press_from_the_page_and_back(view: Page) -> None:
    view.goto("/")
    view.get_by_role("link", name="Global view").click()
    expect(view).to_have_title("Global view · gpu-webhook")
    expect(view.get_by_role("link", name="Global view")).to_have_attribute("aria-current", "page")
    expect(view.get_by_role("row", name="acme-card")).to_have_count(5)
    view.get_by_role("link", name="Try a pod").click()

    expect(view.get_by_role("heading", name="What would become of this pod?")).to_be_visible()


@pytest.mark.parametrize("width", [320, 768, 1400])
def test_only_tables_scroll_sideways(view: Page, width: int) -> None:
    view.set_viewport_size({"width": width, "height": 900})

    assert view.evaluate("document.documentElement.scrollWidth") <= width


@of_tenants
def test_the_heads_of_columns_are_one_line_on_a_phone(view: Page) -> None:
    view.set_viewport_size({"width": 390, "height": 900})

    heights = view.locator("thead th").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
    assert max(heights) < 40, heights


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_told_from_its_ground(browser: Browser, viewed: View, scheme: str) -> None:
    page = browser.new_page(base_url=viewed.console.url, color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"/{viewed.path}")

    assert page.evaluate(CONTRASTS) == []
    page.close()


@of_tenants
@tables.rows
def test_a_bar_is_as_long_as_what_is_used_and_warns_by_its_colour(
    view: Page, tenant: str, bars: list[list[str]]
) -> None:
    row = view.get_by_role("region", name="Tenants").get_by_role("row", name=re.compile(f"^{tenant} "))
    drawn = "all => all.map(one => [one.getAttribute('class'), one.getAttribute('width')])"

    assert row.locator(".bar rect:not(.all)").evaluate_all(drawn) == bars


@of_everything
def test_a_bar_is_as_long_as_what_it_stands_for(view: Page) -> None:
    bar = view.get_by_role("row", name=re.compile(r"^acme-share")).locator(".bar rect")
    widths = bar.evaluate_all("all => all.map(one => one.getAttribute('width'))")

    assert widths == ["100", "25.00", "25.00"]


def test_regions_have_names_and_headings_are_in_order(view: Page) -> None:
    for control in view.locator("a, [role=region]").all():
        expect(control).to_have_accessible_name(re.compile(r"\S"))
    levels = [int(tag[1]) for tag in view.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
