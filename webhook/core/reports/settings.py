"""The values of back ends' parameters that a cluster shows: on labels of nodes, by names of resources and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from webhook.core.kube import paths
from webhook.core.reports import signs
from webhook.core.reports.checkup import several
from webhook.core.reports.signs import Object, Objects, Pool, Sight
from webhook.core.rules.backend import Backend

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
            texts += [f"{text} on {signs.nodes(names)}"] if names else []
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
    where = f"{parameter.label or value} on {signs.nodes(nodes)}" if nodes else "the name of its device class"
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
    plugins = list(signs.plugins(objects))
    used = {_class(one) for one in plugins}
    known = {value: name for name, one in backend.parameters.items() if one.default == "" for value in one.also}
    return {
        known[str(value)]: Line(value, _run_under(plugins)) for value in used if len(used) == 1 and value in known
    }


def _run_under(plugins: Sequence[Object]) -> str:
    return f"device plugins run under it: {several([*map(signs.titled, plugins)])}"


def _class(workload: Object) -> object:
    return paths.at(workload, "spec", "template", "spec", "runtimeClassName")


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
    classes = {str(paths.at(each, "metadata", "name")) for each in objects.get(CLASS, ())}
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
            f"pods of {one.backend.name} may come to {signs.nodes(nodes)} of {name}, which have the same resource:"
            f" {one.backend.rule} has parameters that keep them off"
        )
