"""All loaded rules as frozen values, with the indexes that keep a review's cost independent of their number.

Nothing here is computed per review, and `webhook.core.schema` makes all of it from documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from webhook.core.backend import Backend
from webhook.core.device import Device
from webhook.core.document import Location
from webhook.core.tenancy.policy import Tenancy


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of object in the Kubernetes API, in whichever of its versions a cluster has it."""

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str

    @property
    def name(self) -> str:
        """The kind as Kubernetes names its definition: `plural.group`."""
        return f"{self.plural}.{self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExample:
    """What a claim's resources have to mean: the shorthand that they are, or a part of why they are refused."""

    name: str
    resources: Mapping[str, Any]
    asks: Mapping[str, str] | None
    refused: str | None
    at: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSource:
    """Objects that say what a container asks, and that a pod only names.

    prefixes     how annotations begin that name a claim; the name of the container follows
    resources    the field of a claim with its `limits` and `requests`; `classed` are those that may name its class
    provisioned  the fields of a class that may name its provisioner
    aliases      other names of resources, and the name that `words` has for each
    words        a rulebook of one back end, which is nobody's but reads what stands in a claim
    """

    name: str
    at: Location
    prefixes: tuple[str, ...]
    claims: ObjectKind
    resources: tuple[str, ...]
    classed: Sequence[tuple[str, ...]] = ()
    classes: ObjectKind | None = None
    provisioned: Sequence[tuple[str, ...]] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    words: Rulebook
    examples: Sequence[ClaimExample] = ()

    @property
    def rule(self) -> str:
        """The source as messages name it."""
        return self.at.of(self.name)

    @property
    def kinds(self) -> Sequence[ObjectKind]:
        """Everything that has to be known to read a claim."""
        return (self.claims,) if self.classes is None else (self.claims, self.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one cluster has: its back ends in order of preference, the defaults, the exempt namespaces.

    `tiers` is the rank of each back end: of those that share one, the first with nodes is preferred. `provisioners`
    are the back ends that serve claims of a class, by its provisioner. `without_policy` is what a namespace may do
    that no policy selects, None: everything, until there is a policy. `observe`: see `Tenancy.observing`.
    """

    name: str
    at: Location
    backends: tuple[str, ...]
    tiers: Mapping[str, int] = field(default_factory=dict)
    whole: str | None = None
    part: str | None = None
    device: str | None = None
    unknown_value: Literal["warn", "refuse"] = "warn"
    system_namespaces: frozenset[str] = frozenset()
    provisioners: Mapping[str, str] = field(default_factory=dict)
    without_policy: Literal["allow", "deny"] | None = None
    observe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An extended resource that some rule knows, or a number it reads from `annotation KEY` or `label KEY`.

    `owners` are the enabled back ends in the cluster's order; `known` are all of them, enabled or not. `rule` is the
    line that knows it. `counts`: it is a number of devices in some mode, `only_counts` in all. `memory_unit`: bytes
    of one, if it is memory; `in_bytes`: it takes `8Gi`; `digits`: decimals that count.
    `alone`: an annotation or label that asks without any resource beside it, and `addresses` the annotations that
    may name the container it is for.
    """

    name: str
    owners: tuple[Backend, ...]
    known: tuple[Backend, ...]
    rule: str
    counts: bool
    only_counts: bool
    memory_unit: Fraction | None
    in_bytes: bool
    digits: int
    refuse_request_only: bool
    alone: bool = False
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of the cluster beside its rules; nothing, where nobody watches it.

    cards      by back end, the card that every node of it has; no entry where nodes differ or there are none
    present    the back ends that some node belongs to; None if no node is known at all
    objects    claims and their classes, as they are in the API: by the name of their kind, then by namespace and
               name. A kind that nobody watches is not there
    """

    cards: Mapping[str, Device] = field(default_factory=dict)
    present: frozenset[str] | None = None
    objects: Mapping[str, Mapping[tuple[str, str], Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Everything a review is judged by.

    `orders`: the enabled back ends by name, in the order in which a `whole`, `part`, `profile` or `claim` request
    tries them, and `ranks` the place of each there, which back ends that are as good as each other share.
    `devices` is by lower-case model, alias and product name. `spoken` are the annotations and labels in which an
    enabled back end is asked, by the name of their resource, and `marks` those that its modes depend on,
    by key or as `key=value`, and `marked` just the keys of them. `heard`, `all_marks` and `all_marked` are the same
    of every back end, enabled or not.
    """

    cluster: Cluster
    backends: Mapping[str, Backend]
    enabled: Sequence[Backend]
    orders: Mapping[str, Mapping[str, Backend]]
    ranks: Mapping[str, Mapping[str, int]]
    devices: Mapping[str, Device]
    profiles: frozenset[str]
    resources: Mapping[str, Resource]
    spoken: Mapping[str, Resource] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    heard: Mapping[str, Resource] = field(default_factory=dict)
    all_marks: frozenset[str] = frozenset()
    all_marked: frozenset[str] = frozenset()
    sources: Sequence[ClaimSource] = ()
    digest: str
    surroundings: Surroundings = field(default_factory=Surroundings)
    tenancy: Tenancy = field(default_factory=Tenancy)
