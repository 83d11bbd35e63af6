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

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from webhook.core.forms import labels
from webhook.core.kube.quantity import Fraction, shown
from webhook.core.quota import tally
from webhook.core.quota.ledger import UNKNOWN_VIEW, Ledger, Pending, is_uid, names_a_pod
from webhook.core.quota.tally import NOTHING, Tally

T = TypeVar("T")

KIND: Final = "TenantUsage"
MOST_COUNTS: Final = 1 << 53
"""Far from the largest integer of the API server: the next count has to fit, too."""
LONGEST: Final = 8192
"""Characters of a line; a longer one is not read."""
PROBLEMS: Final = 8
"""How many problems are told of one object."""
FIELDS: Final = {*Ledger.__slots__, "used", "percent"} - {"unread", "problems"}
"""What a status has: `unread` stands among `pending`, and problems are not written."""

_VERSION: Final = re.compile(r"[0-9]{1,18}")


class _Status:
    """Reads the values of one status; `problems` are of those that cannot be read, `unread` are such lines."""

    def __init__(self, status: Any) -> None:
        self.problems: list[str] = []
        self.unread: list[str] = []
        self._fields: Mapping[str, Any] = self._attempt("status", _mapping, status, {})

    def value(self, key: str, reading: Callable[[Any], T], missing: T, bad: T) -> T:
        """One value; `missing` where there is none, `bad` where it cannot be read."""
        value = self._fields.get(key)
        return missing if value is None else self._attempt(key, reading, value, bad)

    def by_namespace(self, key: str, reading: Callable[[Any], T], bad: T) -> dict[str, T]:
        """The values of a map whose keys are namespaces."""
        by_name = self.value(key, _mapping, NOTHING, NOTHING)
        legal = {name: value for name, value in by_name.items() if labels.is_dns_label(name)}
        self.problems += [f"{key}: {shown(str(name))} is no namespace" for name in by_name if name not in legal]
        return {name: self._attempt(f"{key}.{name}", reading, value, bad) for name, value in legal.items()}

    def elements(self, key: str) -> list[Any]:
        """The elements of a list."""
        return self.value(key, _list, list[Any](), list[Any]())

    def lines(self, key: str, reading: Callable[[Any], T]) -> Iterator[T]:
        """The lines of a list that can be read."""
        for line in self.elements(key):
            try:
                yield reading(line)
            except ValueError:
                self.unread.append(str(line))

    def _attempt(self, where: str, reading: Callable[[Any], T], raw: Any, bad: T) -> T:
        try:
            return reading(raw)
        except ValueError as error:
            self.problems.append(f"{where}: {error}")
            return bad


def read(status: Any) -> Ledger:
    """The ledger in the status of a TenantUsage, and what is wrong with it; never raises."""
    reading = _Status(status)
    return Ledger(
        hard=reading.value("hard", lambda value: tally.read(_mapping(value)), NOTHING, NOTHING),
        held=reading.by_namespace("held", _held, NOTHING),
        view=reading.value("view", _version, 0, UNKNOWN_VIEW),
        pending=_pending(reading.lines("pending", _reservation)),
        authors={
            uid: author
            for line in reading.elements("authors")
            if isinstance(line, str)
            for author, *uids in [line.split(" ")]
            for uid in uids
        },
        suspects=reading.value(
            "suspects", lambda value: {str(key): _count(times) for key, times in _mapping(value).items()}, {}, {}
        ),
        advances=dict(reading.lines("advances", _escrow)),
        joining=reading.by_namespace("joining", _text, ""),
        recount=reading.value("recount", _count, 0, 0),
        recounted=reading.value("recounted", _count, 0, 0),
        repaired=reading.value("repaired", _text, "", ""),
        unread=tuple(reading.unread),
        problems=tuple(reading.problems[:PROBLEMS]),
    )


def unknown(status: Any) -> list[str]:
    """The fields of a status that nothing here reads: the next write leaves them out."""
    return sorted(shown(str(key)) for key in status if key not in FIELDS) if isinstance(status, Mapping) else []


def _mapping(value: Any) -> Mapping[Any, Any]:
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


def _held(value: Any) -> Tally:
    """Amounts without those of zero, which are not written either; a limit of zero is one."""
    return {key: amount for key, amount in tally.read(_mapping(value)).items() if amount}


def _reservation(line: Any) -> tuple[str, str, Tally]:
    name, uid, *amounts = _text(line).split(" ")
    namespace, _, pod = name.partition("/")
    if not names_a_pod(namespace, pod) or not is_uid(uid):
        raise ValueError(f"{shown(line)} is not of a pod")
    return name, uid, _held(dict(text.partition("=")[::2] for text in amounts))


def _escrow(line: Any) -> tuple[str, Tally]:
    token, *amounts = _text(line).split(" ")
    return token, _held(dict(text.partition("=")[::2] for text in amounts))


def _pending(reservations: Iterable[tuple[str, str, Tally]]) -> Pending:
    """By name and UID; of two reservations of one pod the larger counts."""
    by_name: dict[str, dict[str, Tally]] = {}
    for name, uid, amount in reservations:
        by_uid = by_name.setdefault(name, {})
        by_uid[uid] = tally.at_least(by_uid.get(uid, NOTHING), amount)
    return by_name


def write(ledger: Ledger) -> dict[str, Any]:
    """The status of a TenantUsage. `used` and `percent` are for people; no program reads them."""
    used = ledger.used
    pending = [
        _line(name, uid, amount=amount) for name, by_uid in ledger.pending.items() for uid, amount in by_uid.items()
    ]
    uids: dict[str, list[str]] = {}
    for uid, author in ledger.authors.items():
        uids.setdefault(author, [author]).append(uid)
    return {
        "hard": {key: tally.text_of(key, limit) for key, limit in sorted(ledger.hard.items())},
        "used": {key: tally.text_of(key, used.get(key, Fraction(0))) for key in sorted({*ledger.hard, *used})},
        "percent": tally.percent(used, ledger.hard),
        "held": {namespace: tally.write(amount) for namespace, amount in sorted(ledger.held.items())},
        "view": str(ledger.view),
        "pending": [*pending, *ledger.unread],
        **({"authors": [" ".join(words) for words in uids.values()]} if uids else {}),
        **({"suspects": dict(ledger.suspects)} if ledger.suspects else {}),
        "advances": [_line(token, amount=amount) for token, amount in ledger.advances.items()],
        "joining": dict(ledger.joining),
        "recount": ledger.recount,
        "recounted": ledger.recounted,
        **({"repaired": ledger.repaired} if ledger.repaired else {}),
    }


def _line(*words: str, amount: Tally) -> str:
    return " ".join([*words, *(f"{key}={text}" for key, text in tally.write(amount).items())])
