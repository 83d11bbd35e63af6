"""The signs by which a back end is seen in a cluster, as its rule has them, and what of them is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.core.backends.cards import Labels
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube import paths, quantity
from webhook.core.policy import unknown_devices
from webhook.core.reports.checkup import number, several
from webhook.core.rules.backend import Backend
from webhook.core.rules.outputs import Constant, Output
from webhook.core.rules.rulebook import Rulebook

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


def pools(nodes: Iterable[Object], known: Labels, rulebook: Rulebook) -> list[Pool]:
    """The nodes with devices; those that are alike are one pool."""
    keys = known.keys | {key for one in rulebook.backends.values() for mode in one.modes for key in mode.pool}
    keys |= {key for one in rulebook.backends.values() for key in _told_by(one)}
    marks = [mark for one in rulebook.backends.values() for mark in one.nodes.annotations]
    found: dict[object, Pool] = {}
    for node in nodes:
        resources = frozenset(_devices(node, rulebook))
        if not resources:
            continue
        labels = {key: str(value) for key, value in paths.mapping(node, "metadata", "labels").items() if key in keys}
        notes = paths.mapping(node, "metadata", "annotations")
        annotations = frozenset(mark for mark in marks if mark in notes)
        pool = Pool(names=[], labels=labels, annotations=annotations, resources=resources)
        same = found.setdefault((frozenset(labels.items()), annotations, resources), pool)
        same.names.append(str(paths.at(node, "metadata", "name")))
    return list(found.values())


def _devices(node: Object, rulebook: Rulebook) -> Iterator[str]:
    """The resources of a node that a rule knows, or that look like GPUs; a device that is ill counts, too."""
    for section in ("allocatable", "capacity"):
        for name, amount in paths.mapping(node, "status", section).items():
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


def workloads(objects: Objects) -> Iterator[Object]:
    """The Deployments, DaemonSets and StatefulSets, each with its kind."""
    for kind in WORKLOADS:
        yield from ({**one, "kind": kind} for one in objects.get(kind, ()))


def plugins(objects: Objects) -> Iterator[Object]:
    """The workloads that are device plugins, or drivers of dynamic resources."""
    for one in workloads(objects):
        mounted = paths.objects(paths.at(one, "spec", "template", "spec", "volumes"))
        folders = {str(paths.at(volume, "hostPath", "path")).rstrip("/") for volume in mounted}
        if not folders.isdisjoint(PLUGINS):
            yield one


def titled(workload: Object) -> str:
    """`Deployment hami-scheduler of kube-system`."""
    name, namespace = (paths.at(workload, "metadata", key) for key in ("name", "namespace"))
    return f"{workload['kind']} {name} of {namespace or 'default'}"


def runner(scheduler: str, objects: Objects) -> str | None:
    """The workload that is the scheduler; None if none is, and nothing if no workload could be read.

    It is the one with the argument --scheduler-name, else the one that is called so, or so and what scheduler it is.
    """
    if not any(kind in objects for kind in WORKLOADS):
        return ""
    found = list(workloads(objects))
    named = [one for one in found if scheduler in _arguments(one)]
    called = [one for one in found if _called(str(paths.at(one, "metadata", "name")), scheduler)]
    return next(map(titled, [*named, *called]), None)


def _called(name: str, scheduler: str) -> bool:
    return name == scheduler or (name.startswith(f"{scheduler}-") and "scheduler" in name)


def _arguments(workload: Object) -> Iterator[str]:
    """The values of --scheduler-name."""
    for container in paths.objects(paths.at(workload, "spec", "template", "spec", "containers")):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        for word, after in zip(words, [*words[1:], ""], strict=False):
            name, _, value = word.partition("=")
            if name == "--scheduler-name":
                yield value or after


# Dynamic resources


def of_classes(objects: Objects, rulebook: Rulebook) -> Iterator[Sight]:
    """The back ends that are asked in device classes, or in templates of resource claims, that are there."""
    classes = {
        _name(one): str(paths.at(one, "spec", "extendedResourceName")) for one in objects.get("DeviceClass", ())
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
    return str(paths.at(one, "metadata", "name"))


def _classes(backend: Backend) -> list[str]:
    """The device classes that a back end is asked in."""
    return sorted(name.removeprefix(DEVICE_CLASS) for name in backend.owns if name.startswith(DEVICE_CLASS))


def _is_template(backend: Backend, name: str) -> bool:
    """Whether a claim template may be the back end's: a text with nothing but a hole fits any, and says nothing."""
    texts = [text for mode in backend.modes for claim in mode.claims for text in claim.texts]
    globs = [_HOLE.sub("*", text) for text in texts]
    return any(fnmatchcase(name, glob) for glob in globs if glob.strip("*-"))


def nodes(names: Sequence[str]) -> str:
    """`3 nodes (a, b, c)`."""
    return f"{number(len(names), 'node')} ({several(sorted(names), ', ')})"
