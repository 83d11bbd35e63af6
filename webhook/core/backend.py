"""One back end as a frozen value: its modes, what they write, and what they need of a pod.

`webhook.core.schema` makes these from documents; `webhook.core.amounts` and `webhook.core.translate` interpret them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from webhook.core.device import Device
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
    `writers` are the users, as globs, that are parts of it and may change on a pod what only it reads.
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
    writers: tuple[str, ...] = ()
    inject: Injection
    owns: frozenset[str]
    request_only: Literal["repair", "refuse"] = "repair"
    nodes: Nodes = field(default_factory=Nodes)
    examples: Sequence[Example] = ()
    parametrised: bool = False

    def serves(self, card: Device) -> bool:
        """Whether a card is one of its own: of its models, or where it names none of its vendors."""
        if self.models:
            return card.model.lower() in self.models
        return not self.vendors or card.vendor in self.vendors

    @property
    def rule(self) -> str:
        """The back end as messages name it: `hami-vgpu (hami-vgpu.yaml:4)`."""
        return self.at.of(self.name)
