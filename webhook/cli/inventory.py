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

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import add
from typing import Any, Final, NamedTuple

from webhook.cli import explanation, options, snapshot
from webhook.cli.table import memory, short, table
from webhook.core import inventory as offered
from webhook.core import pod_templates
from webhook.core.backends.cards import Recognised
from webhook.core.backends.charge import Measure, total
from webhook.core.backends.translate import CannotExpressError, find_card
from webhook.core.interpret.interpret import ContainerRequest, asks_nothing, interpret
from webhook.core.kube import fields, pod
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import allocation
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal
from webhook.files import documents, rule_files

# `gpu-webhook inventory`


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    what = "nodes, pods, and manifests of what makes pods (kubectl get nodes,pods -A -o json), or YAML"
    options.objects_option(command, what)


def run(arguments: argparse.Namespace) -> int:
    """Print the view; NOT_FINE where an object may make pods of which nobody knows how."""
    rulebook = rule_files.load_cached(arguments.rules)
    objects = snapshot.read_files(snapshot.INVENTORY, arguments.file)
    try:
        objects = objects if arguments.file else snapshot.read_cluster(snapshot.INVENTORY)
    except documents.UnreadableError as error:
        raise options.UsageError(f"{error}; or give files, from: kubectl get nodes,pods -A -o json") from None
    view = overview(objects, rulebook)
    options.print_json(view.contract()) if arguments.output == "json" else print("\n".join(lines(view)))
    return options.NOT_FINE if view.unknown else options.FINE


# What the pods of a cluster ask for, in one neutral unit, whatever system serves them.

Object = Mapping[str, Any]

HASH: Final = re.compile(r"-[a-z0-9]{5,10}$")


class Application(NamedTuple):
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


class Unread(NamedTuple):
    """A pod whose resources nobody here can read, and which is not counted."""

    namespace: str
    pod: str
    message: str


class Unknown(NamedTuple):
    """An object of which nobody can say what pods it makes."""

    namespace: str
    object: str
    message: str


class Demand(NamedTuple):
    """What all pods that have not ended ask for, and the objects that may make more of them."""

    uses: list[Use]
    unread: list[Unread]
    unknown: list[Unknown]


def demand(
    pods: Iterable[Object], inventory: offered.Inventory, rulebook: Rulebook, makers: Iterable[Object] = ()
) -> Demand:
    """What these Pod objects ask, each of the back end and the card of its node.

    `makers` are objects that make pods; those that a cluster has, has made them already.
    """
    result = Demand([], [], [])
    counting = replace(rulebook, surroundings=offered.surroundings(inventory), sources=())
    for raw in pods:
        metadata = fields.mapping(raw, "metadata")
        namespace = str(metadata.get("namespace") or "default")
        name = str(metadata.get("name") or metadata.get("generateName") or "(no name)")
        try:
            workload_pod = pod.read(raw)
            if pod.live(raw) and not asks_nothing(workload_pod, counting):
                result.uses.extend(_uses(workload_pod, namespace, name, inventory, counting))
        except Refusal as refusal:
            reason = "; ".join(violation.message for violation in refusal.violations)
            result.unread.append(Unread(namespace, name, reason))
        except CannotExpressError as error:
            result.unread.append(Unread(namespace, name, error.message))

    for raw in makers:
        for template in pod_templates.pods(raw, rulebook.workloads):
            namespace, title = template.namespace, template.title
            if template.wrong is not None:
                result.unknown.append(Unknown(namespace, title, template.wrong.message))
                continue
            if fields.at(raw, "metadata", "uid"):
                continue
            explained = explanation.explain_pod(title, template.pod, namespace, rulebook)
            if not explained.decision.allowed:
                result.unread.append(Unread(namespace, title, explained.decision.violations[0].message))
                continue
            metadata = {**fields.mapping(explained.after, "metadata"), "namespace": namespace, "name": title}
            of_each = demand([{**explained.after, "metadata": metadata}], inventory, rulebook)
            result.unread.extend(of_each.unread)
            application = Application(namespace, str(raw.get("kind")), str(fields.at(raw, "metadata", "name") or ""))
            result.uses.extend(
                replace(use, application=application, pods=template.number, asked=use.asked.times(template.number))
                for use in of_each.uses
            )
    return result


def _uses(
    workload_pod: Pod, namespace: str, name: str, inventory: offered.Inventory, rulebook: Rulebook
) -> Iterator[Use]:
    """What a pod asks of each back end; raises Refusal and CannotExpressError."""
    # The owner that controls the pod; of a ReplicaSet, the Deployment that it is a generation of.
    application = Application(namespace, "Pod", name)
    for owner in islice(fields.controllers(workload_pod.raw), 1):
        application = Application(namespace, str(owner.get("kind", "")), str(owner.get("name", "")))
        if application.kind == "ReplicaSet":
            generation = workload_pod.labels.get("pod-template-hash")
            replicas = application.name
            deployment = replicas.removesuffix(f"-{generation}") if generation else HASH.sub("", replicas)
            application = Application(namespace, "Deployment", deployment)

    bound = workload_pod.spec.get("nodeName") or None
    node = inventory.nodes.get(bound) if bound else None

    def holder_of(request: ContainerRequest, backend: str) -> str:
        """Whose devices on the node a container's resources are of."""
        if node is None or backend in node.offers:
            return backend
        wanted = request.extended.amounts.keys()
        return next((name for name, offer in node.offers.items() if wanted & offer.resources.keys()), backend)

    interpretation = interpret(workload_pod, rulebook)
    if len(interpretation.asked) < len(workload_pod.containers):
        raise Refusal(*interpretation.violations)
    groups: dict[tuple[str, str], list[tuple[Container, Measure]]] = {}
    cards: dict[tuple[str, str], Card | None] = {}
    for request in interpretation.asked:
        if not request.anything:
            continue
        if not request.extended.amounts:
            allocated = allocation.from_claims(request, workload_pod, rulebook)
        else:

            def card_on_node(backend: Backend, request: ContainerRequest = request) -> Recognised:
                if node is None:
                    return Recognised(find_card(request.models, rulebook, backend), None)
                offer = node.offers.get(holder_of(request, backend.name))
                if offer is None:
                    return Recognised(node.cards.get(backend.name), None)
                return Recognised(offer.card, offer.profile)

            # The back ends read its resources, first those that have devices on its node.
            owners = allocation.enabled_owners(request, rulebook)
            if node is not None:
                offers, belongs = node.offers, node.belongs
                owners = sorted(owners, key=lambda owner: (owner.name not in offers, owner.name not in belongs))
            allocated = allocation.from_resources(request, owners, card_on_node, rulebook)
        if allocated is not None:
            backend = allocated.assignment.backend.name
            whose = backend, holder_of(request, backend)
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


# The global view: what exists, what is asked and what is free, by card, back end, node and application.

NOTHING: Final = Measure()
MEASURED: Final = ("exists", "asked", "free")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one card model, back end, node or application what there is.

    `of` says of which in the words of the contract above, `measures` are those that it has there. `counted`:
    something tells how many devices there are.
    """

    of: Mapping[str, Any]
    measures: Sequence[str] = MEASURED
    exists: Measure = NOTHING
    asked: Measure
    free: Measure = NOTHING
    waiting: Measure = NOTHING
    counted: bool = True

    def contract(self) -> dict[str, Any]:
        """The row for scripts. Fractions are decimal to six places, less than any device is sold in."""

        def number(exact: Fraction) -> int | float:
            return exact.numerator if exact.denominator == 1 else round(float(exact), 6)

        written = dict(self.of)
        for name in self.measures:
            measure: Measure = getattr(self, name)
            written[name] = {
                "devices": number(measure.devices),
                "memoryBytes": measure.memory,
                "computePercent": number(measure.compute),
                "unsizedDevices": number(measure.unsized),
            }
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of it, as rows. `others` is the number of nodes without devices."""

    cluster: str
    nodes: int
    others: int
    total: Row
    cards: Sequence[Row]
    backends: Sequence[Row]
    per_node: Sequence[Row]
    applications: Sequence[Row]
    unclaimed: Mapping[str, Mapping[str, int]]
    unread: Sequence[Unread]
    unknown: Sequence[Unknown]

    def contract(self) -> dict[str, Any]:
        """The form of `inventory -o json`, see above."""
        return {
            "cluster": self.cluster,
            "nodes": self.nodes,
            "nodesWithoutDevices": self.others,
            "total": self.total.contract(),
            "cards": [row.contract() for row in self.cards],
            "backends": [row.contract() for row in self.backends],
            "perNode": [row.contract() for row in self.per_node],
            "applications": [row.contract() for row in self.applications],
            "unclaimed": [{"node": node, "resources": dict(what)} for node, what in self.unclaimed.items()],
            "notUnderstood": [unread._asdict() for unread in self.unread],
            "unknown": [unknown._asdict() for unknown in self.unknown],
        }


def overview(objects: snapshot.Snapshot, rulebook: Rulebook) -> Overview:
    """Bring together what nodes offer and what pods ask, those of manifests too; the largest request comes first."""
    inventory = offered.read(objects.of("Node"), rulebook)
    uses, unread, unknown = demand(objects.of("Pod"), inventory, rulebook, objects.of(""))
    bound = [use for use in uses if use.node is not None]
    waiting = total(use.asked for use in uses if use.node is None)
    nodes = [inventory.nodes[name] for name in sorted(inventory.nodes)]

    asked_there: dict[tuple[str | None, str], Measure] = {}
    for use in bound:
        asked_there[use.node, use.holder] = asked_there.get((use.node, use.holder), NOTHING) + use.asked
    per_node = []
    for node in nodes:
        for offer in node.offers.values():
            asked_here = asked_there.get((node.name, offer.backend), NOTHING)
            of = {"node": node.name, "ready": node.ready, "schedulable": node.schedulable, "backend": offer.backend}
            of |= {"model": _model(offer.card), "profile": offer.profile, "resources": dict(offer.resources)}
            free = offer.exists.less(asked_here) if node.ready and node.schedulable else NOTHING
            counted = offer.devices is not None
            per_node.append(Row(of=of, exists=offer.exists, asked=asked_here, free=free, counted=counted))

    def summed(of: Mapping[str, Any], rows: Sequence[Row], uses: Iterable[Use]) -> Row:
        return Row(
            of={**of, "nodes": len({row.of["node"] for row in rows})},
            exists=total(row.exists for row in rows),
            asked=total(use.asked for use in uses),
            free=total(row.free for row in rows),
        )

    cards, backends, applications = [], [], []
    models = {row.of["model"] for row in per_node} | {_model(use.card) for use in bound}
    for name in sorted(models, key=lambda name: (name is None, name)):
        own = [row for row in per_node if row.of["model"] == name]
        cards.append(summed({"model": name}, own, [use for use in bound if _model(use.card) == name]))
    holders = {row.of["backend"] for row in per_node} | {use.holder for use in bound}
    for backend in rulebook.enabled:
        if backend.name in holders:
            own = [row for row in per_node if row.of["backend"] == backend.name]
            backends.append(summed({"name": backend.name}, own, [use for use in bound if use.holder == backend.name]))
    by_application: dict[Application, list[Use]] = {}
    for use in uses:
        by_application.setdefault(use.application, []).append(use)
    for application, of_it in sorted(by_application.items()):
        of = {**application._asdict(), "backends": sorted({use.backend for use in of_it})}
        of["pods"] = sum({use.pod: use.pods for use in of_it}.values())
        on_nodes = total(use.asked for use in of_it if use.node is not None)
        waits = total(use.asked for use in of_it if use.node is None)
        applications.append(Row(of=of, measures=("asked", "waiting"), asked=on_nodes, waiting=waits))
    return Overview(
        cluster=rulebook.cluster.name,
        nodes=len(nodes),
        others=inventory.others,
        total=replace(summed({}, per_node, bound), of={}, waiting=waiting, measures=(*MEASURED, "waiting")),
        cards=cards,
        backends=backends,
        per_node=per_node,
        applications=sorted(applications, key=lambda row: -(row.asked + row.waiting).devices),
        unclaimed={node.name: node.unclaimed for node in nodes if node.unclaimed},
        unread=unread,
        unknown=unknown,
    )


def _model(card: Card | None) -> str | None:
    return None if card is None else card.model


# What nodes have and what pods ask, as tables for a terminal.

MEASURES: Final = ("DEVICES", "FREE", "MEMORY", "FREE", "COMPUTE", "FREE")


def lines(view: Overview) -> Iterator[str]:
    """The view as aligned tables, between a summary and what could not be counted."""
    of_all, waiting = view.total, view.total.waiting.devices
    nodes = f"{view.nodes} node{'' if view.nodes == 1 else 's'}"
    yield f"cluster {view.cluster}: {nodes} with devices, {view.others} without"
    more = f"; pods that wait for a node ask {short(waiting)} more" if waiting else ""
    yield (
        f"pods on nodes ask {short(of_all.asked.devices)} of {short(of_all.exists.devices)} devices, "
        f"{short(of_all.free.devices)} are free{more}"
    )

    def measures(row: Row) -> tuple[str, ...]:
        """Of each dimension what is asked, of what exists, and what is free."""
        exists, free = row.exists, row.free
        return (
            f"{short(row.asked.devices)} of {short(exists.devices) if row.counted else '?'}",
            short(free.devices) if row.counted else "?",
            f"{memory(row.asked)} of {memory(exists)}",
            memory(free),
            f"{short(row.asked.compute)} of {f'{short(exists.compute)}%' if row.counted else '?'}",
            f"{short(free.compute)}%" if row.counted else "?",
        )

    for heading, rows, key in (("CARD", view.cards, "model"), ("BACK END", view.backends, "name")):
        cells = [(row.of[key] or "unknown", str(row.of["nodes"]), *measures(row)) for row in rows]
        yield from table((heading, "NODES", *MEASURES), cells, texts=1)
    cells = [
        (row.of["node"], state(row.of), row.of["backend"], card(row.of), *measures(row)) for row in view.per_node
    ]
    yield from table(("NODE", "STATE", "BACK END", "CARD", *MEASURES), cells, texts=4)
    headings = ("APPLICATION", "NAMESPACE", "KIND", "BACK END", "PODS", "DEVICES", "MEMORY", "COMPUTE", "WAITING")
    cells = [
        (
            *(row.of[key] for key in ("name", "namespace", "kind")),
            ", ".join(row.of["backends"]),
            str(row.of["pods"]),
            short(row.asked.devices),
            memory(row.asked),
            f"{short(row.asked.compute)}%",
            short(row.waiting.devices) if row.waiting.devices else "-",
        )
        for row in view.applications
    ]
    yield from table(headings, cells, texts=4)
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
    if of_all.exists.unsized or of_all.asked.unsized:
        yield "\n* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster"
        yield "  document, would say which cards they are"


def card(of: Mapping[str, Any]) -> str:
    """The model that a row of a node is of, and the partition it is cut into."""
    model = of["model"] or "unknown"
    return f"{model} in {of['profile']}" if of["profile"] else model


def state(of: Mapping[str, Any]) -> str:
    """Whether the node of a row takes pods, in a word or two."""
    if not of["ready"]:
        return "not ready"
    return "ready" if of["schedulable"] else "cordoned"
