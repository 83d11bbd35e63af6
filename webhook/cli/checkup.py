"""One check of an installation, as `gpu-webhook doctor` makes it: what was found, and the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

# One check of an installation, as `gpu-webhook doctor` makes it: what was found, and the fix.

Result = Literal["ok", "warn", "fail"]

RANKS: Final[Sequence[Result]] = ("ok", "warn", "fail")

NAMED: Final = 3
"""How many of several are named."""


class Check(NamedTuple):
    """A check with its result; `fix` is empty if it is fine.

    `examined` is False if what it needs could not be read: nothing is known then.
    """

    name: str
    result: Result
    found: str
    fix: str = ""
    examined: bool = True


def unexamined(name: str, reason: str) -> Check:
    """A check that could not be made, and why."""
    fix = "run it with an account that may read that, where the API server can be reached"
    return Check(name, "fail", f"not examined: {reason}", fix, examined=False)


def worst(checks: Iterable[Check]) -> Result:
    """The result of all checks together."""
    return max((check.result for check in checks), key=RANKS.index, default="ok")


def several(names: Sequence[str], between: str = "; ") -> str:
    """The first of several, and how many more there are."""
    more = len(names) - NAMED
    return between.join([*names[:NAMED], *([f"and {more} more"] if more > 0 else [])])


def number(count: int, what: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


# The checks of an installation, as a table for a terminal and for scripts.

WIDTH: Final = 110
_MARGIN: Final = "  "


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """Each check with its result, what was found, and the fix below it; at the end how many failed."""
    widths = max(len(check.name) for check in checks), max(len(result) for result in RANKS)
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
    counts = {result: sum(check.result == result for check in checks) for result in RANKS}
    if not counts["fail"]:
        return f"{number(len(checks), 'check')}: none failed, {counts['warn']} to look at"
    failed = ", ".join(check.name for check in checks if check.result == "fail")
    return f"{number(len(checks), 'check')}: {counts['fail']} failed ({failed}), {counts['warn']} to look at"


def contract(checks: Sequence[Check]) -> Mapping[str, Any]:
    """The form of `-o json`."""
    return {
        "result": worst(checks),
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
