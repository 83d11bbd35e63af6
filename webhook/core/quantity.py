"""Amounts as people and Kubernetes write them, read exactly: shares as fractions, memory as bytes, never a float.

The grammar of Kubernetes quantities is `apimachinery/pkg/api/resource/quantity.go`; what the API server makes of
`0.5` (`500m`), `1000m` (`1`) and `1e0` (kept, and accepted) was measured on v1.36.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

INT64_MAX: Final = 2**63 - 1
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_PLAIN = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,18}))?([mun]?)")
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|[kMGT])")
_SIZE_UNITS: Final = {
    "Ki": 1 << 10, "Mi": MIB, "Gi": GIB, "Ti": 1 << 40,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
}  # fmt: skip
_SUBUNITS: Final = {"": 1, "m": 10**3, "u": 10**6, "n": 10**9}


class QuantityError(ValueError):
    """The text is not an amount of the kind asked for; the message says how to write one."""


def text_of(value: object) -> str:
    """A YAML or JSON scalar as the text its author wrote, as far as that can be known (`0.5`, not `5e-1`)."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)


def plain(text: str) -> Fraction:
    """A plain decimal, not negative: `2`, `0.3`, and `300m`, `333300u`, which the API server makes of fractions.

    Refuses signs, exponents, hexadecimal, NaN, size suffixes (`4k`, `8Gi`) and what does not fit 64 bits:
    a quantity of that form is legal in Kubernetes, and in a count of GPUs always a mistake.
    """
    match = _PLAIN.fullmatch(text)
    if match is None:
        raise QuantityError(f'"{_short(text)}" is not a plain number; write digits only, as 1 or 0.5')
    whole, decimals, subunit = match.groups()
    number = Fraction(int(whole + (decimals or "")), 10 ** len(decimals or "") * _SUBUNITS[subunit])
    if number > INT64_MAX:
        raise QuantityError(f'"{_short(text)}" does not fit into 64 bits')
    return number


def size(text: str) -> int:
    """A size in bytes, with its unit: `8Gi`, `8192Mi`, `1.5Gi`, `80G`. A bare number is refused, not guessed."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise QuantityError(_size_hint(text))
    exact = Fraction(match[1]) * _SIZE_UNITS[match[2]]
    if exact.denominator != 1 or exact > INT64_MAX:
        raise QuantityError(f'"{_short(text)}" is not a whole number of bytes within 64 bits')
    return exact.numerator


def _size_hint(text: str) -> str:
    guess = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(?:([KMGT])i?[Bb]|([kmgt])i?)?", text)
    if guess is None:
        return f'"{_short(text)}" is not a size; write 8Gi or 8192Mi'
    if unit := (guess[2] or guess[3]):
        return f'"{_short(text)}" is not a size in the form of Kubernetes; write {guess[1]}{unit.upper()}i'
    return f'"{_short(text)}" has no unit; write {guess[1]}Gi or {guess[1]}Mi'


def same(one: object, other: object) -> bool:
    """Whether two quantities are equal: `1`, `1000m` and `1.0` are."""
    if one == other:
        return True
    try:
        return plain(text_of(one)) == plain(text_of(other))
    except QuantityError:
        return False


def show(number: Fraction | int) -> str:
    """A number for people: `0.3`, `2`, `1/3`."""
    exact = Fraction(number)
    for digits in range(10):
        scaled = exact * 10**digits
        if scaled.denominator == 1:
            whole, rest = divmod(scaled.numerator, 10**digits)
            return f"{whole}.{rest:0{digits}d}" if digits else str(whole)
    return str(exact)


def show_size(size_in_bytes: int) -> str:
    """A size for people, exact: `8Gi`, `4608Mi`, or bytes."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size_in_bytes and size_in_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_in_bytes // _SIZE_UNITS[unit]}{unit}"
    return str(size_in_bytes)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
