"""Translation: one request in the resources of one back end, and the numbers that its rule computes for them.

Both directions are exact. A value is rounded only if the rule says `round: up` or lists values to `fit`, and only up,
so no container gets less than it asks for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards
from webhook.core.kube.quantity import MIB, Fraction, listed, show, show_size
from webhook.core.request import WHOLE, GpuRequest, ask_for, key_of, nothing_of, pasteable
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Constant, Mode, Output, When
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import PERCENT, QUANTITY, TFLOPS, Amount
from webhook.core.violations import joined


class Way(NamedTuple):
    """One way to change a request, in words, and the keys of the shorthand with what stands there then.

    An empty text leaves a key out, and ANY_MODEL stands for the models that a back end serves it with; a trial names
    them. No key at all is changed by what somebody else has to do.
    """

    text: str
    words: Mapping[str, str]


ANY_MODEL: Final = "*"
TRIED: Final = 12
"""With how many models or partitions a fix is tried."""

ANOTHER: Final = (Way("ask for another model", {"gpu-model": ANY_MODEL}),)


class CannotExpressError(Exception):
    """A back end cannot express a request; `fix` says how to change it: a text, or ways of which not all may help.

    `key` is the key of the shorthand, or the resource, at fault; `near` are values of it that would work.
    """

    def __init__(
        self, code: str, message: str, fix: str | Sequence[Way], key: str = "", near: Sequence[int] = ()
    ) -> None:
        super().__init__(message)
        self.ways: Sequence[Way] = () if isinstance(fix, str) else fix
        self.fix = fix if isinstance(fix, str) else joined(way.text for way in fix)
        self.code, self.message, self.key, self.near = code, message, key, near


def asking(words: Mapping[str, str], request: GpuRequest) -> Way:
    """To ask so instead of as now."""
    return Way(ask_for(words, request), {**nothing_of(request), **words})


def saying(key: str, text: str, request: GpuRequest, more: str = "") -> Way:
    """To ask for this by one key, in the place of what stands for it; the others stay."""
    written, there = key_of(key, request), request.stated[key].key if key in request.stated else ""
    instead = f" instead of {there}" if there not in {"", written} else ""
    return Way(f"ask for {pasteable(written, text)}{more}{instead}", {key: text})


def naming_a_model(request: GpuRequest) -> Way:
    """To say which card it is."""
    verb = "ask for one" if request.models else "add"
    return Way(f"{verb} {key_of('gpu-model', request)}", {"gpu-model": ANY_MODEL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A request as one back end gives it: the mode, and its `amounts`, in bytes if the rule writes quantities.

    Amounts are by the names of resources, and by the slots of numbers in annotations and labels. `card` is the one
    whose size counts, None if it is unknown. `request` is what is given, after rounding, with compute in percent.
    """

    request: GpuRequest
    mode: Mode
    card: Card | None
    amounts: Mapping[str, int]
    warnings: Sequence[str] = ()


def translate(request: GpuRequest, backend: Backend, rulebook: Rulebook) -> Translation:
    """Translate a request for a back end; raises CannotExpressError with a fix."""
    if request.models:
        check_cards(request, backend, rulebook)
    card = find_card(request.models, rulebook, backend)
    warnings: list[str] = []
    if request.tflops is not None:
        if card is None and backend.partitions is not None:
            _partitioned(request, card, backend, warnings)  # which says that it has to know the card
        request = with_cores(request, card)
    if backend.partitions is not None:
        request = _partitioned(request, card, backend, warnings)
    mode = _mode_for(request, backend, card)
    check_mode(request, mode, card, backend, rulebook)

    if request.devices == "part":
        if backend.unenforced:
            counted = " and ".join(backend.unenforced)
            warnings.append(
                f"{backend.name} only counts {counted}: nothing stops a container that takes more than it asked for"
            )
        verbs = mode.verbs
        sized = request.memory is not None or request.memory_share not in {None, 1}
        if sized and mode.size is None and verbs.isdisjoint({"share", "memory"}):
            message = "it has no way to give a part of a device's memory"
            raise CannotExpressError("GPU301", message, [asking(WHOLE, request)])
        if request.cores is not None and verbs.isdisjoint({"share", "cores"}):
            warnings.append(f"{backend.name} shares memory only: it does not limit compute to {show(request.cores)}%")
        if request.cores is None and mode.all_cores:
            text = "gives all of a device's compute where none is asked; add gpu-cores to share it"
            warnings.append(f"{backend.name} {text}")
            request = replace(request, cores=Fraction(100))

    size = card.memory if card is not None and request.models and mode.node_numbers else mode.size
    if size is not None:  # that of its resource's name, or of every node with the card
        # The request with the size that all devices have which it may get.
        bytes_asked = in_bytes(request, card)
        if bytes_asked is not None and bytes_asked != size:
            warnings.append(f"{show_size(ceil(bytes_asked))} becomes {show_size(size)}, rounded up by {backend.name}")
        request = replace(request, memory=size, memory_share=None)
    amounts: dict[str, int] = {}
    given: dict[str, Any] = {}
    for name, output in chain(mode.amounts.items(), mode.node_numbers.items()):
        if isinstance(output, Constant):
            amounts[name] = output.number
            continue
        value, warning = express(output, request, card)
        if value is None:
            continue
        if name in mode.amounts:
            amounts[name] = value
        if warning:
            warnings.append(f"{name}: {warning}, rounded up by {backend.name}")
            # Rounded up to all of a device, it is given in so many words.
            whole = {"memory_share": Fraction(1), **({"cores": Fraction(100)} if output.what == "share" else {})}
            given |= {"count": value} if output.what == "count" else as_fields(output, value, request.count) or whole
    request = replace(request, **given) if given else request
    return Translation(request=request, mode=mode, card=card, amounts=amounts, warnings=warnings)


def find_card(models: Sequence[str], rulebook: Rulebook, backend: Backend) -> Card | None:
    """The card whose size counts; None if it is unknown, or several sizes are possible."""
    possible = possible_cards(models, rulebook, backend)
    if not possible or (len(possible) > 1 and not models):
        return None
    first, *others = possible
    alike = (first.memory, first.tflops, first.profiles)
    return first if all((card.memory, card.tflops, card.profiles) == alike for card in others) else None


def possible_cards(models: Sequence[str], rulebook: Rulebook, backend: Backend) -> Sequence[Card]:
    """The cards of which a request gets one; empty if it may be any.

    They are those of the requested models, else the cluster's, if the back end serves cards of its vendor, else those
    that its nodes have, else those that its rule names.
    """
    if models:
        return [rulebook.devices[model.lower()] for model in models]
    if backend.card is not None:
        return [backend.card]
    device = rulebook.cluster.device
    card = None if device is None else rulebook.devices[device.lower()]
    # A vGPU of the cluster's card is a model of its own, so only the vendor has to be the same.
    if card is not None and (not backend.vendors or card.vendor in backend.vendors):
        return [card]
    there = rulebook.surroundings.cards.get(backend.name, ())
    return there or (cards.card_served(backend, rulebook) if backend.models else ())


def with_cores(request: GpuRequest, card: Card | None) -> GpuRequest:
    """The request with its TFLOPS as percent of the card's compute."""
    if request.tflops is None:
        return request
    tflops = show(request.tflops)
    if card is None or card.tflops is None:
        unknown = f"the catalogue has no figure for {card.model}" if card else "nothing says which card it is"
        message = f"how much of a card {tflops} TFLOPS are depends on the card, and {unknown}"
        cores = f"ask for {pasteable(key_of('gpu-cores', request), '30')} instead of {key_of('gpu-tflops', request)}"
        ways = [naming_a_model(request), Way(cores, {"gpu-tflops": "", "gpu-cores": "30"})]
        raise CannotExpressError("GPU304", message, ways, "gpu-tflops")
    if request.tflops > card.tflops:
        message = f"{card.model} has {show(card.tflops)} TFLOPS, and gpu-tflops asks for {tflops}"
        raise CannotExpressError(
            "GPU305", message, [saying("gpu-tflops", show(card.tflops), request, " or less")], "gpu-tflops"
        )
    return replace(request, cores=100 * request.tflops / card.tflops, tflops=None)


def check_cards(request: GpuRequest, backend: Backend, rulebook: Rulebook) -> None:
    """Raise CannotExpressError if the back end does not serve a requested model."""
    for card in (rulebook.devices[model.lower()] for model in request.models):
        if backend.vendors and card.vendor not in backend.vendors:
            message = f"{card.model} is made by {card.vendor}; it serves {', '.join(sorted(backend.vendors))}"
        elif backend.models and card.model.lower() not in backend.models:
            served = sorted(rulebook.devices[model].model for model in backend.models)
            served = sorted(served, key=lambda model: card.model.lower() not in model.lower())
            message = f"{card.model} is not one of its cards; it serves {listed(served)}"
        else:
            continue
        raise CannotExpressError("GPU303", message, ANOTHER, "gpu-model")


def check_mode(request: GpuRequest, mode: Mode, card: Card | None, backend: Backend, rulebook: Rulebook) -> None:
    """Raise CannotExpressError if the models are too small, or if the mode cannot select nodes by them.

    Without models the card that `find_card` finds has to be large enough, or else any that the back end serves.
    """
    models = [rulebook.devices[model.lower()] for model in request.models] if request.models else []
    able = models or ([card] if card else cards.card_served(backend, rulebook))
    largest = max(able, key=lambda able: able.memory, default=None)
    if largest and (request.memory or 0) > largest.memory:
        size = show_size(largest.memory)
        whose = largest.model if models or card else f"{largest.model}, the largest of its cards in the catalogue,"
        message = f"{whose} has {size} of usable memory, less than {show_size(request.memory or 0)}"
        raise CannotExpressError("GPU305", message, [saying("gpu-memory", size, request, " or less")], "gpu-memory")
    if not models:
        return
    if mode.selects is None:
        if backend.models and backend.models.issubset(map(str.lower, request.models)):
            return
        fix = "leave gpu-model out; where the size of the card counts, the Cluster document can name it (device:)"
        raise CannotExpressError(
            "GPU303", "it has no way to select a model", [Way(fix, {"gpu-model": ""})], "gpu-model"
        )
    if mode.claims and len(models) > 1:
        raise CannotExpressError("GPU303", "a template is for one model", [naming_a_model(request)], "gpu-model")
    for name, model in zip(request.models, models, strict=True):
        if mode.selects == "product" and not model.names:
            message = f"the catalogue has no product name for {name}, by which it selects cards"
            raise CannotExpressError("GPU303", message, "add names: to the catalogue", "gpu-model")


# Modes: the first whose condition matches serves the request.


def matches(when: When, request: GpuRequest, devices: str = "") -> bool:
    """Whether a mode's condition matches a request; `devices` are those of the request, if they are known already."""
    low, high = when.count
    if request.count < low or (high is not None and request.count > high):
        return False
    if when.devices is not None and when.devices != (devices or request.devices):
        return False
    if when.has or when.lacks:
        has = request.has()
        if not when.has <= has or not when.lacks.isdisjoint(has):
            return False
    if not when.annotated <= request.annotations or not when.unannotated.isdisjoint(request.annotations):
        return False
    if when.sharing is not None and when.sharing != request.sharing:
        return False
    return not when.models or (bool(request.models) and when.models.issuperset(map(str.lower, request.models)))


def excluded(mode: Mode, request: GpuRequest) -> tuple[str, str] | None:
    """Why an annotation of the pod keeps the mode from it, and the fix; None if none does."""
    unwanted = sorted(mode.when.unannotated & request.annotations)
    if not unwanted:
        return None
    key, _, value = unwanted[0].partition("=")
    text = pasteable(key, value) if value else key
    return f"the annotation {text} excludes {mode.name}", f"remove the annotation {key}"


def _mode_for(request: GpuRequest, backend: Backend, card: Card | None) -> Mode:
    """The first mode for the request. A known card counts as a requested model."""
    with_card = request if request.models or card is None else replace(request, models=(card.model,))
    devices = request.devices
    # A mode may be of one partition only, and has to have a model to write if it writes one.
    suited = [
        mode
        for mode in backend.modes
        if mode.profile in {None, request.profile} and ("model" not in mode.when.has or request.models)
    ]
    for mode in suited:
        if matches(mode.when, with_card, devices):
            size = None if mode.size is None else in_bytes(request, card)
            if mode.size is None or (size is not None and size <= mode.size):
                return mode
    for mode in suited:
        bare = replace(mode.when, unannotated=frozenset())
        if (reason := excluded(mode, request)) and matches(bare, with_card, devices):
            raise CannotExpressError("GPU301", *reason)
    message = f"it serves only: {'; '.join(dict.fromkeys(mode.name for mode in backend.modes))}"
    raise CannotExpressError("GPU301", message, [Way("ask for what it serves", {})])


# Hardware partitions (MIG slices, vNPU templates): the smallest one that has what a request asks for.


def profile_of(name: str, card: Card, request: GpuRequest) -> Profile:
    """The card's partition of that name; raises CannotExpressError naming those it has."""
    if name not in card.profiles:
        ways = [partition(other, request) for other in card.profiles] or ANOTHER
        raise CannotExpressError("GPU305", f"{card.model} has no partition {name}", ways, "gpu-profile")
    return card.profiles[name]


def partition(name: str, request: GpuRequest) -> Way:
    """To ask for another partition, by its name in a label."""
    return saying("gpu-profile", name.replace("+", "."), request)


def has_partition(profile: Profile, request: GpuRequest, card: Card) -> bool:
    """Whether a partition of the card has the memory and the compute of a request."""
    return (
        profile.memory_slices >= ceil((request.memory_share or Fraction(0)) * card.memory_slices)
        and profile.compute_slices >= ceil((request.cores or Fraction(0)) / 100 * card.compute_slices)
        and profile.memory >= (request.memory or 0)
    )


def smallest_partition(request: GpuRequest, card: Card | None, backend: Backend) -> GpuRequest:
    """The request for the smallest partition of the card that has the memory and the compute asked for."""
    if card is None:
        message = f"which partition has {request} depends on the card, and nothing says which card it is"
        example = {"gpu-profile": min(backend.profiles, default="NAME").replace("+", ".")}
        raise CannotExpressError("GPU304", message, [naming_a_model(request), asking(example, request)], "gpu-model")
    profiles = [profile for name, profile in card.profiles.items() if name in backend.profiles]
    if not profiles:
        message = f"{card.model} cannot be partitioned"
        raise CannotExpressError("GPU305", message, ANOTHER, "gpu-model")
    enough = [profile for profile in profiles if has_partition(profile, request, card)]
    if enough:
        best = min(enough, key=lambda profile: (profile.memory_slices, profile.compute_slices, "+" in profile.name))
        return replace(request, profile=best.name, share=None, memory=None, memory_share=None, cores=None)
    message = f"no partition of {card.model} has {request}"
    most = max(profile.memory for profile in profiles)
    if request.memory is not None and request.memory > most:
        message = f"{message}: the largest has {show_size(most)}, less than {show_size(request.memory)}"
        raise CannotExpressError(
            "GPU305", message, [saying("gpu-memory", show_size(most), request, " or less")], "gpu-memory"
        )
    ways = [asking(partition(profiles[-1].name, request).words, request), asking(WHOLE, request)]
    raise CannotExpressError("GPU305", message, ways)


def _partitioned(request: GpuRequest, card: Card | None, backend: Backend, warnings: list[str]) -> GpuRequest:
    """A share as the partition that has it, unless a mode serves it as a share."""
    name = request.profile
    if name is not None and name not in backend.profiles:
        there = sorted(backend.profiles if card is None else backend.profiles & card.profiles.keys())
        ways = [partition(other, request) for other in there[:TRIED]] or ANOTHER
        raise CannotExpressError("GPU305", f"none of its cards has a partition {name}", ways, "gpu-profile")
    if name is not None and card is not None:
        profile_of(name, card, request)
    served = any(mode.when.devices != "profile" and matches(mode.when, request) for mode in backend.modes)
    if request.devices != "part" or served:
        return request
    cut = smallest_partition(request, card, backend)
    if card is not None:
        profile = card.profiles[cut.profile or ""]
        memory = Fraction(profile.memory_slices, card.memory_slices)
        compute = Fraction(100 * profile.compute_slices, card.compute_slices)
        if request.memory_share != memory or request.cores != compute:
            gives = f"{show_size(profile.memory)}, {profile.memory_slices}/{card.memory_slices} of the memory"
            gives += f", {profile.compute_slices}/{card.compute_slices} of the compute of {card.model}"
            warnings.append(f"{request} becomes {profile.name}: {gives}")
    return cut


# The verbs of a rule's values: from a request to the number that a back end takes, and from the number back.


def express(amount: Amount, request: GpuRequest, card: Card | None) -> tuple[int | None, str | None]:
    """The whole number for a request, None if the key is to be left out; and a warning if it was rounded."""
    if amount.what == "share" and amount.unit == 100 and request.devices == "part":
        message = "it does not share devices here: one of its shares is a whole device"
        raise CannotExpressError("GPU301", message, [asking(WHOLE, request)])
    neutral = _neutral(amount, request, card)
    if neutral is None:
        if amount.absent is not None:
            return None, None
        key = f"gpu-{amount.what}" if amount.what in {"memory", "cores"} else "gpu"
        example = {"gpu-memory": "8Gi", "gpu-cores": "30"}.get(key, "0.5")
        way = Way(f"add {pasteable(key_of(key, request), example)}", {key: example})
        raise CannotExpressError("GPU305", f"it needs to know {key} as well", [way])
    above, below = neutral[0] * amount.unit.denominator, neutral[1] * amount.unit.numerator
    if amount.fit:
        number = next((option for option in amount.fit if option * below >= above), -1)
    else:
        number = -(-above // (below * amount.step)) * amount.step
        if amount.round_up and amount.minimum is not None:
            number = max(number, amount.minimum)
    exact = number * below == above
    low = number < (1 if amount.minimum is None else amount.minimum)
    high = amount.maximum is not None and number > amount.maximum
    if low or high or not (exact or amount.round_up or amount.fit):
        raise _out_of_range(amount, Fraction(above, below), request)
    warning = None
    if not exact:
        warning = f"{_written(amount, Fraction(above, below))} becomes {_written(amount, Fraction(number))}"
    return number * (request.count if amount.per_total else 1), warning


def _neutral(amount: Amount, request: GpuRequest, card: Card | None) -> tuple[int, int] | None:
    """The amount in base units: devices, bytes (or percent) of memory, percent of compute; None if none is asked.

    It is exact, as numerator and denominator: several times as fast as a Fraction.
    """
    if amount.what == "count":
        return request.count, 1
    if amount.what == "memory":
        size = request.memory
        if size is None and request.profile is not None:
            size = profile_of(request.profile, _required_card(card, request), request).memory
        if size is not None:
            return (100 * size, _required_card(card, request).memory) if amount.unit_name == PERCENT else (size, 1)
        above, below = 1, 1
        if request.memory_share is not None:
            above, below = request.memory_share.as_integer_ratio()
        elif request.devices != "whole" or amount.absent == "whole":
            return None
        return above * (100 if amount.unit_name == PERCENT else _required_card(card, request).memory), below
    if amount.unit_name == TFLOPS:
        percent = Fraction(100) if request.devices == "whole" else request.cores
        if percent is None:
            return None
        if card is None or card.tflops is None:
            unknown = f"; there is no figure for {card.model}" if card else ", and nothing says which card it is"
            message = f"how many TFLOPS {show(percent)}% of a card are depends on the card{unknown}"
            raise CannotExpressError("GPU304", message, [naming_a_model(request)], "gpu-cores")
        return (percent * card.tflops / 100).as_integer_ratio()
    if request.devices == "whole":
        return 100, 1
    if amount.what == "cores":
        return None if request.cores is None else request.cores.as_integer_ratio()
    # The part of a device, in percent, that has both the memory and the compute of a request.
    memory_share = request.memory_share
    if request.memory is not None:
        memory_share = Fraction(request.memory, _required_card(card, request).memory)
    if memory_share is None and request.cores is None:
        return None
    return max(100 * (memory_share or Fraction(0)), request.cores or Fraction(0)).as_integer_ratio()


def _required_card(card: Card | None, request: GpuRequest) -> Card:
    if card is not None:
        return card
    if request.memory is not None:
        what, other = f"which part of a card {show_size(request.memory)} is", asking({"gpu": "0.5"}, request)
    else:
        what, key = f"how much memory {show(request.memory_share or 1)} of a card is", key_of("gpu-memory", request)
        other = Way(f"add {key}: 8Gi", {"gpu-memory": "8Gi"})
    what = f"{what} depends on the card"
    if len(request.models) > 1:
        message = f"{what}, and {' and '.join(request.models)} have different memory"
        raise CannotExpressError("GPU304", message, [naming_a_model(request), other], "gpu-model")
    message = f"{what}, and nothing says which card it is"
    operator = Way("have the Cluster document name the card (device:)", {})
    raise CannotExpressError("GPU304", message, [naming_a_model(request), other, operator])


def _out_of_range(amount: Amount, exact: Fraction, request: GpuRequest) -> CannotExpressError:
    shown = str if amount.what == "count" else lambda value: _written(amount, Fraction(value)).removesuffix("%")
    key = {"memory": "gpu-memory", "cores": "gpu-cores"}.get(amount.what, "gpu")
    if amount.what == "share" or (request.devices == "whole" and amount.what == "cores"):
        key, shown = "gpu", lambda value: show(value * amount.unit / 100)
    options = [*map(shown, near(amount, exact))]
    reason = why_not_admitted(amount, exact, lambda value: _written(amount, Fraction(value)))
    ways = [saying(key, option, request) for option in options]
    if key == "gpu" and nothing_of(request).keys() != {key}:
        ways = [asking({key: option}, request) for option in options[:1]]
    less = Way("ask for less", {})
    return CannotExpressError("GPU305", f"{_written(amount, exact)} {reason}", ways or [less], key)


def _written(amount: Amount, value: Fraction) -> str:
    """A value in the rule's unit, for people: `33%`, `4608Mi`, `1 device`."""
    if amount.what == "count":
        return f"{show(value)} device{'' if value == 1 else 's'}"
    number, unit = value * amount.unit, "%"
    if amount.what == "memory" and amount.unit_name != PERCENT:
        if number.denominator == 1:
            return show_size(number.numerator)
        number, unit = number / MIB, "Mi"
    text = show(number)
    return f"{float(number):.2f}{unit}" if "/" in text else f"{text}{unit}"


def in_bytes(request: GpuRequest, card: Card | None) -> Fraction | None:
    """The bytes asked of each device, None without an amount; raises CannotExpressError if the card must be known."""
    if request.memory is not None:
        return Fraction(request.memory)
    return None if request.memory_share is None else request.memory_share * _required_card(card, request).memory


def admits(amount: Amount, value: Fraction) -> bool:
    """Whether a rule could have written this value."""
    if amount.lenient:
        value = Fraction(_settled(amount, value))
    if amount.fit:
        return value in amount.fit
    low = value >= (1 if amount.minimum is None else amount.minimum)
    high = amount.maximum is None or value <= amount.maximum
    return low and high and value.denominator == 1 and value % amount.step == 0


def _settled(amount: Amount, value: Fraction) -> int:
    """The value after the rounding of a back end that rounds up by itself; beyond its largest, the value itself."""
    if amount.fit:
        return next((option for option in amount.fit if option >= value), ceil(value))
    return ceil(value / amount.step) * amount.step


def why_not_admitted(amount: Amount, value: Fraction, show_value: Callable[[int], str]) -> str:
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
    options: Sequence[int] = amount.fit
    if not options:
        low = value // amount.step * amount.step
        ends = [low, low + amount.step, amount.minimum or amount.step]
        ends += [] if amount.maximum is None else [amount.maximum]
        options = [option for option in ends if admits(amount, Fraction(option))]
    below = max((option for option in options if option <= value), default=None)
    above = min((option for option in options if option >= value), default=None)
    return list(dict.fromkeys(option for option in (below, above) if option is not None))


def as_text(output: Output, value: int) -> str:
    """A value as the container's resources have it: digits, or `8Gi` if the rule writes quantities."""
    if output.unit_name == QUANTITY:
        return show_size(value)
    if not output.digits:
        return str(value)
    number = show(Fraction(value, 10**output.digits))
    whole, _, rest = number.partition(".")
    return f"{whole}.{rest:0<{output.digits}}" if output.fixed else number


def as_fields(amount: Amount, value: int, count: int) -> dict[str, Any]:
    """The fields of a GpuRequest for a value on a container, none for all of a device; the inverse of `express`."""
    per_device = Fraction(value, count if amount.per_total else 1)
    neutral = (_settled(amount, per_device) if amount.lenient else per_device) * amount.unit
    if amount.what == "memory":
        if amount.unit_name != PERCENT:
            return {"memory": int(neutral)}
        return {} if neutral == 100 else {"memory_share": neutral / 100}
    if amount.what == "cores":
        return {"tflops" if amount.unit_name == TFLOPS else "cores": neutral}
    return {"memory_share": neutral / 100, "cores": neutral} if neutral < 100 else {}
