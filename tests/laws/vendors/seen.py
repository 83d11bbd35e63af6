"""A pod as a device plugin or a scheduler sees it, and what it makes of it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

MIB = 1 << 20
GIB = 1 << 30
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a container gets: devices, bytes of each, and percent of the compute of each.

    `cores` is None where nobody limits it: a container may use all that the others leave. `part` is the memory as a
    part of the card, in the units that its system cuts cards by.
    """

    devices: int
    memory: Fraction
    part: Fraction
    cores: Fraction | None


@dataclass(frozen=True)
class Seen:
    """One container of a pod that is admitted; `memory` is how many bytes its card has, and `model` what it is."""

    pod: Mapping[str, Any]
    container: str
    model: str
    memory: int
    tflops: Fraction | None = None

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """The extended resources, each a whole number, and requested as it is limited."""
        resources = self._container.get("resources") or {}
        limits = {name: number(text) for name, text in (resources.get("limits") or {}).items() if "/" in name}
        requests = {name: number(text) for name, text in (resources.get("requests") or {}).items() if "/" in name}
        assert all(limits.get(name) == value for name, value in requests.items())
        assert all(value.denominator == 1 and value > 0 for value in limits.values())
        return {name: value.numerator for name, value in limits.items()}

    def of(self, system: str, *names: str) -> list[int | None]:
        """Limits of a system by the ends of their names, None for one that is not there."""
        return [self.limits.get(system + name) for name in names]

    def text(self, name: str) -> str | None:
        """A limit as it is written."""
        text = ((self._container.get("resources") or {}).get("limits") or {}).get(name)
        return None if text is None else str(text)

    @property
    def _container(self) -> Mapping[str, Any]:
        spec = self.pod["spec"]
        every = [*(spec.get("initContainers") or ()), *spec["containers"]]
        found: Mapping[str, Any] = next(one for one in every if one["name"] == self.container)
        return found

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        spec: Mapping[str, Any] = self.pod["spec"]
        return spec

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels."""
        return self.pod["metadata"].get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations."""
        return self.pod["metadata"].get("annotations") or {}

    @property
    def templates(self) -> Sequence[str]:
        """The templates of the claims that the container has."""
        named = {one["name"]: one["resourceClaimTemplateName"] for one in self.spec.get("resourceClaims") or ()}
        return [named[one["name"]] for one in (self._container.get("resources") or {}).get("claims") or ()]

    def nodes(self, label: str) -> Sequence[str]:
        """The values of a node label that it may land on, none if it may on any; an empty term is for no node."""
        terms: Any = self.spec
        for step in _TERMS:
            terms = (terms or {}).get(step)
        found = [_values(term, label) for term in terms or () if term]
        assert all(values == found[0] for values in found)
        return found[0] if found else []

    def mounts(self, path: str) -> bool:
        """Whether the container mounts a path of its host at the same place."""
        volumes = [one["name"] for one in self.spec.get("volumes") or () if one["hostPath"] == {"path": path}]
        mounts = self._container.get("volumeMounts") or ()
        return any(one["name"] in volumes and one["mountPath"] == path for one in mounts)

    def only(self, *names: str) -> None:
        """Nothing of the system is on the container but these."""
        domains = {name.split("/")[0] for name in names}
        there = {name for name in self.limits if name.split("/")[0] in domains}
        assert there <= {*names}, f"{there} together"

    def whole(self, devices: int) -> Given:
        """So many cards, and nobody else on them."""
        assert devices >= 1
        return Given(devices=devices, memory=Fraction(self.memory), part=Fraction(1), cores=Fraction(100))

    def sized(self, memory: Fraction | int, cores: Fraction | int | None, devices: int = 1) -> Given:
        """So much of each device. Who has all of the memory has the card alone."""
        assert devices >= 1
        assert memory > 0
        limit = Fraction(100) if cores is None and memory >= self.memory else cores
        assert limit is None or 0 < limit <= 100
        part = Fraction(memory) / self.memory
        return Given(
            devices=devices, memory=Fraction(memory), part=part, cores=None if limit is None else Fraction(limit)
        )

    def part(self, part: Fraction, cores: Fraction | None, devices: int = 1) -> Given:
        """Such a part of each device's memory, and of its compute."""
        assert 0 < part <= 1
        return self.sized(part * self.memory, cores, devices)

    def scheduled(self, *names: str) -> Self:
        """The same, if it is one of these schedulers that places the pod."""
        assert self.spec.get("schedulerName") in names
        return self


def _values(term: Mapping[str, Any], label: str) -> Sequence[str]:
    return next(
        (
            one["values"]
            for one in term.get("matchExpressions") or ()
            if (one["key"], one["operator"]) == (label, "In")
        ),
        [],
    )


def number(text: object) -> Fraction:
    """A quantity as Kubernetes reads it."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMG]|[KMGT]i)?", str(text))
    assert match, text
    return Fraction(match[1]) * _UNITS[match[2] or ""]


def percent(value: int, *, step: int = 1, low: int = 1) -> Fraction:
    """A percentage of one card, in legal steps."""
    assert low <= value <= 100
    assert value % step == 0
    return Fraction(value)


def hundreds(value: int) -> int:
    """Cards, where 100 is one."""
    assert value >= 100
    assert value % 100 == 0
    return value // 100


def among(value: int, legal: Collection[int]) -> int:
    """A value that has to be one of a few."""
    assert value in legal
    return value


def counting(*names: str) -> Any:
    """The reading of a system that counts whole cards, under one of these names."""

    def read(seen: Seen) -> Given:
        [name] = [name for name in names if name in seen.limits]
        seen.only(name)
        return seen.whole(seen.limits[name])

    return read
