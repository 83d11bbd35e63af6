"""The kinds of objects that the watcher follows: where each is, what is remembered of it, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards
from webhook.core.reports import inventory
from webhook.core.rules.claim_source import ObjectKind
from webhook.core.rules.rulebook import Rulebook

Object = Mapping[str, Any]


class Kind(NamedTuple):
    """One kind of object.

    paths     where the API server may have it; the first that exists counts
    remember  what is kept of an object, whatever the rules are
    needed    whether nothing is written without it
    """

    name: str
    paths: tuple[str, ...]
    remember: Callable[[Object], Object]
    needed: bool = False


def _node(raw: Object) -> Object:
    """Labels, what it advertises, and whether it takes pods: annotations, images and addresses are most of a node."""
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


NODES: Final = Kind("nodes", ("/api/v1/nodes",), _node, needed=True)


def claims(kind: ObjectKind) -> Kind:
    """Claims that containers may name, or their classes: a kind that some rule tells of."""
    return Kind(kind.name, tuple(f"/apis/{kind.group}/{version}/{kind.plural}" for version in kind.versions), _claim)


def _claim(raw: Object) -> Object:
    named = {key: raw["metadata"][key] for key in ("namespace", "name") if key in raw["metadata"]}
    return {"metadata": named, **{key: value for key, value in raw.items() if key not in _NEVER_READ}}


def written(kind: Kind, kept: Iterable[Object], rulebook: Rulebook) -> list[Object]:
    """What the file holds of the objects that are there: nodes with devices, cut down to what the rules ask for."""
    if kind != NODES:
        return list(kept)
    labels = cards.labels(rulebook)
    return [*filter(None, (inventory.pruned(node, labels, rulebook) for node in kept))]


_NEVER_READ: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
