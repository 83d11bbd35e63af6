"""The checks of an installation, as a table for a terminal and for scripts.

`contract` is the form of `gpu-webhook doctor -o json`, which scripts rely on:

    result  the worst of all: ok, warn or fail
    checks  check (its name), result, found, fix (null: none), examined (false: what it needs could not be read)
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core.reports import checkup
from webhook.core.reports.checkup import Check

WIDTH: Final = 110
_MARGIN: Final = "  "


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """Each check with its result, what was found, and the fix below it; at the end how many failed."""
    widths = max(len(check.name) for check in checks), max(len(result) for result in checkup.RANKS)
    for check in checks:
        head = f"{check.name.ljust(widths[0])}{_MARGIN}{check.result.ljust(widths[1])}{_MARGIN}"
        blank = " " * len(head)
        yield from _wrapped(check.found, head, blank)
        if check.fix:
            yield from _wrapped(check.fix, f"{blank}fix: ", f"{blank}     ")
    yield ""
    yield _summary(checks)


def _wrapped(text: str, first: str, rest: str) -> Iterator[str]:
    yield from textwrap.wrap(
        "".join(char if char.isprintable() else " " for char in text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(checks: Sequence[Check]) -> str:
    counts = {result: sum(check.result == result for check in checks) for result in checkup.RANKS}
    if not counts["fail"]:
        return f"{checkup.number(len(checks), 'check')}: none failed, {counts['warn']} to look at"
    failed = ", ".join(check.name for check in checks if check.result == "fail")
    return f"{checkup.number(len(checks), 'check')}: {counts['fail']} failed ({failed}), {counts['warn']} to look at"


def contract(checks: Sequence[Check]) -> Mapping[str, Any]:
    """The form of `-o json`."""
    return {
        "result": checkup.worst(checks),
        "checks": [
            {
                "check": check.name,
                "result": check.result,
                "found": check.found,
                "fix": check.fix or None,
                "examined": check.examined,
            }
            for check in checks
        ],
    }
