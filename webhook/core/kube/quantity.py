"""Quantities and times as people and Kubernetes write them; quantities exactly, as fractions and bytes, never floats.

The grammar of Kubernetes quantities is `apimachinery/pkg/api/resource/quantity.go`; what the API server makes of
`0.5` (`500m`), `1000m` (`1`), `4000` (`4k`) and `1e0` (kept, and accepted) was measured on v1.36.
"""

import contextlib
import copyreg
import re
from calendar import monthrange, timegm
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from webhook.core.violations import either

if TYPE_CHECKING:  # quicktions publishes no types, and has the interface of the standard library
    from fractions import Fraction as Fraction  # noqa: PLC0414, TID251 - all of webhook takes it from here
else:
    from quicktions import Fraction

    # It pickles a fraction as text, and what reads a text of one character writes over CPython's only b"\0" (measured
    # with 1.19 to 1.24): no text is ever given to it. `exact` reads text.
    copyreg.pickle(Fraction, lambda number: (Fraction, (number.numerator, number.denominator)))

INT64_MAX: Final = 2**63 - 1
SHOWN: Final = 60
MIB: Final = 1 << 20
GIB: Final = 1 << 30
_SIZE_UNITS: Final = {
    "Ki": 1 << 10, "Mi": MIB, "Gi": GIB, "Ti": 1 << 40,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
}  # fmt: skip
_SUFFIXES: Final = {
    "": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip

_PLAIN = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?)()")
_SUFFIXED = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?)([munkMGTPE]?)")
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|[kMGT])")
_SHOWN_SIZE = re.compile(r"([0-9]{1,40}(?:\.[0-9]{1,3})?)(Ki|Mi|Gi|Ti|[kMGT])")
_NEARLY_A_SIZE = re.compile(r"([0-9]{1,19}(?:[.,][0-9]{1,9})?)(?:([kmgt])(?:i?[bo]?|[a-z]*(?:byte|octet|ig)s?))?")
_NEARLY_A_NUMBER = re.compile(r"([0-9]{0,9}(?:[.,][0-9]{1,9})?)(?:e(-?[0-9])|/([1-9][0-9]{0,8})|(m)|(%))?")
_SIGNS: Final = str.maketrans({"\u2044": "/", "\u00d7": "x", "*": "x"})
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2},[0-9]{3}")


class QuantityError(ValueError):
    """The text is not an amount of the kind asked for; `fix` says how to write one, `meant` are those to write."""

    def __init__(self, message: str, fix: str = "", meant: Sequence[str] = ()) -> None:
        fix = fix or f"write {either(meant)}"
        super().__init__(f"{message}; {fix}")
        self.message, self.fix, self.meant = message, fix, meant


# Reading. Whatever is no amount of the kind raises QuantityError, if nothing else is said.


def text_of(value: object) -> str:
    """A YAML or JSON scalar as text, as its author probably wrote it (`0.5`, not `5e-1`)."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def exact(text: str) -> Fraction:
    """The number that digits say, as `2`, `0.3` or `1/3`; raises ValueError for anything else."""
    number, _, below = text.partition("/")
    whole, _, decimals = number.partition(".")
    return Fraction(int(whole + decimals), 10 ** len(decimals) * int(below or 1))


def decimal(text: str, form: re.Pattern[str] = _PLAIN) -> Fraction:
    """A number as a person writes it: `2`, `0.3`. Refuses signs, exponents, hexadecimal digits, suffixes."""
    match = form.fullmatch(text)
    if match is None:
        raise QuantityError(f'"{shown(text)}" is not a plain number', "write a plain number, as 1 or 0.5")
    number = exact(match[1]) * _SUFFIXES[match[2]] if match[2] else exact(match[1])
    if number > INT64_MAX:
        raise QuantityError(f'"{shown(text)}" does not fit into 64 bits', "write a smaller number, as 1")
    return number


def with_suffix(text: str) -> Fraction:
    """A number in an annotation, of which Kubernetes keeps every decimal, perhaps with a decimal suffix: `4k`."""
    if len(text) < 19 and text.isdecimal() and text.isascii():  # so it fits into 64 bits
        return Fraction(int(text))
    return decimal(text, _SUFFIXED)


def served(text: str) -> Fraction:
    """A number in a container's resources, as the API server serves it: `0.3` as `300m`, and `4000` as `4k`.

    It keeps signs, exponents and binary suffixes as they were written; in a count of GPUs they are a mistake.
    """
    number = with_suffix(text)
    if 10**9 % number.denominator:
        raise QuantityError(f'"{shown(text)}" is finer than Kubernetes keeps', "write nine decimals at most, as 0.5")
    return number


def size(text: str) -> int:
    """A size in bytes, with its unit: `8Gi`, `8192Mi`, `1.5Gi`, `80G`. A number without a unit is refused."""
    match = _SIZE.fullmatch(text)
    number = exact(match[1]) * _SIZE_UNITS[match[2]] if match else Fraction(-1)
    if number.denominator == 1 and (number == 0 or MIB <= number <= INT64_MAX):
        return number.numerator
    quoted = f'"{shown(text)}"'
    if number.denominator != 1 or number > INT64_MAX:
        near = f"{-(-number // MIB)}Mi" if number <= INT64_MAX else "8192Mi"
        raise QuantityError(f"{quoted} is not a whole number of bytes", f"write it in Mi, as {near}")
    if number > 0:
        raise QuantityError(f"{quoted} is {number} bytes, less than any GPU shares", "write 8Gi or 8192Mi")
    meant = sizes_meant(text)
    message = f"{quoted} is not a size in the form of Kubernetes" if meant else f"{quoted} is not a size"
    if meant and not any(map(str.isalpha, text)):
        message = f"{quoted} has no unit"
    raise QuantityError(message, "" if meant else "write 8Gi or 8192Mi", meant)


def sizes_meant(text: str) -> list[str]:
    """The sizes that `8 GB`, `8,5gib`, `8192` or `8` are probably meant as; none for what is no size."""
    guess = _NEARLY_A_SIZE.fullmatch(tidied(text))
    if guess is None:
        return []
    written = guess[1].replace(",", "" if _THOUSANDS.fullmatch(guess[1]) else ".")
    number, unit = exact(written), guess[2]
    if unit or number < GIB:
        # No GPU has 1,024 GiB, so such a number was meant in MiB; a far larger one in bytes.
        units = [f"{unit.upper()}i"] if unit else ["Mi"] if number >= 1024 else ["Gi", "Mi"]
        sizes = {f"{written}{name}": number * _SIZE_UNITS[name] for name in units}
    else:
        sizes = {show_size(number.numerator): number}
    return [size for size, in_bytes in sizes.items() if in_bytes.denominator == 1 and MIB <= in_bytes <= INT64_MAX]


def tidied(text: str) -> str:
    """Text without blanks and capitals, and with the signs of ASCII: `2x0.5` for `2 \u00d7 0.5`."""
    cut = text[: 2 * SHOWN]
    one_by_one = all(char.isdecimal() or not char.isnumeric() for char in cut)  # NFKC makes 11/2 of one and a half
    plain = "".join((normalize("NFKC", cut) if one_by_one else cut).lower().split())
    return plain.translate(_SIGNS).replace("percent", "%").replace("pct", "%")


def nearly(text: str) -> Fraction | None:
    """The number that tidied text is meant as: `.3`, `0,3`, `1/3`, `3e-1`, `300m`, `30%`; None for no number."""
    match = _NEARLY_A_NUMBER.fullmatch(text)
    if match is None or not match[1] or _THOUSANDS.fullmatch(match[1]):
        return None
    number = exact(f"0{match[1].replace(',', '.')}") / int(match[3] or 1)
    number *= Fraction(10) ** int(match[2] or 0)
    return number / (1000 if match[4] else 100 if match[5] else 1)


def size_shown(text: str) -> Fraction | None:
    """A size as `show_size` writes it, up to 40 digits; None for anything else."""
    match = _SHOWN_SIZE.fullmatch(text)
    return exact(match[1]) * _SIZE_UNITS[match[2]] if match else None


def same(value: object, other: object) -> bool:
    """Whether two quantities are equal: `1`, `1000m` and `1.0` are, and `1Gi` and `1024Mi`."""

    def amount(text: str) -> Fraction | None:
        for read in (served, size):
            with contextlib.suppress(QuantityError):
                return Fraction(read(text))
        return None

    return value == other or ((first := amount(text_of(value))) is not None and first == amount(text_of(other)))


def is_whole(value: object) -> bool:
    """Whether a value is a whole number to Kubernetes: `2`, `8Gi` and `1k` are, `0.5` is not."""
    text = text_of(value)
    with contextlib.suppress(QuantityError):
        return served(text).denominator == 1
    match = _SIZE.fullmatch(text)
    return match is not None and (exact(match[1]) * _SIZE_UNITS[match[2]]).denominator == 1


# Writing, for people


def show(number: Fraction | int) -> str:
    """A number: `0.3`, `2`, `1/3`."""
    above, below = number.numerator, number.denominator
    for digits in range(10):
        if 10**digits % below == 0:
            whole, rest = divmod(above * 10**digits // below, 10**digits)
            return f"{whole}.{rest:0{digits}d}" if digits else str(whole)
    return str(number)


def show_size(size_in_bytes: int) -> str:
    """A size, exact, with the fewest digits that `size` reads: `8Gi`, `4608Mi`, `8G`, `1500000.001k`."""
    texts = [
        f"{size_in_bytes // _SIZE_UNITS[unit]}{unit}"
        for unit in ("Ti", "Gi", "Mi", "Ki", "T", "G", "M", "k")
        if size_in_bytes and size_in_bytes % _SIZE_UNITS[unit] == 0
    ]
    exact_in_thousands = f"{show(Fraction(size_in_bytes, 1000))}k"
    return min(texts, key=lambda text: len(text.rstrip("TGMKki").rstrip("0")), default=exact_in_thousands)


def shown(text: str) -> str:
    """Text from outside: at most 60 characters, unprintable ones escaped."""
    cut = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
    return cut if cut.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


def listed(names: Sequence[str], most: int = 12) -> str:
    """The first of some names for a message: `A, B, ...`."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


# Times as Kubernetes writes them (RFC 3339), in seconds since 1970; and durations for people.

TIME_FORM: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(\.[0-9]{1,9})?"
    r"(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]))"
)
_TIME = re.compile(TIME_FORM)
HOUR: Final = 3_600
DAY: Final = 24 * HOUR


@lru_cache(64)
def parse_time(text: str) -> float:
    """Read a time with its zone, from the year 2000 on; raises ValueError with a sentence."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no time; write day, time and zone, as 2027-01-31T00:00:00Z')
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    if year < 2000 or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        raise ValueError(f'"{text}" is no day of a calendar, or one before 2000')
    ahead = int(match[9]) * HOUR + int(match[10]) * 60 if match[8] else 0
    local = timegm((year, month, day, hour, minute, second)) + float(match[7] or 0)
    return local + ahead if match[8] == "-" else local - ahead


def duration(seconds: float) -> str:
    """A duration in one unit, rounded down: `3 days`, `1 hour`, `20 minutes`."""
    for unit, length in (("day", DAY), ("hour", HOUR), ("minute", 60)):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return "less than a minute"
