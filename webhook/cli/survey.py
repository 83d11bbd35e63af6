"""What a cluster has, as the `Cluster` document that fits it: each line with what it was seen by, and what is open.

A back end whose signs are all there is enabled, unless more of the same nodes speaks for another one with the same
resource.
"""

import argparse
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from webhook.cli import options, snapshot
from webhook.cli.snapshot import Object
from webhook.cli.table import number, several
from webhook.core.backends import cards
from webhook.core.forms.document import API_VERSION
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube import fields, quantity
from webhook.core.policy import unknown_devices
from webhook.core.policy.membership import ACCOUNT, is_of_the_platform, unselected
from webhook.core.rules import cluster
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook, of_cluster
from webhook.files import rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook survey` takes."""
    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|DIR|-",
        help=f"what {snapshot.KUBECTL} prints, or JSON; default: the current cluster",
    )
    options.rules_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Print the document; NOT_FINE where no back end was seen."""
    rulebook = rule_files.load_systems(arguments.rules)
    kinds = snapshot.surveyed(rulebook)
    objects = snapshot.read_files(kinds, snapshot.files(arguments.file))
    objects = objects if arguments.file else snapshot.read_cluster(kinds, snapshot.KUBECTL, needed=("Node",))
    document, enabled = survey(objects, rulebook)
    print(document, end="")
    return options.FINE if enabled else options.NOT_FINE


# The signs by which a back end is seen in a cluster, as its rule has them, and what of them is missing

PLUGINS: Final = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins_registry")
"""Folders of a node that only device plugins and drivers of dynamic resources mount."""

WORKLOADS: Final = ("Deployment", "DaemonSet", "StatefulSet")
"""The kinds that schedulers and device plugins are."""

HOLE: Final = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pool:
    """Nodes that are alike in all that rules ask of them: their names, labels, annotations, and resources."""

    names: list[str]
    labels: Mapping[str, str]
    annotations: frozenset[str]
    resources: frozenset[str]


class Sighting(NamedTuple):
    """A back end and what speaks for it: on the nodes of a pool, or None, in the cluster.

    resources, marks  what its nodes have: its resources, and its labels and annotations
    others            what else speaks for it: its scheduler, its classes of claims
    missing           what does not: it may not be there
    unknown           the labels by which its rule knows its nodes, where an annotation tells that they are its own
    settings          the values of its parameters that were seen there
    """

    backend: Backend
    pool: Pool | None
    resources: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def on_nodes(self) -> str:
        """What its nodes have, in words, and which they are; empty where it is on none."""
        return f"{', '.join(self.resources + self.marks)} on {named_nodes(self.pool.names)}" if self.pool else ""


def told_by(backend: Backend) -> Mapping[str, str]:
    """The labels that tell parameters, each with the name of its parameter."""
    return {parameter.label: name for name, parameter in backend.parameters.items() if parameter.label}


def aliases(backend: Backend) -> Mapping[str, str]:
    """Other values of parameters that are in use, each with the name of its parameter."""
    return {value: name for name, parameter in backend.parameters.items() for value in parameter.also}


def scheduler_of(backend: Backend) -> str:
    """The scheduler that it names; empty if it names none."""
    return str(backend.inject.scheduler.value) if backend.inject.scheduler else ""


def device_classes(backend: Backend) -> list[str]:
    """The device classes that a back end is asked in."""
    return sorted(name.removeprefix(DEVICE_CLASS) for name in backend.owns if name.startswith(DEVICE_CLASS))


def name_of(raw: Object) -> str:
    """The name of an object."""
    return str(fields.at(raw, "metadata", "name"))


def titled(workload: Object) -> str:
    """`Deployment hami-scheduler of kube-system`."""
    return f"{workload['kind']} {name_of(workload)} of {fields.at(workload, 'metadata', 'namespace') or 'default'}"


def mentions(raw: Object, names: Iterable[str]) -> bool:
    """Whether a name stands in an object, as a word of CEL or as the end of an image's name."""
    words = [f"/{word}" for word in re.findall(r"[\w./-]+", str(raw))]
    return any(word.endswith(f"/{name}") for word in words for name in names)


def models_in(text: str, rulebook: Rulebook) -> set[str]:
    """The cards whose product names stand in JSON, or between commas, also after a vendor: `"Vendor-Product T4"`."""
    words = {part for word in re.split('[",]', text) for part in (word, word.partition("-")[2])}
    return {card.model for card in rulebook.devices.values() if not words.isdisjoint(card.names)}


def named_nodes(names: Sequence[str]) -> str:
    """`3 nodes (a, b, c)`."""
    return f"{number(len(names), 'node')} ({several(sorted(names), ', ')})"


def pools_of(nodes: Iterable[Object], card_labels: cards.Labels, rulebook: Rulebook) -> list[Pool]:
    """The nodes with devices; those that are alike are one pool.

    A device is a resource that a rule knows, or that looks like a GPU; one that is ill counts, too.
    """
    backends = rulebook.backends.values()
    keys = card_labels.keys | {key for backend in backends for mode in backend.modes for key in mode.pool}
    keys |= {key for backend in backends for key in told_by(backend)}
    marks = frozenset(mark for backend in backends for mark in backend.nodes.annotations)
    pools: dict[object, Pool] = {}
    for node in nodes:
        resources = frozenset(
            name
            for section in ("allocatable", "capacity")
            for name, amount in fields.mapping(node, "status", section).items()
            if (name in rulebook.resources or unknown_devices.looks_like_a_gpu(name, rulebook))
            and quantity.text_of(amount) != "0"
        )
        if not resources:
            continue
        labels = {key: str(value) for key, value in fields.mapping(node, "metadata", "labels").items() if key in keys}
        annotations = marks.intersection(fields.mapping(node, "metadata", "annotations"))
        pool = Pool(names=[], labels=labels, annotations=annotations, resources=resources)
        pools.setdefault((frozenset(labels.items()), annotations, resources), pool).names.append(name_of(node))
    return list(pools.values())


def on_nodes(pools: Iterable[Pool], workloads: Sequence[Object] | None, rulebook: Rulebook) -> Iterator[Sighting]:
    """The back ends whose resources nodes have, if all signs are there, or all but one and another speaks for it."""
    backends = rulebook.backends.values()
    runners = {name: runner(name, workloads) for name in map(scheduler_of, backends) if name}
    for pool, backend in product(pools, backends):
        labelled, scheduler = told_by(backend), scheduler_of(backend)
        resources = (backend.owns | aliases(backend).keys()) & pool.resources
        if not resources or device_classes(backend):
            continue

        # Some mode with these resources has to put a pod there, by the labels that tell nodes apart.
        def passes(key: str, line: Output, pool: Pool = pool) -> bool:
            if not isinstance(line, Constant) or line.words:  # one with holes is not known before a pod asks
                return True
            value = pool.labels.get(key)
            return value in line.texts if line.texts else value is None

        modes = [mode for mode in backend.modes if not pool.resources.isdisjoint(mode.limits)] or backend.modes
        if not any(all(passes(key, mode.pool[key]) for key in mode.pool if key not in labelled) for mode in modes):
            continue

        wanted = {key: () if key in labelled else values for key, values in backend.nodes.labels.items()}
        absent = tuple(
            f"{key}: {' or '.join(values)}" if values else key
            for key, values in wanted.items()
            if key not in pool.labels or (values and pool.labels[key] not in values)
        )
        labels = [f"{key}: {pool.labels[key]}" if pool.labels[key] else key for key in ([] if absent else wanted)]
        annotations = [mark for mark in backend.nodes.annotations if mark in pool.annotations]
        missing = [] if annotations else [f"without the label {label}" for label in absent]
        if backend.nodes.annotations and not annotations:
            missing.append(f"without the annotation {' or '.join(backend.nodes.annotations)}")
        runs = runners.get(scheduler, {})
        if runs is None:
            missing.append(f"and no workload is a scheduler called {scheduler}")

        owner_lists = [rulebook.resources[name].known for name in resources if name in rulebook.resources]
        only_for_schedulers = any(all(map(scheduler_of, owners)) for owners in owner_lists)
        certain = not missing and not (scheduler and not runs)
        if certain or ((labels or annotations or runs or only_for_schedulers) and len(missing) < 2):
            settings = [(name, pool.labels[key]) for key, name in labelled.items() if key in pool.labels]
            settings += [
                (name, value)
                for value, name in aliases(backend).items()
                if value in pool.resources and backend.parameters[name].default not in pool.resources
            ]
            yield Sighting(
                backend,
                pool,
                resources=tuple(sorted(resources)),
                marks=(*labels, *annotations),
                others=(titled(runs),) if runs else (),
                missing=tuple(missing),
                unknown=absent if annotations else (),
                settings=tuple(settings),
            )


def runner(scheduler: str, workloads: Sequence[Object] | None) -> Object | None:
    """The workload that is the scheduler; None if none is, and nothing if no workload could be read.

    It is the one with the argument --scheduler-name, else the one that is called so, or so and what scheduler it is.
    """
    if workloads is None:
        return {}
    named, called = [], []
    for workload in workloads:
        for container in fields.objects(fields.at(workload, "spec", "template", "spec", "containers")):
            words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
            for word, after in pairwise([*words, ""]):
                option, _, value = word.partition("=")
                if option == "--scheduler-name" and (value or after) == scheduler:
                    named.append(workload)
        name = name_of(workload)
        if name == scheduler or (name.startswith(f"{scheduler}-") and "scheduler" in name):
            called.append(workload)
    return next(iter([*named, *called]), None)


def unlisted(workloads: Sequence[Object], rulebook: Rulebook) -> Mapping[str, str]:
    """The accounts, as globs, of schedulers of enabled back ends that are not of the platform, with who has them."""
    schedulers = sorted({scheduler_of(backend) for backend in rulebook.enabled} - {""})
    there = filter(None, (runner(name, workloads) for name in schedulers))
    accounts = {f"{ACCOUNT}{fields.at(raw, 'metadata', 'namespace') or 'default'}:*": titled(raw) for raw in there}
    return {account: why for account, why in accounts.items() if not is_of_the_platform(account, rulebook)}


def on_no_nodes(
    objects: snapshot.Snapshot, plugins: Iterable[Object], offered: Collection[str], rulebook: Rulebook
) -> Iterator[Sighting]:
    """The back ends that are asked in device classes or claim templates, and those whose plugins wait for a node.

    `offered` are the resources of all nodes.
    """
    described = {name_of(raw): raw for raw in objects.of("DeviceClass")}
    resources = {name: str(fields.at(raw, "spec", "extendedResourceName")) for name, raw in described.items()}
    slices = [fields.mapping(raw, "spec") for raw in objects.of("ResourceSlice")]

    def titled_class(name: str) -> str:
        own = [spec for spec in slices if mentions(described[name], [str(spec.get("driver"))])]
        nodes = {spec["nodeName"] for spec in own if "nodeName" in spec}
        return f"DeviceClass {name}" + (f", ResourceSlices of {named_nodes([*nodes])}" if nodes else "")

    for backend in rulebook.backends.values():
        if classes := [name for name in device_classes(backend) if name in resources]:
            owned = not backend.owns.isdisjoint(resources[name] for name in classes)
            named = [
                (name, text) for text, name in aliases(backend).items() if text.removeprefix(DEVICE_CLASS) in classes
            ]
            yield Sighting(
                backend,
                None,
                others=tuple(map(titled_class, classes)),
                missing=() if owned or named else ("but has no extendedResourceName",),
                settings=() if owned else tuple(named[:1]),
            )
        # A text with nothing but a hole fits any template, and says nothing.
        texts = (text for mode in backend.modes for claim in mode.claims for text in claim.texts)
        globs = [glob for glob in (HOLE.sub("*", text) for text in texts) if glob.strip("*-")]
        own = {
            name_of(raw)
            for raw in objects.of("ResourceClaimTemplate")
            if mentions(raw, backend.nodes.signs) or any(fnmatchcase(name_of(raw), glob) for glob in globs)
        }
        if own:
            yield Sighting(backend, None, others=(f"ResourceClaimTemplate {several(sorted(own), ', ')}",))
        waiting = [titled(plugin) for plugin in plugins if mentions(plugin, backend.nodes.signs)]
        if waiting and backend.owns.isdisjoint(offered):
            yield Sighting(backend, None, others=(f"{several(waiting, ', ')}, and no node has its resources yet",))


# Which back ends are there, and the values of their parameters that the cluster shows


class Line(NamedTuple):
    """A line of the document, and what it was seen by."""

    text: str
    why: str = ""


class Installed(NamedTuple):
    """A back end that is there, where it was seen, on which nodes, and the kinds of requests that it serves.

    `by_claims`: it is asked in claim templates, of which each namespace needs its own, and a share has none.
    """

    backend: Backend
    sightings: Sequence[Sighting]
    pools: Sequence[Pool]
    by_claims: bool
    kinds: Sequence[str]


def told_apart(sightings: Sequence[Sighting]) -> tuple[list[Installed], list[Line]]:
    """The back ends that are there, in order, and in comments those that may be.

    Of two with the same resource on the same nodes the one for which more of the nodes speaks is there.
    """
    certain: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        beaten = any(
            other.pool is sighting.pool
            and not {*other.resources}.isdisjoint(sighting.resources)
            and len(other.marks) > len(sighting.marks)
            for other in sightings
            if not other.missing
        )
        if not (beaten or sighting.missing):
            certain.setdefault(sighting.backend.name, []).append(sighting)

    installed = []
    for backend, group in ((group[0].backend, group) for group in certain.values()):
        by_claims = all(mode.claims for mode in backend.modes)
        whole = any(mode.when.devices in {None, "whole"} for mode in backend.modes)
        kinds = ["whole"] * whole + ["part"] * (backend.shares and not by_claims)
        pools = [sighting.pool for sighting in group if sighting.pool]
        installed.append(Installed(backend, group, pools, by_claims, kinds))

    # Those that nothing tells from one that is there.
    firsts: dict[object, str] = {}
    there, doubtful = [], []
    for candidate in sorted(installed, key=lambda backend: (-len(backend.kinds), backend.backend.name)):
        name = candidate.backend.name
        first = firsts.setdefault(tuple(sighting[1:5] for sighting in candidate.sightings), name)
        if first == name:
            there.append(candidate)
        else:
            doubtful.append(Line(f"  # - {name}", f"seen by the same as {first}: {candidate.backend.description}"))

    names = {candidate.backend.name for candidate in there}
    doubts = {
        sighting.backend.name: ", ".join(filter(None, [sighting.on_nodes(), *sighting.others, *sighting.missing]))
        for sighting in sightings
        if sighting.missing and sighting.backend.name not in names
    }
    doubtful += [Line(f"  # - {name}", why) for name, why in sorted(doubts.items())]

    def rank(candidate: Installed) -> tuple[bool, tuple[int, int], int, str]:
        """The more speaks for it, the later; among equals the one with the most nodes is first."""
        signs = max((len(sighting.marks), len(sighting.others)) for sighting in candidate.sightings)
        nodes = sum(len(pool.names) for pool in candidate.pools)
        return candidate.by_claims, signs, -nodes, candidate.backend.name

    return sorted(there, key=rank), doubtful


def parameters_of(
    there: Sequence[Installed], plugins: Sequence[Object], classes: Iterable[str]
) -> tuple[list[Line], list[str]]:
    """The parameters to set, by back end; and in sentences what could not be decided.

    `classes` are the runtime classes of the cluster.
    """
    lines: list[Line] = []
    undecided: list[str] = []
    run_under = {fields.at(plugin, "spec", "template", "spec", "runtimeClassName") for plugin in plugins}
    for installed in there:
        backend, values = installed.backend, dict[str, Line]()
        neighbours = [  # on other nodes that have one of its resources
            (other.backend.name, pool)
            for other in there
            for pool in other.pools
            if pool not in installed.pools and not backend.owns.isdisjoint(pool.resources)
        ]
        shown: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for sighting in installed.sightings:
            for name, text in sighting.settings:
                shown[name][text] += sighting.pool.names if sighting.pool else ()
        for name, parameter in sorted(backend.parameters.items()):
            nodes, is_set = shown[name], bool(shown[name])
            if parameter.label and parameter.default == "":
                # It is set where it keeps the pods of the back end off the nodes of another with the same resource.
                own = {pool.labels.get(parameter.label) for pool in installed.pools}
                others = {pool.labels.get(parameter.label) for _, pool in neighbours}
                is_set = len(nodes) == 1 and own == nodes.keys() and bool(others) and own.isdisjoint(others)
                near: dict[str, list[str]] = defaultdict(list)
                for neighbour, pool in [] if is_set else neighbours:
                    near[neighbour] += pool.names
                undecided += (
                    f"pods of {backend.name} may come to {named_nodes(names)} of {neighbour}, which have the same "
                    f"resource: {backend.rule} has parameters that keep them off"
                    for neighbour, names in near.items()
                )
            elif len(nodes) > 1 and parameter.default != "":
                undecided.append(
                    f"{name} of {backend.name} is {' and '.join(sorted(nodes))}, by {parameter.label} of its nodes:"
                    " the greatest is taken;"
                    f" other nodes need a back end of their own, that extends {backend.name}"
                )
            if is_set:
                # Of several numbers the greatest, so that a share is nowhere less than it says.
                numbers = all(map(str.isdecimal, nodes))
                text = max(nodes, key=lambda text: (len(text), text)) if numbers else min(nodes)
                value: Any = int(text) if isinstance(parameter.default, int) else text
                where = f"{parameter.label or text} on {named_nodes(nodes[text])}"
                if str(value) != str(parameter.default):
                    why = where if nodes[text] else "the name of its device class"
                    values[name] = Line(json.dumps(value), why)

            # The runtime class that all device plugins run under, where the back end knows it.
            if parameter.default == "" and len(run_under) == 1 and (used := run_under.intersection(parameter.also)):
                why = f"device plugins run under it: {several([*map(titled, plugins)])}"
                values[name] = Line(json.dumps(used.pop()), why)
            elif parameter.default == "" and (may_need := {*parameter.also}.intersection(classes)):
                undecided.append(
                    f"set {name} of {backend.name} to {' or '.join(sorted(may_need))}, unless that is the default"
                    " runtime of the nodes"
                )
        lines += [Line(f"    {backend.name}:")] if values else []
        lines += [Line(f"      {name}: {value}", why) for name, (value, why) in values.items()]
    return lines, undecided


WIDTH: Final = 118


def survey(objects: snapshot.Snapshot, rulebook: Rulebook) -> tuple[str, Sequence[str]]:
    """The Cluster document that fits the cluster of these objects, and the back ends that it enables."""
    workloads, plugins = None, []
    if not objects.objects.keys().isdisjoint(WORKLOADS):
        workloads = [{**raw, "kind": kind} for kind in WORKLOADS for raw in objects.of(kind)]
    for workload in workloads or ():
        volumes = fields.objects(fields.at(workload, "spec", "template", "spec", "volumes"))
        if not {str(fields.at(volume, "hostPath", "path")).rstrip("/") for volume in volumes}.isdisjoint(PLUGINS):
            plugins.append(workload)
    card_labels = cards.labels(rulebook)
    pools = pools_of(objects.of("Node"), card_labels, rulebook)
    offered = {name for pool in pools for name in pool.resources}
    sightings = [*on_nodes(pools, workloads, rulebook), *on_no_nodes(objects, plugins, offered, rulebook)]
    there, doubtful = told_apart(sightings)
    names = [installed.backend.name for installed in there]

    nodes = number(len(objects.of("Node")), "node")
    slices: dict[str, set[str]] = defaultdict(set)  # the models of the cards of nodes
    for raw in objects.of("ResourceSlice"):
        if found := models_in(json.dumps(raw), rulebook):
            slices[str(fields.at(raw, "spec", "nodeName"))] |= found
    devices = slices.keys() | {name for pool in pools for name in pool.names}
    read = f"{nodes}, {len(devices)} with devices, {number(len(workloads or ()), 'workload')}"
    heading = f"# Written by `gpu-webhook survey`, which read {read}."
    head = (heading, f"apiVersion: {API_VERSION}", "kind: Cluster", "metadata:", "  name: default", "spec:")
    lines = [Line("\n".join(head))]
    if not there:
        nothing = "No back end was seen: pods that ask for a GPU are refused. List those that there will be."
        lines.append(Line(f"  # {nothing}"))
    lines.append(Line("  backends:" if there else "  backends: []"))
    for installed in there:
        where: dict[tuple[str, ...], list[str]] = defaultdict(list)  # alike nodes together
        for sighting in installed.sightings:
            where[sighting.resources + sighting.marks] += sighting.pool.names if sighting.pool else ()
        texts = [f"{', '.join(signs)} on {named_nodes(on)}" for signs, on in where.items() if on]
        others = dict.fromkeys(other for sighting in installed.sightings for other in sighting.others)
        lines.append(Line(f"  - {installed.backend.name}", "; ".join([*sorted(texts), *others])))
    lines += doubtful

    # The back ends by default.
    defaults = []
    for kind, nothing in (
        ("whole", "nothing here serves whole devices"),
        ("part", "nothing here shares a device: gpu: 0.3 is refused"),
    ):
        serving = [installed.backend.name for installed in there if kind in installed.kinds]
        why = f"{', '.join(serving[1:])} could, too: gpu-backend chooses" if serving[1:] else ""
        defaults.append(Line(f"    {kind}: {serving[0]}", why) if serving else Line(f"    # {kind}: {nothing}"))
    lines += [Line("  defaults:" if any(installed.kinds for installed in there) else "  # defaults:"), *defaults]

    # The only model that there is.
    undecided: list[str] = []
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for installed in there:
        for pool in installed.pools:
            card = card_labels.recognise(pool.labels, installed.backend).card or installed.backend.card
            models[card.model if card else ""].update(dict.fromkeys(pool.names))
    # What no label tells, annotations of the node may, and ResourceSlices.
    nameless = models.pop("", {})
    sources = {"labels": models.copy(), "annotations": nameless, "ResourceSlices": slices}
    marks = [mark for installed in there for mark in installed.backend.nodes.annotations]
    notes = {name_of(raw): fields.mapping(raw, "metadata", "annotations") for raw in objects.of("Node")}
    noted = {name: models_in(",".join(str(notes[name].get(mark)) for mark in marks), rulebook) for name in nameless}
    for name, of_node in (*noted.items(), *slices.items()):
        for model in of_node or {""}:
            models[model][name] = None
    if "" in models or (nameless and len(models) > 1):
        fix = "write device: if all cards are of one model; else shares become no sizes, and no quota counts memory"
        undecided.append(f"no label of {named_nodes([*nameless])} names a card that a catalogue knows: {fix}")
    elif len(models) == 1:
        [(model, tellers)] = models.items()
        what = " and ".join(source for source, nodes_of in sources.items() if nodes_of)
        lines.append(Line(f"  device: {model}", f"by the {what} of {named_nodes([*tellers])}"))

    parameters, unclear = parameters_of(there, plugins, {*map(name_of, objects.of("RuntimeClass"))})
    lines += [Line("  parameters:"), *parameters] if parameters else []
    undecided += unclear

    # The provisioners of the classes of claims, each with its class.
    provisioned: dict[str, str] = {}
    for source in rulebook.sources:
        for raw in objects.of(source.classes.kind) if source.classes else ():
            for name in filter(None, (fields.at(raw, *field) for field in source.provisioned)):
                provisioned.setdefault(str(name), f"the {raw['kind']} {name_of(raw)}")
    if provisioned and len(there) == 1:
        lines.append(Line("  provisioners:"))
        lines += [Line(f"    {name}: {names[0]}", f"of {why}") for name, why in provisioned.items()]
    else:
        undecided += (
            f"which back end serves claims of {why}: write provisioners: {{{name}: BACKEND}}"
            for name, why in provisioned.items()
        )

    namespaces = {cluster.KUBERNETES: "Kubernetes' own", cluster.OWN: "the webhook's own"}
    for plugin in plugins:
        namespace = str(fields.at(plugin, "metadata", "namespace") or "default")
        namespaces.setdefault(namespace, f"{titled(plugin)} is a device plugin")
    lines += [Line("  unknownValue: warn"), Line("  systemNamespaces:")]
    lines += [Line(f"  - {name}", why) for name, why in sorted(namespaces.items())]
    document = replace(rulebook.cluster, backends=tuple(names), tiers={}, system_namespaces=frozenset(namespaces))
    fitting = replace(of_cluster(document, rulebook), tenancy=objects.tenancy(rulebook)[0])
    if accounts := unlisted(workloads or (), fitting):
        lines += [Line("  platformAccounts:"), *(Line(f"  - {account}", why) for account, why in accounts.items())]

    # Nodes that are a back end's by annotations and not by labels, and resources that no back end here serves.
    for installed in there:
        for sighting in installed.sightings:
            if sighting.pool and sighting.unknown:
                nodes, rule = named_nodes(sighting.pool.names), installed.backend.rule
                undecided.append(
                    f"{nodes} of {installed.backend.name} without the label {', '.join(sighting.unknown)}, by which"
                    f" {rule} knows them: label them, or set the parameters of the rule to the label that they have"
                )
    left: dict[str, list[str]] = defaultdict(list)
    for pool in pools:
        served = {name for installed in there if pool in installed.pools for name in installed.backend.owns}
        for name in pool.resources - served:
            left[name] += pool.names
    for name, nodes_left in sorted(left.items()):
        resource = rulebook.resources.get(name)
        owners = ", ".join(backend.name for backend in resource.known[:4]) if resource else ""
        why = f"the signs of {owners} are not all there" if resource else "looks like a GPU, and no rule knows it"
        undecided.append(f"{name} on {named_nodes(nodes_left)} is served by nothing: {why}")
    if "TenantPolicy" in objects.objects and (left_out := unselected(fitting)):
        words = "write namespacesWithoutPolicy: open, no-devices, or {default: NAME}"
        undecided.append(f"no TenantPolicy is for {several(left_out, ', ')}: {words}")
    signs = {key for installed in there for key in (*installed.backend.owns, *installed.backend.nodes.signs)}
    for name in map(name_of, objects.of("DeviceClass")):
        alias = f"{DEVICE_CLASS}{name}"
        if signs.isdisjoint({name, alias}) and unknown_devices.looks_like_a_gpu(alias, rulebook):
            owner = next((backend.name for backend in rulebook.backends.values() if name in backend.nodes.signs), "")
            why = f"{owner} could, and no ResourceClaimTemplate asks for it" if owner else "no rule knows it"
            undecided.append(f"DeviceClass {name} is served by nothing: {why}")
    if objects.whole and (unread := sorted({*objects.kinds} - objects.objects.keys())):
        undecided.append(f"{', '.join(unread)} could not be read: run it as a user who may list them")
    if workloads is None:
        kinds = "no Deployments, DaemonSets and StatefulSets were read"
        undecided.append(f"{kinds}: no scheduler, no device plugin was looked for")

    # A comment stands beside its line, and goes on below it if it is long.
    written: list[str] = []
    for text, why in lines:
        width = WIDTH - len(text) - len("  # ")
        comment = textwrap.wrap(why, width, break_long_words=False, break_on_hyphens=False) if why else []
        written.append("  # ".join([text, *comment[:1]]))
        written += [f"{' ' * len(text)}  # {part}" for part in comment[1:]]
    written += ["# Not decided:"] if undecided else []
    for sentence in undecided:
        written += textwrap.wrap(
            sentence, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )
    return "\n".join(written) + "\n", names
