"""The global view: what exists, what is asked and what is free, by card, back end, node and application.

`Overview.contract` is the form of `gpu-webhook inventory -o json`, which scripts rely on:

    cluster                     its name
    nodes, nodesWithoutDevices  how many
    total                       exists, asked, free, waiting
    cards                       by model (null: unknown): nodes, exists, asked, free
    backends                    by name, in the cluster's order, whose nodes these are: nodes, exists, asked, free
    perNode                     node, ready, schedulable, backend, model, profile, resources, exists, asked, free
    applications                namespace, kind, name, backends (whose words they ask in), pods, asked, waiting
    unclaimed                   node, resources: advertised, and no enabled back end's
    notUnderstood               namespace, pod, message: pods that are not counted
    unknown                     namespace, object, message: objects that may make pods, and nobody knows which

`asked` is what pods bound to a node ask, `waiting` what the others do. `free` is what exists and is not asked
on nodes that take pods, so exists can be more than asked and free. Each is a measure: `devices` (a share counts as
what it is charged), `memoryBytes`, `computePercent` (100 is one device's), and `unsizedDevices`: those of the devices
whose memory nobody knows, and which is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import add
from typing import Any, Final

from webhook.cli import explanation
from webhook.cli.table import memory, short, table
from webhook.core import pod_templates
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.cards import Recognised
from webhook.core.backends.charge import Measure, total
from webhook.core.interpret.interpret import ContainerRequest, asks_nothing, interpret
from webhook.core.inventory import Inventory, Node, Offer, surroundings
from webhook.core.kube import fields, pod
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import allocation
from webhook.core.plan.allocation import Allocation
from webhook.core.pod_templates import Found
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal

# What the pods of a cluster ask for, in one neutral unit, whatever system serves them.

_HASH = re.compile(r"-[a-z0-9]{5,10}$")


@dataclass(frozen=True, slots=True, order=True)
class Application:
    """Whose a pod is: the workload that made it, or the pod itself."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one pod asks of one back end; `node` is None while it waits for one.

    `holder` is the back end whose devices on the node these are: another one, where a pod asks in the words of a
    system that no label says the node is for. `pods` are alike and counted together.
    """

    application: Application
    pod: str
    node: str | None
    backend: str
    holder: str
    card: Card | None
    asked: Measure
    pods: int = 1


@dataclass(frozen=True, slots=True)
class Unread:
    """A pod whose resources nobody here can read, and which is not counted."""

    namespace: str
    pod: str
    message: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What all pods that have not ended ask for."""

    uses: Sequence[Use]
    unread: Sequence[Unread]


def demand(pods: Iterable[Mapping[str, Any]], inventory: Inventory, rulebook: Rulebook) -> Demand:
    """What these Pod objects ask, each of the back end and the card of its node."""
    rulebook = replace(rulebook, surroundings=surroundings(inventory), sources=())
    uses: list[Use] = []
    unread: list[Unread] = []
    for raw in pods:
        try:
            seen = pod.read(raw)
            if pod.live(raw) and not asks_nothing(seen, rulebook):
                uses += _uses(seen, inventory, rulebook)
        except Refusal as refusal:
            unread.append(Unread(*_named(raw), "; ".join(violation.message for violation in refusal.violations)))
        except CannotExpressError as reason:
            unread.append(Unread(*_named(raw), reason.message))
    return Demand(uses, unread)


def _named(raw: Mapping[str, Any]) -> tuple[str, str]:
    said = fields.mapping(raw, "metadata")
    return str(said.get("namespace") or "default"), str(said.get("name") or said.get("generateName") or "(no name)")


def _uses(seen: Pod, inventory: Inventory, rulebook: Rulebook) -> Iterator[Use]:
    namespace, pod_name = _named(seen.raw)
    bound = seen.spec.get("nodeName") or None
    node = inventory.nodes.get(bound) if bound else None
    groups: dict[tuple[str, str], list[tuple[Container, Measure]]] = {}
    cards: dict[tuple[str, str], Card | None] = {}
    for asked in _asking(seen, rulebook):
        counted = _demand_measured(asked, seen, node, rulebook)
        if counted is None:
            continue
        name = counted.assignment.backend.name
        whose = name, _holder(asked, name, node) if node else name
        groups.setdefault(whose, []).append((asked.container, counted.measure))
        cards[whose] = counted.assignment.card
    for (backend_name, holder), containers in groups.items():
        yield Use(
            application=_application(seen, namespace, pod_name),
            pod=pod_name,
            node=bound,
            backend=backend_name,
            holder=holder,
            card=cards[backend_name, holder],
            asked=pod.effective(containers, add, Measure.at_least, Measure()),
        )


def _holder(asked: ContainerRequest, backend: str, node: Node) -> str:
    """Whose devices on the node a container's resources are of."""
    if backend in node.offers:
        return backend
    wanted = asked.extended.amounts.keys()
    return next((name for name, offer in node.offers.items() if wanted & offer.resources.keys()), backend)


def _asking(seen: Pod, rulebook: Rulebook) -> list[ContainerRequest]:
    """The containers that ask for anything; raises Refusal if one of them cannot be read."""
    interpretation = interpret(seen, rulebook)
    if len(interpretation.asked) < len(seen.containers):
        raise Refusal(*interpretation.violations)
    return [asked for asked in interpretation.asked if asked.anything]


def _demand_measured(asked: ContainerRequest, seen: Pod, node: Node | None, rulebook: Rulebook) -> Allocation | None:
    """What stands on a container, as the back ends read it that have devices on its node."""
    if not asked.extended.amounts:
        return allocation.from_claims(asked, seen, rulebook)

    def card_on_node(backend: Backend) -> Recognised:
        if node is None:
            return Recognised(allocation.expected_card(asked, backend, rulebook), None)
        offer = node.offers.get(_holder(asked, backend.name, node))
        return Recognised(offer.card, offer.profile) if offer else Recognised(node.cards.get(backend.name), None)

    return allocation.from_resources(asked, _owners(asked, node, rulebook), card_on_node, rulebook)


def _owners(asked: ContainerRequest, node: Node | None, rulebook: Rulebook) -> Sequence[Backend]:
    """The enabled owners of all of a container's resources; those that have devices on its node first."""
    owners = allocation.enabled_owners(asked, rulebook)
    if node is None:
        return owners
    return sorted(owners, key=lambda owner: (owner.name not in node.offers, owner.name not in node.belongs))


def _application(seen: Pod, namespace: str, name: str) -> Application:
    """The owner that controls the pod; of a ReplicaSet, the Deployment that it is a generation of."""
    owner = next(fields.controllers(seen.raw), None)
    if owner is None:
        return Application(namespace, "Pod", name)
    kind, owner_name = str(owner.get("kind", "")), str(owner.get("name", ""))
    if kind != "ReplicaSet":
        return Application(namespace, kind, owner_name)
    generation = seen.labels.get("pod-template-hash")
    deployment = owner_name.removesuffix(f"-{generation}") if generation else _HASH.sub("", owner_name)
    return Application(namespace, "Deployment", deployment)


# What objects that make pods would ask of a cluster that has not created their pods yet.

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object of which nobody can say what pods it makes."""

    namespace: str
    object: str
    message: str


def planned(objects: Iterable[Object], inventory: Inventory, rulebook: Rulebook) -> tuple[Demand, Sequence[Unknown]]:
    """What the pods of these objects ask, and the objects that cannot be read or are of unknown kinds."""
    uses: list[Use] = []
    unread: list[Unread] = []
    unknown: list[Unknown] = []
    for raw in objects:
        for found in pod_templates.pods(raw, rulebook.workloads):
            if found.wrong is not None:
                unknown.append(Unknown(found.namespace, found.title, found.wrong.message))
            elif not fields.at(raw, "metadata", "uid"):
                asked = _asked(found, inventory, rulebook)
                uses += _of_all(asked.uses, found, raw)
                unread += asked.unread
    return Demand(uses, unread), unknown


def _asked(found: Found, inventory: Inventory, rulebook: Rulebook) -> Demand:
    """What one pod asks once it is translated."""
    explained = explanation.explain_pod(found.title, found.pod, found.namespace, rulebook)
    if not explained.decision.allowed:
        first = explained.decision.violations[0]
        return Demand([], [Unread(found.namespace, found.title, first.message)])
    metadata = {**fields.mapping(explained.after, "metadata"), "namespace": found.namespace, "name": found.title}
    return demand([{**explained.after, "metadata": metadata}], inventory, rulebook)


def _of_all(uses: Iterable[Use], found: Found, raw: Object) -> Iterator[Use]:
    """What all pods like this ask, for the object that makes them."""
    application = Application(found.namespace, str(raw.get("kind")), str(fields.at(raw, "metadata", "name") or ""))
    for use in uses:
        yield replace(use, application=application, pods=found.number, asked=use.asked.times(found.number))


# The global view: what exists, what is asked and what is free, by card, back end, node and application.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One card model or back end; `name` is None for cards nobody knows."""

    name: str | None
    nodes: int
    exists: Measure
    asked: Measure
    free: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """What one back end has on one node."""

    node: Node
    offer: Offer
    asked: Measure

    @property
    def exists(self) -> Measure:
        """What there is."""
        return self.offer.exists

    @property
    def free(self) -> Measure:
        """What is left for a new pod: nothing on a node that takes none."""
        return self.exists.less(self.asked) if self.node.takes_pods else Measure()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRow:
    """What the pods of one workload ask, those on nodes and those that wait for one."""

    application: Application
    backends: Sequence[str]
    pods: int
    asked: Measure
    waiting: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of it, as rows. `others` is the number of nodes without devices."""

    cluster: str
    nodes: int
    others: int
    total: Row
    waiting: Measure
    cards: Sequence[Row]
    backends: Sequence[Row]
    per_node: Sequence[NodeRow]
    applications: Sequence[ApplicationRow]
    unclaimed: Mapping[str, Mapping[str, int]]
    unread: Sequence[Unread]
    unknown: Sequence[Unknown] = ()

    def contract(self) -> dict[str, Any]:
        """The form of `inventory -o json`, see above."""
        return {
            "cluster": self.cluster,
            "nodes": self.nodes,
            "nodesWithoutDevices": self.others,
            "total": {**_measured(self.total), "waiting": _plain(self.waiting)},
            "cards": [{"model": row.name, "nodes": row.nodes, **_measured(row)} for row in self.cards],
            "backends": [{"name": row.name, "nodes": row.nodes, **_measured(row)} for row in self.backends],
            "perNode": [
                {
                    "node": row.node.name,
                    "ready": row.node.ready,
                    "schedulable": row.node.schedulable,
                    "backend": row.offer.backend,
                    "model": _model(row.offer.card),
                    "profile": row.offer.profile,
                    "resources": dict(row.offer.resources),
                    **_measured(row),
                }
                for row in self.per_node
            ],
            "applications": [
                {
                    **asdict(row.application),
                    "backends": list(row.backends),
                    "pods": row.pods,
                    "asked": _plain(row.asked),
                    "waiting": _plain(row.waiting),
                }
                for row in self.applications
            ],
            "unclaimed": [{"node": node, "resources": dict(what)} for node, what in self.unclaimed.items()],
            "notUnderstood": [asdict(one) for one in self.unread],
            "unknown": [asdict(one) for one in self.unknown],
        }


def overview(inventory: Inventory, demand: Demand, rulebook: Rulebook, unknown: Sequence[Unknown] = ()) -> Overview:
    """Bring together what nodes offer and what pods ask."""
    bound = [use for use in demand.uses if use.node is not None]
    per_node = _per_node(inventory, bound)
    ranks = {backend.name: rank for rank, backend in enumerate(rulebook.enabled)}
    names = {row.offer.backend for row in per_node} | {use.holder for use in bound}
    models = {_model(row.offer.card) for row in per_node} | {_model(use.card) for use in bound}
    return Overview(
        cluster=rulebook.cluster.name,
        nodes=len(inventory.nodes),
        others=inventory.others,
        total=_row(None, per_node, bound),
        waiting=total(use.asked for use in demand.uses if use.node is None),
        cards=[
            _row(
                name,
                [row for row in per_node if _model(row.offer.card) == name],
                [use for use in bound if _model(use.card) == name],
            )
            for name in sorted(models, key=lambda name: (name is None, name))
        ],
        backends=[
            _row(
                name,
                [row for row in per_node if row.offer.backend == name],
                [use for use in bound if use.holder == name],
            )
            for name in sorted(names, key=ranks.__getitem__)
        ],
        per_node=per_node,
        applications=_applications(demand.uses),
        unclaimed={node.name: node.unclaimed for node in _sorted(inventory) if node.unclaimed},
        unread=demand.unread,
        unknown=unknown,
    )


def _sorted(inventory: Inventory) -> list[Node]:
    return [inventory.nodes[name] for name in sorted(inventory.nodes)]


def _per_node(inventory: Inventory, bound: Iterable[Use]) -> list[NodeRow]:
    asked: dict[tuple[str | None, str], Measure] = {}
    for use in bound:
        asked[use.node, use.holder] = asked.get((use.node, use.holder), Measure()) + use.asked
    return [
        NodeRow(node=node, offer=offer, asked=asked.get((node.name, offer.backend), Measure()))
        for node in _sorted(inventory)
        for offer in node.offers.values()
    ]


def _model(card: Card | None) -> str | None:
    return None if card is None else card.model


def _row(name: str | None, rows: Sequence[NodeRow], uses: Iterable[Use]) -> Row:
    return Row(
        name=name,
        nodes=len({row.node.name for row in rows}),
        exists=total(row.exists for row in rows),
        asked=total(use.asked for use in uses),
        free=total(row.free for row in rows),
    )


def _applications(uses: Iterable[Use]) -> list[ApplicationRow]:
    """The largest first."""
    groups: dict[Application, list[Use]] = {}
    for use in uses:
        groups.setdefault(use.application, []).append(use)
    rows = [
        ApplicationRow(
            application=application,
            backends=sorted({use.backend for use in group}),
            pods=sum({use.pod: use.pods for use in group}.values()),
            asked=total(use.asked for use in group if use.node is not None),
            waiting=total(use.asked for use in group if use.node is None),
        )
        for application, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-(row.asked + row.waiting).devices, row.application))


def _measured(row: Row | NodeRow) -> dict[str, Any]:
    return {"exists": _plain(row.exists), "asked": _plain(row.asked), "free": _plain(row.free)}


def _plain(measure: Measure) -> dict[str, Any]:
    return {
        "devices": _number(measure.devices),
        "memoryBytes": measure.memory,
        "computePercent": _number(measure.compute),
        "unsizedDevices": _number(measure.unsized),
    }


def _number(exact: Fraction) -> int | float:
    """As JSON has numbers; to six decimals, less than any device is sold in."""
    return exact.numerator if exact.denominator == 1 else round(float(exact), 6)


# What nodes have and what pods ask, as tables for a terminal.

MEASURES: Final = ("DEVICES", "FREE", "MEMORY", "FREE", "COMPUTE", "FREE")


def lines(view: Overview) -> Iterator[str]:
    """The view as aligned tables."""
    yield from _summary(view)
    yield from table(("CARD", "NODES", *MEASURES), [_of_row(row) for row in view.cards], texts=1)
    yield from table(("BACK END", "NODES", *MEASURES), [_of_row(row) for row in view.backends], texts=1)
    yield from table(
        ("NODE", "STATE", "BACK END", "CARD", *MEASURES), [_of_node(row) for row in view.per_node], texts=4
    )
    yield from table(APPLICATION, [_of_application(row) for row in view.applications], texts=4)
    yield from _notes(view)


def _summary(view: Overview) -> Iterator[str]:
    total = view.total
    nodes = f"{view.nodes} node{'' if view.nodes == 1 else 's'}"
    yield f"cluster {view.cluster}: {nodes} with devices, {view.others} without"
    waiting = f"; pods that wait for a node ask {short(view.waiting.devices)} more" if view.waiting.devices else ""
    yield (
        f"pods on nodes ask {short(total.asked.devices)} of {short(total.exists.devices)} devices, "
        f"{short(total.free.devices)} are free{waiting}"
    )


def _of_row(row: Row) -> Sequence[str]:
    return (row.name or "unknown", str(row.nodes), *_measures(row.exists, row.asked, row.free))


def _measures(exists: Measure, asked: Measure, free: Measure) -> Sequence[str]:
    """Of each dimension what is asked, of what exists, and what is free."""
    return (
        f"{short(asked.devices)} of {short(exists.devices)}",
        short(free.devices),
        f"{memory(asked)} of {memory(exists)}",
        memory(free),
        f"{short(asked.compute)} of {short(exists.compute)}%",
        f"{short(free.compute)}%",
    )


def _of_node(row: NodeRow) -> Sequence[str]:
    offer = row.offer
    measures = _measures(offer.exists, row.asked, row.free)
    if offer.devices is None:
        measures = (f"{short(row.asked.devices)} of ?", "?", *measures[2:4], f"{short(row.asked.compute)} of ?", "?")
    return (row.node.name, state(row.node), offer.backend, card(offer), *measures)


def card(offer: Offer) -> str:
    """The model of an offer, and the partition it is cut into."""
    model = offer.card.model if offer.card else "unknown"
    return f"{model} in {offer.profile}" if offer.profile else model


def state(node: Node) -> str:
    """Whether a node takes pods, in a word or two."""
    if not node.ready:
        return "not ready"
    return "ready" if node.schedulable else "cordoned"


APPLICATION: Final = (
    "APPLICATION",
    "NAMESPACE",
    "KIND",
    "BACK END",
    "PODS",
    "DEVICES",
    "MEMORY",
    "COMPUTE",
    "WAITING",
)


def _of_application(row: ApplicationRow) -> Sequence[str]:
    return (
        row.application.name,
        row.application.namespace,
        row.application.kind,
        ", ".join(row.backends),
        str(row.pods),
        short(row.asked.devices),
        memory(row.asked),
        f"{short(row.asked.compute)}%",
        short(row.waiting.devices) if row.waiting.devices else "-",
    )


def _notes(view: Overview) -> Iterator[str]:
    if view.unclaimed:
        yield "\nNOBODY'S: resources that no enabled back end says this node is for"
        for node, resources in view.unclaimed.items():
            yield f"  {node}: " + ", ".join(f"{name}: {value}" for name, value in resources.items())
    if view.unread:
        yield "\nNOT COUNTED: pods whose resources mean nothing here"
        yield from (f"  {one.namespace}/{one.pod}: {one.message}" for one in view.unread)
    if view.unknown:
        yield "\nUNKNOWN: objects that may make pods, which are not counted"
        yield from (f"  {one.namespace}/{one.object}: {one.message}" for one in view.unknown)
    if view.total.exists.unsized or view.total.asked.unsized:
        yield "\n* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster"
        yield "  document, would say which cards they are"
