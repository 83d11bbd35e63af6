"""A ledger as the status of the TenantUsage object that holds it in a cluster, and back.

The API server's work for a write grows with the number of values in the object, some 10 µs each [measured]. So a
reservation, of which there may be hundreds, is one line, `namespace/name uid devices=0.3 memory=8Gi`, and so is an
escrow, `token devices=8`. The UIDs of one author are a line, `author uid uid`, that a program of an older version may
leave out.

Anybody with the right to write the object may have edited it, so every value is read with bounds, and nothing raises.
What a settler knows better is noted in `Ledger.problems` if it cannot be read, and is written anew by the next count.
A line of `pending` or `advances` is known nowhere else. One that cannot be read is kept word for word in
`Ledger.unread`, until no pod of it can appear any more (settlement.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from webhook.core.kube.quantity import Fraction, shown
from webhook.core.quota import tally
from webhook.core.quota.ledger import UNKNOWN_VIEW, Ledger, Pending, is_namespace, is_uid, names_a_pod
from webhook.core.quota.tally import Tally

T = TypeVar("T")

KIND: Final = "TenantUsage"

MOST_COUNTS: Final = 1 << 53
"""Far from the largest integer of the API server: the next count has to fit, too."""

LONGEST: Final = 8192
"""Characters of a line; a longer one is not read."""

PROBLEMS: Final = 8
"""How many problems are told of one object."""

FIELDS: Final = frozenset(
    {"hard", "used", "percent", "held", "view", "pending", "authors", "suspects", "advances", "joining"}
    | {"recount", "recounted", "repaired"}
)

_VERSION: Final = re.compile(r"[0-9]{1,18}")


class _Status:
    """Reads the values of one status; `problems` are of those that cannot be read, `unread` are such lines."""

    def __init__(self, status: Any) -> None:
        self.problems: list[str] = []
        self.unread: list[str] = []
        self._fields: Mapping[str, Any] = self._attempt("status", _mapping, status, {})

    def value(self, key: str, reading: Callable[[Any], T], missing: T, bad: T) -> T:
        """One value; `missing` where there is none, `bad` where it cannot be read."""
        found = self._fields.get(key)
        return missing if found is None else self._attempt(key, reading, found, bad)

    def by_namespace(self, key: str, reading: Callable[[Any], T], bad: T) -> dict[str, T]:
        """The values of a map whose keys are namespaces."""
        none: Mapping[str, Any] = {}
        found = self.value(key, _mapping, none, none)
        for name in (name for name in found if not is_namespace(name)):
            self.problems.append(f"{key}: {shown(str(name))} is no namespace")
        legal = {name: value for name, value in found.items() if is_namespace(name)}
        return {name: self._attempt(f"{key}.{name}", reading, value, bad) for name, value in legal.items()}

    def lines(self, key: str, reading: Callable[[str], T]) -> Iterator[T]:
        """The lines of a list that can be read."""
        none: list[Any] = []
        for line in self.value(key, _list, none, none):
            try:
                yield reading(line)
            except ValueError:
                self.unread.append(str(line))

    def _attempt(self, where: str, reading: Callable[[Any], T], found: Any, bad: T) -> T:
        try:
            return reading(found)
        except ValueError as error:
            self.problems.append(f"{where}: {error}")
            return bad


def read(status: Any) -> Ledger:
    """The ledger in the status of a TenantUsage, and what is wrong with it; never raises."""
    found = _Status(status)
    return Ledger(
        hard=found.value("hard", _amounts, tally.NOTHING, tally.NOTHING),
        held=found.by_namespace("held", _held, tally.NOTHING),
        view=found.value("view", _version, 0, UNKNOWN_VIEW),
        pending=_by_name(found.lines("pending", _reservation)),
        authors=_authors(found.value("authors", _list, [], [])),
        suspects=found.value("suspects", _counts, {}, {}),
        advances=dict(found.lines("advances", _escrow)),
        joining=found.by_namespace("joining", _text, ""),
        recount=found.value("recount", _count, 0, 0),
        recounted=found.value("recounted", _count, 0, 0),
        repaired=found.value("repaired", _text, "", ""),
        unread=tuple(found.unread),
        problems=tuple(found.problems[:PROBLEMS]),
    )


def unknown(status: Any) -> list[str]:
    """The fields of a status that nothing here reads: the next write leaves them out."""
    return sorted(shown(str(key)) for key in status if key not in FIELDS) if isinstance(status, Mapping) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{shown(str(value))} is no map")  # noqa: TRY004 - the object is wrong, not a type of ours
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(str(value))} is no list")  # noqa: TRY004 - as above
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError(f"{shown(str(value))} is no text, or too long")
    return value


def _version(value: Any) -> int:
    if _VERSION.fullmatch(_text(value)) is None:
        raise ValueError(f"{shown(value)} is no version of the cluster")
    return int(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_COUNTS:
        raise ValueError(f"{shown(str(value))} is no number of counts")
    return value


def _counts(value: Any) -> dict[str, int]:
    return {str(key): _count(times) for key, times in _mapping(value).items()}


def _authors(lines: Iterable[Any]) -> dict[str, str]:
    """The author of each UID; a line that cannot be read says nothing."""
    words = [line.split(" ") for line in lines if isinstance(line, str)]
    return {uid: author for author, *uids in words for uid in uids}


def _amounts(value: Any) -> Tally:
    return tally.read(_mapping(value))


def _held(value: Any) -> Tally:
    """Amounts without those of zero, which are not written either; a limit of zero is one."""
    return {key: amount for key, amount in _amounts(value).items() if amount}


def _by_name(reservations: Iterable[tuple[str, str, Tally]]) -> Pending:
    found: dict[str, dict[str, Tally]] = {}
    for name, uid, amount in reservations:
        by_uid = found.setdefault(name, {})
        by_uid[uid] = tally.at_least(by_uid.get(uid, tally.NOTHING), amount)
    return found


def _reservation(line: Any) -> tuple[str, str, Tally]:
    name, uid, *amounts = _words(line)
    namespace, _, pod = name.partition("/")
    if not names_a_pod(namespace, pod) or not is_uid(uid):
        raise ValueError(f"{shown(line)} is not of a pod")
    return name, uid, _held(dict(map(_pair, amounts)))


def _escrow(line: Any) -> tuple[str, Tally]:
    token, *amounts = _words(line)
    return token, _held(dict(map(_pair, amounts)))


def _words(line: Any) -> list[str]:
    return _text(line).split(" ")


def _pair(text: str) -> tuple[str, str]:
    key, equals, amount = text.partition("=")
    if not equals:
        raise ValueError(f"{shown(text)} is no amount")
    return key, amount


def write(ledger: Ledger) -> dict[str, Any]:
    """The status of a TenantUsage. `used` and `percent` are for people; no program reads them."""
    used = ledger.used
    return {
        "hard": {key: tally.text_of(key, limit) for key, limit in sorted(ledger.hard.items())},
        "used": {key: tally.text_of(key, used.get(key, Fraction(0))) for key in sorted({*ledger.hard, *used})},
        "percent": tally.percent(used, ledger.hard),
        "held": {namespace: tally.write(amount) for namespace, amount in sorted(ledger.held.items())},
        "view": str(ledger.view),
        "pending": [
            _line(name, uid, amount=amount)
            for name, by_uid in ledger.pending.items()
            for uid, amount in by_uid.items()
        ]
        + list(ledger.unread),
        **_by_author(ledger.authors),
        **({"suspects": dict(ledger.suspects)} if ledger.suspects else {}),
        "advances": [_line(token, amount=amount) for token, amount in ledger.advances.items()],
        "joining": dict(ledger.joining),
        "recount": ledger.recount,
        "recounted": ledger.recounted,
        **({"repaired": ledger.repaired} if ledger.repaired else {}),
    }


def _by_author(authors: Mapping[str, str]) -> dict[str, list[str]]:
    uids: dict[str, list[str]] = {}
    for uid, author in authors.items():
        uids.setdefault(author, []).append(uid)
    return {"authors": [" ".join([author, *found]) for author, found in uids.items()]} if uids else {}


def _line(*words: str, amount: Tally) -> str:
    return " ".join([*words, *(f"{key}={text}" for key, text in tally.write(amount).items())])
