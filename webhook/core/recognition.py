"""Which card a node has, by its labels: the values that rules write into node affinity, read backwards.

A rule that steers pods to a card by a product label of nodes says with the same line which label names the card,
and how. So no label and no vendor is named here; cards are never guessed from their memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.backend import Amount, Backend, Constant, Output
from webhook.core.device import Device
from webhook.core.rulebook import Rulebook
from webhook.core.words import as_label

_HOW_SHARED = re.compile(r"-(?:shared|mig-(?P<profile>.+))$")
"""What GPU feature discovery appends to a product: that it is shared, or the partition all cards are cut into."""


class Recognised(NamedTuple):
    """The card of a node, and the partition it is cut into where a label says so; None where nothing does."""

    card: Device | None
    profile: str | None


@dataclass(frozen=True, slots=True)
class Labels:
    """What labels tell, by the rules.

    products   by label key and lower-case value, the cards that may be meant; more than one tells nothing
    profiles   keys of labels that hold a partition, and `spelling` the partition that each lower-case value means
    keys       every label that has any meaning: these, and what says whose a node is, or how many cards it has
    """

    products: Mapping[str, Mapping[str, Sequence[Device]]]
    profiles: frozenset[str]
    spelling: Mapping[str, str]
    keys: frozenset[str]

    def recognise(self, labels: Mapping[str, str], backend: Backend) -> Recognised:
        """The card that a back end's devices on a node with these labels are."""
        found: list[Device] = []
        profile: str | None = None
        for key, values in self.products.items():
            value = labels.get(key, "").lower()
            if end := _HOW_SHARED.search(value):
                profile = self.spelling.get(end["profile"] or "", profile)
                value = value[: end.start()]
            found += [card for card in values.get(value, ()) if backend.serves(card)]
        profile = next(filter(None, (self._partition(labels, key) for key in sorted(self.profiles))), profile)
        return Recognised(found[0] if len({card.model for card in found}) == 1 else None, profile)

    def _partition(self, labels: Mapping[str, str], key: str) -> str | None:
        return self.spelling.get(labels.get(key, "").lower())


def labels(rulebook: Rulebook) -> Labels:
    """What labels tell by the rules of all back ends, the enabled ones and the others."""
    products: dict[str, dict[str, list[Device]]] = {}
    profiles: set[str] = set()
    for backend, key, output in _affinities(rulebook):
        if _writes(output, "profile"):
            profiles.add(key)
        for device in served(backend, rulebook):
            for text in _texts(output, device):
                cards = products.setdefault(key, {}).setdefault(_HOW_SHARED.sub("", text.lower()), [])
                if device not in cards:
                    cards.append(device)
    nodes = [backend.nodes for backend in rulebook.backends.values()]
    keys = {key for each in nodes for key in (*each.labels, *filter(None, [each.devices]))}
    return Labels(
        products=products,
        profiles=frozenset(profiles - products.keys()),
        spelling=_spelling(rulebook),
        keys=frozenset(keys | profiles | products.keys()),
    )


def served(backend: Backend, rulebook: Rulebook) -> Sequence[Device]:
    """The card models that a back end can serve."""
    return [device for device in _models(rulebook) if backend.serves(device)]


def for_card(backend: Backend, card: Device | None) -> Backend:
    """The back end as it serves a card: the modes for just this model first, and those for others left out.

    Half of a card with two cores, and a quarter of one with four, may stand on a container as the same number.
    """
    if card is None or not any(mode.when.models for mode in backend.modes):
        return backend
    name = card.model.lower()
    modes = [mode for mode in backend.modes if not mode.when.models or name in mode.when.models]
    return replace(backend, modes=sorted(modes, key=lambda mode: not mode.when.models)) if modes else backend


def _models(rulebook: Rulebook) -> Iterable[Device]:
    """Every model once, by whatever names it has."""
    return {device.model: device for device in rulebook.devices.values()}.values()


def _affinities(rulebook: Rulebook) -> Iterator[tuple[Backend, str, Output]]:
    """Every line of node affinity once: many back ends select by the same label, and each mode has its own."""
    seen: set[object] = set()
    for backend in rulebook.backends.values():
        for mode in backend.modes:
            for key, output in mode.outputs.node_affinity.items():
                line = (backend.vendors, key, _content(output))
                if line not in seen:
                    seen.add(line)
                    yield backend, key, output


def _content(output: Output) -> object:
    """What a line says, wherever it stands."""
    if isinstance(output, Amount):
        return output.what, output.form, frozenset(output.values.items())
    return output.value


def _texts(output: Output, device: Device) -> Iterator[str]:
    """The label values that a rule writes to select a card."""
    if isinstance(output, Amount) and output.what in {"product", "model"}:
        names = [device.model] if output.what == "model" else _names(output.form, device)
        yield from (text for name in names for text in output.values.get(name, (name,)))
    elif isinstance(output, Constant):
        for text in output.value if isinstance(output.value, tuple) else (str(output.value),):
            if "{product}" in text:
                yield from (text.replace("{product}", name) for name in _names("label", device))
            elif "{model}" in text:
                yield text.replace("{model}", device.model)


def _names(form: str, device: Device) -> Sequence[str]:
    return [as_label(name) for name in device.names] if form == "label" else device.names


def _writes(output: Output, word: str) -> bool:
    if isinstance(output, Amount):
        return output.what == word
    texts = output.value if isinstance(output.value, tuple) else (str(output.value),)
    return any(f"{{{word}}}" in text for text in texts)


def _spelling(rulebook: Rulebook) -> dict[str, str]:
    """Partitions by how a label, which holds no plus sign, spells them."""
    dotted = {profile.replace("+", ".").lower(): profile for profile in rulebook.profiles}
    return {**dotted, **{as_label(profile).lower(): profile for profile in rulebook.profiles}}
