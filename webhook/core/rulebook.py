"""All loaded rules as frozen values, with the indexes that keep a review's cost independent of their number.

Nothing here is computed per review. `webhook.core.schema` makes these from documents; `webhook.core.amounts` and
`webhook.core.translate` interpret them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from webhook.core.document import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One value that a rule computes from a request; the verbs are documented in `rules/README.md`.

    rule        the line as messages name it, `hami-vgpu (hami-vgpu.yaml:21)`
    unit        how much of the neutral amount makes 1: bytes for memory, percent for cores and shares
    per_total   the value of one device times their number
    digits      decimals that are written; the number counts in the last of them
    absent      what a missing resource means: `whole`, `none`, a count, or None: it has to be there
    """

    what: str
    at: Location
    rule: str = ""
    unit: Fraction = Fraction(1)
    unit_name: str = ""
    round_up: bool = False
    step: int = 1
    minimum: int | None = None
    maximum: int | None = None
    fit: tuple[int, ...] = ()
    per_total: bool = False
    digits: int = 0
    absent: str | int | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    form: Literal["label", "name"] = "label"


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that a rule writes as it stands, or several for node affinity; strings may have holes (`{model}`)."""

    value: str | int | tuple[str, ...]
    at: Location
    enforce: bool = False
    rule: str = ""

    @property
    def number(self) -> int:
        """The value of a limit, where the form of rules lets nothing but whole numbers pass."""
        if not isinstance(self.value, int):
            raise TypeError(f"{self.at}: {self.value!r} is no number")
        return self.value


Output = Amount | Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The requests that a mode is for; every condition given has to hold."""

    devices: str | None = None
    count: tuple[int, int | None] = (1, None)
    has: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written beside limits: text by key, values of node labels by key."""

    annotations: Mapping[str, Output] = field(default_factory=dict)
    labels: Mapping[str, Output] = field(default_factory=dict)
    env: Mapping[str, Output] = field(default_factory=dict)
    node_affinity: Mapping[str, Output] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way in which a back end serves a request: the first whose `when` matches is taken.

    A mode whose resources are named after a profile stands for just that one, in `profile`. `outputs` are its own
    and those that the back end injects whatever the mode. `selects` is how it steers a pod to a card model: by
    `model` or `product` name, or not at all, None.
    """

    name: str
    profile: str | None = None
    when: When
    at: Location
    limits: Mapping[str, Output] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)
    selects: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What every pod that the back end serves gets once; a toleration comes with the rule line it stands on."""

    runtime_class: Constant | None = None
    scheduler: Constant | None = None
    tolerations: Sequence[tuple[Mapping[str, Any], str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request and what has to come of it; executed by `gpu-webhook check`.

    Exactly one of `refused` (a part of the message) and `expected` (by section: `limits`, `annotations`, ...).
    """

    name: str
    ask: Mapping[str, str]
    expected: Mapping[str, Any] | None
    refused: str | None
    at: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How a back end's nodes are recognised.

    labels     every one holds: one of the values, or any where none are given
    devices    the label that says how many cards a node has; None: its resources tell
    required   the back end serves only if the inventory has such a node; else nodes may come later
    """

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way a vendor exposes GPUs. `parametrised`: the cluster sets some of its parameters.

    `partitions`: shares are served by hardware partitions; the spelling of each profile that is not the catalogue's.
    """

    name: str
    at: Location
    description: str
    vendors: frozenset[str]
    sharing: frozenset[str]
    modes: Sequence[Mode]
    partitions: Mapping[str, str] | None = None
    inject: Injection
    owns: frozenset[str]
    request_only: Literal["repair", "refuse"] = "repair"
    nodes: Nodes = field(default_factory=Nodes)
    examples: Sequence[Example] = ()
    parametrised: bool = False

    @property
    def rule(self) -> str:
        """The back end as messages name it: `hami-vgpu (hami-vgpu.yaml:4)`."""
        return self.at.of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A hardware partition of a card: usable bytes, and how many of the card's slices it takes."""

    name: str
    memory: int
    memory_slices: int
    compute_slices: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card model. `names` are the driver's product names, `memory` is usable bytes, `tflops` dense FP16.

    `profiles` are the partitions it can be cut into, the smallest first, and `slices` what they are counted in.
    """

    model: str
    vendor: str
    names: tuple[str, ...]
    memory: int
    nominal: int
    tflops: Fraction | None
    at: Location
    memory_slices: int = 0
    compute_slices: int = 0
    profiles: Mapping[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one cluster has: its back ends in order of preference, the defaults, the exempt namespaces."""

    name: str
    at: Location
    backends: tuple[str, ...]
    whole: str | None = None
    part: str | None = None
    device: str | None = None
    unknown_value: Literal["warn", "refuse"] = "warn"
    system_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An extended resource that some rule knows.

    `owners` are the enabled back ends in the cluster's order; `known` are all of them, enabled or not. `rule` is the
    line that knows it. `counts`: it is a number of devices in some mode, `only_counts` in all. `memory_unit`: bytes
    of one, if it is memory; `in_bytes`: it takes `8Gi`.
    """

    name: str
    owners: tuple[Backend, ...]
    known: tuple[Backend, ...]
    rule: str
    counts: bool
    only_counts: bool
    memory_unit: Fraction | None
    in_bytes: bool
    refuse_request_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of the cluster beside its rules; nothing, where nobody watches it.

    cards      by back end, the card that every node of it has; no entry where nodes differ or there are none
    present    the back ends that some node belongs to; None if no node is known at all
    """

    cards: Mapping[str, Device] = field(default_factory=dict)
    present: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Everything a review is judged by.

    `orders`: the enabled back ends by name, in the order in which a `whole`, `part` or `profile` request tries them,
    and `ranks` the place of each there.
    `devices` is by lower-case model, alias and product name.
    """

    cluster: Cluster
    backends: Mapping[str, Backend]
    enabled: Sequence[Backend]
    orders: Mapping[str, Mapping[str, Backend]]
    ranks: Mapping[str, Mapping[str, int]]
    devices: Mapping[str, Device]
    profiles: frozenset[str]
    resources: Mapping[str, Resource]
    digest: str
    surroundings: Surroundings = field(default_factory=Surroundings)
