"""The global view: what exists, what is asked and what is free, by card, back end, node and application.

`Overview.contract` is the form of `gpu-webhook inventory -o json`, which scripts rely on:

    cluster                     its name
    nodes, nodesWithoutDevices  how many
    total                       exists, asked, free, waiting
    cards                       by model (null: unknown): nodes, exists, asked, free
    backends                    by name, in the cluster's order, whose nodes these are: nodes, exists, asked, free
    perNode                     node, ready, schedulable, backend, model, profile, resources, exists, asked, free
    applications                namespace, kind, name, backends (whose words they ask in), pods, asked, waiting
    unclaimed                   node, resources: advertised, and no enabled back end's
    notUnderstood               namespace, pod, message: pods that are not counted
    unknown                     namespace, object, message: objects that may make pods, and nobody knows which

`asked` is what pods bound to a node ask, `waiting` what the others do. `free` is what exists and is not asked
on nodes that take pods, so exists can be more than asked and free. Each is a measure: `devices` (a share counts as
what it is charged), `memoryBytes`, `computePercent` (100 is one device's), and `unsizedDevices`: those of the devices
whose memory nobody knows, and which is not counted.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import add
from typing import Any, Final

from webhook.cli import explanation, options, snapshot
from webhook.cli.options import FINE, NOT_FINE, UsageError
from webhook.cli.table import memory, short, table
from webhook.core import inventory as offered
from webhook.core import pod_templates
from webhook.core.backends.cards import Recognised
from webhook.core.backends.charge import Measure, total
from webhook.core.backends.translate import CannotExpressError
from webhook.core.interpret.interpret import ContainerRequest, asks_nothing, interpret
from webhook.core.inventory import Inventory, Node, Offer, surroundings
from webhook.core.kube import fields, pod
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import allocation
from webhook.core.plan.allocation import Allocation
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal
from webhook.files import documents, rule_files

# `gpu-webhook inventory`


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    options.objects_option(
        command, "nodes, pods, and manifests of what makes pods (kubectl get nodes,pods -A -o json), or YAML"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the view; NOT_FINE where an object may make pods of which nobody knows how."""
    rulebook = rule_files.load_cached(arguments.rules)
    objects = snapshot.Snapshot(snapshot.INVENTORY)
    for file in arguments.file:
        objects.parse(*options.read_content(file))
    try:
        objects = objects if arguments.file else snapshot.read_cluster(snapshot.INVENTORY)
    except documents.UnreadableError as error:
        raise UsageError(f"{error}; or give files, from: kubectl get nodes,pods -A -o json") from None
    view = overview(objects, rulebook)
    options.print_json(view.contract()) if arguments.output == "json" else print("\n".join(lines(view)))
    return NOT_FINE if view.unknown else FINE


# What the pods of a cluster ask for, in one neutral unit, whatever system serves them.

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
        metadata = fields.mapping(raw, "metadata")
        namespace = str(metadata.get("namespace") or "default")
        name = str(metadata.get("name") or metadata.get("generateName") or "(no name)")
        try:
            workload_pod = pod.read(raw)
            if pod.live(raw) and not asks_nothing(workload_pod, rulebook):
                uses += _uses(workload_pod, _application(workload_pod, namespace, name), name, inventory, rulebook)
        except Refusal as refusal:
            reason = "; ".join(violation.message for violation in refusal.violations)
            unread.append(Unread(namespace, name, reason))
        except CannotExpressError as error:
            unread.append(Unread(namespace, name, error.message))
    return Demand(uses, unread)


def _application(workload_pod: Pod, namespace: str, name: str) -> Application:
    """The owner that controls the pod; of a ReplicaSet, the Deployment that it is a generation of."""
    owner = next(fields.controllers(workload_pod.raw), None)
    if owner is None:
        return Application(namespace, "Pod", name)
    kind, owner_name = str(owner.get("kind", "")), str(owner.get("name", ""))
    if kind != "ReplicaSet":
        return Application(namespace, kind, owner_name)
    generation = workload_pod.labels.get("pod-template-hash")
    deployment = owner_name.removesuffix(f"-{generation}") if generation else _HASH.sub("", owner_name)
    return Application(namespace, "Deployment", deployment)


def _uses(
    workload_pod: Pod, application: Application, name: str, inventory: Inventory, rulebook: Rulebook
) -> Iterator[Use]:
    """What a pod asks of each back end; raises Refusal and CannotExpressError."""
    bound = workload_pod.spec.get("nodeName") or None
    node = inventory.nodes.get(bound) if bound else None
    interpretation = interpret(workload_pod, rulebook)
    if len(interpretation.asked) < len(workload_pod.containers):
        raise Refusal(*interpretation.violations)
    groups: dict[tuple[str, str], list[tuple[Container, Measure]]] = {}
    cards: dict[tuple[str, str], Card | None] = {}
    for request in interpretation.asked:
        if not request.anything:
            continue
        if request.extended.amounts:
            allocated = _allocated(request, node, rulebook)
        else:
            allocated = allocation.from_claims(request, workload_pod, rulebook)
        if allocated is not None:
            backend = allocated.assignment.backend.name
            whose = backend, _holder(request, backend, node) if node else backend
            groups.setdefault(whose, []).append((request.container, allocated.measure))
            cards[whose] = allocated.assignment.card
    for (backend, holder), containers in groups.items():
        yield Use(
            application=application,
            pod=name,
            node=bound,
            backend=backend,
            holder=holder,
            card=cards[backend, holder],
            asked=pod.effective(containers, add, Measure.at_least, Measure()),
        )


def _allocated(request: ContainerRequest, node: Node | None, rulebook: Rulebook) -> Allocation | None:
    """What a container's resources are, as the back ends read them that have devices on its node, those first."""

    def card_on_node(backend: Backend) -> Recognised:
        if node is None:
            return Recognised(allocation.expected_card(request, backend, rulebook), None)
        offer = node.offers.get(_holder(request, backend.name, node))
        return Recognised(offer.card, offer.profile) if offer else Recognised(node.cards.get(backend.name), None)

    owners = allocation.enabled_owners(request, rulebook)
    if node is not None:
        owners = sorted(owners, key=lambda owner: (owner.name not in node.offers, owner.name not in node.belongs))
    return allocation.from_resources(request, owners, card_on_node, rulebook)


def _holder(request: ContainerRequest, backend: str, node: Node) -> str:
    """Whose devices on the node a container's resources are of."""
    if backend in node.offers:
        return backend
    wanted = request.extended.amounts.keys()
    return next((name for name, offer in node.offers.items() if wanted & offer.resources.keys()), backend)


# What objects that make pods would ask of a cluster that has not created their pods yet.

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
        for template in pod_templates.pods(raw, rulebook.workloads):
            if template.wrong is not None:
                unknown.append(Unknown(template.namespace, template.title, template.wrong.message))
                continue
            if fields.at(raw, "metadata", "uid"):
                continue
            explained = explanation.explain_pod(template.title, template.pod, template.namespace, rulebook)
            if not explained.decision.allowed:
                message = explained.decision.violations[0].message
                unread.append(Unread(template.namespace, template.title, message))
                continue
            names = {"namespace": template.namespace, "name": template.title}
            metadata = {**fields.mapping(explained.after, "metadata"), **names}
            asked_by_one = demand([{**explained.after, "metadata": metadata}], inventory, rulebook)
            unread += asked_by_one.unread
            name = str(fields.at(raw, "metadata", "name") or "")
            application = Application(template.namespace, str(raw.get("kind")), name)
            uses += (
                replace(use, application=application, pods=template.number, asked=use.asked.times(template.number))
                for use in asked_by_one.uses
            )
    return Demand(uses, unread), unknown


# The global view: what exists, what is asked and what is free, by card, back end, node and application.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One card model or back end; `name` is None for cards nobody knows."""

    name: str | None
    nodes: int
    exists: Measure
    asked: Measure
    free: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """What one back end has on one node."""

    node: Node
    offer: Offer
    asked: Measure

    @property
    def exists(self) -> Measure:
        """What there is."""
        return self.offer.exists

    @property
    def free(self) -> Measure:
        """What is left for a new pod: nothing on a node that takes none."""
        return self.exists.less(self.asked) if self.node.takes_pods else Measure()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRow:
    """What the pods of one workload ask, those on nodes and those that wait for one."""

    application: Application
    backends: Sequence[str]
    pods: int
    asked: Measure
    waiting: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of it, as rows. `others` is the number of nodes without devices."""

    cluster: str
    nodes: int
    others: int
    total: Row
    waiting: Measure
    cards: Sequence[Row]
    backends: Sequence[Row]
    per_node: Sequence[NodeRow]
    applications: Sequence[ApplicationRow]
    unclaimed: Mapping[str, Mapping[str, int]]
    unread: Sequence[Unread]
    unknown: Sequence[Unknown] = ()

    def contract(self) -> dict[str, Any]:
        """The form of `inventory -o json`, see above."""
        return {
            "cluster": self.cluster,
            "nodes": self.nodes,
            "nodesWithoutDevices": self.others,
            "total": {**_measured(self.total), "waiting": _plain(self.waiting)},
            "cards": [{"model": row.name, "nodes": row.nodes, **_measured(row)} for row in self.cards],
            "backends": [{"name": row.name, "nodes": row.nodes, **_measured(row)} for row in self.backends],
            "perNode": [
                {
                    "node": row.node.name,
                    "ready": row.node.ready,
                    "schedulable": row.node.schedulable,
                    "backend": row.offer.backend,
                    "model": _model(row.offer.card),
                    "profile": row.offer.profile,
                    "resources": dict(row.offer.resources),
                    **_measured(row),
                }
                for row in self.per_node
            ],
            "applications": [
                {
                    **asdict(row.application),
                    "backends": list(row.backends),
                    "pods": row.pods,
                    "asked": _plain(row.asked),
                    "waiting": _plain(row.waiting),
                }
                for row in self.applications
            ],
            "unclaimed": [{"node": node, "resources": dict(what)} for node, what in self.unclaimed.items()],
            "notUnderstood": [asdict(unread) for unread in self.unread],
            "unknown": [asdict(unknown) for unknown in self.unknown],
        }


def overview(objects: snapshot.Snapshot, rulebook: Rulebook) -> Overview:
    """Bring together what nodes offer and what pods ask, those of manifests too; who asks most comes first."""
    inventory = offered.read(objects.of("Node"), rulebook)
    there = demand(objects.of("Pod"), inventory, rulebook)
    more, unknown = planned(objects.of(""), inventory, rulebook)
    uses = [*there.uses, *more.uses]
    nodes = [inventory.nodes[name] for name in sorted(inventory.nodes)]
    bound = [use for use in uses if use.node is not None]
    asked_there: dict[tuple[str | None, str], Measure] = {}
    for use in bound:
        asked_there[use.node, use.holder] = asked_there.get((use.node, use.holder), Measure()) + use.asked
    per_node = [
        NodeRow(node=node, offer=offer, asked=asked_there.get((node.name, offer.backend), Measure()))
        for node in nodes
        for offer in node.offers.values()
    ]

    def row(name: str | None, rows: Sequence[NodeRow], uses: Iterable[Use]) -> Row:
        return Row(
            name=name,
            nodes=len({row.node.name for row in rows}),
            exists=total(row.exists for row in rows),
            asked=total(use.asked for use in uses),
            free=total(row.free for row in rows),
        )

    ranks = {backend.name: rank for rank, backend in enumerate(rulebook.enabled)}
    names = {row.offer.backend for row in per_node} | {use.holder for use in bound}
    models = {_model(row.offer.card) for row in per_node} | {_model(use.card) for use in bound}
    applications: dict[Application, list[Use]] = {}
    for use in uses:
        applications.setdefault(use.application, []).append(use)
    application_rows = [
        ApplicationRow(
            application=application,
            backends=sorted({use.backend for use in uses}),
            pods=sum({use.pod: use.pods for use in uses}.values()),
            asked=total(use.asked for use in uses if use.node is not None),
            waiting=total(use.asked for use in uses if use.node is None),
        )
        for application, uses in applications.items()
    ]
    return Overview(
        cluster=rulebook.cluster.name,
        nodes=len(nodes),
        others=inventory.others,
        total=row(None, per_node, bound),
        waiting=total(use.asked for use in uses if use.node is None),
        cards=[
            row(
                name,
                [row for row in per_node if _model(row.offer.card) == name],
                [use for use in bound if _model(use.card) == name],
            )
            for name in sorted(models, key=lambda name: (name is None, name))
        ],
        backends=[
            row(
                name,
                [row for row in per_node if row.offer.backend == name],
                [use for use in bound if use.holder == name],
            )
            for name in sorted(names, key=ranks.__getitem__)
        ],
        per_node=per_node,
        applications=sorted(application_rows, key=lambda row: (-(row.asked + row.waiting).devices, row.application)),
        unclaimed={node.name: node.unclaimed for node in nodes if node.unclaimed},
        unread=[*there.unread, *more.unread],
        unknown=unknown,
    )


def _model(card: Card | None) -> str | None:
    return None if card is None else card.model


def _measured(row: Row | NodeRow) -> dict[str, Any]:
    return {"exists": _plain(row.exists), "asked": _plain(row.asked), "free": _plain(row.free)}


def _plain(measure: Measure) -> dict[str, Any]:
    """As JSON has numbers; to six decimals, less than any device is sold in."""

    def number(exact: Fraction) -> int | float:
        return exact.numerator if exact.denominator == 1 else round(float(exact), 6)

    return {
        "devices": number(measure.devices),
        "memoryBytes": measure.memory,
        "computePercent": number(measure.compute),
        "unsizedDevices": number(measure.unsized),
    }


# What nodes have and what pods ask, as tables for a terminal.

MEASURES: Final = ("DEVICES", "FREE", "MEMORY", "FREE", "COMPUTE", "FREE")
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


def lines(view: Overview) -> Iterator[str]:
    """The view as aligned tables, between a summary and what could not be counted."""
    total = view.total
    nodes = f"{view.nodes} node{'' if view.nodes == 1 else 's'}"
    yield f"cluster {view.cluster}: {nodes} with devices, {view.others} without"
    waiting = f"; pods that wait for a node ask {short(view.waiting.devices)} more" if view.waiting.devices else ""
    yield (
        f"pods on nodes ask {short(total.asked.devices)} of {short(total.exists.devices)} devices, "
        f"{short(total.free.devices)} are free{waiting}"
    )
    for heading, rows in (("CARD", view.cards), ("BACK END", view.backends)):
        cells = [(row.name or "unknown", str(row.nodes), *_measures(row)) for row in rows]
        yield from table((heading, "NODES", *MEASURES), cells, texts=1)
    cells = []
    for node_row in view.per_node:
        measures, offer = _measures(node_row), node_row.offer
        if offer.devices is None:
            devices, compute = short(node_row.asked.devices), short(node_row.asked.compute)
            measures = (f"{devices} of ?", "?", *measures[2:4], f"{compute} of ?", "?")
        cells.append((node_row.node.name, state(node_row.node), offer.backend, card(offer), *measures))
    yield from table(("NODE", "STATE", "BACK END", "CARD", *MEASURES), cells, texts=4)
    cells = [
        (
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
        for row in view.applications
    ]
    yield from table(APPLICATION, cells, texts=4)
    if view.unclaimed:
        yield "\nNOBODY'S: resources that no enabled back end says this node is for"
        for node, resources in view.unclaimed.items():
            yield f"  {node}: " + ", ".join(f"{name}: {value}" for name, value in resources.items())
    if view.unread:
        yield "\nNOT COUNTED: pods whose resources mean nothing here"
        yield from (f"  {unread.namespace}/{unread.pod}: {unread.message}" for unread in view.unread)
    if view.unknown:
        yield "\nUNKNOWN: objects that may make pods, which are not counted"
        yield from (f"  {unknown.namespace}/{unknown.object}: {unknown.message}" for unknown in view.unknown)
    if total.exists.unsized or total.asked.unsized:
        yield "\n* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster"
        yield "  document, would say which cards they are"


def _measures(row: Row | NodeRow) -> tuple[str, ...]:
    """Of each dimension what is asked, of what exists, and what is free."""
    exists, asked_there, free = row.exists, row.asked, row.free
    return (
        f"{short(asked_there.devices)} of {short(exists.devices)}",
        short(free.devices),
        f"{memory(asked_there)} of {memory(exists)}",
        memory(free),
        f"{short(asked_there.compute)} of {short(exists.compute)}%",
        f"{short(free.compute)}%",
    )


def card(offer: Offer) -> str:
    """The model of an offer, and the partition it is cut into."""
    model = offer.card.model if offer.card else "unknown"
    return f"{model} in {offer.profile}" if offer.profile else model


def state(node: Node) -> str:
    """Whether a node takes pods, in a word or two."""
    if not node.ready:
        return "not ready"
    return "ready" if node.schedulable else "cordoned"
