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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from webhook.core.backends.charge import Measure, total
from webhook.core.reports.demand import Application, Demand, Unread, Use
from webhook.core.reports.inventory import Inventory, Node, Offer
from webhook.core.reports.planned import Unknown
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook


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
