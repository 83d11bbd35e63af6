"""What the pods of a cluster ask for, in one neutral unit, whatever system serves them.

Read from the resources on the containers, as they stand there, and not from the words their authors used: a pod that
nobody translated counts too, and one that was refused does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.charge import Measure
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.interpret.interpret import asks_nothing, interpret
from webhook.core.kube import paths, pod
from webhook.core.kube.pod import Container, Pod
from webhook.core.plan import allocation
from webhook.core.plan.allocation import Allocation, Found
from webhook.core.reports.inventory import Inventory, Node, surroundings
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal

_HASH = re.compile(r"-[a-z0-9]{5,10}$")


@dataclass(frozen=True, slots=True, order=True)
class Application:
    """Whose a pod is: the workload that made it, or the pod itself."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one pod asks of one back end; `node` is None while it waits for one.

    `holder` is the back end whose devices on the node these are: another one, where a pod asks in the words of a
    system that no label says the node is for. `pods` are alike and counted together.
    """

    application: Application
    pod: str
    node: str | None
    backend: str
    holder: str
    card: Card | None
    asked: Measure
    pods: int = 1


@dataclass(frozen=True, slots=True)
class Unread:
    """A pod whose resources nobody here can read, and which is not counted."""

    namespace: str
    pod: str
    message: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What all pods that have not ended ask for."""

    uses: Sequence[Use]
    unread: Sequence[Unread]


def demand(pods: Iterable[Mapping[str, Any]], inventory: Inventory, rulebook: Rulebook) -> Demand:
    """What these Pod objects ask, each of the back end and the card of its node."""
    rulebook = replace(rulebook, surroundings=surroundings(inventory), sources=())
    uses: list[Use] = []
    unread: list[Unread] = []
    for raw in pods:
        try:
            seen = pod.read(raw)
            if pod.live(raw) and not asks_nothing(seen, rulebook):
                uses += _uses(seen, inventory, rulebook)
        except Refusal as refusal:
            unread.append(Unread(*_named(raw), "; ".join(violation.message for violation in refusal.violations)))
        except CannotExpressError as reason:
            unread.append(Unread(*_named(raw), reason.message))
    return Demand(uses, unread)


def _named(raw: Mapping[str, Any]) -> tuple[str, str]:
    said = paths.mapping(raw, "metadata")
    return str(said.get("namespace") or "default"), str(said.get("name") or said.get("generateName") or "(no name)")


def _uses(seen: Pod, inventory: Inventory, rulebook: Rulebook) -> Iterator[Use]:
    namespace, pod_name = _named(seen.raw)
    bound = seen.spec.get("nodeName") or None
    node = inventory.nodes.get(bound) if bound else None
    groups: dict[tuple[str, str], list[tuple[Container, Measure]]] = {}
    cards: dict[tuple[str, str], Card | None] = {}
    for asked in _asking(seen, rulebook):
        counted = _measured(asked, seen, node, rulebook)
        if counted is None:
            continue
        name = counted.served.backend.name
        whose = name, _holder(asked, name, node) if node else name
        groups.setdefault(whose, []).append((asked.container, counted.measure))
        cards[whose] = counted.served.card
    for (backend_name, holder), containers in groups.items():
        yield Use(
            application=_application(seen, namespace, pod_name),
            pod=pod_name,
            node=bound,
            backend=backend_name,
            holder=holder,
            card=cards[backend_name, holder],
            asked=pod.effective(containers, add, Measure.at_least, Measure()),
        )


def _holder(asked: ContainerRequest, backend: str, node: Node) -> str:
    """Whose devices on the node a container's resources are of."""
    if backend in node.offers:
        return backend
    wanted = asked.extended.amounts.keys()
    return next((name for name, offer in node.offers.items() if wanted & offer.resources.keys()), backend)


def _asking(seen: Pod, rulebook: Rulebook) -> list[ContainerRequest]:
    """The containers that ask for anything; raises Refusal if one of them cannot be read."""
    interpretation = interpret(seen, rulebook)
    if len(interpretation.asked) < len(seen.containers):
        raise Refusal(*interpretation.violations)
    return [asked for asked in interpretation.asked if asked.anything]


def _measured(asked: ContainerRequest, seen: Pod, node: Node | None, rulebook: Rulebook) -> Allocation | None:
    """What stands on a container, as the back ends read it that have devices on its node."""
    if not asked.extended.amounts:
        return allocation.claimed(asked, seen, rulebook)

    def find(backend: Backend) -> Found:
        if node is None:
            return Found(allocation.card(asked, backend, rulebook))
        offer = node.offers.get(_holder(asked, backend.name, node))
        return Found(offer.card, offer.profile) if offer else Found(node.cards.get(backend.name))

    return allocation.read(asked, _owners(asked, node, rulebook), find, rulebook)


def _owners(asked: ContainerRequest, node: Node | None, rulebook: Rulebook) -> Sequence[Backend]:
    """The enabled owners of all of a container's resources; those that have devices on its node first."""
    owners = allocation.enabled_owners(asked, rulebook)
    if node is None:
        return owners
    return sorted(owners, key=lambda owner: (owner.name not in node.offers, owner.name not in node.belongs))


def _application(seen: Pod, namespace: str, name: str) -> Application:
    """The owner that controls the pod; of a ReplicaSet, the Deployment that it is a generation of."""
    owner = next(paths.controllers(seen.raw), None)
    if owner is None:
        return Application(namespace, "Pod", name)
    kind, owner_name = str(owner.get("kind", "")), str(owner.get("name", ""))
    if kind != "ReplicaSet":
        return Application(namespace, kind, owner_name)
    generation = seen.labels.get("pod-template-hash")
    deployment = owner_name.removesuffix(f"-{generation}") if generation else _HASH.sub("", owner_name)
    return Application(namespace, "Deployment", deployment)
