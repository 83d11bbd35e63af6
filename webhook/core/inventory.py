"""What the nodes of a cluster offer: on which node which back end has how many devices of which card.

A node says little about itself: resources, some of which several back ends own, and labels. The rules say the rest,
read backwards. Nothing here gates: a pool scaled to zero advertises nothing, and its pods must still come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards as card_models
from webhook.core.backends.cards import Labels
from webhook.core.backends.charge import Measure
from webhook.core.kube import fields, quantity
from webhook.core.kube.quantity import Fraction, QuantityError
from webhook.core.quota import tally
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card, Profile
from webhook.core.rules.modes import Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook, Surroundings
from webhook.core.rules.verbs import PERCENT, Amount

# How many cards a node has, from the resources it advertises: the rules read backwards.


class Advertised(NamedTuple):
    """One resource of a node, and a way in which a rule writes it."""

    value: int
    output: Output
    mode: Mode
    replicas: int = 1


def advertised_devices(
    resources: Mapping[str, int], backend: Backend, profile: str | None, cards: Sequence[Card]
) -> Fraction | None:
    """How many cards there are; None if nothing tells.

    `cards` are the models they can be of, and `profile` is the partition that all of them are cut into, if one is.
    """
    found = list(_advertised(resources, backend))
    if profile is not None:
        return _of_partitions({profile: max(resources.values())}, cards)
    return next(filter(None, (read(found, cards) for read in _READERS)), None)


def advertised_memory(
    resources: Mapping[str, int], backend: Backend, card: Card | None, devices: Fraction | None
) -> int | None:
    """The memory of all of them: that of the card, else what the node advertises; None if neither is known."""
    if card is not None and devices is not None:
        return int(devices * card.memory)
    found = list(_advertised(resources, backend))
    sliced = sum(one.value * one.mode.size for one in found if one.mode.size)
    return sliced or max((size for one in found if (size := _bytes(one))), default=None)


def _advertised(resources: Mapping[str, int], backend: Backend) -> Iterator[Advertised]:
    named: dict[str, set[str | None]] = {}
    for mode in backend.modes:
        for name in mode.limits:
            named.setdefault(name, set()).add(mode.profile)
    for mode in backend.modes:
        for name, output in mode.limits.items():
            if name in resources:
                # A resource that goes with every partition is not the name of one.
                own = mode if len(named[name]) == 1 else replace(mode, profile=None)
                yield Advertised(resources[name], output, own, backend.nodes.replicas)


def _by_parts(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    """From percents, or slices of time: so much makes a device."""
    for one in found:
        output = one.output
        if isinstance(output, Amount) and (output.what in {"cores", "share"} or _is_percent(output)):
            return one.value * output.unit / 100
    return None


def _is_percent(output: Amount) -> bool:
    return output.what == "memory" and output.unit_name == PERCENT


def _by_partitions(found: Sequence[Advertised], cards: Sequence[Card]) -> Fraction | None:
    return _of_partitions({one.mode.profile: one.value for one in found if one.mode.profile}, cards)


def _of_partitions(profiles: Mapping[str, int], cards: Sequence[Card]) -> Fraction | None:
    """As many cards as these partitions take, if it is the same number on every card that has them."""
    fitting = [card for card in cards if profiles and profiles.keys() <= card.profiles.keys()]
    counts = {_cut(profiles, card) for card in fitting}
    return counts.pop() if len(counts) == 1 else None


def _cut(profiles: Mapping[str, int], card: Card) -> Fraction:
    def cards(slices: Callable[[Profile], int], of: int) -> int:
        return ceil(Fraction(sum(count * slices(card.profiles[name]) for name, count in profiles.items()), of or 1))

    by_memory = cards(lambda profile: profile.memory_slices, card.memory_slices)
    return Fraction(max(by_memory, cards(lambda profile: profile.compute_slices, card.compute_slices)))


def _by_size(found: Sequence[Advertised], cards: Sequence[Card]) -> Fraction | None:
    """From memory, where the card is known: a system rounds each card's down to its unit."""
    sliced = sum(one.value * one.mode.size for one in found if one.mode.size)
    if sliced and len(cards) == 1:
        return Fraction(ceil(Fraction(sliced, cards[0].memory)))
    for one in found:
        if isinstance(one.output, Amount) and _bytes(one) and len(cards) == 1:
            each = max(1, cards[0].memory // one.output.unit)
            return Fraction(max(1, round(Fraction(one.value, each))))
    return None


def _bytes(one: Advertised) -> int:
    """The memory that a value stands for; 0 where it stands for none."""
    if not isinstance(one.output, Amount) or one.output.what != "memory" or _is_percent(one.output):
        return 0
    return int(one.value * one.output.unit)


def _by_count(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    counted = (one for one in found if one.output.what == "count" and not (one.mode.profile or one.mode.size))
    return next((Fraction(one.value, one.replicas) for one in counted), None)


def _by_constant(found: Sequence[Advertised], _: Sequence[Card]) -> Fraction | None:
    """A rule that writes the same for every request: so much makes one."""
    for one in found:
        if isinstance(one.output, Constant) and one.output.number:
            return Fraction(one.value, one.output.number)
    return None


_READERS: Final = (_by_parts, _by_partitions, _by_size, _by_count, _by_constant)


# What the nodes of a cluster offer: on which node which back end has how many devices of which card.


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one back end has on one node.

    resources   what the node advertises of it, by name
    card        its model, `profile` the partition that all of them are cut into; None where nothing says so
    devices     how many cards these are; None if nothing tells
    memory      bytes in all, None if nothing tells
    """

    backend: str
    resources: Mapping[str, int]
    card: Card | None
    profile: str | None
    devices: Fraction | None
    memory: int | None

    @property
    def exists(self) -> Measure:
        """The offer in the neutral unit; what is not known counts as nothing."""
        devices = self.devices or Fraction(0)
        unsized = devices if self.memory is None else Fraction(0)
        return Measure(devices=devices, memory=self.memory or 0, compute=100 * devices, unsized=unsized)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node that has devices.

    offers     by back end, one for each that has devices there
    cards      for every back end that could serve there, the card it would find; None if unknown
    belongs    the back ends whose node it is, as far as its labels tell
    unclaimed  resources that some rule knows, and no enabled back end says this node is for
    """

    name: str
    ready: bool = True
    schedulable: bool = True
    offers: Mapping[str, Offer] = field(default_factory=dict)
    cards: Mapping[str, Card | None] = field(default_factory=dict)
    belongs: frozenset[str] = frozenset()
    unclaimed: Mapping[str, int] = field(default_factory=dict)

    @property
    def takes_pods(self) -> bool:
        """Whether a new pod can be bound to it."""
        return self.ready and self.schedulable


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The nodes with devices, by name; `others` is the number of nodes without."""

    nodes: Mapping[str, Node]
    others: int = 0


def read(nodes: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> Inventory:
    """The inventory of these Node objects, whole ones or what `pruned` left of them."""
    labels = card_models.labels(rulebook)
    alike: dict[object, Node] = {}  # nodes of a pool differ in little but their names
    found: dict[str, Node] = {}
    others = 0
    for raw in nodes:
        meaningful, advertised = _relevant(raw, labels, rulebook)
        if rulebook.resources.keys().isdisjoint(advertised):
            others += 1
            continue
        key = frozenset(meaningful.items()), frozenset(advertised.items())
        if key not in alike:
            alike[key] = _node(meaningful, advertised, labels, rulebook)
        node = replace(
            alike[key],
            name=str(fields.mapping(raw, "metadata").get("name", "")),
            ready=_ready(raw),
            schedulable=fields.at(raw, "spec", "unschedulable") is not True,
        )
        if node.offers or node.unclaimed:
            found[node.name] = node
        else:
            others += 1
    return Inventory(nodes=found, others=others)


def _relevant(
    raw: Mapping[str, Any], labels: Labels, rulebook: Rulebook
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The labels and the advertised amounts that any rule asks for, as text."""
    meaningful = {
        key: str(value) for key, value in fields.mapping(raw, "metadata", "labels").items() if key in labels.keys
    }
    amounts = fields.mapping(raw, "status", "allocatable") or fields.mapping(raw, "status", "capacity")
    known = rulebook.resources
    return meaningful, {
        name: quantity.text_of(value) for name, value in amounts.items() if name in known or name in labels.keys
    }


def surroundings(inventory: Inventory) -> Surroundings:
    """What the inventory tells the choice of a back end: who has nodes, and who has one card only."""
    models: dict[str, dict[str | None, Card | None]] = {}
    for node in inventory.nodes.values():
        for backend, card in node.cards.items():
            models.setdefault(backend, {})[card.model if card else None] = card
    same = {backend: next(iter(cards.values())) for backend, cards in models.items() if len(cards) == 1}
    return Surroundings(
        cards={backend: card for backend, card in same.items() if card is not None},
        present=frozenset(name for node in inventory.nodes.values() for name in node.belongs),
        exists=_exists([offer for node in inventory.nodes.values() for offer in node.offers.values()]),
    )


def _exists(offers: Sequence[Offer]) -> tally.Tally:
    """What all of it comes to: in all, and of each card model where every card is known."""
    devices = [(tally.DEVICES, offer, offer.devices) for offer in offers]
    memory = [(tally.MEMORY, offer, offer.memory) for offer in offers]
    known = [amounts for amounts in (devices, memory) if all(amount is not None for *_, amount in amounts)]
    every = [(what, offer.card, Fraction(amount or 0)) for amounts in known for what, offer, amount in amounts]
    named = all(offer.card is not None for offer in offers)
    models = [(tally.key(what, card.model), amount) for what, card, amount in every if card is not None and named]
    return tally.total([{key: amount} for key, amount in (*((what, amount) for what, _, amount in every), *models)])


def pruned(raw: Mapping[str, Any], labels: Labels, rulebook: Rulebook) -> dict[str, Any] | None:
    """A Node object cut down to what any rule asks of it; None if it has no resource that a rule knows.

    Not what follows from the rules, which may change while this is kept.
    """
    meaningful, advertised = _relevant(raw, labels, rulebook)
    if rulebook.resources.keys().isdisjoint(advertised):
        return None
    status: dict[str, Any] = {"allocatable": advertised}
    if not _ready(raw):
        status["conditions"] = [{"type": "Ready", "status": "False"}]
    node = {
        "metadata": {"name": str(fields.mapping(raw, "metadata").get("name", "")), "labels": meaningful},
        "status": status,
    }
    return node | ({"spec": {"unschedulable": True}} if fields.at(raw, "spec", "unschedulable") is True else {})


def _ready(raw: Mapping[str, Any]) -> bool:
    """Whether the node says so; one that says nothing of it (a file, cut short) is taken to be."""
    conditions = fields.at(raw, "status", "conditions")
    said = [one.get("status") for one in conditions or () if isinstance(one, Mapping) and one.get("type") == "Ready"]
    return not said or said[0] == "True"


def _node(meaningful: Mapping[str, str], advertised: Mapping[str, str], labels: Labels, rulebook: Rulebook) -> Node:
    """What all nodes with these labels and amounts have in common."""
    amounts = {name: _amount(value) for name, value in advertised.items() if name in rulebook.resources}
    found = {name: amount for name, amount in amounts.items() if amount > 0}
    owners = {name: _owners(name, meaningful, rulebook) for name in found}
    groups: dict[str, dict[str, int]] = {}
    for name, candidates in owners.items():
        if candidates:
            groups.setdefault(candidates[0].name, {})[name] = found[name]
    could = {backend.name: backend for candidates in owners.values() for backend in candidates}
    counted = Counter(could[name].nodes.devices for name in groups)
    return Node(
        name="",
        offers={
            name: _offer(_alone(could[name], counted), group, advertised, meaningful, labels, rulebook)
            for name, group in groups.items()
        },
        cards={name: _card(meaningful, backend, labels, rulebook)[0] for name, backend in could.items()},
        belongs=frozenset(
            one.name
            for candidates in owners.values()
            for one in candidates
            if len(one.nodes.labels) == len(candidates[0].nodes.labels)  # no label tells it apart from the first
        ),
        unclaimed={name: found[name] for name, candidates in owners.items() if not candidates},
    )


def _amount(value: object) -> int:
    """A quantity as a node advertises it; 0 if it is none."""
    text = quantity.text_of(value)
    with suppress(QuantityError):
        return int(quantity.served(text))
    with suppress(QuantityError):
        return quantity.size(text)
    return 0


def _owners(resource: str, labels: Mapping[str, str], rulebook: Rulebook) -> Sequence[Backend]:
    """Whose resource it may be on a node with these labels: the most labels first, then the cluster's order."""
    fitting = [
        owner
        for owner in rulebook.resources[resource].owners
        if all(key in labels and (not values or labels[key] in values) for key, values in owner.nodes.labels.items())
    ]
    return sorted(fitting, key=lambda owner: -len(owner.nodes.labels))


def _card(
    labels: Mapping[str, str], backend: Backend, known: Labels, rulebook: Rulebook
) -> tuple[Card | None, str | None]:
    """The card that a label names, else the only one the back end serves, or that the Cluster document says."""
    card, profile = known.recognise(labels, backend)
    card = card or backend.card
    if card is None and rulebook.cluster.device is not None:
        named = rulebook.devices[rulebook.cluster.device.lower()]
        card = named if backend.serves(named) else None
    return card, profile if card is None or profile in card.profiles else None


def _offer(
    backend: Backend,
    resources: Mapping[str, int],
    advertised: Mapping[str, Any],
    meaningful: Mapping[str, str],
    labels: Labels,
    rulebook: Rulebook,
) -> Offer:
    card, profile = _card(meaningful, backend, labels, rulebook)
    said = _labelled_devices(backend, meaningful, advertised) if profile is None else None
    cards = [card] if card else card_models.card_served(backend, rulebook)
    backend = card_models.for_card(backend, card)
    devices = said or advertised_devices(resources, backend, profile, cards)
    memory = advertised_memory(resources, backend, card, devices)
    return Offer(
        backend=backend.name, resources=resources, card=card, profile=profile, devices=devices, memory=memory
    )


def _alone(backend: Backend, counted: Mapping[str | None, int]) -> Backend:
    """The back end, without a number of cards that counts those of another one on the same node, too."""
    if counted[backend.nodes.devices] == 1:
        return backend
    return replace(backend, nodes=replace(backend.nodes, devices=None))


def _labelled_devices(backend: Backend, labels: Mapping[str, str], advertised: Mapping[str, Any]) -> Fraction | None:
    """What the label, or else the resource, that holds the number of cards says."""
    key = backend.nodes.devices
    if key is None:
        return None
    said = labels.get(key, "")
    return Fraction((said.isdecimal() and _amount(said)) or _amount(advertised.get(key))) or None
