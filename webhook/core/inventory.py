"""What the nodes of a cluster offer: on which node which back end has how many devices of which card.

A node says little about itself: resources, some of which several back ends own, and labels. The rules say the rest,
read backwards. Nothing here gates: a pool scaled to zero advertises nothing, and its pods must still come.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, NamedTuple

from webhook.core.backends import cards as card_models
from webhook.core.backends.charge import Measure
from webhook.core.kube import fields, quantity
from webhook.core.kube.quantity import Fraction, QuantityError
from webhook.core.quota import tally
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook, Surroundings
from webhook.core.rules.verbs import PERCENT, Amount


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The nodes with devices, by name; `others` is the number of nodes without."""

    nodes: Mapping[str, Node]
    others: int = 0


def read(nodes: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> Inventory:
    """The inventory of these Node objects, whole ones or what `pruned` left of them."""
    labels = card_models.labels(rulebook)
    alike: dict[object, Node] = {}  # nodes of a pool differ in little but their names
    by_name: dict[str, Node] = {}
    others = 0
    for raw in nodes:
        relevant = pruned(raw, labels, rulebook)
        if relevant is None:
            others += 1
            continue
        metadata, status = relevant["metadata"], relevant["status"]
        meaningful, advertised = metadata["labels"], status["allocatable"]
        key = frozenset(meaningful.items()), frozenset(advertised.items())
        if key not in alike:
            alike[key] = _node(meaningful, advertised, labels, rulebook)
        ready, schedulable = "conditions" not in status, "spec" not in relevant
        node = replace(alike[key], name=metadata["name"], ready=ready, schedulable=schedulable)
        if node.offers or node.unclaimed:
            by_name[node.name] = node
        else:
            others += 1
    return Inventory(nodes=by_name, others=others)


def pruned(raw: Mapping[str, Any], labels: card_models.Labels, rulebook: Rulebook) -> dict[str, Any] | None:
    """A Node object cut down to what any rule asks of it; None if it has no resource that a rule knows.

    Amounts and labels are text. Conditions are there if it is not ready, a spec if it is unschedulable. What follows
    from the rules is not, as they may change while this is kept.
    """
    amounts = fields.mapping(raw, "status", "allocatable") or fields.mapping(raw, "status", "capacity")
    if rulebook.resources.keys().isdisjoint(amounts):
        return None
    present = fields.mapping(raw, "metadata", "labels")
    names = rulebook.resources.keys() | labels.keys
    node: dict[str, Any] = {
        "metadata": {
            "name": str(fields.mapping(raw, "metadata").get("name", "")),
            "labels": {key: str(value) for key, value in present.items() if key in labels.keys},
        },
        "status": {"allocatable": {name: quantity.text_of(amounts[name]) for name in amounts if name in names}},
    }
    # A node that says nothing of being ready (a file, cut short) is taken to be.
    for condition in fields.objects(fields.at(raw, "status", "conditions")):
        if condition.get("type") == "Ready":
            if condition.get("status") != "True":
                node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            break
    if fields.at(raw, "spec", "unschedulable") is True:
        node["spec"] = {"unschedulable": True}
    return node


def surroundings(inventory: Inventory) -> Surroundings:
    """What the inventory tells the choice of a back end: who has nodes, and with which cards.

    What exists is given in all, and of each card model where every card is known; nothing where an amount is unknown.
    """
    models: dict[str, dict[str, Card | None]] = {}
    for node in inventory.nodes.values():
        for backend, card in node.cards.items():
            models.setdefault(backend, {})[card.model if card else ""] = card
    offers = [offer for node in inventory.nodes.values() for offer in node.offers.values()]
    named, numbers = all(offer.card is not None for offer in offers), [offer.devices for offer in offers]
    exists: list[tally.Tally] = []
    for what, amounts in (
        (tally.DEVICES, [(offer.card, offer.devices) for offer in offers]),
        (tally.MEMORY, [(offer.card, offer.memory) for offer in offers]),
    ):
        if all(amount is not None for _, amount in amounts):
            for card, amount in amounts:
                exists.append({what: Fraction(amount or 0)})
                if card is not None and named:
                    exists.append({tally.key(what, card.model): Fraction(amount or 0)})
    return Surroundings(
        cards={
            backend: [card for _, card in sorted(cards.items()) if card]
            for backend, cards in models.items()
            if all(cards)
        },
        present=frozenset(name for node in inventory.nodes.values() for name in node.belongs),
        most=0 if None in numbers else ceil(max(filter(None, numbers), default=0)),
        exists=tally.total(exists),
    )


def _node(
    meaningful: Mapping[str, str], advertised: Mapping[str, str], labels: card_models.Labels, rulebook: Rulebook
) -> Node:
    """What all nodes with these labels and amounts have in common."""
    amounts = {name: _amount(value) for name, value in advertised.items() if name in rulebook.resources}
    left = {name: amount for name, amount in amounts.items() if amount > 0}
    owners: dict[str, Sequence[Backend]] = {}
    for name in left:  # whose it may be by the node's labels: the most labels first, then the cluster's order
        fitting = [
            owner
            for owner in rulebook.resources[name].owners
            if all(
                key in meaningful and (not values or meaningful[key] in values)
                for key, values in owner.nodes.labels.items()
            )
        ]
        owners[name] = sorted(fitting, key=lambda owner: -len(owner.nodes.labels))
    groups: dict[str, dict[str, int]] = {}
    for name, candidates in owners.items():
        if candidates:
            groups.setdefault(candidates[0].name, {})[name] = left[name]
    could = {backend.name: backend for candidates in owners.values() for backend in candidates}
    counted = Counter(could[name].nodes.devices for name in groups)

    # The card that a label names, else the only one the back end serves, or that the Cluster document says.
    cards: dict[str, tuple[Card | None, str | None]] = {}
    for name, backend in could.items():
        card, profile = labels.recognise(meaningful, backend)
        card = card or backend.card
        if card is None and rulebook.cluster.device is not None:
            named = rulebook.devices[rulebook.cluster.device.lower()]
            card = named if backend.serves(named) else None
        cards[name] = card, profile if card is None or profile in card.profiles else None

    offers = {}
    for name, resources in groups.items():
        backend, (card, profile) = could[name], cards[name]
        devices = None
        key = backend.nodes.devices
        # A label or resource with the number of cards counts those of another back end on the same node, too.
        if key is not None and counted[key] == 1 and profile is None:
            text = meaningful.get(key, "")
            devices = Fraction((text.isdecimal() and _amount(text)) or _amount(advertised.get(key))) or None
        models = [card] if card else card_models.card_served(backend, rulebook)

        # How the rule writes each resource. One that goes with every partition is not the name of one.
        modes = card_models.for_card(backend, card).modes
        profiles: dict[str, set[str | None]] = {}
        for mode in modes:
            for resource in mode.limits:
                profiles.setdefault(resource, set()).add(mode.profile)
        advertisements = []
        for mode in modes:
            for resource, output in mode.limits.items():
                if resource in resources:
                    partition = mode.profile if len(profiles[resource]) == 1 else None
                    advertisements.append(Advertisement(resources[resource], output, partition, mode.size))

        if profile is not None:
            devices = _cut({profile: max(resources.values())}, models)
        else:
            devices = devices or _devices(advertisements, models, backend.nodes.replicas)
        if card is not None and devices is not None:
            memory: int | None = int(devices * card.memory)
        else:
            memory = _sliced(advertisements) or max(filter(None, map(_bytes, advertisements)), default=None)
        offers[name] = Offer(
            backend=name, resources=resources, card=card, profile=profile, devices=devices, memory=memory
        )

    return Node(
        name="",
        offers=offers,
        cards={name: card for name, (card, _) in cards.items()},
        belongs=frozenset(
            candidate.name
            for candidates in owners.values()
            for candidate in candidates  # no label tells it apart from the first
            if len(candidate.nodes.labels) == len(candidates[0].nodes.labels)
        ),
        unclaimed={name: left[name] for name, candidates in owners.items() if not candidates},
    )


def _amount(value: object) -> int:
    """A quantity as a node advertises it; 0 if it is none."""
    text = quantity.text_of(value)
    with suppress(QuantityError):
        return int(quantity.served(text))
    with suppress(QuantityError):
        return quantity.size(text)
    return 0


# How many cards a node has, from the resources it advertises: the rules read backwards


class Advertisement(NamedTuple):
    """One resource of a node, and how a rule writes it: for which partition, and of which size in bytes, if so."""

    value: int
    output: Output
    profile: str | None
    size: int | None


def _devices(advertisements: Sequence[Advertisement], cards: Sequence[Card], replicas: int) -> Fraction | None:
    """How many cards of these models there are, by what tells it best; None if nothing does."""
    for value, output, *_ in advertisements:  # percents, or slices of time: so much makes a device
        if isinstance(output, Amount) and (output.what in {"cores", "share"} or output.unit_name == PERCENT):
            if devices := value * output.unit / 100:
                return devices
            break
    if whole := _cut({profile: value for value, _, profile, _ in advertisements if profile}, cards):
        return whole
    if len(cards) == 1:  # memory, where the card is known: a system rounds each card's down to its unit
        if sliced := _sliced(advertisements):
            return Fraction(ceil(Fraction(sliced, cards[0].memory)))
        for resource in advertisements:
            if isinstance(resource.output, Amount) and _bytes(resource):
                per_device = max(1, cards[0].memory // resource.output.unit)
                return Fraction(max(1, round(Fraction(resource.value, per_device))))
    for value, output, profile, size in advertisements:
        if output.what == "count" and not (profile or size):
            if value:
                return Fraction(value, replicas)
            break
    for value, output, *_ in advertisements:  # a rule that writes the same for every request: so much makes one
        if isinstance(output, Constant) and output.number:
            return Fraction(value, output.number) or None
    return None


def _cut(profiles: Mapping[str, int], cards: Sequence[Card]) -> Fraction | None:
    """As many cards as these partitions take, if it is the same number on every card that has them."""
    numbers = set()
    for card in cards:
        if profiles and profiles.keys() <= card.profiles.keys():
            partitions = [(card.profiles[name], count) for name, count in profiles.items()]
            memory = sum(count * partition.memory_slices for partition, count in partitions)
            compute = sum(count * partition.compute_slices for partition, count in partitions)
            slices = Fraction(memory, card.memory_slices or 1), Fraction(compute, card.compute_slices or 1)
            numbers.add(ceil(max(slices)))
    return Fraction(numbers.pop()) if len(numbers) == 1 else None


def _sliced(advertisements: Iterable[Advertisement]) -> int:
    """The memory of all slices of a size."""
    return sum(resource.value * resource.size for resource in advertisements if resource.size)


def _bytes(resource: Advertisement) -> int:
    """The memory that a value stands for; 0 where it stands for none."""
    output = resource.output
    if not isinstance(output, Amount) or output.what != "memory" or output.unit_name == PERCENT:
        return 0
    return int(resource.value * output.unit)
