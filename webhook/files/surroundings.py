"""The file that `gpu-webhook watch` writes: nodes, claims and classes of the cluster.

A JSON object with one key for each kind of object that is watched:

    nodes          Node objects with known resources, pruned to the labels and resources that a rule reads
    PLURAL.GROUP   claims that containers may name, and their classes, pruned likewise; the key is missing if the
                   cluster does not have the kind

The file has observations, not conclusions: what follows from them depends on the rules, which may change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from webhook.core import inventory
from webhook.core.forms.document import UnreadableError
from webhook.core.interpret import claims
from webhook.core.rules.rulebook import Rulebook, Surroundings


def heard(file: Path) -> Path:
    """The file beside it, which is replaced at changes only: its time says up to when the writer heard of nodes."""
    return file.with_name(f"{file.name}.heard")


def read(file: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The objects in the file, by kind; raises UnreadableError."""
    try:
        objects = orjson.loads(file.read_bytes())
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise UnreadableError(f"{file} is not JSON: {error}") from None
    if not isinstance(objects, dict) or not all(
        isinstance(kept, list) and all(isinstance(raw, dict) for raw in kept) for kept in objects.values()
    ):
        raise UnreadableError(f"{file} is not what `gpu-webhook watch` writes: an object of lists of objects")
    return objects


def around(rulebook: Rulebook, file: Path) -> Rulebook:
    """The rulebook with the surroundings that the file describes; raises UnreadableError."""
    return concluded(rulebook, read(file))


def concluded(rulebook: Rulebook, objects_there: Mapping[str, Sequence[Mapping[str, Any]]]) -> Rulebook:
    """The rulebook with the surroundings that follow from objects of the cluster, by kind as in the file."""
    around = inventory.surroundings(inventory.read(objects_there.get("nodes", ()), rulebook))
    kinds = [kind.name for source in rulebook.sources for kind in source.kinds]
    objects = {name: claims.indexed(objects_there[name]) for name in kinds if name in objects_there}
    return replace(rulebook, surroundings=replace(around, objects=objects))


def describe(around: Surroundings) -> str:
    """What is known, for a log: `nodes of hami-vgpu (T4) and amd-gpu; 3 claims.example.com`."""
    names = sorted(around.present or ())
    cards = {name: f" ({', '.join(card.model for card in there)})" for name, there in around.cards.items() if there}
    there = " and ".join(f"{name}{cards.get(name, '')}" for name in names)
    nodes = f"nodes of {there}" if names else "no nodes with devices"
    return "; ".join([nodes, *(f"{len(objects)} {kind}" for kind, objects in around.objects.items())])
