"""A back end beside the catalogues: its cards, and its modes with what they inherit, some of them many times over.

A mode stands for many where its resources are named after the hardware partitions of cards, or after sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import ceil
from typing import Final

from webhook.core.rules.backend import Backend, Partitions
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Mode
from webhook.core.rules.outputs import Output, Outputs
from webhook.core.rules.verbs import Amount
from webhook.core.rules.vocabulary import Slot

_PROFILE: Final = "{profile}"
_MEMORY: Final = "{memory}"
_CARD: Final = frozenset({"product", "model"})
"""Words that name a card."""


def complete(backend: Backend, devices: Mapping[str, Card]) -> Backend:
    """The back end with its cards and all of its modes."""
    modes: Sequence[Mode] = [_inheriting(each, backend) for mode in backend.modes for each in _of_sizes(mode)]
    backend = _with_cards(backend, devices)
    profiles: frozenset[str] = frozenset()
    if backend.partitions is not None:
        cards = [card for card in {card.model: card for card in devices.values()}.values() if backend.serves(card)]
        modes = list(_of_profiles(modes, cards, backend.partitions))
        profiles = frozenset(name for card in cards for name in card.profiles if _among(backend.partitions, name))
    owns = frozenset(name for mode in modes for name in mode.amounts)
    return replace(backend, modes=modes, profiles=profiles, owns=owns)


def _with_cards(backend: Backend, devices: Mapping[str, Card]) -> Backend:
    """The back end with the card that its models have in common."""
    cards = [devices[model] for model in sorted(backend.models)]
    alike = {(card.memory, card.tflops, tuple(card.profiles)) for card in cards}
    return replace(backend, card=cards[0] if len(alike) == 1 else None)


def _inheriting(mode: Mode, backend: Backend) -> Mode:
    """The mode with what its back end injects and demands whatever the mode, and what is known of its numbers."""
    outputs = mode.outputs.over(backend.inject.outputs)
    numbers = {key: output for key, output in outputs.node_affinity.items() if output.is_number}
    found = [output for output in (*mode.amounts.values(), *numbers.values()) if output.what]
    return replace(
        mode,
        outputs=outputs,
        companions=mode.companions.over(backend.companions) if mode.companions else backend.companions,
        selects=_selects(mode, outputs),
        node_numbers=numbers,
        pool={
            key: output
            for key, output in outputs.node_affinity.items()
            if not (output.words and _CARD.issuperset(output.words))
        },
        verbs=frozenset(output.what for output in found),
        loosely=_loosely(outputs),
        all_cores=any((output.what, output.absent) == ("cores", "whole") for output in found),
    )


def _selects(mode: Mode, outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values(), *outputs.node_affinity.values(), *mode.claims]
    words = {word for output in written for word in output.words}
    return next((word for word in ("product", "model") if word in words), "model" if mode.when.models else None)


def _loosely(outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values()]
    if any("lookalikes" in output.words for output in written):
        return None
    return next((output.what for output in written if isinstance(output, Amount) and output.substring), None)


def _of_sizes(mode: Mode) -> Iterator[Mode]:
    """The mode once for each of its sizes, or as it is."""
    if not mode.sizes:
        yield mode
    for number, size in mode.sizes:
        limits = {name.replace(_MEMORY, str(number)): output for name, output in mode.limits.items()}
        yield replace(mode, size=size, sizes=(), limits=limits, amounts={**limits, **_slots(mode)})


def _slots(mode: Mode) -> Mapping[str, Output]:
    return {name: output for name, output in mode.amounts.items() if isinstance(name, Slot)}


def _among(partitions: Partitions, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in partitions.only)


def _of_profiles(modes: Iterable[Mode], devices: Sequence[Card], partitions: Partitions) -> Iterator[Mode]:
    """The modes, each that differs from profile to profile once for every profile of the devices.

    That is one whose resources or claims are named after it, or, where the back end has only one kind of card,
    whose amounts are the profile's.
    """
    profiles = {name: profile for device in devices for name, profile in device.profiles.items()}
    known = [profile for name, profile in profiles.items() if _among(partitions, name)]
    for mode in modes:
        sized = any(output.what == "memory" for output in mode.amounts.values())
        if any(_PROFILE in name for name in (*mode.limits, *(str(claim.value) for claim in mode.claims))):
            yield from (_named(mode, profile.name, partitions.spelling) for profile in known)
        elif mode.when.devices == "profile" and len(devices) == 1 and sized:
            yield from (_sized(mode, profile) for profile in known)
        else:
            yield mode


def _named(mode: Mode, name: str, spelling: Mapping[str, str]) -> Mode:
    # A resource name holds no plus sign: 1g.10gb+me is 1g.10gb.me there [NVIDIA/k8s-device-plugin internal/rm/rm.go].
    written = spelling.get(name, name).replace("+", ".")
    limits = {resource.replace(_PROFILE, written): output for resource, output in mode.limits.items()}
    amounts = {**limits, **_slots(mode)}
    claims = [replace(claim, value=str(claim.value).replace(_PROFILE, written)) for claim in mode.claims]
    return replace(mode, profile=name, limits=limits, amounts=amounts, claims=claims)


def _sized(mode: Mode, profile: Profile) -> Mode:
    """The mode with the amount of memory that a profile's template has."""

    def fixed(output: Output) -> Output:
        if not isinstance(output, Amount) or output.what != "memory":
            return output
        return replace(output, fit=(ceil(profile.memory / output.unit),), step=1, minimum=None, maximum=None)

    limits = {name: fixed(output) for name, output in mode.limits.items()}
    amounts = {name: fixed(output) for name, output in mode.amounts.items()}
    return replace(mode, profile=profile.name, limits=limits, amounts=amounts)
