"""Nodes, pods and what makes pods, from files as `kubectl get -o json` or `gpu-webhook watch` write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from webhook.core.reports import demand, inventory, overview, planned
from webhook.core.reports.overview import Overview
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents

MOST_VALUES: Final = 20_000_000
"""Values of one YAML file: a cluster of some thousand nodes. That takes minutes to read; JSON takes seconds."""

Object = Mapping[str, Any]


@dataclass(slots=True)
class Objects:
    """Nodes and pods of one cluster, and the other objects beside them."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    others: list[Object] = field(default_factory=list)

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML or JSON, or as `gpu-webhook watch` writes them."""
        for document in contents(content, name):
            if "kind" not in document and isinstance(document.get("nodes"), list):
                self.nodes += [node for node in document["nodes"] if isinstance(node, Mapping)]
                continue
            for kind, found in members(document):
                if kind == "Node":
                    self.nodes.append(found)
                elif kind == "Pod":
                    self.pods.append(found)
                else:
                    self.others.append({**found, "kind": kind})

    def view(self, rulebook: Rulebook) -> Overview:
        """The overview of these nodes and pods, and of the pods that manifests among the others would make."""
        known = inventory.read(self.nodes, rulebook)
        there = demand.demand(self.pods, known, rulebook)
        more, unknown = planned.planned(self.others, known, rulebook)
        whole = demand.Demand([*there.uses, *more.uses], [*there.unread, *more.unread])
        return overview.overview(known, whole, rulebook, unknown)


def contents(content: bytes, name: str) -> list[Object]:
    """The objects of a file, in YAML or JSON; raises UnreadableError."""
    if content.lstrip()[:1] == b"{":
        with suppress(orjson.JSONDecodeError):  # several documents, or YAML in flow style
            return [orjson.loads(content)]
    return documents.objects(content, name, MOST_VALUES)


def members(document: Object, kind: str = "") -> Iterator[tuple[str, Object]]:
    """An object with its kind, or each of a list with its own: that of the list, where it says none."""
    kind = str(document.get("kind") or kind)
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, Mapping):
                yield from members(item, kind.removesuffix("List"))
    else:
        yield kind, document
