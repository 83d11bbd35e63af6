"""`gpu-webhook inventory`: nodes and pods from files or from a cluster, as tables that a stranger understands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import orjson

from webhook import documents
from webhook.core import inventory, overview, usage
from webhook.core.document import DocumentError
from webhook.core.inventory import Node, Offer
from webhook.core.measures import Measure
from webhook.core.overview import ApplicationRow, NodeRow, Overview
from webhook.core.quantity import GIB, shown
from webhook.core.rulebook import Rulebook

MOST_VALUES: Final = 20_000_000
"""In a file of YAML: a cluster of some thousand nodes. It takes minutes; the same as JSON takes seconds."""

Object = Mapping[str, Any]


class UnreadableError(Exception):
    """Why a file cannot be used, in a sentence."""


@dataclass(slots=True)
class Objects:
    """Nodes and pods of one cluster."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)

    def view(self, rulebook: Rulebook) -> Overview:
        """The global view of them."""
        known = inventory.read(self.nodes, rulebook)
        return overview.overview(known, usage.used(self.pods, known, rulebook), rulebook)


def parse(content: bytes, name: str, into: Objects) -> None:
    """Add the nodes and pods of a file, alone or in lists, in YAML or JSON, or as `gpu-webhook watch` writes them."""
    for document in contents(content, name):
        if not isinstance(document, Mapping):
            raise UnreadableError(f"{name} holds something that is not an object")
        if "kind" not in document and isinstance(document.get("nodes"), list):
            into.nodes += [node for node in document["nodes"] if isinstance(node, Mapping)]
        _sort(document, "", into)


def live() -> Objects:
    """The nodes and pods of the current cluster; raises UnreadableError."""
    from webhook import cluster  # noqa: PLC0415 - 55 MiB, and files need none of it

    try:
        return Objects(*cluster.Cluster().nodes_and_pods())
    except cluster.ClusterError as error:
        raise UnreadableError(str(error)) from None


def contents(content: bytes, name: str) -> list[Any]:
    """The objects of a file, in YAML or JSON; raises UnreadableError."""
    if content.lstrip()[:1] == b"{":
        try:
            return [orjson.loads(content)]
        except orjson.JSONDecodeError:
            pass  # several, or YAML that looks like it
    try:
        return [node.plain() for node in documents.parse(content, name, MOST_VALUES)]
    except DocumentError as error:
        raise UnreadableError(str(error)) from None


def _sort(document: Object, kind: str, into: Objects) -> None:
    kind = str(document.get("kind") or kind)
    if kind == "Node":
        into.nodes.append(document)
    elif kind == "Pod":
        into.pods.append(document)
    elif kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, Mapping):
                _sort(item, kind.removesuffix("List"), into)


# As text

MEASURES: Final = ("DEVICES", "FREE", "MEMORY", "FREE", "COMPUTE", "FREE")


def lines(view: Overview) -> Iterator[str]:
    """The view as aligned tables."""
    yield from _summary(view)
    cards = [
        (row.name or "unknown", str(row.nodes), *_measures(row.exists, row.asked, row.free)) for row in view.cards
    ]
    yield from table(("CARD", "NODES", *MEASURES), cards, texts=1)
    backends = [
        (row.name or "", str(row.nodes), *_measures(row.exists, row.asked, row.free)) for row in view.backends
    ]
    yield from table(("BACK END", "NODES", *MEASURES), backends, texts=1)
    yield from table(
        ("NODE", "STATE", "BACK END", "CARD", *MEASURES), [_of_node(row) for row in view.per_node], texts=4
    )
    applications = [_of_application(row) for row in view.applications]
    yield from table(APPLICATION, applications, texts=4)
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
    if view.total.exists.unsized or view.total.asked.unsized:
        yield "\n* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster"
        yield "  document, would say which cards they are"


def short(exact: Fraction) -> str:
    """A number with at most two decimals, which are shown only where there are some."""
    return f"{float(exact):.2f}".rstrip("0").rstrip(".")


def memory(measure: Measure) -> str:
    """Memory in one unit, so that columns compare; a star where some is missing from the sum."""
    if measure.unsized and not measure.memory:
        return "?"
    text = f"{measure.memory / GIB:.1f}".removesuffix(".0")
    return f"{text}Gi{'*' if measure.unsized else ''}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Columns, the first `texts` of them aligned to the left; nothing where there are no rows."""
    if not rows:
        return
    lines = [headings, *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    yield ""
    for line in lines:
        cells = (
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
