"""One check of an installation, as `gpu-webhook doctor` makes it: what was found, and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

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
