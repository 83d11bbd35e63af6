"""Times as Kubernetes writes them (RFC 3339), in seconds since 1970; and durations for people."""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from functools import lru_cache
from typing import Final

FORM: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]))"
)
_FORM = re.compile(FORM)
_EARLIEST: Final = 2000

HOUR: Final = 3_600
DAY: Final = 24 * HOUR


@lru_cache(64)
def seconds(text: str) -> float:
    """Read a time with its zone, from the year 2000 on; raises ValueError with a sentence."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no time; write day, time and zone, as 2027-01-31T00:00:00Z')
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    if year < _EARLIEST or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        raise ValueError(f'"{text}" is no day of a calendar, or one before {_EARLIEST}')
    whole = timegm((year, month, day, hour, minute, second))
    return whole + float(match[7] or 0) - _ahead(match[8], match[9], match[10])


def _ahead(sign: str | None, hours: str, minutes: str) -> int:
    """How many seconds a zone is ahead of UTC."""
    if sign is None:
        return 0
    return (1 if sign == "+" else -1) * (int(hours) * HOUR + int(minutes) * 60)


def duration(seconds: float) -> str:
    """A duration in one unit, rounded down: `3 days`, `1 hour`, `20 minutes`."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", 60)):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return "less than a minute"
