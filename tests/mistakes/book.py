"""The mistakes, and what is answered to each."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import yaml

from tests import builders
from tests.cases.golden import message
from tests.cases.served import NeverServedError, as_served
from tests.laws import clusters
from webhook.cli import snapshot, workload_advice
from webhook.cli.options import DEMO
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import surroundings

Object = dict[str, Any]
FOLDER = Path(__file__).parent
ANSWERS = FOLDER / "answers.yaml"
NAMESPACE = "research"
"""A namespace of a tenant with a quota, in the cluster of `make run`."""


class Mistake(NamedTuple):
    """What somebody writes, and the words that mean it, or are nearest to it there; None where nobody can tell."""

    name: str
    made: Object
    means: Mapping[str, str] | None = None
    cluster: str = ""

    def rules(self) -> Rulebook:
        """Those of its cluster."""
        return rules(self.cluster)


@cache
def rules(cluster: str = "") -> Rulebook:
    """The rules of a cluster with one back end, perhaps with `of` the model of its cards; else those of `make run`.

    The latter have tenants and nodes.
    """
    if cluster:
        name, _, model = cluster.partition(" of ")
        return replace(clusters.knowing(name, model or None), trial=False)
    shipped = builders.rulebook(builders.shipped_files())
    tenants, inventory = (_items(name) for name in ("tenants.yaml", "inventory.yaml"))
    objects = snapshot.Snapshot(snapshot.TENANTS)
    for document in tenants:
        objects.add(document)
    nodes = [document for document in inventory if document["kind"] == "Node"]
    return surroundings.concluded(replace(shipped, tenancy=objects.tenancy(shipped)[0]), {"nodes": nodes})


def _items(name: str) -> list[Object]:
    [made] = builders.documents((DEMO / name).read_text())
    return [*made["items"]]


def find() -> Iterator[Mistake]:
    """Every mistake of the page, in its order."""
    for place, mistakes in yaml.safe_load((FOLDER / "mistakes.yaml").read_text()).items():
        for words, *means in mistakes:
            text = yaml.safe_dump(words, default_flow_style=True, width=1000, sort_keys=False).strip()
            section, _, cluster = place.partition(" on ")
            yield Mistake(f"{place} {text}", _made(section, words), means[0] if means else None, cluster)


def _made(place: str, words: Object) -> Object:
    """The pod, or the workload, with these words in a place."""
    if place == "objects":
        return words
    if place in {"labels", "annotations"}:
        return builders.pod(**{place: words})
    return builders.written({"limits": words} if place == "containers" else words)


def meant(words: Mapping[str, str]) -> Object:
    """The pod of somebody who makes no mistake."""
    return builders.pod(labels=dict(words))


def answer(mistake: Mistake) -> str:
    """What its author reads; empty if nothing is said."""
    kind = mistake.made.get("kind")
    if kind != "Pod":
        resource = f"{str(kind).lower()}s"
        review = builders.creating(mistake.made, NAMESPACE)._replace(resource=resource)
        return "\n".join(workload_advice.warn(review, mistake.rules()).warnings)
    told = [[*decision.warnings, message(decision)] for decision in decisions(mistake.made, mistake.rules())]
    return "\n".join(text for texts in told for text in texts if text)


def decisions(made: Object, rules: Rulebook) -> list[Decision]:
    """Those of /mutate and, if it lets the pod in, of /validate."""
    mutated = mutate(builders.creating(_served(made), NAMESPACE), rules)
    return (
        [mutated, validate(builders.creating(stored(made, rules), NAMESPACE), rules)]
        if mutated.allowed
        else [mutated]
    )


def stored(made: Object, rules: Rulebook) -> Object:
    """The pod after the patch of /mutate."""
    served = _served(made)
    patch = mutate(builders.creating(served, NAMESPACE), rules).patch
    return as_served(jsonpatch.apply_patch(served, patch)) if patch else served


def _served(made: Object) -> Object:
    """The pod with what the API server fills in; as it is if that never serves it."""
    try:
        return as_served(made)
    except NeverServedError:
        return made
