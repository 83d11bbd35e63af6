"""What a cluster has, as the `Cluster` document that fits it: each line with what it was seen by, and what is open.

A back end whose signs are all there is enabled, unless more of the same nodes speaks for another one with the same
resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core.backends import cards
from webhook.core.backends.cards import Labels
from webhook.core.kube import paths
from webhook.core.reports import settings, signs
from webhook.core.reports.checkup import number
from webhook.core.reports.settings import Found, Line
from webhook.core.reports.signs import Objects, Pool, Sight
from webhook.core.rules import cluster
from webhook.core.rules.rulebook import Rulebook

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
    pools = signs.pools(objects.get("Node", ()), known, rulebook)
    sights = [*signs.on_nodes(pools, objects, rulebook), *signs.of_classes(objects, rulebook)]
    there, twins = _told_apart([sight for sight in sights if not sight.missing])
    names = {one.backend.name for one in there}
    doubts = {s.backend.name: _doubt(s) for s in sights if s.missing and s.backend.name not in names}
    device, unknown = _device(there, known)
    values, undecided = settings.settings(there, objects)
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
    where = f" on {signs.nodes(sight.pool.names)}" if sight.pool else ""
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
        return None, [f"no label of {signs.nodes(_once(nameless))} names a card that a catalogue knows: {fix}"]
    if len(models) != 1:
        return None, []
    model, names = next(iter(models.items()))
    return Line(model, f"by the labels of {signs.nodes(_once(names))}"), []


def _provisioned(objects: Objects, rulebook: Rulebook) -> Mapping[str, str]:
    """The provisioners of the classes of claims, each with its class."""
    found: dict[str, str] = {}
    for source in rulebook.sources:
        for one in objects.get(source.classes.kind, ()) if source.classes else ():
            named = (paths.at(one, *field) for field in source.provisioned)
            for name in filter(None, named):
                found.setdefault(str(name), f"the {one['kind']} {paths.at(one, 'metadata', 'name')}")
    return found


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _namespaces(objects: Objects) -> list[Line]:
    """Kubernetes' own, ours, and those of device plugins."""
    found = dict(OWN_NAMESPACES)
    for one in signs.plugins(objects):
        namespace = str(paths.at(one, "metadata", "namespace") or "default")
        found.setdefault(namespace, f"{signs.titled(one)} is a device plugin")
    return [Line(*one) for one in sorted(found.items())]


def _unlabelled(there: Sequence[Found]) -> Iterator[str]:
    """Nodes that are a back end's by their annotations, and not by the labels of its rule."""
    for one in there:
        for sight in one.sights:
            if sight.pool and sight.unknown:
                nodes, rule = signs.nodes(sight.pool.names), one.backend.rule
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
        yield f"{name} on {signs.nodes(nodes)} is served by nothing: {why}"


def _unread(objects: Objects) -> Iterator[str]:
    if not any(kind in objects for kind in signs.WORKLOADS):
        yield "no Deployments, DaemonSets and StatefulSets were read: no scheduler, no device plugin was looked for"


def _read(objects: Objects, pools: Sequence[Pool]) -> str:
    devices = sum(len(pool.names) for pool in pools)
    workloads = sum(1 for _ in signs.workloads(objects))
    return f"{number(len(objects.get('Node', ())), 'node')}, {devices} with devices, {number(workloads, 'workload')}"
