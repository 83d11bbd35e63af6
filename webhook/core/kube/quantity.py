"""Quantities as people and Kubernetes write them, read exactly: fractions and bytes, never floats.

The grammar of Kubernetes quantities is `apimachinery/pkg/api/resource/quantity.go`; what the API server makes of
`0.5` (`500m`), `1000m` (`1`), `4000` (`4k`) and `1e0` (kept, and accepted) was measured on v1.36.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # quicktions publishes no types, and has the interface of the standard library
    from fractions import Fraction as Fraction  # noqa: PLC0414, TID251 - all of webhook takes it from here
else:
    from quicktions import Fraction

INT64_MAX: Final = 2**63 - 1
FEW_DIGITS: Final = 19
"""Numbers with fewer digits fit into 64 bits."""
FINEST: Final = 10**9
"""The parts of one that Kubernetes counts."""

SHOWN: Final = 60
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_DECIMAL = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,18})?")
_SERVED = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?)([munkMGTPE]?)")
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|[kMGT])")
_SHOWN_SIZE = re.compile(r"([0-9]{1,40}(?:\.[0-9]{1,3})?)(Ki|Mi|Gi|Ti|[kMGT])")
_MANY: Final = 1024
"""More GiB than any GPU has, so a number without a unit was meant in MiB."""

_SIZE_UNITS: Final = {
    "Ki": 1 << 10, "Mi": MIB, "Gi": GIB, "Ti": 1 << 40,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
}  # fmt: skip
_SUFFIXES: Final = {
    "": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip


class QuantityError(ValueError):
    """The text is not an amount of the kind asked for; `fix` says how to write one."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}; {fix}")
        self.message, self.fix = message, fix


def text_of(value: object) -> str:
    """A YAML or JSON scalar as text, as its author probably wrote it (`0.5`, not `5e-1`)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def decimal(text: str) -> Fraction:
    """A number as a person writes it: `2`, `0.3`. Refuses signs, exponents, hexadecimal digits, suffixes."""
    if _DECIMAL.fullmatch(text) is None:
        raise QuantityError(f'"{shown(text)}" is not a plain number', "write a plain number, as 1 or 0.5")
    return _within_64_bits(text, Fraction(text))


def served(text: str) -> Fraction:
    """A number in a container's resources, as the API server serves it: `0.3` as `300m`, and `4000` as `4k`.

    The API server makes `4k` of `4000`, so decimal suffixes are read. It keeps signs, exponents and binary suffixes
    as they were written; in a count of GPUs they are a mistake, and refused.
    """
    number = with_suffix(text)
    if FINEST % number.denominator:
        raise QuantityError(f'"{shown(text)}" is finer than Kubernetes keeps', "write nine decimals at most, as 0.5")
    return number


def with_suffix(text: str) -> Fraction:
    """The same of an annotation, of which Kubernetes keeps every decimal."""
    if len(text) < FEW_DIGITS and text.isdecimal() and text.isascii():
        return Fraction(int(text))
    match = _SERVED.fullmatch(text)
    if match is None:
        raise QuantityError(f'"{shown(text)}" is not a plain number', "write a plain number, as 1 or 0.5")
    return _within_64_bits(text, Fraction(match[1]) * _SUFFIXES[match[2]])


def _within_64_bits(text: str, number: Fraction) -> Fraction:
    if number > INT64_MAX:
        raise QuantityError(f'"{shown(text)}" does not fit into 64 bits', "write a smaller number, as 1")
    return number


def size(text: str) -> int:
    """A size in bytes, with its unit: `8Gi`, `8192Mi`, `1.5Gi`, `80G`. A number without a unit is refused."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise QuantityError(*_size_hint(text))
    exact = Fraction(match[1]) * _SIZE_UNITS[match[2]]
    if exact.denominator != 1 or exact > INT64_MAX:
        nearest = f"{-(-exact // MIB)}Mi" if exact <= INT64_MAX else "8192Mi"
        raise QuantityError(f'"{shown(text)}" is not a whole number of bytes', f"write it in Mi, as {nearest}")
    if 0 < exact < MIB:
        raise QuantityError(f'"{shown(text)}" is {exact} bytes, less than any GPU shares', "write 8Gi or 8192Mi")
    return exact.numerator


def _size_hint(text: str) -> tuple[str, str]:
    guess = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(?:([KMGT])i?[Bb]|([kmgt])i?)?", text)
    if guess is None:
        return f'"{shown(text)}" is not a size', "write 8Gi or 8192Mi"
    if unit := (guess[2] or guess[3]):
        return f'"{shown(text)}" is not a size in the form of Kubernetes', f"write {guess[1]}{unit.upper()}i"
    fix = f"write {guess[1]}Mi" if Fraction(guess[1]) >= _MANY else f"write {guess[1]}Gi or {guess[1]}Mi"
    return f'"{shown(text)}" has no unit', fix


def same(one: object, other: object) -> bool:
    """Whether two quantities are equal: `1`, `1000m` and `1.0` are, and `1Gi` and `1024Mi`."""
    if one == other:
        return True
    amount = _amount(one)
    return amount is not None and amount == _amount(other)


def _amount(value: object) -> Fraction | None:
    text = text_of(value)
    for read in (served, size):
        with contextlib.suppress(QuantityError):
            return Fraction(read(text))
    return None


def is_whole(value: object) -> bool:
    """Whether a value is a whole number to Kubernetes: `2`, `8Gi` and `1k` are, `0.5` is not."""
    text = text_of(value)
    with contextlib.suppress(QuantityError):
        return served(text).denominator == 1
    match = _SIZE.fullmatch(text)
    return match is not None and (Fraction(match[1]) * _SIZE_UNITS[match[2]]).denominator == 1


def show(number: Fraction | int) -> str:
    """A number for people: `0.3`, `2`, `1/3`."""
    above, below = number.numerator, number.denominator
    for digits in range(10):
        if 10**digits % below == 0:
            whole, rest = divmod(above * 10**digits // below, 10**digits)
            return f"{whole}.{rest:0{digits}d}" if digits else str(whole)
    return str(number)


def show_size(size_in_bytes: int) -> str:
    """A size for people, exact, in a form that `size` reads: `8Gi`, `4608Mi`, `1500M`, `1500000.001k`."""
    for unit in ("Ti", "Gi", "Mi", "Ki", "T", "G", "M", "k"):
        if size_in_bytes and size_in_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_in_bytes // _SIZE_UNITS[unit]}{unit}"
    return f"{show(Fraction(size_in_bytes, 1000))}k"


def size_shown(text: str) -> Fraction | None:
    """A size as `show_size` writes it, up to 40 digits; None for anything else."""
    match = _SHOWN_SIZE.fullmatch(text)
    return Fraction(match[1]) * _SIZE_UNITS[match[2]] if match else None


def shown(text: str) -> str:
    """Text from outside, for a message: at most 60 characters, unprintable ones escaped."""
    cut = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
    return cut if cut.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)
