"""The kinds of objects that the watcher follows: where each is, what is remembered of it, and what is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Final

from webhook.core.backends import cards
from webhook.core.reports import inventory
from webhook.core.rules.claim_source import ObjectKind
from webhook.core.rules.rulebook import Rulebook

Object = Mapping[str, Any]


class Kind:
    """One kind of object.

    paths   where the API server may have it; the first that exists counts
    needed  whether nothing is written without it
    """

    name: str
    paths: tuple[str, ...]
    needed = True

    def remember(self, raw: Object) -> Object:
        """What is kept of an object, whatever the rules are."""
        raise NotImplementedError

    def written(self, kept: Sequence[Object], rulebook: Rulebook) -> Iterator[Object]:  # noqa: ARG002 - as of nodes
        """What the file holds of the objects that are there: all, unless the kind says less."""
        yield from kept


class Nodes(Kind):
    """Nodes: labels, what they advertise, and whether they take pods."""

    name = "nodes"
    paths = ("/api/v1/nodes",)

    def remember(self, raw: Object) -> Object:
        """Without annotations, images and addresses, which are most of a node."""
        status = raw.get("status") or {}
        ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
        labels = raw["metadata"].get("labels") or {}
        return {
            "metadata": {
                "name": raw["metadata"]["name"],
                "labels": {intern(key): intern(value) for key, value in labels.items()},
            },
            "spec": {"unschedulable": bool((raw.get("spec") or {}).get("unschedulable"))},
            "status": {
                "allocatable": status.get("allocatable") or status.get("capacity") or {},
                "conditions": [{"type": "Ready", "status": one["status"]} for one in ready],
            },
        }

    def written(self, kept: Sequence[Object], rulebook: Rulebook) -> Iterator[Object]:
        """Those with devices, cut down to what the rules ask for."""
        labels = cards.labels(rulebook)
        yield from filter(None, (inventory.pruned(node, labels, rulebook) for node in kept))


class Claims(Kind):
    """Claims that containers may name, or their classes: a kind that some rule tells of."""

    needed = False

    def __init__(self, kind: ObjectKind) -> None:
        self.name = kind.name
        self.paths = tuple(f"/apis/{kind.group}/{version}/{kind.plural}" for version in kind.versions)

    def remember(self, raw: Object) -> Object:
        """What its author wrote."""
        named = {key: raw["metadata"][key] for key in ("namespace", "name") if key in raw["metadata"]}
        return {"metadata": named, **{key: value for key, value in raw.items() if key not in _NEVER_READ}}


_NEVER_READ: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
