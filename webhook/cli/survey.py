"""What a cluster has, as the `Cluster` document that fits it: each line with what it was seen by, and what is open.

A back end whose signs are all there is enabled, unless more of the same nodes speaks for another one with the same
resource.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Final, NamedTuple

from webhook.cli import options, snapshot
from webhook.cli.options import FINE, NOT_FINE, UsageError
from webhook.cli.table import number, several
from webhook.core.backends import cards
from webhook.core.forms.document import API_VERSION
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube import fields, quantity
from webhook.core.policy import unknown_devices
from webhook.core.rules import cluster
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents, rule_files

Object = Mapping[str, Any]
Objects = Mapping[str, Sequence[Object]]
"""Objects of a cluster by kind; a kind that could not be read has no entry."""


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
    try:
        kinds = snapshot.surveyed(rulebook)
        objects = snapshot.Snapshot(kinds)
        for file in snapshot.files(arguments.file):
            objects.parse(*options.read_content(file))
        objects = objects if arguments.file else snapshot.read_cluster(kinds, snapshot.KUBECTL, needed=("Node",))
    except documents.UnreadableError as error:
        raise UsageError(str(error)) from None
    result = survey(objects.objects, rulebook)
    print(survey_text(result), end="")
    return FINE if result.backends else NOT_FINE


# The signs by which a back end is seen in a cluster, as its rule has them, and what of them is missing

PLUGINS: Final = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins_registry")
"""Folders of a node that only device plugins and drivers of dynamic resources mount."""

WORKLOADS: Final = ("Deployment", "DaemonSet", "StatefulSet")
"""The kinds that schedulers and device plugins are."""

_HOLE: Final = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pool:
    """Nodes that are alike in all that rules ask of them: their names, labels, annotations, and resources."""

    names: list[str]
    labels: Mapping[str, str]
    annotations: frozenset[str]
    resources: frozenset[str]


class Signs(NamedTuple):
    """What speaks for a back end: of a node its resources, labels and annotations; beside that, anything else."""

    resources: tuple[str, ...]
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def on_node(self) -> int:
        """How much of a node, beside its resources, speaks for the back end."""
        return len(self.labels) + len(self.annotations)

    def __str__(self) -> str:
        """All of it in words, without the nodes."""
        return ", ".join([*self.resources, *self.labels, *self.annotations])


class Sighting(NamedTuple):
    """A back end and its signs: on the nodes of a pool, or None, in the cluster. `missing`: it may not be there.

    unknown    the labels by which its rule knows its nodes, where an annotation tells that they are its own
    settings   the values of its parameters that were seen there
    """

    backend: Backend
    pool: Pool | None
    signs: Signs
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


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


def pools_of(nodes: Iterable[Object], card_labels: cards.Labels, rulebook: Rulebook) -> list[Pool]:
    """The nodes with devices; those that are alike are one pool.

    A device is a resource that a rule knows, or that looks like a GPU; one that is ill counts, too.
    """
    backends = rulebook.backends.values()
    keys = card_labels.keys | {key for backend in backends for mode in backend.modes for key in mode.pool}
    keys |= {key for backend in backends for key in told_by(backend)}
    marks = [mark for backend in backends for mark in backend.nodes.annotations]
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
        notes = fields.mapping(node, "metadata", "annotations")
        annotations = frozenset(mark for mark in marks if mark in notes)
        pool = Pool(names=[], labels=labels, annotations=annotations, resources=resources)
        same = pools.setdefault((frozenset(labels.items()), annotations, resources), pool)
        same.names.append(str(fields.at(node, "metadata", "name")))
    return list(pools.values())


def on_nodes(pools: Iterable[Pool], objects: Objects, rulebook: Rulebook) -> Iterator[Sighting]:
    """The back ends whose resources nodes have, if all signs are there, or all but one and another speaks for it."""
    backends = rulebook.backends.values()
    running = {name: runner(name, objects) for name in map(scheduler_of, backends) if name}
    for pool in pools:
        for backend in backends:
            resources = (backend.owns | aliases(backend).keys()) & pool.resources
            if not resources or device_classes(backend) or not _may_serve(backend, pool):
                continue
            sighting = _sighting(backend, pool, resources, running)
            owner_lists = [rulebook.resources[name].known for name in resources if name in rulebook.resources]
            only_for_schedulers = any(all(map(scheduler_of, owners)) for owners in owner_lists)
            speaks = sighting.signs.on_node or sighting.signs.others or only_for_schedulers
            certain = not sighting.missing and not (scheduler_of(backend) and not sighting.signs.others)
            if certain or (speaks and len(sighting.missing) < 2):
                yield sighting


def _may_serve(backend: Backend, pool: Pool) -> bool:
    """Whether some mode with resources of the pool could put a pod there, by the labels that tell nodes apart."""

    def passes(value: str | None, line: Output) -> bool:
        if not isinstance(line, Constant) or line.words:  # one with holes is not known before a pod asks
            return True
        return value in line.texts if line.texts else value is None

    modes = [mode for mode in backend.modes if not pool.resources.isdisjoint(mode.limits)] or backend.modes
    free = told_by(backend)
    return any(
        all(passes(pool.labels.get(key), line) for key, line in mode.pool.items() if key not in free)
        for mode in modes
    )


def _sighting(backend: Backend, pool: Pool, resources: Iterable[str], running: Mapping[str, str | None]) -> Sighting:
    """What of a back end's signs the nodes of a pool have, and what is missing."""

    def text(key: str, value: str) -> str:
        return f"{key}: {value}" if value else key

    free = told_by(backend)
    wanted = {key: () if key in free else values for key, values in backend.nodes.labels.items()}
    absent = tuple(
        text(key, " or ".join(values))
        for key, values in wanted.items()
        if key not in pool.labels or (values and pool.labels[key] not in values)
    )
    labels = () if absent else tuple(text(key, pool.labels[key]) for key in wanted)
    marks = tuple(mark for mark in backend.nodes.annotations if mark in pool.annotations)
    scheduler = scheduler_of(backend)
    runs = running.get(scheduler, "")
    missing = [] if marks else [f"without the label {label}" for label in absent]
    if backend.nodes.annotations and not marks:
        missing.append(f"without the annotation {' or '.join(backend.nodes.annotations)}")
    if runs is None:
        missing.append(f"and no workload is a scheduler called {scheduler}")
    settings = [(name, pool.labels[key]) for key, name in free.items() if key in pool.labels]
    settings += [
        (name, value)
        for value, name in aliases(backend).items()
        if value in pool.resources and backend.parameters[name].default not in pool.resources
    ]
    signs = Signs(tuple(sorted(resources)), labels, marks, (runs,) if runs else ())
    return Sighting(backend, pool, signs, tuple(missing), absent if marks else (), tuple(settings))


def workloads_of(objects: Objects) -> Iterator[Object]:
    """The Deployments, DaemonSets and StatefulSets, each with its kind."""
    for kind in WORKLOADS:
        yield from ({**workload, "kind": kind} for workload in objects.get(kind, ()))


def plugins_of(objects: Objects) -> Iterator[Object]:
    """The workloads that are device plugins, or drivers of dynamic resources."""
    for workload in workloads_of(objects):
        volumes = fields.objects(fields.at(workload, "spec", "template", "spec", "volumes"))
        folders = {str(fields.at(volume, "hostPath", "path")).rstrip("/") for volume in volumes}
        if not folders.isdisjoint(PLUGINS):
            yield workload


def titled(workload: Object) -> str:
    """`Deployment hami-scheduler of kube-system`."""
    name, namespace = (fields.at(workload, "metadata", key) for key in ("name", "namespace"))
    return f"{workload['kind']} {name} of {namespace or 'default'}"


def runner(scheduler: str, objects: Objects) -> str | None:
    """The workload that is the scheduler; None if none is, and nothing if no workload could be read.

    It is the one with the argument --scheduler-name, else the one that is called so, or so and what scheduler it is.
    """

    def arguments(workload: Object) -> Iterator[str]:
        for container in fields.objects(fields.at(workload, "spec", "template", "spec", "containers")):
            words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
            for word, after in zip(words, [*words[1:], ""], strict=False):
                name, _, value = word.partition("=")
                if name == "--scheduler-name":
                    yield value or after

    def is_called(name: str) -> bool:
        return name == scheduler or (name.startswith(f"{scheduler}-") and "scheduler" in name)

    if not any(kind in objects for kind in WORKLOADS):
        return ""
    workloads = list(workloads_of(objects))
    named = [workload for workload in workloads if scheduler in arguments(workload)]
    called = [workload for workload in workloads if is_called(str(fields.at(workload, "metadata", "name")))]
    return next(map(titled, [*named, *called]), None)


def in_classes(objects: Objects, rulebook: Rulebook) -> Iterator[Sighting]:
    """The back ends that are asked in device classes, or in templates of resource claims, that are there."""

    def name_of(raw: Object) -> str:
        return str(fields.at(raw, "metadata", "name"))

    resources = {
        name_of(raw): str(fields.at(raw, "spec", "extendedResourceName")) for raw in objects.get("DeviceClass", ())
    }
    templates = {name_of(raw) for raw in objects.get("ResourceClaimTemplate", ())}
    for backend in rulebook.backends.values():
        classes = [name for name in device_classes(backend) if name in resources]
        named = [
            (name, text) for text, name in aliases(backend).items() if text.removeprefix(DEVICE_CLASS) in classes
        ]
        owned = {resources[name] for name in classes} & backend.owns
        if classes:
            signs = Signs((), others=tuple(f"DeviceClass {name}" for name in classes))
            missing = () if owned or named else ("but has no extendedResourceName",)
            yield Sighting(backend, None, signs, missing, settings=() if owned else tuple(named[:1]))
        # A text with nothing but a hole fits any template, and says nothing.
        texts = (text for mode in backend.modes for claim in mode.claims for text in claim.texts)
        globs = [glob for glob in (_HOLE.sub("*", text) for text in texts) if glob.strip("*-")]
        if own := sorted(name for name in templates if any(fnmatchcase(name, glob) for glob in globs)):
            yield Sighting(backend, None, Signs((), others=(f"ResourceClaimTemplate {several(own, ', ')}",)))


def named_nodes(names: Sequence[str]) -> str:
    """`3 nodes (a, b, c)`."""
    return f"{number(len(names), 'node')} ({several(sorted(names), ', ')})"


# The values of back ends' parameters that a cluster shows: on labels of nodes, by names of resources and classes


class Line(NamedTuple):
    """A value of the document, and what it was seen by."""

    value: Any
    why: str


class Installed(NamedTuple):
    """A back end that is there, and where it was seen."""

    backend: Backend
    sightings: Sequence[Sighting]

    @property
    def pools(self) -> list[Pool]:
        """Its nodes."""
        return [sighting.pool for sighting in self.sightings if sighting.pool]

    @property
    def why(self) -> str:
        """What it was seen by, alike nodes together."""
        texts: list[str] = []
        for text, group in groupby(sorted(self.sightings, key=lambda s: str(s.signs)), key=lambda s: str(s.signs)):
            names = [name for sighting in group if sighting.pool for name in sighting.pool.names]
            texts += [f"{text} on {named_nodes(names)}"] if names else []
        return "; ".join([*texts, *dict.fromkeys(other for s in self.sightings for other in s.signs.others)])

    @property
    def rank(self) -> tuple[bool, tuple[int, int], int, str]:
        """The more speaks for it, the later; among equals the one with the most nodes is first.

        Claim templates come last: each namespace needs its own.
        """
        by_claims = all(mode.claims for mode in self.backend.modes)
        signs = max((sighting.signs.on_node, len(sighting.signs.others)) for sighting in self.sightings)
        return by_claims, signs, -sum(len(pool.names) for pool in self.pools), self.backend.name

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of requests that it serves: whole devices, parts of them. A share has no claim template."""
        whole = any(mode.when.devices in {None, "whole"} for mode in self.backend.modes)
        part = self.backend.shares and not self.rank[0]
        return frozenset([*["whole"] * whole, *["part"] * part])

    def neighbours(self, there: Sequence[Installed]) -> Iterator[tuple[Backend, Pool]]:
        """The other back ends on other nodes that have one of its resources."""
        mine = self.pools
        for other in there:
            for pool in other.pools:
                if pool not in mine and not self.backend.owns.isdisjoint(pool.resources):
                    yield other.backend, pool


def settings(there: Sequence[Installed], objects: Objects) -> tuple[Mapping[str, Mapping[str, Line]], list[str]]:
    """The parameters to set, by back end; and in sentences what could not be decided."""
    values: dict[str, dict[str, Line]] = {}
    undecided: list[str] = []
    plugins = list(plugins_of(objects))
    run_under = {fields.at(plugin, "spec", "template", "spec", "runtimeClassName") for plugin in plugins}
    classes = {str(fields.at(raw, "metadata", "name")) for raw in objects.get("RuntimeClass", ())}
    for installed in there:
        backend, lines = installed.backend, values.setdefault(installed.backend.name, {})
        shown: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for sighting in installed.sightings:
            for name, value in sighting.settings:
                shown[name][value] += sighting.pool.names if sighting.pool else ()
        told = {name: _line(name, shown[name], installed, there) for name in sorted(shown)}
        lines |= {
            name: line
            for name, line in told.items()
            if line and str(backend.parameters[name].default) != str(line.value)
        }
        for name, parameter in backend.parameters.items():
            if len(shown[name]) > 1 and parameter.default != "":
                texts = " and ".join(sorted(shown[name]))
                undecided.append(
                    f"{name} of {backend.name} is {texts}, by {parameter.label} of its nodes: the greatest is taken;"
                    f" other nodes need a back end of their own, that extends {backend.name}"
                )
            if parameter.label and parameter.default == "" and told.get(name) is None:
                names: dict[str, list[str]] = defaultdict(list)
                for other, pool in installed.neighbours(there):
                    names[other.name] += pool.names
                undecided += (
                    f"pods of {backend.name} may come to {named_nodes(nodes)} of {neighbour}, which have the same "
                    f"resource: {backend.rule} has parameters that keep them off"
                    for neighbour, nodes in names.items()
                )
        # The runtime class that all device plugins run under, where the back end knows it.
        for name, parameter in backend.parameters.items():
            if parameter.default != "":
                continue
            if len(run_under) == 1 and (used := run_under.intersection(parameter.also)):
                why = f"device plugins run under it: {several([*map(titled, plugins)])}"
                lines[name] = Line(used.pop(), why)
            elif may_need := classes.intersection(parameter.also):
                which = " or ".join(sorted(may_need))
                undecided.append(
                    f"set {name} of {backend.name} to {which}, unless that is the default runtime of the nodes"
                )
    return {name: lines for name, lines in values.items() if lines}, undecided


def _line(
    name: str, nodes: Mapping[str, Sequence[str]], installed: Installed, there: Sequence[Installed]
) -> Line | None:
    """The value of a parameter: of several numbers the greatest, so that a share is nowhere less than it says.

    `nodes` are those that show each value. A label without a default is set where it keeps the pods of the back end
    off the nodes of another one with the same resource.
    """
    if not nodes:
        return None
    parameter = installed.backend.parameters[name]
    if parameter.label and parameter.default == "":
        others = [pool.labels.get(parameter.label) for _, pool in installed.neighbours(there)]
        on_all = {pool.labels.get(parameter.label) for pool in installed.pools} == nodes.keys()
        if len(nodes) != 1 or not on_all or not others or not nodes.keys().isdisjoint(others):
            return None
    value = max(nodes, key=lambda text: (len(text), text)) if all(map(str.isdecimal, nodes)) else min(nodes)
    where = f"{parameter.label or value} on {named_nodes(nodes[value])}"
    return Line(
        int(value) if isinstance(parameter.default, int) else value,
        where if nodes[value] else "the name of its device class",
    )


# What a cluster has, as the `Cluster` document that fits it

NOT_READ: Final = (
    "no Deployments, DaemonSets and StatefulSets were read: no scheduler, no device plugin was looked for"
)
OWN_NAMESPACES: Final = {cluster.KUBERNETES: "Kubernetes' own", cluster.OWN: "the webhook's own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The lines of a Cluster document.

    backends    those that are there, the most general first; `doubtful` are those that may be there, too
    whole       which one serves whole devices, and `part` shares; None if none does
    device      the model of all cards; None if they differ or are not known
    parameters  the values that were seen, by back end and parameter
    provisioners  the back end of each provisioner of claims' classes, if there is one only
    namespaces  those whose pods are neither changed nor judged
    open        what could not be decided, in sentences
    read        what was looked at, in words
    """

    backends: Sequence[Line]
    doubtful: Sequence[Line]
    whole: Line | None
    part: Line | None
    device: Line | None
    parameters: Mapping[str, Mapping[str, Line]]
    provisioners: Mapping[str, Line]
    namespaces: Sequence[Line]
    open: Sequence[str]
    read: str


def survey(objects: Objects, rulebook: Rulebook) -> Survey:
    """What these objects, by kind, say of their cluster; a kind that could not be read has no entry."""
    card_labels = cards.labels(rulebook)
    pools = pools_of(objects.get("Node", ()), card_labels, rulebook)
    sightings = [*on_nodes(pools, objects, rulebook), *in_classes(objects, rulebook)]
    there, twins = _told_apart([sighting for sighting in sightings if not sighting.missing])
    certain = {installed.backend.name for installed in there}
    doubts = {}
    for sighting in sightings:
        if sighting.missing and sighting.backend.name not in certain:
            where = f" on {named_nodes(sighting.pool.names)}" if sighting.pool else ""
            signs = [f"{sighting.signs}{where}".strip(), *sighting.signs.others, *sighting.missing]
            doubts[sighting.backend.name] = ", ".join(signs).removeprefix(", ")
    device, unknown_card = _device(there, card_labels)
    values, undecided = settings(there, objects)

    # The provisioners of the classes of claims, each with its class.
    provisioned: dict[str, str] = {}
    for source in rulebook.sources:
        for raw in objects.get(source.classes.kind, ()) if source.classes else ():
            for name in filter(None, (fields.at(raw, *field) for field in source.provisioned)):
                provisioned.setdefault(str(name), f"the {raw['kind']} {fields.at(raw, 'metadata', 'name')}")
    only = there[0].backend.name if len(there) == 1 else None

    namespaces = dict(OWN_NAMESPACES)
    for plugin in plugins_of(objects):
        namespace = str(fields.at(plugin, "metadata", "namespace") or "default")
        namespaces.setdefault(namespace, f"{titled(plugin)} is a device plugin")
    nodes, devices = len(objects.get("Node", ())), sum(len(pool.names) for pool in pools)
    workloads = number(sum(1 for _ in workloads_of(objects)), "workload")
    return Survey(
        backends=[Line(installed.backend.name, installed.why) for installed in there],
        doubtful=[*twins, *(Line(*doubt) for doubt in sorted(doubts.items()))],
        whole=_first(there, "whole"),
        part=_first(there, "part"),
        device=device,
        parameters=values,
        provisioners={name: Line(only, f"of {why}") for name, why in provisioned.items() if only},
        namespaces=[Line(*namespace) for namespace in sorted(namespaces.items())],
        open=[
            *unknown_card,
            *undecided,
            *(
                f"which back end serves claims of {why}: write provisioners: {{{name}: BACKEND}}"
                for name, why in ({} if only else provisioned).items()
            ),
            *_not_served(pools, there, rulebook),
            *([] if any(kind in objects for kind in WORKLOADS) else [NOT_READ]),
        ],
        read=f"{number(nodes, 'node')}, {devices} with devices, {workloads}",
    )


def _told_apart(sightings: Sequence[Sighting]) -> tuple[list[Installed], list[Line]]:
    """The back ends that are there, in order, and those that nothing tells from one of these.

    Of two with the same resource on the same nodes the one for which more of the nodes speaks is there.
    """
    best: dict[str, list[Sighting]] = {}
    for sighting in sightings:
        beaten = any(
            other.pool is sighting.pool
            and not {*other.signs.resources}.isdisjoint(sighting.signs.resources)
            and other.signs.on_node > sighting.signs.on_node
            for other in sightings
        )
        if not beaten:
            best.setdefault(sighting.backend.name, []).append(sighting)
    installed = [Installed(sightings[0].backend, sightings) for sightings in best.values()]
    firsts: dict[object, str] = {}
    twins: list[Line] = []
    there: list[Installed] = []
    for candidate in sorted(installed, key=lambda backend: (-len(backend.kinds), backend.backend.name)):
        same = tuple((sighting.pool, sighting.signs) for sighting in candidate.sightings)
        first = firsts.setdefault(same, candidate.backend.name)
        if first == candidate.backend.name:
            there.append(candidate)
        else:
            described = f"seen by the same as {first}: {candidate.backend.description}"
            twins.append(Line(candidate.backend.name, described))
    return sorted(there, key=lambda candidate: candidate.rank), twins


def _first(there: Sequence[Installed], devices: str) -> Line | None:
    """The first that serves such requests."""
    serving = [installed.backend.name for installed in there if devices in installed.kinds]
    others = f"{', '.join(serving[1:])} could, too: gpu-backend chooses" if serving[1:] else ""
    return Line(serving[0], others) if serving else None


def _device(there: Sequence[Installed], card_labels: cards.Labels) -> tuple[Line | None, list[str]]:
    """The only model that there is, or a sentence why none can be said."""
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for installed in there:
        for pool in installed.pools:
            card = card_labels.recognise(pool.labels, installed.backend).card or installed.backend.card
            models[card.model if card else ""].update(dict.fromkeys(pool.names))
    if nameless := models.pop("", None):
        fix = "write device: if all cards are of one model; else shares become no sizes, and no quota counts memory"
        return None, [f"no label of {named_nodes([*nameless])} names a card that a catalogue knows: {fix}"]
    if len(models) != 1:
        return None, []
    model, names = next(iter(models.items()))
    return Line(model, f"by the labels of {named_nodes([*names])}"), []


def _not_served(pools: Sequence[Pool], there: Sequence[Installed], rulebook: Rulebook) -> Iterator[str]:
    """Nodes that are a back end's by annotations and not by labels, and resources that no back end here serves."""
    for installed in there:
        for sighting in installed.sightings:
            if sighting.pool and sighting.unknown:
                nodes, rule = named_nodes(sighting.pool.names), installed.backend.rule
                yield (
                    f"{nodes} of {installed.backend.name} without the label {', '.join(sighting.unknown)}, by which"
                    f" {rule} knows them: label them, or set the parameters of the rule to the label that they have"
                )
    left: dict[str, list[str]] = defaultdict(list)
    for pool in pools:
        served = {name for installed in there if pool in installed.pools for name in installed.backend.owns}
        for name in pool.resources - served:
            left[name] += pool.names
    for name, names in sorted(left.items()):
        resource = rulebook.resources.get(name)
        owners = ", ".join(backend.name for backend in resource.known[:4]) if resource else ""
        why = f"the signs of {owners} are not all there" if resource else "looks like a GPU, and no rule knows it"
        yield f"{name} on {named_nodes(names)} is served by nothing: {why}"


# A survey as a Cluster document in YAML, with a comment on each line

WIDTH: Final = 118


def survey_text(result: Survey) -> str:
    """The document."""
    return "\n".join(_document(result)) + "\n"


def _document(result: Survey) -> Iterator[str]:
    yield f"# Written by `gpu-webhook survey`, which read {result.read}."
    yield from (f"apiVersion: {API_VERSION}", "kind: Cluster", "metadata:", "  name: default", "spec:")
    if not result.backends:
        yield "  # No back end was seen: pods that ask for a GPU are refused. List those that there will be."
    yield "  backends:" if result.backends else "  backends: []"
    for line in result.backends:
        yield from _commented(f"  - {line.value}", line.why)
    for line in result.doubtful:
        yield from _commented(f"  # - {line.value}", line.why)
    yield "  defaults:" if result.whole or result.part else "  # defaults:"
    for key, default, nothing in (
        ("whole", result.whole, "nothing here serves whole devices"),
        ("part", result.part, "nothing here shares a device: gpu: 0.3 is refused"),
    ):
        yield from _commented(f"    {key}: {default.value}", default.why) if default else [f"    # {key}: {nothing}"]
    if result.device:
        yield from _commented(f"  device: {result.device.value}", result.device.why)
    if result.parameters:
        yield "  parameters:"
    for name, values in result.parameters.items():
        yield f"    {name}:"
        for parameter, line in values.items():
            yield from _commented(f"      {parameter}: {json.dumps(line.value)}", line.why)
    if result.provisioners:
        yield "  provisioners:"
    for name, line in result.provisioners.items():
        yield from _commented(f"    {name}: {line.value}", line.why)
    yield "  unknownValue: warn"
    yield "  systemNamespaces:"
    for line in result.namespaces:
        yield from _commented(f"  - {line.value}", line.why)
    if result.open:
        yield "# Not decided:"
    for sentence in result.open:
        yield from textwrap.wrap(
            sentence, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _commented(line: str, why: str) -> Iterator[str]:
    """A line with its comment, which goes on below it if it is long."""
    if not why:
        yield line
        return
    first, *more = textwrap.wrap(why, WIDTH - len(line) - len("  # "), break_long_words=False, break_on_hyphens=False)
    yield f"{line}  # {first}"
    yield from (f"{' ' * len(line)}  # {part}" for part in more)
