"""The neutral form of a request: what one container asks for, whatever back end serves it."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.core.forms import labels
from webhook.core.forms.document import closest, did_you_mean
from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction, QuantityError, decimal, exact, show, show_size, shown, size

PREFIX: Final = "gpu-webhook.io/"
"""The one prefix of every label, annotation and resource that belongs to this webhook."""

DEVICES: Final = ("whole", "part", "profile", "claim")
"""The ways to ask for devices. A rule's modes are for one of them each (`when: devices`)."""

ASKING: Final = ("gpu", "gpu-memory", "gpu-cores", "gpu-tflops", "gpu-profile", "gpu-claim")
"""The keys that ask for a GPU by themselves; the others only qualify a request."""


class FieldValue(NamedTuple):
    """A value, the field path where it was written, and its text there."""

    value: Any
    path: str
    text: str

    def __str__(self) -> str:
        return f'{self.path} says "{self.text}"'

    @property
    def key(self) -> str:
        """The key as it is written there: that of a container, or the name of a resource, may be another."""
        quoted = self.path.endswith('"]')
        return self.path.removesuffix('"]').rpartition('["' if quoted else ".")[2]


@dataclass(frozen=True, slots=True)
class Devices:
    """The meaning of `gpu`: a count of devices, whole or with a share (0 < share < 1) of each."""

    count: int
    share: Fraction | None = None

    def __str__(self) -> str:
        if self.share is None:
            return str(self.count)
        return show(self.share) if self.count == 1 else f"{self.count}x{show(self.share)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What one container asks for.

    count       devices, at least 1
    share       the part of each device (0 < share < 1); None for whole devices and for sizes
    memory      bytes per device; overrides the share's memory
    memory_share     memory as a part of one device, if it is not given in bytes
    cores       compute percent per device (0 < cores <= 100); None: not limited
    tflops      compute in TFLOPS per device; becomes cores when the card is known
    profile     a hardware partition by name
    models      catalogue names, of which any will do
    claim       a template of resource claims by name
    annotations those of the pod that a rule depends on, as `key` and as `key=value`
    stated      where each part was written, by the short name of its key (`gpu`, `gpu-memory`, ...)
    """

    count: int = 1
    share: Fraction | None = None
    memory: int | None = None
    memory_share: Fraction | None = None
    cores: Fraction | None = None
    tflops: Fraction | None = None
    profile: str | None = None
    claim: str | None = None
    models: tuple[str, ...] = ()
    sharing: str | None = None
    placement: str | None = None
    annotations: frozenset[str] = frozenset()
    stated: Mapping[str, FieldValue] = field(default_factory=dict, compare=False)

    @property
    def devices(self) -> str:
        """Which of DEVICES the request is: `whole`, `part`, `profile` or `claim`."""
        if self.profile is not None:
            return "profile"
        if self.claim is not None:
            return "claim"
        sized = self.memory is not None or self.memory_share is not None or self.tflops is not None
        return "part" if sized or self.cores is not None else "whole"

    def has(self) -> set[str]:
        """The dimensions that the request has, in the words of a rule's `has:`."""
        given = {name for name in ("share", "memory", "cores", "profile") if getattr(self, name) is not None}
        if self.memory_share is not None and self.memory_share < 1:
            given.add("share")
        return given | {"model"} if self.models else given

    def path(self) -> str:
        """The field path that a message about the whole request points at."""
        return next((self.stated[key].path for key in ASKING if key in self.stated), "spec.containers")

    def __str__(self) -> str:
        """The request in shorthand: `gpu=2x0.5 gpu-memory=8Gi`."""
        share = self.share or self.memory_share
        counted = share is not None or self.count != 1 or self.devices == "whole"
        cores = self.cores if share is None or "gpu-cores" in self.stated else None
        texts = {
            "gpu": Devices(self.count, share) if counted else None,
            "gpu-memory": None if self.memory is None else show_size(self.memory),
            "gpu-cores": None if cores is None else show(cores),
            "gpu-tflops": None if self.tflops is None else show(self.tflops),
            "gpu-profile": self.profile,
            "gpu-claim": self.claim,
            "gpu-model": ",".join(self.models) or None,
            "gpu-sharing": self.sharing,
        }
        return " ".join([f"{key}={text}" for key, text in texts.items() if text is not None])


def build(stated: Mapping[str, FieldValue], annotations: frozenset[str] = frozenset()) -> GpuRequest | None:
    """The request of the given keys together; None if they ask for no GPU.

    `stated` is by short key, with values already parsed (`KEYS`). A share is that part of the memory *and*
    of the compute; an explicit size replaces one of them. `annotations` are those that some rule depends on.
    """
    values = {key: entry.value for key, entry in stated.items()}
    if values.keys().isdisjoint(ASKING) or ("gpu" in values and values["gpu"] is None):
        return None
    devices: Devices = values.get("gpu") or Devices(1)
    memory, tflops = values.get("gpu-memory"), values.get("gpu-tflops")
    by_share = 100 * devices.share if devices.share is not None and tflops is None else None
    return GpuRequest(
        count=devices.count,
        share=devices.share,
        memory=memory,
        memory_share=devices.share if memory is None else None,
        cores=values.get("gpu-cores") or by_share,
        tflops=tflops,
        profile=values.get("gpu-profile"),
        claim=values.get("gpu-claim"),
        models=values.get("gpu-model") or (),
        sharing=values.get("gpu-sharing"),
        placement=values.get("gpu-placement"),
        annotations=annotations,
        stated=stated,
    )


# The keys of the shorthand, each with the parser of its value.

MAX_DEVICES: Final = 1024
"""No node has more devices, time-slicing replicas included; a larger number is a typing error."""

SHARINGS: Final = ("exclusive", "fractional", "partitioned", "time-sliced", "mps")
PLACEMENTS: Final = ("binpack", "spread", "topology")

AMOUNTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("half", "a-half"), "0.5"),
    **dict.fromkeys(("quarter", "a-quarter"), "0.25"),
    **dict.fromkeys(("one", "single", "full", "whole", "any", "entire"), "1"),
    "two": "2",
    "three": "3",
    "four": "4",
    "six": "6",
    "eight": "8",
    **dict.fromkeys(("all", "max", "auto"), "1, or another number of GPUs"),
    "": "1, or none for no GPU",
}
"""Words that can only be meant as a number of GPUs, each with what to write instead."""

MAX_MODELS: Final = 32
MAX_MEMORY: Final = 4 << 40
"""Bytes. No node's GPUs have more together, so a larger amount is a mistake, perhaps in the unit."""

_DEVICES = re.compile(r"(?:([0-9]{1,9})x)?([0-9]{1,9}(?:\.[0-9]{1,9})?|[0-9]{1,3}%)")
_PERCENT_SIGN = re.compile("(?<=[0-9])%$")
_PARTITION = re.compile(r"[0-9]+[gc]\.|vir[0-9]")
_ATTRIBUTE = re.compile(r"(.+?)\.(me|gfx|me\.all)")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+ -]{0,126}[A-Za-z0-9])?")


class OtherKeyError(QuantityError):
    """The text is a value of another key: a size or a partition for a number of devices, or a share for a size."""

    def __init__(self, message: str, key: str, text: str) -> None:
        super().__init__(message, f"remove it, and write {pasteable(key, text)}", (text,))
        self.key, self.text = key, text


def devices(text: str) -> Devices | None:
    """`2`, `0.3`, `30%`, `2x0.5`; `0` and `none` are no request, None."""
    if text.lower() == "none":
        return None
    match = _DEVICES.fullmatch(text)
    if match is None:
        raise not_devices(text, f'"{shown(text)}" is not a number of GPUs')
    fraction = exact(match[2].removesuffix("%"))
    if match[2].endswith("%"):
        if fraction > 100:
            raise QuantityError(f"{fraction}% is more than one GPU", "write a number of GPUs, as 2, or 2x50%")
        fraction /= 100
    return devices_from(int(match[1] or 1), fraction, explicit=match[1] is not None)


def not_devices(text: str, message: str) -> QuantityError:
    """The error for what is no number of GPUs, with what to write instead, as far as it tells what is meant."""
    meant = () if text.endswith("M") else devices_meant(text)  # 500M is a size, and 500m a half
    for written in (text, *quantity.sizes_meant(text)) if not meant and any(map(str.isalpha, text)) else ():
        with suppress(QuantityError):
            memory(written)
            return OtherKeyError(message, "gpu-memory", written)
    if _PARTITION.match(text) and _NAME.fullmatch(text.strip()):
        return OtherKeyError(message, "gpu-profile", text.strip())
    return QuantityError(message, "" if meant else "write 1, 2, 0.5, 2x0.5 or none", meant)


def devices_meant(text: str) -> Sequence[str]:
    """The numbers of GPUs that `30 %`, `500m`, `0,3`, `1/3`, `0.5 * 2` or `half` may mean; none for no number."""
    plain = quantity.tidied(text)
    if plain in AMOUNTS:
        return (AMOUNTS[plain],)
    numbers = [
        quantity.nearly(part) or Fraction(0)
        for part in plain.removesuffix("s").removesuffix("gpu").strip("x").split("x")
    ]
    times, part = (1, numbers[0]) if len(numbers) == 1 else (max(numbers), min(numbers))
    if len(numbers) > 2 or not all(numbers) or times.denominator != 1:
        return ()
    try:
        return (str(devices_from(times.numerator, round(part, 6), explicit=True)),)
    except QuantityError as error:
        return error.meant


def devices_from(times: int, fraction: Fraction, *, explicit: bool = False) -> Devices | None:
    """`times` x `fraction` devices: whole ones, or a share of each; refuses 1.5, which no back end can serve."""
    above, below = fraction.numerator, fraction.denominator
    if above == 0 and not explicit:
        return None
    if not 0 < times <= MAX_DEVICES or times * above > MAX_DEVICES * below:
        message, mebibytes = f"no pod gets {show(times * fraction)} GPUs", f"{above}Mi"
        if below == 1 and above << 20 <= MAX_MEMORY and not explicit:
            raise OtherKeyError(message, "gpu-memory", mebibytes)
        raise QuantityError(message, f"write 1 to {MAX_DEVICES}")
    if above == 0:
        raise QuantityError("a share of 0 is nothing", "write none for no GPU")
    if above < below:
        return Devices(times, fraction)
    if below == 1:
        return Devices(times * above)
    low, cards = above // below, -(-above // below)
    meant = (str(low), str(cards), f"{cards}x{show(Fraction(ceil(1000 * fraction / cards), 1000))}")
    raise QuantityError(f"{show(fraction)} is neither a share of one GPU nor a whole number", meant=meant)


def memory(text: str) -> int:
    """`8Gi` or `8192Mi`, per device."""
    try:
        amount = size(text) if text.strip("0.") else 0
    except QuantityError as error:
        share = "".join(devices_meant(text)[:1])
        if share.startswith("0.") and not quantity.sizes_meant(text):
            raise OtherKeyError(error.message, "gpu", share) from None
        raise
    if amount == 0:
        raise QuantityError("0 is no memory", "write a size, as 8Gi")
    if amount > MAX_MEMORY:
        raise QuantityError(f"no GPU has {shown(text)} of memory", "write a smaller size, as 8Gi")
    return amount


def cores(text: str, read: Callable[[str], Fraction] = decimal) -> Fraction:
    """Compute percent per device, from 1 to 100: `30` or `30%`."""
    try:
        percent = read(_PERCENT_SIGN.sub("", text) if read is decimal else text)
        if 1 <= percent <= 100:
            return percent
        message = f"{show(percent)} is not a percentage of one GPU"
    except QuantityError as error:
        message = error.message
    plain = quantity.tidied(text)
    percent = quantity.nearly(AMOUNTS.get(plain, plain)) or Fraction(0)
    percent = 100 * percent if percent < 1 or "%" in plain or plain in AMOUNTS else percent
    meant = [show(round(percent, 3))] if 1 <= percent <= 100 else []
    raise QuantityError(message, "" if meant else "write 1 to 100", meant)


def tflops(text: str) -> Fraction:
    """Dense FP16 TFLOPS per device, `20`."""
    try:
        amount = decimal(text)
    except QuantityError as error:
        number = round(
            quantity.nearly(quantity.tidied(text).removesuffix("flops").removesuffix("t")) or Fraction(0), 3
        )
        raise QuantityError(error.message, "" if number else error.fix, [show(number)] if number else []) from None
    if amount == 0:
        raise QuantityError("0 is no compute", "write a number, as 20")
    return amount


def names(text: str) -> tuple[str, ...]:
    """One name or a comma-separated list: `A100-80GB` or `A100-40GB, A100-80GB`."""
    if text.count(",") >= MAX_MODELS:
        raise QuantityError(f"a list of more than {MAX_MODELS} models", "name fewer, or leave it out for any")
    try:
        return tuple(dict.fromkeys(name(part.strip()) for part in text.split(",")))
    except QuantityError as error:
        plain = [part.strip("* ").rstrip("-") for part in re.split("[,;|/]", text)]
        if plain == [text] or not all(map(_NAME.fullmatch, plain)):
            raise
        raise QuantityError(error.message, meant=[",".join(plain)]) from None


def name(text: str) -> str:
    """A name of a model, a back end or an object."""
    if not _NAME.fullmatch(text):
        meant = [text.strip()] if _NAME.fullmatch(text.strip()) else []
        fix = "" if meant else "write a name of letters and digits, as A10"
        raise QuantityError(f'"{shown(text)}" is not a name', fix, meant)
    return text


def claim(text: str, example: str = "my-claim") -> str:
    """The name of a claim, a claim template or a container: a DNS subdomain."""
    if not labels.is_subdomain(text):
        several = [part.strip() for part in text.split(",")]
        if len(several) > 1 and all(map(labels.is_subdomain, several)):
            raise QuantityError(f'"{shown(text)}" is more than one name', meant=several)
        raise QuantityError(f'"{shown(text)}" is not a name', f"write a name of a-z, 0-9, - and dots, as {example}")
    return text


def profile(text: str) -> str:
    """A partition: `1g.10gb`, `vir02`, `1g.10gb+me` (in a label, which cannot hold `+`, `1g.10gb.me`)."""
    match = _ATTRIBUTE.fullmatch(name(text))
    return f"{match[1]}+{match[2]}" if match else text


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that accepts one of these words, in any capitals, with or without dashes."""
    spelled = {word.lower().replace("-", ""): word for word in words}

    def parse(text: str) -> str:
        word = spelled.get(text.lower().replace("-", "").replace("_", "").replace(" ", ""))
        if word is None:
            near = closest(text, words)
            first, *others = sorted(words, key=lambda word: word != near)
            meant = [first, *others]
            raise QuantityError(f'"{shown(text)}" is not one of its values{did_you_mean(near)}', meant=meant)
        return word

    return parse


_KEYS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "gpu": (devices, 'gpu: "1"'),
    "gpu-memory": (memory, "gpu-memory: 8Gi"),
    "gpu-cores": (cores, 'gpu-cores: "30"'),
    "gpu-model": (names, "gpu-model: NAME"),
    "gpu-profile": (profile, "gpu-profile: NAME"),
    "gpu-sharing": (one_of(*SHARINGS), f"gpu-sharing: {SHARINGS[0]} (or {', '.join(SHARINGS[1:])})"),
    "gpu-backend": (name, "gpu-backend: NAME"),
    "gpu-claim": (claim, "gpu-claim: NAME"),
    "gpu-container": (partial(claim, example="main"), "gpu-container: NAME"),
    "gpu-tflops": (tflops, 'gpu-tflops: "20"'),
    "gpu-placement": (one_of(*PLACEMENTS), f"gpu-placement: {PLACEMENTS[0]} (or {', '.join(PLACEMENTS[1:])})"),
}
KEYS: Final[Mapping[str, Callable[[str], Any]]] = {key: parse for key, (parse, _) in _KEYS.items()}
"""Every key in its short form, with the parser of its value."""

EXAMPLES: Final[Mapping[str, str]] = {key: example for key, (_, example) in _KEYS.items()}
"""An example of every key, for messages about a value that means nothing."""

CHOICES: Final = frozenset({"gpu-sharing", "gpu-placement"})
"""Keys whose value is one of a few words."""

LIKE_A_KEY: Final = "^gpu$|^gpu-|" + PREFIX.replace(".", r"\.")
"""A regular expression for labels and annotations that are keys of the shorthand, or may become some."""

QUALIFIERS: Final = frozenset({"gpu-model", "gpu-sharing", "gpu-backend", "gpu-placement"})
"""Keys that qualify a request without an amount. Written for the whole pod they hold for all its containers."""

_STRING = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*|[0-9]+(?:\.[0-9]+)?(?:[KMGT]i?|k)|[0-9]+[a-z]\.[0-9]+gb(?:[.+a-z]*)")
_KEYWORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def pasteable(key: str, text: str) -> str:
    """`gpu: "1"`, `gpu-memory: 8Gi`: a line of YAML whose value is a string, as labels and annotations need it."""
    return f"{key}: {as_string(text)}"


def as_string(text: str) -> str:
    """`"1"`, `8Gi`: a value of YAML that is a string."""
    if _STRING.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def is_plain_key(kind: str, key: str) -> bool:
    """Whether a `label` or `annotation` is a key without our prefix; other plain annotations belong to back ends."""
    return key in KEYS if kind == "label" else key == "gpu"


def is_key(kind: str, key: str) -> bool:
    """Whether a `label` or `annotation` is of the shorthand; known keys or not, and of one container or the pod."""
    return is_plain_key(kind, key) or (key.startswith(PREFIX) if kind == "label" else PREFIX in key)


# What to write instead of a request that cannot be served, as a fix says it: to be pasted, and complete.

WHOLE: Final = {"gpu": "1"}


def key_of(key: str, request: GpuRequest) -> str:
    """A key as the author of a request writes it: as it stands, and with the others for one container."""
    if key in request.stated:
        own, stem = request.stated[key].key, key.removeprefix("gpu-")
        if own in {key, PREFIX + stem} or own.startswith(f"{stem}.{PREFIX}"):
            return own
    others = [request.stated[other].key.partition(f".{PREFIX}") for other in ASKING if other in request.stated]
    of_container = next((f"{dot}{container}" for _, dot, container in others if dot), "")
    return f"{key.removeprefix('gpu-')}{of_container}" if of_container else key


def nothing_of(request: GpuRequest) -> Mapping[str, str]:
    """The keys by which a request asks for a GPU, each without a text, as one that is left out."""
    return {key: "" for key in ASKING if key in request.stated}


def ask_for(words: Mapping[str, str], request: GpuRequest) -> str:
    """`ask for gpu: "1" instead of gpu-profile`: the keys to write, and those of the request that have to go."""
    written = {key_of(key, request): text for key, text in words.items()}
    gone = [request.stated[key].key for key in ASKING if key in request.stated]
    gone = [key for key in gone if key not in written]
    wish = " and ".join(pasteable(*line) for line in written.items())
    wish = wish if request.claim is None else f"what the claim has, as {wish},"
    return f"ask for {wish} instead of {' and '.join(gone)}" if gone else f"ask for {wish}"
