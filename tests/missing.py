"""Programs that tests need. They are built when first needed; a machine that cannot build them skips those tests."""

import os
from collections.abc import Callable
from typing import NoReturn

import pytest

Announce = Callable[[str], object]


class UnavailableError(Exception):
    """Something is not here and cannot be built; the text says why."""


def announcing(request: pytest.FixtureRequest) -> Announce:
    """A printer whose lines are seen at once: silent minutes would look like a hang."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def announce(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", flush=True)  # noqa: T201  that is what it is for

    return announce


def skip_unless_ci(reason: str) -> NoReturn:
    """In CI whatever is missing is a failure: a test that did not run has proved nothing."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
