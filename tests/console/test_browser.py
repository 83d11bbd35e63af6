"""The page as a person meets it, in Chromium: read, paste, press, read; with a mouse, and without one."""

import itertools
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.cli.program import pod
from tests.console.process import Console

pytestmark = pytest.mark.browser


def explain(page: Page, text: str) -> Locator:
    """Paste a text, press the button, and give the part of the page that answers."""
    page.get_by_label("Manifest").fill(text)
    with page.expect_navigation():
        page.get_by_role("button", name="Explain").click()
    return page.get_by_label("Result", exact=True)


def open_everything(page: Page) -> None:
    for summary in page.locator("summary").all():
        summary.click()


def test_a_pod_is_pasted_and_its_translation_read(page: Page) -> None:
    result = explain(page, pod("0.3", "pasted"))

    expect(page).to_have_title("Allowed: Pod pasted · gpu-webhook")
    expect(result.get_by_role("heading", name="Allowed Pod pasted")).to_be_in_viewport()
    expect(result.get_by_role("listitem").filter(has_text="acme-share serves")).to_be_visible()
    expect(result.get_by_role("listitem").filter(has_text="cannot")).to_contain_text("it serves only: whole cards")
    inserted = result.get_by_role("region", name="The pod before and after").get_by_role("insertion")
    expect(inserted.filter(has_text="acme.example/share: '30'")).to_contain_text("acme.yaml:25")
    expect(page.get_by_label("Manifest")).to_have_value(pod("0.3", "pasted"))


def test_a_denied_pod_says_why_and_what_to_do(page: Page) -> None:
    result = explain(page, pod("1.5", "pasted"))

    expect(page).to_have_title("Denied: Pod pasted · gpu-webhook")
    expect(result.get_by_role("heading", name="Denied Pod pasted")).to_be_in_viewport()
    expect(result.get_by_text("GPU201")).to_be_visible()
    expect(result.get_by_text('write "1" or "2"')).to_be_visible()
    expect(result.get_by_role("insertion")).to_have_count(0)


def test_a_mistake_in_the_yaml_is_shown_where_it_is(page: Page) -> None:
    explain(page, "kind: Pod\nmetadata:\n  name: a\n labels: {}\n")

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("line 4, column 2: is not YAML")
    expect(alert).to_contain_text("labels: {}")
    expect(page.get_by_label("Manifest")).to_have_attribute("aria-invalid", "true")


def test_the_edits_open_with_their_fields(page: Page) -> None:
    result = explain(page, pod("0.3"))
    field = result.get_by_text("spec.schedulerName", exact=True)
    expect(field).to_be_hidden()
    result.get_by_text("6 edits").click()

    expect(field).to_be_visible()


def test_an_example_of_a_rule_is_one_press_away(page: Page) -> None:
    page.get_by_role("link", name="Rules", exact=True).click()
    page.get_by_text("shares of cards, by Acme").click()
    page.get_by_role("link", name="shares of two cards").click()

    expect(page.get_by_role("heading", name="Denied Pod example")).to_be_visible()
    expect(page.get_by_label("Back ends", exact=True)).to_have_value("acme-share")


def test_everything_works_without_a_mouse(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the result")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the result")).to_be_in_viewport()
    _tab_to(page, page.get_by_label("Manifest"))
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(pod("2", "typed"))
    _tab_to(page, page.get_by_role("button", name="Explain"))
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Allowed Pod typed")).to_be_in_viewport()
    _tab_to(page, page.get_by_role("region", name="The pod before and after"))
    _tab_to(page, page.get_by_text("4 edits").or_(page.get_by_text("3 edits")))


MANY = "\n".join(pod("0.3" if number < 60 else "1.5", f"p{number}") for number in range(70))


def test_many_pods_are_chosen_from_without_a_mouse(page: Page) -> None:
    result = explain(page, MANY)
    _tab_to(page, result.get_by_label("Answer"))
    page.keyboard.type("all")
    _tab_to(page, result.get_by_label("Text"))
    page.keyboard.type("p59")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    expect(result.get_by_role("navigation", name="Pods").get_by_role("listitem")).to_have_text(re.compile("Pod p59"))
    expect(result.get_by_role("heading", name="Allowed Pod p59")).to_be_visible()


def test_a_row_of_another_page_is_opened_where_it_is_explained(page: Page) -> None:
    result = explain(page, MANY)
    result.get_by_role("button", name="Next").click()
    result.get_by_role("button", name="Pod p59").click()

    expect(result.get_by_role("heading", name="Allowed Pod p59")).to_be_in_viewport()
    expect(result.get_by_text("70 pods, page 2 of 2")).to_be_attached()


def test_on_a_phone_the_result_stands_before_the_form_and_leads_to_it(page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    result = explain(page, pod("1.5"))

    def top(place: Locator) -> float:
        box = place.bounding_box()
        assert box is not None
        return box["y"]

    assert top(result) < top(page.get_by_label("Manifest"))
    result.get_by_role("link", name="Another pod").click()
    expect(page.get_by_label("Manifest")).to_be_in_viewport()


def _tab_to(page: Page, target: Locator) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"30 times Tab did not reach {target}")


def test_control_and_enter_explain(page: Page) -> None:
    page.get_by_label("Manifest").fill(pod("2", "typed"))
    page.keyboard.press("Control+Enter")

    expect(page.get_by_role("heading", name="Allowed Pod typed")).to_be_visible()


def test_it_works_without_a_script(browser: Browser, console: Console) -> None:
    context = browser.new_context(base_url=console.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    explain(page, pod("0.3", "pasted"))

    expect(page.get_by_role("heading", name="Allowed Pod pasted")).to_be_visible()
    expect(page.get_by_text("Ctrl")).to_be_hidden()
    context.close()


def test_a_paste_that_is_too_large_is_answered(browser: Browser, console: Console) -> None:
    """On a page of its own: Chromium writes the 413 to its console, as it should."""
    page = browser.new_page(base_url=console.url)
    page.goto("/")
    page.get_by_label("Manifest").evaluate("element => { element.value = 'x'.repeat(2 << 20); }")
    page.get_by_role("button", name="Explain").click()

    expect(page.get_by_text("this is more than 1 MiB")).to_be_visible()
    page.close()


@pytest.mark.parametrize("width", [320, 400, 768, 1400])
@pytest.mark.parametrize("text", [pod("0.3"), pod("2x0.5"), pod("0.3", "a" * 253), MANY])
def test_nothing_is_wider_than_the_window(page: Page, width: int, text: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    explain(page, text)
    open_everything(page)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


CUT = """select => {
    const style = getComputedStyle(select), canvas = document.createElement("canvas").getContext("2d");
    canvas.font = style.font;
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return canvas.measureText(select.selectedOptions[0].text).width > room - 20;
}"""
"""Whether the chosen option does not fit into a control, whose arrow is 20 pixels wide."""


@pytest.mark.parametrize("width", [375, 390, 1200])
def test_the_option_that_is_chosen_at_first_can_be_read_to_its_end(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    explain(page, MANY)

    assert page.locator("select").evaluate_all(f"all => all.map({CUT})") == [False] * 4


def test_on_a_phone_what_is_said_has_most_of_the_line_and_not_what_it_is_of(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/rules")

    parts = page.locator("dl > div").evaluate_all(
        "all => all.map(one => one.lastElementChild.offsetWidth / one.offsetWidth)"
    )
    assert min(parts) > 0.6, parts


CONTRASTS = Path(__file__).with_name("contrasts.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", [pod("0.3"), pod("1.5"), pod("yes"), MANY])
def test_every_text_can_be_told_from_its_ground(browser: Browser, console: Console, scheme: str, text: str) -> None:
    dark = scheme == "dark"
    page = browser.new_page(base_url=console.url, color_scheme="dark" if dark else "light")
    page.goto("/")
    explain(page, text)
    open_everything(page)

    assert page.evaluate(CONTRASTS) == []
    page.close()


@pytest.mark.parametrize("address", ["/", "/rules"])
def test_every_control_has_a_name_and_headings_are_in_order(page: Page, address: str) -> None:
    page.goto(address)
    open_everything(page)
    for control in page.locator("a, button, select, textarea, [role=region]").locator("visible=true").all():
        expect(control).to_have_accessible_name(re.compile(r"\S"))
    levels = [int(tag[1]) for tag in page.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
