"""A `DeviceCatalog`: card models of one vendor, with what sizes and names they have."""

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from webhook.core import request
from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Section
from webhook.core.forms.forms import FLAG, TEXT, derived, form, list_of, map_of, optional, required, whole
from webhook.core.kube.quantity import Fraction, QuantityError

_SIZE: Final = forms.size(("Mi", "Gi"), "16Gi or 15360Mi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A hardware partition of a card."""

    name: str = derived(forms.key)
    memory: int = required(_SIZE, "Memory of the partition, as the driver reports it.", "9856Mi")
    memory_slices: int = required(whole(), "How many of the card's memory slices it takes.", key="slices")
    compute_slices: int = required(whole(), "How many of the card's compute slices it takes.", key="compute")
    most: int = optional(whole(), "How many of these one card can hold; 1 if left out.", default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card model: `nominal` bytes as in the data sheet, and `memory`, usable bytes; slices are of all of it.

    A `virtual` one is a part of a card.
    """

    vendor: str = ""
    virtual: bool = False
    at: Location = derived(forms.place)
    model: str = required(TEXT, "The name that `gpu-model` asks for.", "A100-80GB")
    aliases: tuple[str, ...] = optional(list_of(TEXT), "Other names that `gpu-model` may use.", ["A100"])
    families: tuple[str, ...] = optional(
        list_of(TEXT), "Names of several cards, of which any may be given.", ["Ascend910B"]
    )
    names: tuple[str, ...] = optional(
        list_of(TEXT),
        "Product names as the driver reports them; node labels have them with dashes for spaces.",
        ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"],
    )
    nominal: int = required(_SIZE, "Nominal memory, as in the data sheet.", "80Gi", key="memory")
    memory: int = optional(
        _SIZE, "Memory as the driver reports it. Sizes are compared with it.", "81920Mi", key="usable", default=0
    )
    tflops: Fraction | None = optional(forms.POSITIVE, "Dense FP16 TFLOPS, for `gpu-tflops`.", 65, 312)
    memory_slices: int = required(whole(), "Slices of memory.", key="slices.memory", default=0)
    compute_slices: int = required(whole(), "Slices of compute.", key="slices.compute", default=0)
    profiles: Mapping[str, Profile] = optional(
        map_of(form(Profile)),
        "The partitions that the card can be cut into, by name, the smallest first.",
        {"1g.10gb": {"memory": "9856Mi", "slices": 1, "compute": 1, "most": 7}},
    )


def _checked(device: Card, section: Section, _: forms.Scope) -> Card:
    for profile in device.profiles.values():
        if not device.memory_slices:
            section.complain(f"profiles need slices: {{memory: ..., compute: ...}}, what {profile.name} is a part of")
        elif profile.memory_slices > device.memory_slices or profile.compute_slices > device.compute_slices:
            section.complain(f"the profile {profile.name} has more slices than the card")
        elif profile.memory > device.nominal:
            section.complain(f"the profile {profile.name} has more memory than the card")
    return replace(device, memory=device.memory or device.nominal)


_SLICES: Final = forms.Group(
    "The number of slices of a card that can be partitioned.", ({"memory": 8, "compute": 7},)
)
DEVICE: Final = form(
    Card, forms.Rule({"dependentRequired": {"profiles": ["slices"]}}), groups={"slices": _SLICES}, complete=_checked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCatalog:
    """Card models of one vendor."""

    vendor: str = required(TEXT, "The vendor of these cards, as `vendors` of a back end names it.", "nvidia", "amd")
    devices: tuple[Card, ...] = optional(list_of(DEVICE), "The card models.", default=())
    virtual: bool = optional(
        FLAG, "The devices are parts of cards that a virtual machine sees as whole cards. They share the compute."
    )
    resources: tuple[str, ...] = optional(
        list_of(TEXT),
        "Resources of these cards, as globs in lower case, that no back end uses. Nothing can count them.",
        ["acme.example/*", "*/acme[0-9]*"],
    )


DEVICE_CATALOG: Final = form(DeviceCatalog)


_SEPARATOR: Final = re.compile(r"[ _-]+")
_CAPACITY: Final = re.compile(r"-[0-9]+gb$")
_FIRST_WORD: Final = re.compile(r"^[a-z]+-")


def plain(name: str) -> str:
    """A name of a card in lower case, with dashes for spaces and underscores."""
    return _SEPARATOR.sub("-", name.strip().lower())


class Cards(dict[str, Card]):
    """Cards by lower-case model, alias and product name."""

    @cached_property
    def by_plain_name(self) -> Mapping[str, Sequence[Card]]:
        """Cards by every plain name: exact ones, those without a size, and those without their first words."""
        exact = {plain(alias): [card] for alias, card in self.items()}
        sizes: dict[str, dict[str, Card]] = {}
        shorter: dict[str, dict[str, Card]] = {}
        for card in self.values():
            for base in (_CAPACITY.sub("", plain(card.model)), *map(plain, card.families)):
                sizes.setdefault(base, {})[card.model] = card
            for product in card.names:
                rest = plain(product)
                while match := _FIRST_WORD.match(rest):
                    rest = rest[match.end() :]
                    shorter.setdefault(rest, {})[card.model] = card
        several = {base: [*sized.values()] for base, sized in sizes.items() if len(sized) > 1}
        return {**{base: [*sized.values()] for base, sized in shorter.items()}, **exact, **several}


# Names in a document that stand for what other documents define.


@dataclass(frozen=True, slots=True)
class Known:
    """What a document can name.

    backends      those that there is a rule for, and of them the `enabled` ones
    devices       card models by lower-case name and alias
    parametrised  all rules that may have parameters
    asking        annotations and labels in which back ends are asked for devices
    """

    backends: Collection[str]
    devices: Cards
    enabled: Collection[str] = ()
    parametrised: Collection[str] = ()
    asking: Collection[str] = ()


def _one_of(
    kind: str,
    complaint: str,
    names: Callable[[Known], Collection[str]],
    find: Callable[[Known, str], str | None] | None = None,
) -> forms.Shape[str]:
    """One of these names, or what is found by other spellings of them; `complaint` is said of anything else."""

    def read(node: Node, scope: forms.Scope) -> str:
        text, known = node.text(), scope.known
        name = find(known, text) if find else text if text in names(known) else None
        if name is None:
            raise node.problem(f'{complaint} "{text}"{scope.nearest(text, names(known))}', unknown=True)
        return name

    return forms.naming(kind, read)


def enabled_by(where: str) -> forms.Shape[str]:
    """A back end that `where` enables."""

    def read(node: Node, scope: forms.Scope) -> str:
        context, name = scope.known, node.text()
        if name not in context.enabled:
            hint = "; add it there" if name in context.backends else scope.nearest(name, context.enabled)
            raise node.problem(f'{where} does not enable "{name}"{hint}', unknown=True)
        return name

    return forms.naming("backends", read)


def _profile(known: Known, text: str) -> str | None:
    with contextlib.suppress(QuantityError):
        profile = request.profile(text)
        return profile if any(profile in device.profiles for device in known.devices.values()) else None
    return None


BACKEND: Final = _one_of("backends", "no rule defines the back end", lambda known: known.backends)
PARAMETRISED: Final = _one_of("backends", "no rule defines the back end", lambda known: known.parametrised)
VENDOR: Final = _one_of(
    "vendors", "no catalogue is of the vendor", lambda known: {device.vendor for device in known.devices.values()}
)
MODEL: Final = _one_of(
    "models",
    "no catalogue knows the model",
    lambda known: {device.model for device in known.devices.values()},
    lambda known, text: known.devices[text.lower()].model if text.lower() in known.devices else None,
)


def _family(node: Node, scope: forms.Scope) -> tuple[str, ...]:
    cards = scope.known.devices.by_plain_name.get(plain(node.text()), ())
    return tuple(card.model for card in cards) or (MODEL.read(node, scope),)


def _single(node: Node, scope: forms.Scope) -> str:
    model, *others = _family(node, scope)
    if others:
        raise node.problem(f'"{node.text()}" is {" or ".join([model, *others])}; write the one that is meant')
    return model


FAMILY: Final = forms.naming("models", _family)
"""The models that a name may mean in a pod's `gpu-model`, as A100 means A100-40GB and A100-80GB."""

SINGLE: Final = forms.naming("models", _single)
"""A model by a name that means no other."""

PROFILE: Final = _one_of(
    "profiles",
    "no catalogue has the profile",
    lambda known: {profile for device in known.devices.values() for profile in device.profiles},
    _profile,
)
