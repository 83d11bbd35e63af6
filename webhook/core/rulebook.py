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
    lenient     the system rounds up by itself: values in between are legal, and stand for what they become
    digits      decimals that are written; the number counts in the last of them
    absent      what a missing resource means: `whole`, `none`, a count, or None: it has to be there
    """

    what: str
    at: Location
    rule: str = ""
    unit: Fraction = Fraction(1)
    unit_name: str = ""
    round_up: bool = False
    lenient: bool = False
    step: int = 1
    minimum: int | None = None
    maximum: int | None = None
    fit: tuple[int, ...] = ()
    per_total: bool = False
    digits: int = 0
    absent: str | int | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    form: Literal["label", "name"] = "label"


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that a rule writes as it stands; strings may have holes (`{model}`).

    Several for node affinity: the label has one of them, or where there is none, it must not be there.
    """

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
    """The requests that a mode is for; every condition given has to hold.

    `marks` are annotations that the pod has, as `key=value`, and `unmarked` keys of those that it must not have.
    """

    devices: str | None = None
    count: tuple[int, int | None] = (1, None)
    has: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    unmarked: frozenset[str] = frozenset()
    sharing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written beside limits: text by key, values of node labels by key."""

    annotations: Mapping[str, Output] = field(default_factory=dict)
    labels: Mapping[str, Output] = field(default_factory=dict)
    env: Mapping[str, Output] = field(default_factory=dict)
    node_affinity: Mapping[str, Output] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """What has to be true of a pod beside its request, and is never injected, as that would lower security.

    requires    what the author has to write, by the words of `webhook.core.companions.REQUIRABLE`
    forbids     what the pod must not have, by those of `FORBIDDABLE`
    reserved    annotations that the back end's own scheduler writes, and nobody else may; `X*` is all that begin so
    containers  the most containers of a pod that it serves
    one_device  all of the pod's containers share one device, and together have to fit it

    `rule` is the line that says so.
    """

    requires: Mapping[str, str] = field(default_factory=dict)
    forbids: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    containers: int | None = None
    one_device: bool = False
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way in which a back end serves a request: the first whose `when` matches is taken.

    A mode whose resources are named after a profile stands for just that one, in `profile`; one whose resources are
    named after a size, for that of `size` bytes. `outputs` are its own and those that the back end injects whatever
    the mode. `amounts` is everything the request can be read from again: the limits, and under `annotation KEY` and
    `label KEY` the numbers there. `claims` are templates of resource claims. `marks` are the annotations, as
    `key=value`, without which resources are not meant for it. `selects` is how it steers a pod to a card model: by
    `model` or `product` name, or not at all, None. `node_numbers` are numbers among the labels of its nodes, `verbs`
    all that numbers are computed from, and `all_cores`: it gives all compute where none is asked.
    """

    name: str
    profile: str | None = None
    size: int | None = None
    when: When
    at: Location
    limits: Mapping[str, Output] = field(default_factory=dict)
    claims: Sequence[Constant] = ()
    amounts: Mapping[str, Output] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)
    marks: frozenset[str] = frozenset()
    companions: Companions | None = None
    selects: str | None = None
    node_numbers: Mapping[str, Amount] = field(default_factory=dict)
    verbs: frozenset[str] = frozenset()
    all_cores: bool = False


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
    `pod` is what else the pod has, in the form of a pod.
    """

    name: str
    ask: Mapping[str, str]
    expected: Mapping[str, Any] | None
    refused: str | None
    at: Location
    pod: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How a back end's nodes are recognised.

    labels     every one holds: one of the values, or any where none are given
    devices    the label, or the resource, that says how many cards a node has; None: its other resources tell
    replicas   how often a card is counted in a resource that counts cards
    required   the back end serves only if the inventory has such a node; else nodes may come later
    """

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: str | None = None
    replicas: int = 1
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Which hardware partitions a back end has: all of its cards', or those that match one of `only`.

    `spelling` is that of each profile which is not the catalogue's.
    """

    spelling: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way a vendor exposes GPUs. `parametrised`: the cluster sets some of its parameters.

    `models`: the only card models it serves, in lower case; none: all of its vendors'. `card` is the one they have
    in common. `partitions`: shares are served by hardware partitions; `profiles` are all that its cards can have.
    `unenforced` are dimensions that it only counts: nothing stops a container that takes more.
    """

    name: str
    at: Location
    description: str
    vendors: frozenset[str]
    models: frozenset[str] = frozenset()
    card: Device | None = None
    sharing: frozenset[str]
    modes: Sequence[Mode]
    partitions: Partitions | None = None
    profiles: frozenset[str] = frozenset()
    unenforced: tuple[str, ...] = ()
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
    are the back ends that serve claims of a class, by its provisioner.
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
