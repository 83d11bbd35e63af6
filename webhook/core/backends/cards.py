"""Cards by the names that nodes, drivers and people give them.

A rule selects nodes by a label with the product's name. The same line tells which label names the card, and how. So
neither labels nor vendors are named here, and cards are never guessed from their memory.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from webhook.core.forms.document import LONGEST_WORD, Nearest
from webhook.core.kube.pod import Bounds
from webhook.core.kube.quantity import Fraction
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, plain
from webhook.core.rules.modes import Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook, kept
from webhook.core.rules.verbs import Amount

# The card of a node by its labels: the values that rules write into node affinity, read in reverse.

_HOW_SHARED = re.compile(r"-(?:shared|mig-(?P<profile>.+))$")
"""What GPU feature discovery appends to a product: `-shared`, or the partition that all cards are cut into."""


class Recognised(NamedTuple):
    """The card of a node and the partition that it is cut into; None if no label tells."""

    card: Card | None
    profile: str | None


class Labels(NamedTuple):
    """What node labels mean by the rules.

    products   by label key and lower-case value, the cards that may be meant; several models mean none
    profiles   keys of labels that hold a partition
    spelling   the partition of each lower-case value of these, which cannot hold a plus sign
    keys       every label that has a meaning: those above, those that mark a back end's nodes, those with a count
    """

    products: Mapping[str, Mapping[str, Sequence[Card]]]
    profiles: frozenset[str]
    spelling: Mapping[str, str]
    keys: frozenset[str]

    def recognise(self, labels: Mapping[str, str], backend: Backend) -> Recognised:
        """The card of a back end's devices on a node with these labels."""
        cards: list[Card] = []
        profile: str | None = None
        for key, values in self.products.items():
            value = labels.get(key, "").lower()
            if end := _HOW_SHARED.search(value):
                profile = self.spelling.get(end["profile"] or "", profile)
            cards += [card for card in of_label(values, value) if backend.serves(card)]
        spellings = (self.spelling.get(labels.get(key, "").lower()) for key in sorted(self.profiles))
        profile = next(filter(None, spellings), profile)
        return Recognised(cards[0] if len({card.model for card in cards}) == 1 else None, profile)


def of_label(products: Mapping[str, Sequence[Card]], value: str) -> Sequence[Card]:
    """The cards that the value of a product's label may mean."""
    return products.get(_HOW_SHARED.sub("", value.lower()), ())


@kept
def labels(rulebook: Rulebook) -> Labels:
    """What node labels mean by the rules of all back ends, enabled or not."""
    products: dict[str, dict[str, list[Card]]] = {}
    profiles: set[str] = set()
    lines: set[object] = set()  # of node affinity: many back ends and modes for the same cards have the same one
    for backend in rulebook.backends.values():
        for key, output in (line for mode in backend.modes for line in mode.outputs.node_affinity.items()):
            content: object = output.value if isinstance(output, Constant) else (output.what, output.form)
            values = frozenset(output.values.items()) if isinstance(output, Amount) else None
            line = (backend.vendors, backend.models, key, content, values)
            if line in lines:
                continue
            lines.add(line)
            if "profile" in output.words:
                profiles.add(key)
            for device in card_served(backend, rulebook):
                for text in texts(output, device):
                    cards = products.setdefault(key, {}).setdefault(_HOW_SHARED.sub("", text.lower()), [])
                    if device not in cards:
                        cards.append(device)
    nodes = [backend.nodes for backend in rulebook.backends.values()]
    keys = {key for node in nodes for key in (*node.labels, *filter(None, [node.devices]))}
    dotted = {profile.replace("+", ".").lower(): profile for profile in rulebook.profiles}
    return Labels(
        products=products,
        profiles=frozenset(profiles - products.keys()),
        spelling={**dotted, **{as_label(profile).lower(): profile for profile in rulebook.profiles}},
        keys=frozenset(keys | profiles | products.keys()),
    )


def card_served(backend: Backend, rulebook: Rulebook) -> Sequence[Card]:
    """The card models that a back end serves; found once for each rulebook."""
    able: Sequence[Card] | None = rulebook.cache.get((card_served, backend.name))
    if able is None:
        models = {device.model: device for device in rulebook.devices.values()}  # which has each under several names
        able = [device for device in models.values() if backend.serves(device)]
        rulebook.cache[card_served, backend.name] = able
    return able


def for_card(backend: Backend, card: Card | None) -> Backend:
    """The back end with its modes for one card: those for this model first, without those for other models.

    The same number on a container may mean half of a card with two cores, and a quarter of one with four.
    """
    if card is None or not any(mode.when.models for mode in backend.modes):
        return backend
    name = card.model.lower()
    modes = [mode for mode in backend.modes if not mode.when.models or name in mode.when.models]
    return replace(backend, modes=sorted(modes, key=lambda mode: not mode.when.models)) if modes else backend


def for_nodes(backend: Backend, bounds: Bounds, rulebook: Rulebook) -> Backend:
    """The back end as the nodes have it to which a pod is bound: their labels say how a card is shared, or cut."""

    def there(mode: Mode) -> Mode:
        lines, limits, profile = mode.outputs.node_affinity, mode.limits, mode.profile
        for key in sorted(lines.keys() & bounds.keys()):
            values, line = tuple(bounds[key]), lines[key]
            if not isinstance(line, Constant) or not values:
                continue
            if all(re.fullmatch("[2-9]|[1-9][0-9]{1,2}", value) for value in values):
                for name, output in mode.limits.items():
                    if isinstance(output, Amount) and output.parts_label == key:
                        limits = {**limits, name: replace(output, unit=Fraction(100, min(map(int, values))))}
                        lines = {**lines, key: replace(line, value=values)}
            elif line.words == ("profile",) and len(values) == 1:
                profile = next(
                    (values[0] for card in card_served(backend, rulebook) if values[0] in card.profiles), None
                )
        if limits is mode.limits and profile == mode.profile:
            return mode
        pool = {key: lines[key] for key in mode.pool}
        outputs, amounts = replace(mode.outputs, node_affinity=lines), {**mode.amounts, **limits}
        return replace(mode, limits=limits, amounts=amounts, outputs=outputs, pool=pool, profile=profile)

    return replace(backend, modes=[there(mode) for mode in backend.modes]) if bounds else backend


def texts(output: Output, device: Card) -> Iterator[str]:
    """The values that a rule writes to select a card."""
    as_labels = [as_label(name) for name in device.names]
    if isinstance(output, Amount) and output.what in {"product", "model"}:
        names: Sequence[str] = [device.model]
        if output.what == "product":
            names = as_labels if output.form == "label" else device.names
        yield from (text for name in names for text in output.values.get(name, (name,)))
    elif isinstance(output, Constant):
        for text in output.texts:
            if "{product}" in text:
                yield from (text.replace("{product}", name) for name in as_labels)
            elif "{model}" in text:
                yield text.replace("{model}", device.model)


def as_label(name: str) -> str:
    """A driver's product name as GPU feature discovery writes it into a node label.

    Characters outside `[A-Za-z0-9-_. ]` are removed, spaces become dashes [NVIDIA/k8s-device-plugin,
    internal/lm/resource.go].
    """
    return re.sub(r"[^A-Za-z0-9_. -]", "", name).replace(" ", "-")


# Card models by the names that people, nodes, drivers and labellers give them; and which ones a cluster has.


def read_model(name: str, rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a name means, several if it has no size; none for a name that no catalogue knows."""
    index = rulebook.devices.by_plain_name
    if name in index:
        return index[name]
    shortened = _HOW_SHARED.sub("", plain(name))
    if shortened in index:
        return index[shortened]
    vendor, _, rest = shortened.partition("-")
    return [card for card in index.get(rest, ()) if card.vendor == vendor]


def models_of_nodes(rulebook: Rulebook) -> Sequence[str]:
    """The models of the nodes that are known: first those of back ends whose nodes are all known."""
    around = rulebook.surroundings
    of_backends = [card.model for cards in around.cards.values() for card in cards]
    return [*dict.fromkeys([*of_backends, *(key.partition("/")[2] for key in sorted(around.exists) if "/" in key)])]


def nearest_models(name: str, rulebook: Rulebook, nearest: Nearest) -> Sequence[str]:
    """The models here that a name nobody knows is nearest to, or its first words are; none if there are no such."""
    here, index, words = models_here(rulebook), rulebook.devices.by_plain_name, rulebook.cache.get(nearest_models)
    if words is None:
        served = frozenset(here)
        cards = {word: [card for card in meant if card.model in served] for word, meant in index.items()}
        words = {word for word, meant in cards.items() if meant and not meant[0].virtual}
        words -= {word for word in words if word.removeprefix(f"{cards[word][0].vendor}-") in words - {word}}
        rulebook.cache[nearest_models] = words
    word = plain(name[:LONGEST_WORD])
    first, dash, _ = word.partition("-")
    family = [named for named in words if any(part.startswith(first) for part in named.split("-"))]
    near = nearest.word(word, words, 0.85) or (nearest.word(word, family or words) if dash or not family else "")
    while not near and "-" in word:
        word = word.rpartition("-")[0]
        near = word if word in words else ""
    names = [near] if near or dash else family
    meant = {card.model for named in names for card in index.get(named, ())}
    return [model for model in here if model in meant]


def models_here(rulebook: Rulebook, backend: Backend | None = None) -> Sequence[str]:
    """The models that a back end serves, or all enabled ones; those of known nodes come first."""
    key = (models_here, backend.name if backend else "")
    models: Sequence[str] | None = rulebook.cache.get(key)
    if models is not None:
        return models
    served: set[str] = set()
    for owner in [backend] if backend else rulebook.enabled:
        for card in card_served(owner, rulebook):
            # Those that a pod can get by their names.
            alone = owner.models == {card.model.lower()}
            ways = {"model", "product"} if card.names else {"model"}
            modes = [mode for mode in owner.modes if card.profiles or mode.when.devices != "profile"]
            if modes and (alone or any(mode.selects in ways for mode in modes)):
                served.add(card.model)
    present = models_of_nodes(rulebook)
    models = [*dict.fromkeys(model for model in present if model in served), *sorted(served.difference(present))]
    rulebook.cache[key] = models
    return models
