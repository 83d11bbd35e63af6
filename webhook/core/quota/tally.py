"""Tallies: what a quota counts, and its arithmetic; and the pod that asks for one.

A tally maps a key to an amount: `devices` (shares count as fractions), `memory` (bytes), and both once more for each
card model, as `devices/A100-80GB` and `memory/A100-80GB`. A key that is missing counts as zero.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import floor
from typing import Any, Final, NamedTuple

from webhook.core.kube.quantity import GIB, Fraction, exact, show, show_size, shown, size_shown

Tally = Mapping[str, Fraction]

DEVICES: Final = "devices"
MEMORY: Final = "memory"
NOTHING: Final[Tally] = {}

REMEMBERED: Final = 4096
"""Amounts whose text is cached: most pods of a tenant have one of a few amounts."""

LONG: Final = 6
"""Digits of an amount that people read exactly."""

DIGITS: Final = 1000
"""The longest number that is read. The denominator of a sum of shares is a common multiple of theirs: for the sizes
of all known cards, decimals, sevenths and eighths it has less than 500 digits. Python itself reads at most 4,300."""

_NUMBER: Final = re.compile(rf"[0-9]{{1,{DIGITS}}}(?:\.[0-9]{{1,18}}|/[1-9][0-9]{{0,{DIGITS - 1}}})?")


class Ask(NamedTuple):
    """A pod that is about to be created. Without a name and a UID it stands for any pod like it.

    `author`: who creates it, in one word. `enforced`: the pod is refused if it exceeds a limit. `created`: when the
    API server began to create it, by the API server's clock in seconds since 1970; 0 if unknown.
    `hard`: the limits in its policy, as the replica knows it. The ledger has a copy, which somebody may have edited.
    """

    namespace: str
    amount: Tally
    name: str = ""
    uid: str = ""
    author: str = ""
    enforced: bool = True
    created: float = 0.0
    hard: Tally = NOTHING

    @property
    def place(self) -> str:
        """The pod's `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def key(what: str, model: str) -> str:
    """The key of `devices` or `memory`, of one card model or, if that is empty, of all."""
    return f"{what}/{model}" if model else what


def parts(key: str) -> tuple[str, str]:
    """`devices` or `memory`, and the card model; empty if the key is that of all."""
    what, _, model = key.partition("/")
    return what, model


def models(keys: Iterable[str]) -> list[str]:
    """The card models that have a key of their own."""
    return sorted({parts(key)[1] for key in keys} - {""})


def plus(tally: Tally, other: Tally) -> Tally:
    """The sum of two tallies."""
    few, many = sorted((tally, other), key=len)
    return {**many, **{key: amount + many[key] if key in many else amount for key, amount in few.items()}}


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of many tallies. Numerators are added for each denominator apart: adding fractions is slow."""
    sums: dict[tuple[str, int], int] = {}
    for tally in tallies:
        for key, amount in tally.items():
            place = key, amount.denominator
            sums[place] = sums.get(place, 0) + amount.numerator
    amounts: dict[str, Fraction] = {}
    for (key, below), above in sums.items():
        amounts[key] = amounts.get(key, Fraction(0)) + Fraction(above, below)
    return amounts


def at_least(tally: Tally, other: Tally) -> Tally:
    """The larger amount of each key."""
    few, many = sorted((tally, other), key=len)
    return {**many, **{key: max(amount, many.get(key, amount)) for key, amount in few.items()}}


def over(used: Tally, hard: Tally) -> list[str]:
    """The keys whose amount is over the limit. A key without a limit is never over."""
    return [key for key, limit in sorted(hard.items()) if used.get(key, Fraction(0)) > limit]


def percent(used: Tally, hard: Tally) -> int:
    """The percentage used of the limit that is closest to full, rounded down. A limit of zero counts as full."""
    parts = (int(100 * used.get(key, Fraction(0)) / limit) if limit else 100 for key, limit in hard.items())
    return max(parts, default=0)


def write(tally: Tally) -> dict[str, str]:
    """The form in a TenantUsage, exact: `{devices: "0.3", memory: 8Gi}`. Amounts of zero are left out."""
    return {key: text_of(key, amount) for key, amount in sorted(tally.items()) if amount}


def text_of(key: str, amount: Fraction) -> str:
    """One amount for people and for `read`: `0.3`, `1/3`, `8Gi`."""
    return _text(parts(key)[0], amount.numerator, amount.denominator)


def rounded(key: str, amount: Fraction) -> str:
    """An amount, exact if that is short: `14`, `0.3`, `8Gi`, `about 0.33`, `about 12.4Gi`."""
    if parts(key)[0] != MEMORY:
        exact = show(amount)
        return exact if len(exact) <= LONG and "/" not in exact else f"about {float(amount):.2f}"
    size = show_size(floor(amount)) if amount else "0"
    return size if len(size) <= LONG + 2 else f"about {float(amount / GIB):.1f}Gi"


@lru_cache(REMEMBERED)
def _text(what: str, above: int, below: int) -> str:
    return show_size(above) if what == MEMORY and below == 1 and above else show(Fraction(above, below))


def plain(amount: Fraction) -> float:
    """A number for JSON: an integer if the amount is whole, else the nearest float."""
    return int(amount) if amount.denominator == 1 else float(amount)


def read(written: Mapping[Any, Any]) -> Tally:
    """Read what `write` wrote; raises ValueError for anything else, at no cost however large the number is."""
    for key, text in written.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(f'{shown(str(key))}: {shown(str(text))} is no amount in quotes, as "3", "0.5" or "8Gi"')  # noqa: TRY004 - the text in the object is wrong, not a type of ours
    return {key: _amount(key, text) for key, text in written.items()}


@lru_cache(REMEMBERED)
def _amount(key: str, text: str) -> Fraction:
    if parts(key)[0] not in (DEVICES, MEMORY):
        raise ValueError(f"{shown(key)} is neither devices nor memory, of all cards or of one, as devices/A100-80GB")
    if (size := size_shown(text)) is not None:
        return size
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f'{shown(key)}: "{shown(text)}" is no amount, as "3", "0.5" or "8Gi"')
    return exact(text)
