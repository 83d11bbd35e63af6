"""The words of the rule language, and the units that its numbers come in.

Belongs here: each closed set of words that a rule may use. What a word does stands with those who interpret it:
numbers in `backends/amounts`, text in `plan/text`, the needs of a pod in `plan/pod_requirements`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Literal, Self

from webhook.core.kube import quantity

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


def unit_of(verb: str, name: str) -> Fraction:
    """What one of a unit is: bytes for memory, percent for cores and shares, or of the card's memory."""
    return Fraction((verb == "memory" and memory_unit(name)) or 1)


def holes(template: str) -> list[str]:
    """The names of the holes in a text, known or not."""
    return _HOLE.findall(template)


def filled(template: str) -> str:
    """The text with a letter in each hole, to be looked at as a name."""
    return _HOLE.sub("x", template)
