"""The verbs of a rule: what computes a value of a request, as `{memory: {unit: MiB, round: up}}`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Section, nearest
from webhook.core.forms.forms import FLAG, TEXT, list_of, map_of, optional, whole, word
from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction

# The words of the rule language, and the units that its numbers come in

PERCENT: Final = "percent"
QUANTITY: Final = "quantity"
TFLOPS: Final = "tflops"

UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    "count": ("",),
    "memory": (PERCENT, QUANTITY, "bytes", "MiB", "GiB"),
    "cores": (PERCENT, TFLOPS),
    "share": (PERCENT,),
}
"""What a rule can write as a number, with the units of each.

Memory may also be counted in blocks (`256MiB`), cores and shares in parts of a device (`parts: 16`).
"""

WORDS: Final = ("model", "product", "lookalikes", "profile", "placement", "container")
"""What a rule can write as text instead of as a number."""

VERBS: Final = (*UNITS, *WORDS)

HOLES: Final = ("profile", "product", "model", "container", "memory", "claim")
"""What a string of a rule may leave open, as `{model}`. A string whose hole has nothing to fill it is not written."""

EXCLUSIONS: Final = ("privileged", "nodeName", "initContainers")
"""What a rule can forbid a pod."""

_BLOCK = re.compile(r"([1-9][0-9]{0,5})?(MiB|GiB)")
_HOLE = re.compile(r"\{([A-Za-z]+)\}")

SlotKind = Literal["annotation", "label"]

METADATA: Final[tuple[tuple[str, SlotKind], ...]] = (("labels", "label"), ("annotations", "annotation"))
"""Where a slot may be: the section of a pod's metadata, and what one entry of it is called."""

CONTAINER: Final = "{container}"
"""Stands in the key of an annotation for the name of the container that it is for."""


class Slot(str):
    """The name, among those of resources, of a number that stands in an annotation or label of the pod.

    `key` is that of the rule, which may name the container, as `acme.example/{container}.memory`.
    """

    __slots__ = ("key", "kind")

    kind: SlotKind
    key: str

    def __new__(cls, kind: SlotKind, key: str) -> Self:
        """Name the number under `key`."""
        self = super().__new__(cls, f"{kind} {key}")
        self.kind, self.key = kind, key
        return self

    @property
    def head(self) -> str:
        """How the key begins, as far as it is the same for all containers."""
        return self.key.partition(CONTAINER)[0]

    @property
    def per_container(self) -> bool:
        """Whether the key names the container that the number is for."""
        return CONTAINER in self.key

    def named(self, container: str) -> str:
        """The key for a container."""
        return self.key.replace(CONTAINER, container)

    def container(self, key: str) -> str | None:
        """The container that a key of this slot names; None if it is not of this slot, or names none."""
        head, hole, tail = self.key.partition(CONTAINER)
        if not hole or len(key) <= len(head) + len(tail) or not (key.startswith(head) and key.endswith(tail)):
            return None
        return key[len(head) : len(key) - len(tail)]

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.kind, self.key


def memory_unit(name: str) -> int | None:
    """The bytes of one `MiB`, `GiB` or `256MiB`; None for what is no such unit."""
    match = _BLOCK.fullmatch(name)
    return int(match[1] or 1) * (quantity.GIB if match[2] == "GiB" else quantity.MIB) if match else None


def holes(template: str) -> list[str]:
    """The names of the holes in a text, known or not."""
    return _HOLE.findall(template)


def filled(template: str) -> str:
    """The text with a letter in each hole, to be looked at as a name."""
    return _HOLE.sub("x", template)


# What computes one value


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One value that a rule computes from a request; the verbs are documented in `rules/REFERENCE.md`.

    rule        the line as messages name it, `hami-vgpu (hami-vgpu.yaml:21)`
    unit        how much of the neutral amount makes 1: bytes for memory, percent for cores and shares
    per_total   the value of one device times their number
    lenient     the system rounds up by itself: values in between are legal, and stand for what they become
    parts_label a node label with the number of parts: where a pod selects its value, that counts, and not the unit
    digits      decimals that are written, at most or always (`fixed`); the number counts in the last of them
    absent      what a missing resource means: `whole`, `none`, a count, or None: it has to be there
    substring   the system also takes cards whose names only contain the text
    most        it is what the container may take at most; where it is more than the amounts beside it, it counts
    """

    what: str
    at: Location
    rule: str = ""
    unit: Fraction = Fraction(1)
    unit_name: str = ""
    round_up: bool = False
    lenient: bool = False
    step: int = 1
    minimum: int | None = None
    maximum: int | None = None
    fit: tuple[int, ...] = ()
    per_total: bool = False
    parts_label: str | None = None
    digits: int = 0
    fixed: bool = False
    absent: str | int | None = None
    most: bool = False
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    form: Literal["label", "name"] = "label"
    substring: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it is a number, and no text."""
        return self.what in UNITS

    @property
    def words(self) -> tuple[str, ...]:
        """What of the request it says."""
        return (self.what,)

    def wrote(self, _value: object) -> bool:
        """Whether a value may be of this rule: any, as the request that it was computed from is not known."""
        return True


# Verbs that are numbers, with their options


def _memory_unit(node: Node, _: forms.Scope) -> str:
    if memory_unit(meant := f"{node.value}B"):
        raise node.problem(f'"{node.value}" is no unit; write {meant}')
    return node.text() if memory_unit(str(node.value)) else node.word(UNITS["memory"])


_MEMORY_UNIT: Final = forms.Shape(
    _memory_unit,
    forms.any_schema(
        word(UNITS["memory"]),
        forms.pattern(f"^{_BLOCK.pattern}$", "write percent, quantity, bytes, MiB, GiB, or a block, as 256MiB"),
    ),
)
_LEGAL: Final = {
    "round": optional(
        word(("exact", "up")),
        "`exact` (the default) refuses a value that is not legal. `up` takes the next legal value, with a warning"
        " that shows both.",
        default="exact",
    ),
    "roundsItself": optional(
        FLAG, "With `round: up`: the system itself rounds up, so values in between are legal on a container."
    ),
    "step": optional(whole(), "Legal values are multiples of it.", default=1),
    "min": optional(whole(), "The least legal value. `round: up` raises a smaller one to it."),
    "max": optional(whole(), "The greatest legal value."),
    "fit": optional(
        list_of(whole(), "needs at least one value"),
        "The legal values as a list, instead of step, min and max. The smallest that is enough is taken.",
        [1, 2, 4, 8],
    ),
}
_OF_A_DEVICE: Final = {
    "parts": optional(whole(), "How many parts make a device, instead of a unit.", 16),
    "partsLabel": optional(
        TEXT,
        "The node label with that number. A resource on a container is read with the number that its pod selects.",
        "acme.example/replicas",
    ),
    "per": optional(
        word(("device", "total")),
        "`device` (the default), or `total`: the value of a device times their number.",
        default="device",
    ),
    "absent": optional(
        word(("whole", "none")),
        "The key may be missing. It then means all of the device (`whole`), or no limit (`none`).",
    ),
    "most": optional(
        FLAG,
        "The value is the most that a container may take. Other keys may promise less; the larger amount counts."
        " For keys that only authors of pods write.",
    ),
}
_STANDS_FOR: Final = "What 1 stands for: `percent` of a device."
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "count": {
        "unit": optional(word(UNITS["count"]), "Devices have no unit.", default=""),
        **_LEGAL,
        "absent": optional(whole(), "The key may be missing. It then means this number.", 1),
    },
    "memory": {
        "unit": optional(
            _MEMORY_UNIT,
            "What 1 stands for. `percent` (the default) is of the card's memory; with any other unit a share needs"
            " a known card. `quantity` is text as `8Gi`. `256MiB` is a block.",
            "MiB",
            "GiB",
            "256MiB",
            default=PERCENT,
        ),
        **_LEGAL,
        **_OF_A_DEVICE,
    },
    "cores": {"unit": optional(word(UNITS["cores"]), _STANDS_FOR, default=PERCENT), **_LEGAL, **_OF_A_DEVICE},
    "share": {"unit": optional(word(UNITS["share"]), _STANDS_FOR, default=PERCENT), **_LEGAL, **_OF_A_DEVICE},
}
_DIGITS: Final = {
    "digits": optional(whole(), "Decimals to write at most, as 2 for `0.25` and `0.5`; for annotations and labels."),
    "decimals": optional(whole(), "Decimals to write always, as 2 for `0.25` and `0.50`; instead of digits."),
}


_OR_NOTHING: Final = forms.Rule({"type": ["object", "null"]})
_BESIDE_FIT: Final = [{"required": [key]} for key in ("step", "min", "max")]
_FIT_ALONE: Final = {"not": {"type": "object", "required": ["fit"], "anyOf": _BESIDE_FIT}}
_ONE_UNIT: Final = {"not": {"type": "object", "required": ["parts", "unit"]}}
_ONE_LENGTH: Final = {"not": {"type": "object", "required": ["digits", "decimals"]}}
_ROUNDED: Final = {"dependentRequired": {"roundsItself": ["round"]}}
_CONSISTENT: Final = forms.Rule({"allOf": [_ROUNDED, _FIT_ALONE, _ONE_UNIT, _ONE_LENGTH]})


def number(verb: str, digits: Mapping[str, Any]) -> forms.Shape[Amount]:
    """A verb that is a number; only text has `digits`."""

    def amount(read: Mapping[str, Any], section: Section, scope: forms.Scope) -> Amount:
        # Options that cannot hold together: what they make could not be read back.
        given = section.integers("step", "min", "max")
        if "roundsItself" in section.present() and "round" not in section.present():
            section.complain("roundsItself is about values in between, so it needs round: up")
        if "fit" in section.present() and given:
            section.complain(f"fit lists every value; remove {', '.join(given)}")
        for key, other in (("parts", "unit"), ("decimals", "digits")):
            if {key, other} <= {*section.present()}:
                section.complain(f"{key} stands instead of {other}; remove one of them")
        if [*read["fit"]] != sorted({*read["fit"]}):
            section.complain("fit lists each value once, the smallest first")
        step, low, high = given.get("step") or 1, given.get("min", 1), given.get("max")
        if "min" in given and low % step:
            section.complain(f"min: {low} is no multiple of step: {step}")
        if high is not None and (high < low or high % step):
            section.complain(f"max: {high} is less than min, or no multiple of step: {step}")

        decimals = read.get("decimals") or read.get("digits") or 0
        block = memory_unit(read["unit"]) if verb == "memory" else None
        unit = Fraction(100, read["parts"]) if "parts" in read else Fraction(block or 1)
        return Amount(
            what=verb,
            at=section.node.at,
            rule=forms.origin(section.node, scope),
            unit=unit / 10**decimals,
            unit_name=read["unit"],
            parts_label=read.get("partsLabel"),
            digits=decimals,
            fixed="decimals" in read,
            round_up=read["round"] == "up",
            lenient=read["roundsItself"],
            step=read["step"],
            minimum=read.get("min"),
            maximum=read.get("max"),
            fit=tuple(read["fit"]),
            per_total=read.get("per") == "total",
            absent=read.get("absent"),
            most=read.get("most", False),
        )

    return forms.unspoilt(forms.mapping({**_OPTIONS[verb], **digits}, _CONSISTENT, _OR_NOTHING, complete=amount))


# Verbs that are text

FORM: Final = "Of product names: `label` as node labels have them (the default), `name` as the driver does."
WORD_OPTIONS: Final[Mapping[str, Any]] = {
    "form": optional(word(("label", "name")), FORM, default="label"),
    "values": optional(
        map_of(forms.one_or_more(TEXT)),
        "Other words for it. For node affinity several, as a list.",
        {"topology": "topology-aware"},
    ),
    "substring": optional(
        FLAG,
        "Of models and product names: the system takes every card whose name contains the text. A container"
        " counts as all of these models, unless the mode also writes `lookalikes`.",
    ),
}


def text(verb: str, options: Mapping[str, Any] = WORD_OPTIONS) -> forms.Shape[Amount]:
    """A verb that is text."""

    def amount(read: Mapping[str, Any], section: Section, scope: forms.Scope) -> Amount:
        return Amount(what=verb, at=section.node.at, rule=forms.origin(section.node, scope), **read)

    return forms.unspoilt(forms.mapping(options, _OR_NOTHING, complete=amount))


# A verb in a mapping of its own

READERS: Final = {**{verb: number(verb, _DIGITS) for verb in UNITS}, **{verb: text(verb) for verb in WORDS}}


def computed(node: Node, scope: forms.Scope) -> Amount:
    """A mapping of one verb and its options."""
    entries = list(node.items())
    if len(entries) != 1:
        raise node.problem(f"has to be one verb, as {{memory: {{unit: MiB}}}}, not {len(entries)} keys")
    verb, options = entries[0]
    if verb not in VERBS:
        raise node.problem(f'"{verb}" is no verb{nearest(verb, VERBS)}; there are {", ".join(VERBS)}')
    return READERS[verb].read(replace(options, value={}) if options.value is None else options, scope)
