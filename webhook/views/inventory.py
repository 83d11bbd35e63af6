"""What nodes have and what pods ask, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.core.backends.charge import Measure
from webhook.core.reports.inventory import Node, Offer
from webhook.core.reports.overview import ApplicationRow, NodeRow, Overview, Row
from webhook.views.table import memory, short, table

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
