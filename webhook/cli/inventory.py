"""The global view: what exists, what is asked and what is free, by card, back end, node and application.

`overview` makes the record that `gpu-webhook inventory -o json` prints, on which scripts rely. `asked` is what pods
bound to a node ask, `waiting` what the others do. `free` is what exists and is not asked on nodes that take pods, so
exists can be more than asked and free. Each is a measure: `devices` (a share counts as what it is charged),
`memoryBytes`, `computePercent` (100 is one device's), and `unsizedDevices`: those of the devices whose memory nobody
knows, and which is not counted.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import add
from typing import Any, Final, NamedTuple

from webhook.cli import explanation, options, snapshot
from webhook.cli.snapshot import Object
from webhook.cli.table import contract, memory, number, short, table
from webhook.core import inventory as offered
from webhook.core import pod_templates
from webhook.core.backends.cards import Recognised
from webhook.core.backends.charge import Measure, total
from webhook.core.backends.translate import CannotExpressError, find_card
from webhook.core.interpret.interpret import ContainerRequest, asks_nothing, interpret
from webhook.core.kube import fields, pod
from webhook.core.kube.pod import Container, Pod
from webhook.core.plan import allocation
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal
from webhook.files import rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook inventory` takes."""
    what = "nodes, pods, and manifests of what makes pods (kubectl get nodes,pods -A -o json), or YAML"
    options.objects_option(command, what)


def run(arguments: argparse.Namespace) -> int:
    """Print the view; NOT_FINE where an object may make pods of which nobody knows how."""
    rulebook = rule_files.load_cached(arguments.rules)
    kinds, instead = snapshot.INVENTORY, "kubectl get nodes,pods -A -o json"
    files = arguments.file
    objects = snapshot.read_files(kinds, files) if files else snapshot.read_cluster(kinds, instead)
    view = overview(objects, rulebook)
    options.print_json(contract(view)) if arguments.output == "json" else print("\n".join(lines(view)))
    return options.NOT_FINE if view["unknown"] else options.FINE


# What the pods of a cluster ask for, in one neutral unit, whatever system serves them.

Record = dict[str, Any]
"""What the tables, the page and scripts are told, in the words of `-o json`, with measures."""

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


class Demand(NamedTuple):
    """What all pods that have not ended ask for.

    `unread` are pods whose resources nobody here can read, and which are not counted; `unknown` are objects of which
    nobody can say what pods they make.
    """

    uses: list[Use]
    unread: list[Record]
    unknown: list[Record]


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
        except Refusal as error:
            reason = "; ".join(violation.message for violation in error.violations)
            result.unread.append({"namespace": namespace, "pod": name, "message": reason})
        except CannotExpressError as error:
            result.unread.append({"namespace": namespace, "pod": name, "message": error.message})

    for raw in makers:
        for template in pod_templates.pods(raw, rulebook.workloads):
            namespace, title = template.namespace, template.title
            if template.wrong is not None:
                wrong = template.wrong.message
                result.unknown.append({"namespace": namespace, "object": title, "message": wrong})
                continue
            if fields.at(raw, "metadata", "uid"):
                continue
            explained = explanation.explain_pod(title, template.pod, namespace, rulebook)
            if not explained.decision.allowed:
                refusal = explained.decision.violations[0].message
                result.unread.append({"namespace": namespace, "pod": title, "message": refusal})
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


NOTHING: Final = Measure()


def overview(objects: snapshot.Snapshot, rulebook: Rulebook) -> Record:
    """Bring together what nodes offer and what pods ask, those of manifests too; the largest request comes first."""
    inventory = offered.read(objects.of("Node"), rulebook)
    uses, unread, unknown = demand(objects.of("Pod"), inventory, rulebook, objects.of(""))
    bound = [use for use in uses if use.node is not None]
    nodes = [inventory.nodes[name] for name in sorted(inventory.nodes)]

    asked_there: dict[tuple[str | None, str], Measure] = {}
    for use in bound:
        asked_there[use.node, use.holder] = asked_there.get((use.node, use.holder), NOTHING) + use.asked
    per_node: list[Record] = []
    for node in nodes:
        for offer in node.offers.values():
            asked_here = asked_there.get((node.name, offer.backend), NOTHING)
            per_node.append(
                {
                    "node": node.name,
                    "ready": node.ready,
                    "schedulable": node.schedulable,
                    "backend": offer.backend,
                    "model": _model(offer.card),
                    "profile": offer.profile,
                    "resources": dict(offer.resources),
                    "exists": offer.exists,
                    "asked": asked_here,
                    "free": offer.exists.less(asked_here) if node.ready and node.schedulable else NOTHING,
                    "known": offer.devices is not None,  # something tells how many devices there are
                }
            )

    def summed(rows: Sequence[Record], uses: Iterable[Use]) -> Record:
        exists, free = (total(row[measure] for row in rows) for measure in ("exists", "free"))
        return {"exists": exists, "asked": total(use.asked for use in uses), "free": free}

    def grouped(key: str, name: str | None, rows: Sequence[Record], uses: Iterable[Use]) -> Record:
        return {key: name, "nodes": len({row["node"] for row in rows}), **summed(rows, uses)}

    cards, backends, applications = [], [], []
    models = {row["model"] for row in per_node} | {_model(use.card) for use in bound}
    for model in sorted(models, key=lambda name: (name is None, name)):
        own = [row for row in per_node if row["model"] == model]
        cards.append(grouped("model", model, own, [use for use in bound if _model(use.card) == model]))
    holders = {row["backend"] for row in per_node} | {use.holder for use in bound}
    for name in (backend.name for backend in rulebook.enabled if backend.name in holders):
        own = [row for row in per_node if row["backend"] == name]
        backends.append(grouped("name", name, own, [use for use in bound if use.holder == name]))
    by_application: dict[Application, list[Use]] = {}
    for use in uses:
        by_application.setdefault(use.application, []).append(use)
    for application, of_it in sorted(by_application.items()):
        applications.append(
            {
                **application._asdict(),
                "backends": sorted({use.backend for use in of_it}),  # in whose words it asks
                "pods": sum({use.pod: use.pods for use in of_it}.values()),
                "asked": total(use.asked for use in of_it if use.node is not None),
                "waiting": total(use.asked for use in of_it if use.node is None),
            }
        )
    waiting = total(use.asked for use in uses if use.node is None)
    shut = [row for row in per_node if not (row["ready"] and row["schedulable"])]
    of_all = {**summed(per_node, bound), "shut": total(row["exists"].less(row["asked"]) for row in shut)}
    of_all["beyond"] = (of_all["asked"] + of_all["free"] + of_all["shut"]).less(of_all["exists"])
    return {
        "cluster": rulebook.cluster.name,
        "nodes": len(nodes),
        "nodesWithoutDevices": inventory.others,
        "total": {**of_all, "waiting": waiting},
        "cards": cards,
        "backends": backends,
        "perNode": per_node,
        "applications": sorted(applications, key=lambda row: -(row["asked"] + row["waiting"]).devices),
        # Advertised, and no enabled back end's.
        "unclaimed": [{"node": node.name, "resources": dict(node.unclaimed)} for node in nodes if node.unclaimed],
        "notUnderstood": unread,
        "unknown": unknown,
    }


def _model(card: Card | None) -> str | None:
    return None if card is None else card.model


MEASURES: Final = ("DEVICES", "FREE", "MEMORY", "FREE", "COMPUTE", "FREE")


def lines(view: Record) -> Iterator[str]:
    """The view as aligned tables, between a summary and what could not be counted."""
    of_all, waiting = view["total"], view["total"]["waiting"].devices
    with_devices = number(view["nodes"], "node")
    yield f"cluster {view['cluster']}: {with_devices} with devices, {view['nodesWithoutDevices']} without"
    more = f"; pods that wait for a node ask {short(waiting)} more" if waiting else ""
    yield (
        f"pods on nodes ask {short(of_all['asked'].devices)} of {short(of_all['exists'].devices)} devices, "
        f"{short(of_all['free'].devices)} are free{more}"
    )

    def measures(row: Record) -> tuple[str, ...]:
        """Of each dimension what is asked, of what exists, and what is free."""
        asked, exists, free, known = row["asked"], row["exists"], row["free"], row.get("known", True)
        return (
            f"{short(asked.devices)} of {short(exists.devices) if known else '?'}",
            short(free.devices) if known else "?",
            f"{memory(asked)} of {memory(exists)}",
            memory(free),
            f"{short(asked.compute)} of {f'{short(exists.compute)}%' if known else '?'}",
            f"{short(free.compute)}%" if known else "?",
        )

    for heading, rows, key in (("CARD", view["cards"], "model"), ("BACK END", view["backends"], "name")):
        cells = [(row[key] or "unknown", str(row["nodes"]), *measures(row)) for row in rows]
        yield from table((heading, "NODES", *MEASURES), cells, texts=1)
    cells = [(row["node"], state(row), row["backend"], card(row), *measures(row)) for row in view["perNode"]]
    yield from table(("NODE", "STATE", "BACK END", "CARD", *MEASURES), cells, texts=4)
    headings = ("APPLICATION", "NAMESPACE", "KIND", "BACK END", "PODS", "DEVICES", "MEMORY", "COMPUTE", "WAITING")
    cells = [
        (
            *(row[key] for key in ("name", "namespace", "kind")),
            ", ".join(row["backends"]),
            str(row["pods"]),
            short(row["asked"].devices),
            memory(row["asked"]),
            f"{short(row['asked'].compute)}%",
            short(row["waiting"].devices) if row["waiting"].devices else "-",
        )
        for row in view["applications"]
    ]
    yield from table(headings, cells, texts=4)
    if view["unclaimed"]:
        yield "\nNOBODY'S: resources that no enabled back end says this node is for"
    for row in view["unclaimed"]:
        yield f"  {row['node']}: " + ", ".join(f"{name}: {value}" for name, value in row["resources"].items())
    if view["notUnderstood"]:
        yield "\nNOT COUNTED: pods whose resources mean nothing here"
    yield from ("  {namespace}/{pod}: {message}".format(**row) for row in view["notUnderstood"])
    if view["unknown"]:
        yield "\nUNKNOWN: objects that may make pods, which are not counted"
    yield from ("  {namespace}/{object}: {message}".format(**row) for row in view["unknown"])
    if of_all["exists"].unsized or of_all["asked"].unsized:
        yield "\n* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster"
        yield "  document, would say which cards they are"


def card(row: Record) -> str:
    """The model that a row of a node is of, and the partition it is cut into."""
    model = row["model"] or "unknown"
    return f"{model} in {row['profile']}" if row["profile"] else model


def state(row: Record) -> str:
    """Whether the node of a row takes pods, in a word or two."""
    if not row["ready"]:
        return "not ready"
    return "ready" if row["schedulable"] else "cordoned"
