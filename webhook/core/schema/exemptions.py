"""The form of an `Exemption`: who is spared which rules of policies, until when, and who answers for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from webhook.core.document import Node, Problem, Section
from webhook.core.schema.tenantpolicies import globs, rule
from webhook.core.tenancy.policy import RULES, Exemption

TIME: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]))"
)
_TIME = re.compile(TIME)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EARLIEST: Final = 2000


def exemption(name: str, spec: Node, problems: list[Problem]) -> Exemption:
    """Read the spec of an exemption."""
    spec = Node(spec.value, spec.at, "spec", spec.keys)
    section = Section(spec, problems)
    read = Exemption(
        name=name,
        rule=rule(name, spec),
        namespaces=section.need("namespaces", lambda node: globs(node, problems), ()),
        users=section.take("users", lambda node: _several(node, Node.filled), ()),
        lifts=frozenset(section.need("lifts", lambda node: _several(node, lambda each: each.word(RULES)), ())),
        owner=section.need("owner", Node.filled, ""),
        reason=section.need("reason", Node.filled, ""),
        expires=section.need("expires", time, 0.0),
    )
    section.done()
    return read


def _several(node: Node, read: Callable[[Node], str]) -> tuple[str, ...]:
    if not node.elements():
        raise node.problem("has to name something")
    return tuple(map(read, node.elements()))


def time(node: Node) -> float:
    """Seconds since 1970 of a time with its zone (RFC 3339), from the year 2000 on; raises DocumentError."""
    match = _TIME.fullmatch(node.text())
    if match is None:
        raise node.problem(f'"{node.text()}" is no time; write day, time and zone, as 2027-01-31T00:00:00Z')
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    if year < _EARLIEST or not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
        raise node.problem(f'"{node.text()}" is no day of a calendar, or one before {_EARLIEST}')
    seconds = _since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    return seconds + float(match[7] or 0) - _ahead(match[8], match[9], match[10])


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
