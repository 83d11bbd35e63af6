"""What becomes of a pod: what is planned, and how it would be stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.edited import edited
from tests.laws import clusters
from tests.laws.asking import Asking
from tests.laws.vendors import READINGS
from tests.laws.vendors.seen import Given, Seen
from webhook.core.interpret.interpret import ContainerRequest, interpret
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal


@dataclass(frozen=True, slots=True)
class Stored:
    """A pod that is admitted, by what was planned for its container."""

    asked: Asking
    planned: plan.Plan
    served: Assignment
    pod: Mapping[str, Any]

    @property
    def card(self) -> Card | None:
        """The card that the pod lands on, None if it may be any of several."""
        return card(self.asked, self.served)

    def reading(self) -> Given | None:
        """What its vendor gives the container, None where that depends on the card, and nobody knows it."""
        found = self.card
        return None if found is None else given(self.served.backend.name, self.pod, self.asked.container, found)


def stored(asked: Asking, rulebook: Rulebook | None = None) -> Stored | None:
    """What becomes of the pod that asks, None if it is refused, or left to a system that is not there."""
    rulebook = asked.rulebook if rulebook is None else rulebook
    try:
        planned = plan.make(pod.read(asked.pod), rulebook)
    except Refusal:
        return None
    served = next((one for one in planned.assignments if one.demand.container.name == asked.container), None)
    if planned.violations or served is None:
        return None
    return Stored(asked, planned, served, edited(planned.edits, asked.pod))


def card(asked: Asking, served: Assignment) -> Card | None:
    """The card that was asked, that the rule is for, or that the cluster has."""
    if "gpu-model" in asked.words:
        return clusters.device(asked.words["gpu-model"])
    if asked.cluster != clusters.ALL:
        return clusters.card(served.backend.name)
    nvidia = not served.backend.vendors or "nvidia" in served.backend.vendors
    return served.backend.card or (clusters.device(clusters.CARD) if nvidia else None)


def given(backend: str, stored_pod: Mapping[str, Any], container: str, on: Card) -> Given:
    """What the vendor of a back end makes of a container."""
    return READINGS[backend](Seen(stored_pod, container, on.model, on.memory, on.tflops))


def asked_again(stored_pod: Mapping[str, Any], container: str, rulebook: Rulebook) -> ContainerRequest:
    """The container of the stored pod as whoever sees it next understands it."""
    found = interpret(pod.read(stored_pod), rulebook)
    return next(asked for asked in found.asked if asked.container.name == container)
