"""All loaded rules as frozen values, with the indexes that keep a review's cost independent of their number.

Nothing here is computed per review, and `webhook.core.rules.load` makes all of it from documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from webhook.core.quota.tally import Tally
from webhook.core.rules.backend import Backend
from webhook.core.rules.built_in_workloads import BUILT_IN
from webhook.core.rules.catalog import Card
from webhook.core.rules.claim_source import ClaimSourceSpec
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.protection import Protection
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.vocabulary import Slot, SlotKind
from webhook.core.rules.workload import Workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSource(ClaimSourceSpec):
    """A source of claims, and `words`: the rulebook of its `reader` alone, by which a claim is read."""

    words: Rulebook


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An extended resource that some rule knows, or a number it reads from `annotation KEY` or `label KEY`.

    `owners` are the enabled back ends in the cluster's order; `known` are all of them, enabled or not. `rule` is the
    line that knows it. `counts`: it is a number of devices in some mode, `only_counts` in all. `memory_unit`: bytes
    of one, if it is memory; `in_bytes`: it takes `8Gi`; `digits`: decimals that count. `shared`: on some nodes
    another enabled back end may own it; if every enabled owner says which nodes are its own, a disabled one, too.
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
    shared: bool
    alone: bool = False
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of the cluster beside its rules; empty where no watcher runs.

    cards      by back end, the card that every node of it has; no entry where nodes differ or there are none
    present    the back ends that some node belongs to; None if no node is known at all
    exists     what all nodes have together; what is not known of one of them has no key
    objects    claims and their classes, as they are in the API: by the name of their kind, then by namespace and
               name. A kind that is not watched has no entry
    """

    cards: Mapping[str, Card] = field(default_factory=dict)
    present: frozenset[str] | None = None
    exists: Tally = field(default_factory=dict)
    objects: Mapping[str, Mapping[tuple[str, str], Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Everything a review is judged by.

    `orders`: the enabled back ends by name, in the order in which a `whole`, `part`, `profile` or `claim` request
    tries them, and `ranks` the place of each there, which back ends that are as good as each other share.
    `devices` is by lower-case model, alias and product name. `slots` are the numbers in annotations and in labels by
    which an enabled back end is asked, by key. `annotations` are those that its modes depend on, by key: as `key` or
    as `key=value`. `all_slots` and `all_annotations` are the same of every back end, enabled or not. `per_container`
    are the annotations of `all_slots` that name a container in their keys. `uncounted` are globs of resources that
    are cards by names which no back end is asked in. `workloads` are Kubernetes' own and those of documents. `trial`:
    one back end is tried by itself, in no cluster that there is.
    """

    cluster: Cluster
    backends: Mapping[str, Backend]
    enabled: Sequence[Backend]
    orders: Mapping[str, Mapping[str, Backend]]
    ranks: Mapping[str, Mapping[str, int]]
    devices: Mapping[str, Card]
    profiles: frozenset[str]
    resources: Mapping[str, Resource]
    slots: Mapping[SlotKind, Mapping[str, Resource]]
    annotations: Mapping[str, frozenset[str]]
    all_slots: Mapping[SlotKind, Mapping[str, Resource]]
    all_annotations: Mapping[str, frozenset[str]]
    per_container: Sequence[Slot] = ()
    sources: Sequence[ClaimSource] = ()
    uncounted: Sequence[str] = ()
    protections: Sequence[Protection] = ()
    workloads: Workloads = field(default_factory=lambda: BUILT_IN)
    digest: str
    trial: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)
    tenancy: Tenancy = field(default_factory=Tenancy)
    cache: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was derived from it, for as long as it is in force; another rulebook made by `replace` begins anew."""

    def as_ruled(self, key: str) -> str:
        """The key of an annotation as rules have it, with `{container}` for the name of a container."""
        return next((slot.key for slot in self.per_container if slot.container(key) is not None), key)
