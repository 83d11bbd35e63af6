"""Times as Kubernetes writes them (RFC 3339), in seconds since 1970."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

FORM: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]))"
)
_FORM = re.compile(FORM)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EARLIEST: Final = 2000


@lru_cache(64)
def seconds(text: str) -> float:
    """Read a time with its zone, from the year 2000 on; raises ValueError, which says what is wrong."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no time; write day, time and zone, as 2027-01-31T00:00:00Z')
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    if year < _EARLIEST or not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        raise ValueError(f'"{text}" is no day of a calendar, or one before {_EARLIEST}')
    whole = _since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    return whole + float(match[7] or 0) - _ahead(match[8], match[9], match[10])


def _ahead(sign: str | None, hours: str, minutes: str) -> int:
    """How many seconds a zone is ahead of UTC."""
    if sign is None:
        return 0
    return (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)


def _days(year: int, month: int) -> int:
    return _DAYS[month - 1] + (month == 2 and _is_leap(year))


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _since_1970(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to that of the Gregorian calendar."""
    before = year - 1
    years = before * 365 + before // 4 - before // 100 + before // 400
    return years + sum(_days(year, earlier) for earlier in range(1, month)) + day - 719163
