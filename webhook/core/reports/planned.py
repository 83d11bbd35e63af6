"""What objects that make pods would ask of a cluster that has not created their pods yet.

An object with a uid is in the cluster, and its pods are among the cluster's. One without is a manifest: its pods are
translated as they would be when they are created, and wait for a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webhook.core.kube import paths
from webhook.core.reports import explain, pod_templates
from webhook.core.reports.demand import Application, Demand, Unread, Use, demand
from webhook.core.reports.inventory import Inventory
from webhook.core.reports.pod_templates import Found
from webhook.core.rules.rulebook import Rulebook

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
            elif not paths.at(raw, "metadata", "uid"):
                asked = _asked(found, inventory, rulebook)
                uses += _of_all(asked.uses, found, raw)
                unread += asked.unread
    return Demand(uses, unread), unknown


def _asked(found: Found, inventory: Inventory, rulebook: Rulebook) -> Demand:
    """What one pod asks once it is translated."""
    explained = explain.explain_pod(found.title, found.pod, found.namespace, rulebook)
    if not explained.decision.allowed:
        first = explained.decision.violations[0]
        return Demand([], [Unread(found.namespace, found.title, first.message)])
    metadata = {**paths.mapping(explained.after, "metadata"), "namespace": found.namespace, "name": found.title}
    return demand([{**explained.after, "metadata": metadata}], inventory, rulebook)


def _of_all(uses: Iterable[Use], found: Found, raw: Object) -> Iterator[Use]:
    """What all pods like this ask, for the object that makes them."""
    application = Application(found.namespace, str(raw.get("kind")), str(paths.at(raw, "metadata", "name") or ""))
    for use in uses:
        yield replace(use, application=application, pods=found.number, asked=use.asked.times(found.number))
