"""What a cluster has, as the `Cluster` document that fits it: each line with what it was seen by, and what is open.

A back end whose signs are all there is enabled, unless more of the same nodes speaks for another one with the same
resource.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Final, NamedTuple

from webhook.cli.checkup import number, several
from webhook.core.backends import cards
from webhook.core.backends.cards import Labels
from webhook.core.forms.document import API_VERSION
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube import fields, quantity
from webhook.core.policy import unknown_devices
from webhook.core.rules import cluster
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Constant, Output
from webhook.core.rules.rulebook import Rulebook

# The signs by which a back end is seen in a cluster, as its rule has them, and what of them is missing.

Object = Mapping[str, Any]
Objects = Mapping[str, Sequence[Object]]
"""Objects of a cluster by kind; a kind that could not be read has no entry."""

_HOLE: Final = re.compile(r"\{[a-z]+\}")

PLUGINS: Final = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins_registry")
"""Folders of a node that only device plugins and drivers of dynamic resources mount."""

WORKLOADS: Final = ("Deployment", "DaemonSet", "StatefulSet")
"""The kinds that schedulers and device plugins are."""


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

    @property
    def rank(self) -> tuple[int, int]:
        """How much speaks for it, on the node and elsewhere."""
        return self.on_node, len(self.others)

    def __str__(self) -> str:
        """All of it in words, without the nodes."""
        return ", ".join([*self.resources, *self.labels, *self.annotations])


class Sight(NamedTuple):
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


# Nodes


def pools_of(nodes: Iterable[Object], known: Labels, rulebook: Rulebook) -> list[Pool]:
    """The nodes with devices; those that are alike are one pool."""
    keys = known.keys | {key for one in rulebook.backends.values() for mode in one.modes for key in mode.pool}
    keys |= {key for one in rulebook.backends.values() for key in _told_by(one)}
    marks = [mark for one in rulebook.backends.values() for mark in one.nodes.annotations]
    found: dict[object, Pool] = {}
    for node in nodes:
        resources = frozenset(_devices(node, rulebook))
        if not resources:
            continue
        labels = {key: str(value) for key, value in fields.mapping(node, "metadata", "labels").items() if key in keys}
        notes = fields.mapping(node, "metadata", "annotations")
        annotations = frozenset(mark for mark in marks if mark in notes)
        pool = Pool(names=[], labels=labels, annotations=annotations, resources=resources)
        same = found.setdefault((frozenset(labels.items()), annotations, resources), pool)
        same.names.append(str(fields.at(node, "metadata", "name")))
    return list(found.values())


def _devices(node: Object, rulebook: Rulebook) -> Iterator[str]:
    """The resources of a node that a rule knows, or that look like GPUs; a device that is ill counts, too."""
    for section in ("allocatable", "capacity"):
        for name, amount in fields.mapping(node, "status", section).items():
            is_device = name in rulebook.resources or unknown_devices.looks_like_a_gpu(name, rulebook)
            if is_device and quantity.text_of(amount) != "0":
                yield name


def on_nodes(found: Iterable[Pool], objects: Objects, rulebook: Rulebook) -> Iterator[Sight]:
    """The back ends whose resources nodes have, if all signs are there, or all but one and another speaks for it."""
    running = {name: runner(name, objects) for one in rulebook.backends.values() if (name := _scheduler(one))}
    for pool in found:
        for backend in rulebook.backends.values():
            resources = (backend.owns | aliases(backend).keys()) & pool.resources
            if resources and not _classes(backend) and _on_its_side(backend, pool):
                sight = _sight(backend, pool, resources, running)
                speaks = sight.signs.on_node or sight.signs.others or _only_for_schedulers(resources, rulebook)
                certain = not sight.missing and not (_scheduler(backend) and not sight.signs.others)
                if certain or (speaks and len(sight.missing) < 2):
                    yield sight


def _sight(backend: Backend, pool: Pool, resources: Iterable[str], running: Mapping[str, str | None]) -> Sight:
    free = _told_by(backend)
    wanted = [(key, () if key in free else values) for key, values in backend.nodes.labels.items()]
    absent = tuple(_label(key, " or ".join(values)) for key, values in wanted if not _has(pool.labels, key, values))
    labels = () if absent else tuple(_label(key, pool.labels[key]) for key, _ in wanted)
    marks = tuple(mark for mark in backend.nodes.annotations if mark in pool.annotations)
    name = _scheduler(backend)
    runs = running.get(name, "")
    missing = [] if marks else [f"without the label {text}" for text in absent]
    if backend.nodes.annotations and not marks:
        missing.append(f"without the annotation {' or '.join(backend.nodes.annotations)}")
    if runs is None:
        missing.append(f"and no workload is a scheduler called {name}")
    signs = Signs(tuple(sorted(resources)), labels, marks, (runs,) if runs else ())
    return Sight(backend, pool, signs, tuple(missing), absent if marks else (), tuple(_settings(backend, pool)))


def _settings(backend: Backend, pool: Pool) -> Iterator[tuple[str, str]]:
    """The values of parameters that the nodes of a pool tell."""
    for key, name in _told_by(backend).items():
        if key in pool.labels:
            yield name, pool.labels[key]
    for value, name in aliases(backend).items():
        if value in pool.resources and backend.parameters[name].default not in pool.resources:
            yield name, value


def _told_by(backend: Backend) -> Mapping[str, str]:
    """The labels that tell parameters, each with the name of its parameter."""
    return {one.label: name for name, one in backend.parameters.items() if one.label}


def aliases(backend: Backend) -> Mapping[str, str]:
    """Other values of parameters that are in use, each with the name of its parameter."""
    return {value: name for name, one in backend.parameters.items() for value in one.also}


def _scheduler(backend: Backend) -> str:
    """The scheduler that it names; empty if it names none."""
    return str(backend.inject.scheduler.value) if backend.inject.scheduler else ""


def _only_for_schedulers(resources: Iterable[str], rulebook: Rulebook) -> bool:
    """Whether one of the resources is of no back end that goes without a scheduler."""
    known = [rulebook.resources[name].known for name in resources if name in rulebook.resources]
    return any(all(map(_scheduler, owners)) for owners in known)


def _label(key: str, value: str) -> str:
    return f"{key}: {value}" if value else key


def _has(labels: Mapping[str, str], key: str, values: Sequence[str]) -> bool:
    return key in labels and (not values or labels[key] in values)


def _on_its_side(backend: Backend, pool: Pool) -> bool:
    """Whether some mode with resources of the pool could put a pod there, by the labels that tell nodes apart."""
    modes = [mode for mode in backend.modes if not pool.resources.isdisjoint(mode.limits)] or backend.modes
    free = _told_by(backend)
    lines = [[(key, line) for key, line in mode.pool.items() if key not in free] for mode in modes]
    return any(all(_fits(pool.labels.get(key), line) for key, line in each) for each in lines)


def _fits(value: str | None, line: Output) -> bool:
    """Whether a line of node affinity lets a node pass; one with holes is not known before a pod asks."""
    if not isinstance(line, Constant) or line.words:
        return True
    return value in line.texts if line.texts else value is None


# Schedulers


def workloads_seen(objects: Objects) -> Iterator[Object]:
    """The Deployments, DaemonSets and StatefulSets, each with its kind."""
    for kind in WORKLOADS:
        yield from ({**one, "kind": kind} for one in objects.get(kind, ()))


def plugins_of(objects: Objects) -> Iterator[Object]:
    """The workloads that are device plugins, or drivers of dynamic resources."""
    for one in workloads_seen(objects):
        mounted = fields.objects(fields.at(one, "spec", "template", "spec", "volumes"))
        folders = {str(fields.at(volume, "hostPath", "path")).rstrip("/") for volume in mounted}
        if not folders.isdisjoint(PLUGINS):
            yield one


def titled(workload: Object) -> str:
    """`Deployment hami-scheduler of kube-system`."""
    name, namespace = (fields.at(workload, "metadata", key) for key in ("name", "namespace"))
    return f"{workload['kind']} {name} of {namespace or 'default'}"


def runner(scheduler: str, objects: Objects) -> str | None:
    """The workload that is the scheduler; None if none is, and nothing if no workload could be read.

    It is the one with the argument --scheduler-name, else the one that is called so, or so and what scheduler it is.
    """
    if not any(kind in objects for kind in WORKLOADS):
        return ""
    found = list(workloads_seen(objects))
    named = [one for one in found if scheduler in _arguments(one)]
    called = [one for one in found if _called(str(fields.at(one, "metadata", "name")), scheduler)]
    return next(map(titled, [*named, *called]), None)


def _called(name: str, scheduler: str) -> bool:
    return name == scheduler or (name.startswith(f"{scheduler}-") and "scheduler" in name)


def _arguments(workload: Object) -> Iterator[str]:
    """The values of --scheduler-name."""
    for container in fields.objects(fields.at(workload, "spec", "template", "spec", "containers")):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        for word, after in zip(words, [*words[1:], ""], strict=False):
            name, _, value = word.partition("=")
            if name == "--scheduler-name":
                yield value or after


# Dynamic resources


def of_classes(objects: Objects, rulebook: Rulebook) -> Iterator[Sight]:
    """The back ends that are asked in device classes, or in templates of resource claims, that are there."""
    classes = {
        _name(one): str(fields.at(one, "spec", "extendedResourceName")) for one in objects.get("DeviceClass", ())
    }
    templates = [_name(one) for one in objects.get("ResourceClaimTemplate", ())]
    for backend in rulebook.backends.values():
        if there := [name for name in _classes(backend) if name in classes]:
            yield _of_class(backend, there, {classes[name] for name in there})
        if found := {name for name in templates if _is_template(backend, name)}:
            yield Sight(backend, None, Signs((), others=(f"ResourceClaimTemplate {several(sorted(found), ', ')}",)))


def _of_class(backend: Backend, there: Sequence[str], resources: set[str]) -> Sight:
    """A back end whose device classes are there, and by which resource pods ask for them."""
    signs = Signs((), others=tuple(f"DeviceClass {name}" for name in there))
    named = [(name, one) for one, name in aliases(backend).items() if one.removeprefix(DEVICE_CLASS) in there]
    if resources.isdisjoint(backend.owns) and not named:
        return Sight(backend, None, signs, ("but has no extendedResourceName",))
    return Sight(backend, None, signs, settings=() if resources & backend.owns else tuple(named[:1]))


def _name(one: Object) -> str:
    return str(fields.at(one, "metadata", "name"))


def _classes(backend: Backend) -> list[str]:
    """The device classes that a back end is asked in."""
    return sorted(name.removeprefix(DEVICE_CLASS) for name in backend.owns if name.startswith(DEVICE_CLASS))


def _is_template(backend: Backend, name: str) -> bool:
    """Whether a claim template may be the back end's: a text with nothing but a hole fits any, and says nothing."""
    texts = [text for mode in backend.modes for claim in mode.claims for text in claim.texts]
    globs = [_HOLE.sub("*", text) for text in texts]
    return any(fnmatchcase(name, glob) for glob in globs if glob.strip("*-"))


def nodes_seen(names: Sequence[str]) -> str:
    """`3 nodes (a, b, c)`."""
    return f"{number(len(names), 'node')} ({several(sorted(names), ', ')})"


# The values of back ends' parameters that a cluster shows: on labels of nodes, by names of resources and classes.

CLASS: Final = "RuntimeClass"

Value = tuple[str, str, tuple[str, ...]]
"""A parameter, a value of it, and the nodes that show it."""


class Line(NamedTuple):
    """A value of the document, and what it was seen by."""

    value: Any
    why: str


class Found(NamedTuple):
    """A back end that is there, and where it was seen."""

    backend: Backend
    sights: Sequence[Sight]

    @property
    def why(self) -> str:
        """What it was seen by, alike nodes together."""
        said = [(str(sight.signs), sight) for sight in self.sights]
        texts: list[str] = []
        for text, group in groupby(sorted(said, key=lambda one: one[0]), key=lambda one: one[0]):
            names = [name for _, sight in group if sight.pool for name in sight.pool.names]
            texts += [f"{text} on {nodes_seen(names)}"] if names else []
        return "; ".join([*texts, *dict.fromkeys(other for sight in self.sights for other in sight.signs.others)])

    @property
    def rank(self) -> tuple[bool, tuple[int, int], int, str]:
        """The more speaks for it, the later; among equals the one with the most nodes is first.

        Claim templates come last: each namespace needs its own.
        """
        nodes = sum(len(sight.pool.names) for sight in self.sights if sight.pool)
        by_claims = all(mode.claims for mode in self.backend.modes)
        return by_claims, max(sight.signs.rank for sight in self.sights), -nodes, self.backend.name

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of requests that it serves: whole devices, parts of them. A share has no claim template."""
        whole = any(mode.when.devices in {None, "whole"} for mode in self.backend.modes)
        part = self.backend.shares and not self.rank[0]
        return frozenset([*["whole"] * whole, *["part"] * part])


def settings(there: Sequence[Found], objects: Objects) -> tuple[Mapping[str, Mapping[str, Line]], list[str]]:
    """The parameters to set, by back end; and in sentences what could not be decided."""
    found: dict[str, dict[str, Line]] = {}
    undecided: list[str] = []
    for one in there:
        seen = {name: list(values) for name, values in groupby(sorted(_seen(one)), key=lambda value: value[0])}
        lines = {name: _line(name, values, one, there) for name, values in seen.items()}
        found[one.backend.name] = {
            **{name: line for name, line in lines.items() if line},
            **_runtime_classes(one.backend, objects),
        }
        undecided += _undecided(one, seen, there, objects)
    return {name: values for name, values in found.items() if values}, undecided


def _seen(one: Found) -> Iterator[Value]:
    """Each value of a parameter, with the nodes that show it."""
    for sight in one.sights:
        yield from ((name, value, tuple(sight.pool.names if sight.pool else ())) for name, value in sight.settings)


def _line(name: str, values: Sequence[Value], one: Found, there: Sequence[Found]) -> Line | None:
    """The value of a parameter: of several numbers the greatest, so that a share is nowhere less than it says."""
    parameter = one.backend.parameters[name]
    texts = {value for _, value, _ in values}
    if not texts:
        return None
    if parameter.label and parameter.default == "" and not _keeps_off(parameter.label, texts, one, there):
        return None
    value = max(texts, key=lambda text: (len(text), text)) if all(map(str.isdecimal, texts)) else min(texts)
    nodes = [node for _, each, names in values if each == value for node in names]
    if str(parameter.default) == value:
        return None
    where = f"{parameter.label or value} on {nodes_seen(nodes)}" if nodes else "the name of its device class"
    return Line(int(value) if isinstance(parameter.default, int) else value, where)


def _keeps_off(label: str, values: set[str], one: Found, there: Sequence[Found]) -> bool:
    """Whether a label keeps its pods off the nodes of another back end with the same resource."""
    others = list(_others(one, there))
    every = {pool.labels.get(label) for pool in _pools(one)}
    return (
        len(values) == 1
        and every == values
        and bool(others)
        and all(pool.labels.get(label) not in values for _, pool in others)
    )


def _pools(one: Found) -> list[Pool]:
    return [sight.pool for sight in one.sights if sight.pool]


def _others(one: Found, there: Sequence[Found]) -> Iterator[tuple[Backend, Pool]]:
    """The other back ends on other nodes that have one of its resources."""
    mine = _pools(one)
    for other in there:
        for pool in _pools(other):
            if pool not in mine and not one.backend.owns.isdisjoint(pool.resources):
                yield other.backend, pool


# Runtime classes


def _runtime_classes(backend: Backend, objects: Objects) -> dict[str, Line]:
    """The runtime class that all device plugins run under, where the back end knows it."""
    plugins = list(plugins_of(objects))
    used = {_class(one) for one in plugins}
    known = {value: name for name, one in backend.parameters.items() if one.default == "" for value in one.also}
    return {
        known[str(value)]: Line(value, _run_under(plugins)) for value in used if len(used) == 1 and value in known
    }


def _run_under(plugins: Sequence[Object]) -> str:
    return f"device plugins run under it: {several([*map(titled, plugins)])}"


def _class(workload: Object) -> object:
    return fields.at(workload, "spec", "template", "spec", "runtimeClassName")


def _undecided(
    one: Found, seen: Mapping[str, Sequence[Value]], there: Sequence[Found], objects: Objects
) -> Iterator[str]:
    """Values that differ from node to node, nodes that others share, and runtime classes that may be needed."""
    for name, parameter in one.backend.parameters.items():
        values = seen.get(name, ())
        texts = sorted({value for _, value, _ in values})
        if len(texts) > 1 and parameter.default != "":
            yield (
                f"{name} of {one.backend.name} is {' and '.join(texts)}, by {parameter.label} of its nodes: the"
                f" greatest is taken; other nodes need a back end of their own, that extends {one.backend.name}"
            )
        if parameter.label and parameter.default == "" and _line(name, values, one, there) is None:
            yield from _not_kept_off(one, there)
    classes = {str(fields.at(each, "metadata", "name")) for each in objects.get(CLASS, ())}
    used = _runtime_classes(one.backend, objects)
    for name, parameter in one.backend.parameters.items():
        if name not in used and parameter.default == "" and (known := classes.intersection(parameter.also)):
            which = " or ".join(sorted(known))
            yield f"set {name} of {one.backend.name} to {which}, unless that is the default runtime of the nodes"


def _not_kept_off(one: Found, there: Sequence[Found]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for other, pool in _others(one, there):
        names.setdefault(other.name, []).extend(pool.names)
    for name, nodes in names.items():
        yield (
            f"pods of {one.backend.name} may come to {nodes_seen(nodes)} of {name}, which have the same resource:"
            f" {one.backend.rule} has parameters that keep them off"
        )


# What a cluster has, as the `Cluster` document that fits it: each line with what it was seen by, and what is open.

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
    known = cards.labels(rulebook)
    pools = pools_of(objects.get("Node", ()), known, rulebook)
    sights = [*on_nodes(pools, objects, rulebook), *of_classes(objects, rulebook)]
    there, twins = _told_apart([sight for sight in sights if not sight.missing])
    names = {one.backend.name for one in there}
    doubts = {s.backend.name: _doubt(s) for s in sights if s.missing and s.backend.name not in names}
    device, unknown = _device(there, known)
    values, undecided = settings(there, objects)
    classes = _provisioned(objects, rulebook)
    only = there[0].backend.name if len(there) == 1 else None
    asked = [] if only else classes.items()
    return Survey(
        backends=[Line(one.backend.name, one.why) for one in there],
        doubtful=[*twins, *(Line(*one) for one in sorted(doubts.items()))],
        whole=_first(there, "whole"),
        part=_first(there, "part"),
        device=device,
        parameters=values,
        provisioners={name: Line(only, f"of {why}") for name, why in classes.items() if only},
        namespaces=_namespaces(objects),
        open=[
            *unknown,
            *undecided,
            *(
                f"which back end serves claims of {why}: write provisioners: {{{name}: BACKEND}}"
                for name, why in asked
            ),
            *_unlabelled(there),
            *_unserved(pools, there, rulebook),
            *_unread(objects),
        ],
        read=_read(objects, pools),
    )


# Which back ends


def _told_apart(sights: Sequence[Sight]) -> tuple[list[Found], list[Line]]:
    """The back ends that are there, in order, and those that nothing tells from one of these."""
    best: dict[str, list[Sight]] = {}
    for sight in sights:
        if not any(_beats(other, sight) for other in sights):
            best.setdefault(sight.backend.name, []).append(sight)
    found = [Found(of[0].backend, of) for of in best.values()]
    seen: dict[object, str] = {}
    twins: list[Line] = []
    there: list[Found] = []
    for one in sorted(found, key=lambda one: (_breadth(one), one.backend.name)):
        first = seen.setdefault(tuple((sight.pool, sight.signs) for sight in one.sights), one.backend.name)
        if first == one.backend.name:
            there.append(one)
        else:
            twins.append(Line(one.backend.name, f"seen by the same as {first}: {one.backend.description}"))
    return sorted(there, key=lambda one: one.rank), twins


def _beats(one: Sight, other: Sight) -> bool:
    """Whether more of the same nodes speaks for it, and it has the same resource."""
    shared = not {*one.signs.resources}.isdisjoint(other.signs.resources)
    return one.pool is other.pool and shared and one.signs.on_node > other.signs.on_node


def _breadth(found: Found) -> int:
    """Less for a back end that serves more kinds of requests."""
    return -len(found.kinds)


def _doubt(sight: Sight) -> str:
    where = f" on {nodes_seen(sight.pool.names)}" if sight.pool else ""
    return ", ".join([f"{sight.signs}{where}".strip(), *sight.signs.others, *sight.missing]).removeprefix(", ")


def _first(there: Sequence[Found], devices: str) -> Line | None:
    """The first that serves such requests."""
    serving = [one.backend.name for one in there if devices in one.kinds]
    others = f"{', '.join(serving[1:])} could, too: gpu-backend chooses" if serving[1:] else ""
    return Line(serving[0], others) if serving else None


# What else


def _device(there: Sequence[Found], known: Labels) -> tuple[Line | None, list[str]]:
    """The only model that there is, or a sentence why none can be said."""
    models: dict[str, list[str]] = {}
    for found in there:
        for pool in [sight.pool for sight in found.sights if sight.pool]:
            card = known.recognise(pool.labels, found.backend).card or found.backend.card
            models.setdefault(card.model if card else "", []).extend(pool.names)
    if nameless := models.pop("", None):
        fix = "write device: if all cards are of one model; else shares become no sizes, and no quota counts memory"
        return None, [f"no label of {nodes_seen(_once(nameless))} names a card that a catalogue knows: {fix}"]
    if len(models) != 1:
        return None, []
    model, names = next(iter(models.items()))
    return Line(model, f"by the labels of {nodes_seen(_once(names))}"), []


def _provisioned(objects: Objects, rulebook: Rulebook) -> Mapping[str, str]:
    """The provisioners of the classes of claims, each with its class."""
    found: dict[str, str] = {}
    for source in rulebook.sources:
        for one in objects.get(source.classes.kind, ()) if source.classes else ():
            named = (fields.at(one, *field) for field in source.provisioned)
            for name in filter(None, named):
                found.setdefault(str(name), f"the {one['kind']} {fields.at(one, 'metadata', 'name')}")
    return found


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _namespaces(objects: Objects) -> list[Line]:
    """Kubernetes' own, ours, and those of device plugins."""
    found = dict(OWN_NAMESPACES)
    for one in plugins_of(objects):
        namespace = str(fields.at(one, "metadata", "namespace") or "default")
        found.setdefault(namespace, f"{titled(one)} is a device plugin")
    return [Line(*one) for one in sorted(found.items())]


def _unlabelled(there: Sequence[Found]) -> Iterator[str]:
    """Nodes that are a back end's by their annotations, and not by the labels of its rule."""
    for one in there:
        for sight in one.sights:
            if sight.pool and sight.unknown:
                nodes, rule = nodes_seen(sight.pool.names), one.backend.rule
                yield (
                    f"{nodes} of {one.backend.name} without the label {', '.join(sight.unknown)}, by which"
                    f" {rule} knows them: label them, or set the parameters of the rule to the label that they have"
                )


def _unserved(pools: Sequence[Pool], there: Sequence[Found], rulebook: Rulebook) -> Iterator[str]:
    """Resources of nodes that no back end here serves."""
    left: dict[str, list[str]] = {}
    for pool in pools:
        served = {
            name for one in there if any(sight.pool is pool for sight in one.sights) for name in one.backend.owns
        }
        for name in pool.resources - served:
            left.setdefault(name, []).extend(pool.names)
    for name, nodes in sorted(left.items()):
        known = rulebook.resources.get(name)
        owners = ", ".join(one.name for one in known.known[:4]) if known else ""
        why = f"the signs of {owners} are not all there" if known else "looks like a GPU, and no rule knows it"
        yield f"{name} on {nodes_seen(nodes)} is served by nothing: {why}"


def _unread(objects: Objects) -> Iterator[str]:
    if not any(kind in objects for kind in WORKLOADS):
        yield "no Deployments, DaemonSets and StatefulSets were read: no scheduler, no device plugin was looked for"


def _read(objects: Objects, pools: Sequence[Pool]) -> str:
    devices = sum(len(pool.names) for pool in pools)
    workloads = sum(1 for _ in workloads_seen(objects))
    return f"{number(len(objects.get('Node', ())), 'node')}, {devices} with devices, {number(workloads, 'workload')}"


# A survey as a Cluster document in YAML, with a comment on each line.

WIDTH: Final = 118


def survey_text(found: Survey) -> str:
    """The document."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Survey) -> Iterator[str]:
    yield f"# Written by `gpu-webhook survey`, which read {found.read}."
    yield from (f"apiVersion: {API_VERSION}", "kind: Cluster", "metadata:", "  name: default", "spec:")
    yield from _backends(found)
    yield from _defaults(found)
    if found.device:
        yield from _commented(f"  device: {found.device.value}", found.device.why)
    yield from _parameters(found)
    if found.provisioners:
        yield "  provisioners:"
    for name, line in found.provisioners.items():
        yield from _commented(f"    {name}: {line.value}", line.why)
    yield "  unknownValue: warn"
    yield "  systemNamespaces:"
    for line in found.namespaces:
        yield from _commented(f"  - {line.value}", line.why)
    if found.open:
        yield "# Not decided:"
    for sentence in found.open:
        yield from textwrap.wrap(
            sentence, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _backends(found: Survey) -> Iterator[str]:
    if not found.backends:
        yield "  # No back end was seen: pods that ask for a GPU are refused. List those that there will be."
    yield "  backends:" if found.backends else "  backends: []"
    for line in found.backends:
        yield from _commented(f"  - {line.value}", line.why)
    for line in found.doubtful:
        yield from _commented(f"  # - {line.value}", line.why)


def _parameters(found: Survey) -> Iterator[str]:
    if found.parameters:
        yield "  parameters:"
    for name, values in found.parameters.items():
        yield f"    {name}:"
        for parameter, line in values.items():
            yield from _commented(f"      {parameter}: {json.dumps(line.value)}", line.why)


def _defaults(found: Survey) -> Iterator[str]:
    named: Sequence[tuple[str, Line | None, str]] = (
        ("whole", found.whole, "nothing here serves whole devices"),
        ("part", found.part, "nothing here shares a device: gpu: 0.3 is refused"),
    )
    yield "  defaults:" if found.whole or found.part else "  # defaults:"
    for key, line, nothing in named:
        yield from _commented(f"    {key}: {line.value}", line.why) if line else [f"    # {key}: {nothing}"]


def _commented(line: str, why: str) -> Iterator[str]:
    """A line with its comment, which goes on below it if it is long."""
    if not why:
        yield line
        return
    first, *more = textwrap.wrap(why, WIDTH - len(line) - len("  # "), break_long_words=False, break_on_hyphens=False)
    yield f"{line}  # {first}"
    yield from (f"{' ' * len(line)}  # {part}" for part in more)
