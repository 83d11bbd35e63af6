"""The verbs of a rule's values: from a request to the number that a back end takes, and from the number back.

Both directions are exact. A value is rounded only if the rule says `round: up` or lists values to `fit`, and only up,
so no container gets less than it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, NoReturn

from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction, show, show_size
from webhook.core.request import WHOLE, GpuRequest, ask_for, pasteable
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Output
from webhook.core.rules.verbs import PERCENT, QUANTITY, TFLOPS, Amount


class CannotExpressError(Exception):
    """A back end cannot express a request; `fix` says how to change the request.

    `key` is the key of the shorthand, or the resource, at fault; `near` are values of it that would work.
    """

    def __init__(self, code: str, message: str, fix: str, key: str = "", near: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.fix, self.key, self.near = code, message, fix, key, near


Ratio = tuple[int, int]
"""An exact amount as numerator and denominator; several times as fast as a Fraction."""


def express(amount: Amount, request: GpuRequest, card: Card | None) -> tuple[int | None, str | None]:
    """The whole number for a request, None if the key is to be left out; and a warning if it was rounded."""
    if amount.what == "share" and amount.unit == 100 and request.devices == "part":
        message = "it does not share devices here: one of its shares is a whole device"
        raise CannotExpressError("GPU301", message, ask_for(WHOLE, request))
    neutral = _neutral(amount, request, card)
    if neutral is None:
        if amount.absent is not None:
            return None, None
        key = f"gpu-{amount.what}" if amount.what in {"memory", "cores"} else "gpu"
        example = {"gpu-memory": "8Gi", "gpu-cores": "30"}.get(key, "0.5")
        raise CannotExpressError("GPU305", f"it needs to know {key} as well", f"add {pasteable(key, example)}")
    above, below = neutral[0] * amount.unit.denominator, neutral[1] * amount.unit.numerator
    number = _fitting(amount, above, below, request)
    warning = None
    if number * below != above:
        warning = f"{written(amount, Fraction(above, below))} becomes {written(amount, Fraction(number))}"
    return number * (request.count if amount.per_total else 1), warning


def _neutral(amount: Amount, request: GpuRequest, card: Card | None) -> Ratio | None:
    """The amount of a request in base units: devices, bytes (or percent) of memory, percent of compute."""
    if amount.what == "count":
        return request.count, 1
    if amount.what == "memory":
        return _memory(amount, request, card)
    if amount.unit_name == TFLOPS:
        return _tflops(request, card)
    if request.devices == "whole":
        return 100, 1
    if amount.what == "cores":
        return None if request.cores is None else request.cores.as_integer_ratio()
    return _share(request, card)


def _tflops(request: GpuRequest, card: Card | None) -> Ratio | None:
    percent = Fraction(100) if request.devices == "whole" else request.cores
    if percent is None:
        return None
    if card is None or card.tflops is None:
        message = f"how many TFLOPS {show(percent)}% of a card are depends on the card"
        message += ", and nothing says which card it is" if card is None else f"; there is no figure for {card.model}"
        raise CannotExpressError("GPU304", message, "add gpu-model", "gpu-cores")
    tflops = percent * card.tflops / 100
    return tflops.as_integer_ratio()


def _share(request: GpuRequest, card: Card | None) -> Ratio | None:
    """The part of a device, in percent, that has both the memory and the compute of a request."""
    memory_share = request.memory_share
    if request.memory is not None:
        memory_share = Fraction(request.memory, _known(card, request).memory)
    if memory_share is None and request.cores is None:
        return None
    return max(100 * (memory_share or Fraction(0)), request.cores or Fraction(0)).as_integer_ratio()


def _memory(amount: Amount, request: GpuRequest, card: Card | None) -> Ratio | None:
    whole = request.devices == "whole"
    if whole and amount.absent == "whole":
        return None
    if request.memory is not None:
        return _sized(amount, request, request.memory, card)
    if request.profile is not None:
        return _sized(amount, request, partition(request.profile, _known(card, request)).memory, card)
    if not whole and request.memory_share is None:
        return None
    above, below = (1, 1) if request.memory_share is None else request.memory_share.as_integer_ratio()
    return above * (100 if amount.unit_name == PERCENT else _known(card, request).memory), below


def partition(name: str, card: Card) -> Profile:
    """The card's partition of that name; raises CannotExpressError naming those it has."""
    if name not in card.profiles:
        has = ", ".join(card.profiles).replace("+", ".")
        fix = f"ask for one of: {has}" if has else "ask for another model: this one cannot be partitioned"
        raise CannotExpressError("GPU305", f"{card.model} has no partition {name}", fix, "gpu-profile")
    return card.profiles[name]


def _sized(amount: Amount, request: GpuRequest, memory: int, card: Card | None) -> Ratio:
    """Memory in bytes, or as percent of the card's."""
    return (100 * memory, _known(card, request).memory) if amount.unit_name == PERCENT else (memory, 1)


def in_bytes(request: GpuRequest, card: Card | None) -> Fraction | None:
    """The bytes asked of each device, None without an amount; raises CannotExpressError if the card must be known."""
    if request.memory is not None:
        return Fraction(request.memory)
    return None if request.memory_share is None else request.memory_share * _known(card, request).memory


def _known(card: Card | None, request: GpuRequest) -> Card:
    if card is not None:
        return card
    if request.memory is not None:
        what, other = f"which part of a card {show_size(request.memory)} is", ask_for({"gpu": "0.5"}, request)
    else:
        what, other = f"how much memory {show(request.memory_share or 1)} of a card is", "add gpu-memory: 8Gi"
    what = f"{what} depends on the card"
    if len(request.models) > 1:
        message = f"{what}, and {' and '.join(request.models)} have different memory"
        fix = f"ask for gpu-model: {', '.join(request.models)}, or {other}"
        raise CannotExpressError("GPU304", message, fix, "gpu-model")
    message = f"{what}, and nothing says which card it is"
    fix = f"add gpu-model, or {other}, or have the Cluster document name the card (device:)"
    raise CannotExpressError("GPU304", message, fix)


def _fitting(amount: Amount, above: int, below: int, request: GpuRequest) -> int:
    """The value to write: `above / below` itself, or the next larger one if the rule rounds or lists values."""
    if amount.fit:
        number = next((option for option in amount.fit if option * below >= above), -1)
    else:
        number = -(-above // (below * amount.step)) * amount.step
        if amount.round_up and amount.minimum is not None:
            number = max(number, amount.minimum)
    exact = number * below == above
    least = 1 if amount.minimum is None else amount.minimum
    too_much = amount.maximum is not None and number > amount.maximum
    if number < least or too_much or not (exact or amount.round_up or amount.fit):
        _out_of_range(amount, Fraction(above, below), request)
    return number


def _out_of_range(amount: Amount, exact: Fraction, request: GpuRequest) -> NoReturn:
    shown = str if amount.what == "count" else lambda value: written(amount, Fraction(value))
    key = {"memory": "gpu-memory", "cores": "gpu-cores"}.get(amount.what, "gpu")
    if amount.what == "share" or (request.devices == "whole" and amount.what == "cores"):
        key, shown = "gpu", lambda value: show(value * amount.unit / 100)
    options = " or ".join(map(shown, near(amount, exact)))
    reason = outside(amount, exact, lambda value: written(amount, Fraction(value)))
    fix = f"ask for {key}: {options}" if options else "ask for less"
    if options and key == "gpu" and request.stated and key not in request.stated:
        fix = ask_for({key: options.partition(" or ")[0]}, request)
    raise CannotExpressError("GPU305", f"{written(amount, exact)} {reason}", fix, key)


def admits(amount: Amount, value: Fraction) -> bool:
    """Whether a rule could have written this value."""
    if amount.lenient:
        value = Fraction(settled(amount, value))
    if amount.fit:
        return value in amount.fit
    low = value >= (1 if amount.minimum is None else amount.minimum)
    high = amount.maximum is None or value <= amount.maximum
    return low and high and value.denominator == 1 and value % amount.step == 0


def settled(amount: Amount, value: Fraction) -> int:
    """The value after the rounding of a back end that rounds up by itself; beyond its largest, the value itself."""
    if amount.fit:
        return next((option for option in amount.fit if option >= value), ceil(value))
    return ceil(value / amount.step) * amount.step


def outside(amount: Amount, value: Fraction, show_value: Callable[[int], str] = str) -> str:
    """Why a rule could not have written a value."""
    if amount.fit:
        return f"is not one of {', '.join(map(show_value, amount.fit))}"
    if amount.maximum is not None and value > amount.maximum:
        return f"is more than {show_value(amount.maximum)}, the most it can express"
    if amount.minimum is not None and value < amount.minimum:
        return f"is less than {show_value(amount.minimum)}, the least it can express"
    return f"is not a multiple of {show_value(amount.step)}" if amount.step > 1 else "is not a whole number"


def near(amount: Amount, value: Fraction) -> list[int]:
    """The possible values closest to an impossible one, below and above."""
    grid = _grid(amount, value)
    below = max((v for v in grid if v <= value), default=None)
    above = min((v for v in grid if v >= value), default=None)
    return list(dict.fromkeys(v for v in (below, above) if v is not None))


def _grid(amount: Amount, value: Fraction) -> list[int]:
    if amount.fit:
        return list(amount.fit)
    low = value // amount.step * amount.step
    ends = [amount.minimum or amount.step, *([] if amount.maximum is None else [amount.maximum])]
    return [v for v in (low, low + amount.step, *ends) if admits(amount, Fraction(v))]


def written(amount: Amount, value: Fraction) -> str:
    """A value in the rule's unit, for people: `33%`, `4608Mi`, `1 device`."""
    if amount.what == "count":
        return f"{show(value)} device{'' if value == 1 else 's'}"
    if amount.unit_name == PERCENT or amount.what != "memory":
        return f"{_short(value * amount.unit)}%"
    in_bytes = value * amount.unit
    return show_size(in_bytes.numerator) if in_bytes.denominator == 1 else f"{_short(in_bytes / quantity.MIB)}Mi"


def _short(value: Fraction) -> str:
    text = show(value)
    return f"{float(value):.2f}" if "/" in text else text


def as_text(output: Output, value: int) -> str:
    """A value as the container's resources have it: digits, or `8Gi` if the rule writes quantities."""
    if output.unit_name == QUANTITY:
        return show_size(value)
    return show(Fraction(value, 10**output.digits)) if output.digits else str(value)


def read_back(amount: Amount, value: int, count: int) -> dict[str, Any]:
    """The fields of a GpuRequest for a value on a container; the inverse of `express`."""
    each = Fraction(value, count if amount.per_total else 1)
    neutral = (settled(amount, each) if amount.lenient else each) * amount.unit
    if amount.what == "memory" and amount.unit_name == PERCENT:
        return {} if neutral == 100 else {"memory_share": neutral / 100}
    if amount.what == "memory":
        return {"memory": int(neutral)}
    if amount.unit_name == TFLOPS:
        return {"tflops": neutral}
    if amount.what == "cores":
        return {"cores": neutral}
    return {"memory_share": neutral / 100, "cores": neutral} if neutral < 100 else {}


def given(amount: Amount, value: int, count: int) -> dict[str, Any]:
    """The fields of a request after it was rounded to a value; those of all of a device are said, too."""
    part = {"memory_share": Fraction(1), **({"cores": Fraction(100)} if amount.what == "share" else {})}
    return read_back(amount, value, count) or part
