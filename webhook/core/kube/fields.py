"""Field paths: where a field is in a Kubernetes object, for people and for JSON Patch."""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

# Field paths: where a field is in a Kubernetes object, for people and for JSON Patch.

Path = tuple[str | int, ...]
"""Steps from the root of the object: `("spec", "containers", 0, "resources")`."""


def field_path(path: Path) -> str:
    """The path as Kubernetes prints it: `spec.containers[0].resources.limits["a.b/c"]`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f'["{step}"]' if "/" in step or "." in step else f".{step}"


def at(document: Any, *path: str | int) -> Any:
    """What stands in an object at the steps of a path; None where there is nothing."""
    for step in path:
        if isinstance(document, list) and isinstance(step, int):
            document = document[step] if step < len(document) else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def mapping(document: Any, *path: str | int) -> Mapping[str, Any]:
    """The mapping that stands in an object at the keys of a path; an empty one where there is none."""
    found = at(document, *path)
    return found if isinstance(found, dict) else {}


def objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """The objects of a list; none where there is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else ()


def controllers(document: Any) -> Iterator[Mapping[str, Any]]:
    """The owners that control an object, as a ReplicaSet does its pods. An API server lets it have one."""
    for owner in objects(at(document, "metadata", "ownerReferences")):
        if owner.get("controller") is True:
            yield owner


@lru_cache(maxsize=4096)
def pointer(path: Path) -> str:
    """The path as a JSON Pointer (RFC 6901): `/spec/containers/0/resources`."""
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])


# Times as Kubernetes writes them (RFC 3339), in seconds since 1970; and durations for people.

TIME_FORM: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]))"
)
_FORM = re.compile(TIME_FORM)
_EARLIEST: Final = 2000

HOUR: Final = 3_600
DAY: Final = 24 * HOUR


@lru_cache(64)
def parse_time(text: str) -> float:
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
