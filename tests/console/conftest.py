"""The console in this process for its answers, in its own for everything else, and a browser to look at it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Browser, Error, Page, Playwright, sync_playwright

from tests.cli.program import RULES
from tests.console.process import Console, running
from tests.missing import skip_unless_ci
from webhook.console import create_app

LEFT = "net::ERR_ABORTED"
"""What Chromium says of a request, as for the icon, that was under way when the page was left."""

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    *(("--no-sandbox",) if os.geteuid() == 0 else ()),
)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A copy of the made-up rules, to be changed."""
    copy = tmp_path / "rules"
    shutil.copytree(RULES, copy)
    return copy


@pytest.fixture
def client(rules: Path) -> FlaskClient:
    return create_app(rules).test_client()


@pytest.fixture(scope="session")
def console() -> Iterator[Console]:
    """One console for the tests that leave its rules as they are."""
    with running(RULES) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while Playwright is there, this thread has a running event loop, and asyncio.run fails."""
    with sync_playwright() as playwright:
        browser = _launch(playwright)
        yield browser
        browser.close()


def _launch(playwright: Playwright) -> Browser:
    installed = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    try:
        return playwright.chromium.launch(executable_path=installed, args=FLAGS)
    except Error as error:
        skip_unless_ci(f"no Chromium on PATH ({', '.join(CHROMIUMS)}), and Playwright has none: {error.message}")


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    """The page of the console, which must never complain in the browser's own console."""
    context = browser.new_context(base_url=console.url, viewport={"width": 1400, "height": 900})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
    opened.goto("/")
    yield opened
    context.close()
    assert [complaint for complaint in complaints if LEFT not in complaint] == []
