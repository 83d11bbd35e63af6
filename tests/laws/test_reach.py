"""What a pod counts is at least the largest device that any node gives on which it may run.

The nodes are made up from what vendors say of them, and matched as Kubernetes matches; no rule of ours is asked.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders, tables
from tests.cases.served import as_served
from tests.core.policy.tenants import held
from tests.laws import clusters, tried
from webhook.core.kube import fields
from webhook.core.mutate import mutate
from webhook.core.quota import tally
from webhook.core.rules import rulebook
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Rulebook

Labels = Mapping[str, str]
Object = dict[str, Any]
NAME = "node-1"
"""Of the one node that terms may name."""


@dataclass(frozen=True)
class Pool:
    """Nodes with these labels, where one of the resource is such a part of a device.

    Less than a device is given in the numbers of `parts` only, where there are some. Where `largest` says how many of
    the resource the largest device there is has, a container gets at most one device, and none if it asks for more.
    """

    labels: Labels
    each: Fraction = Fraction(1)
    parts: Sequence[int] = ()
    largest: int | None = None

    def gives(self, amount: int) -> Fraction:
        """What a container gets there."""
        devices = amount * self.each
        if self.parts and devices.denominator > 1 and amount not in self.parts:
            return Fraction(0)
        if self.largest is None:
            return devices
        return min(devices, Fraction(1)) if amount <= self.largest else Fraction(0)


POOLS: Mapping[str, Mapping[str, Sequence[Pool]]] = {
    resource: {
        backend: [Pool(**{**pool, "each": Fraction(pool.get("each", 1))}) for pool in pools]
        for backend, pools in by_backend.items()
    }
    for resource, by_backend in tables.table(__file__, "pools").items()
}
"""By resource and back end, what its vendor says of its nodes; those of nobody are strangers to every cluster.

A card has 80 GiB here, and none has more than 1 TB: the largest that is announced, NVIDIA's Rubin Ultra, has that.
"""

AMOUNTS: Mapping[str, Any] = tables.table(__file__, "amounts")
QUOTAS = {"huawei.com/scheduler.softShareDev.aicoreQuota": "8", "huawei.com/scheduler.softShareDev.hbmQuota": "4096"}
LIBRARY = "/opt/enpu/vcann-rt/lib/libvruntime.so"
MODELS = {"nvidia.com/gpu": ["A100-80GB", "T4"], "huawei.com/npu-core": ["Ascend910B3", "Ascend910B2"]}


@cache
def _rulebook(order: tuple[str, ...], resource: str) -> Rulebook:
    """The cluster with these back ends in this order; of the others it knows those with the same resource."""
    loaded = clusters.rulebook(clusters.ALL)
    known = {name: loaded.backends[name] for name in POOLS[resource] if name}
    cluster = Cluster(name="generated", at=loaded.cluster.at, backends=order, device=clusters.CARD)
    return rulebook.index(cluster, known, loaded.devices)


def _selection(resource: str, dice: random.Random) -> Object:
    """A node selection: a selector, terms of every operator, or a node's name."""
    pools = [pool.labels for each in POOLS[resource].values() for pool in each]
    values = {key: [pool[key] for pool in pools if key in pool] for pool in pools for key in pool} | {"zone": ["a"]}
    spec: Object = {}
    if dice.random() < 0.3:
        key = dice.choice(sorted(values))
        spec["nodeSelector"] = {key: dice.choice([*values[key], "other"])}
    if terms := [_a_term(values, dice) for _ in range(dice.choice((0, 1, 1, 2)))]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if dice.random() < 0.1:
        spec["nodeName"] = NAME
    return spec


def _a_term(values: Mapping[str, Sequence[str]], dice: random.Random) -> Object:
    term: Object = {"matchExpressions": [_an_expression(values, dice) for _ in range(dice.choice((0, 1, 1, 2)))]}
    if dice.random() < 0.3:
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [NAME]}]
    return term


def _an_expression(values: Mapping[str, Sequence[str]], dice: random.Random) -> Object:
    key = dice.choice(sorted(values))
    operator = dice.choice(["In", "In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    some = [dice.choice([*values[key], *values[key], "other"]) for _ in range(dice.choice((1, 1, 2)))]
    return {"key": key, "operator": operator, "values": ["1"] if operator in {"Gt", "Lt"} else some}


def _matches(spec: Object, labels: Labels) -> bool:
    """Whether Kubernetes runs a pod on the node called NAME, if it has these labels."""
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(one, labels.get(one["key"])) for one in term.get("matchExpressions") or ())
        for term in terms
    )


def _holds(expression: Object, there: str | None) -> bool:
    values = expression.get("values", [])
    match expression["operator"]:
        case "In":
            return there in values
        case "NotIn":
            return there not in values
        case "Exists":
            return there is not None
        case "DoesNotExist":
            return there is None
        case operator:
            if there is None or not there.isdigit():
                return False
            return int(there) > int(values[0]) if operator == "Gt" else int(there) < int(values[0])


WORDS: Sequence[Labels] = tables.table(__file__, "words")
SHORTHAND: Sequence[Labels] = ({"gpu": "0.1"}, {"gpu": "0.5"}, {"gpu": "1"}, {"gpu-profile": "3g.20gb"})


def _pod(resource: str, order: Sequence[str], dice: random.Random) -> Object:
    """A pod that asks in the resource's own words, or in shorthand, on nodes of its choice."""
    spec = _selection(resource, dice)
    named = {"first": order[0], "last": order[-1]}
    labels = {key: named.get(value, value) for key, value in dice.choice(WORDS).items()}
    mounts: Object = {}
    if resource == "huawei.com/Ascend910":
        labels |= {**QUOTAS, "gpu-model": "Ascend910B3"}
        spec["volumes"] = [{"name": "library", "hostPath": {"path": LIBRARY}}]
        mounts = {"volumeMounts": [{"name": "library", "mountPath": LIBRARY}]}
    elif dice.random() < 0.3:
        labels |= dice.choice(SHORTHAND)
    if resource in MODELS and dice.random() < 0.5:
        labels["gpu-model"] = dice.choice(MODELS[resource])
    native = labels.keys().isdisjoint({"gpu", "gpu-profile"})
    limits = {resource: str(dice.choice(AMOUNTS[resource]))} if native else None
    return builders.pod(builders.container(limits=limits, **mounts), labels=labels, **spec)


def _in_reach(pod: Object, resource: str, order: Sequence[str]) -> Iterator[Fraction]:
    """What each node gives on which the pod may run, of the pools of these back ends and of strangers.

    A container that has other resources beside runs on the nodes of one back end only.
    """
    [container] = pod["spec"]["containers"]
    limits = (container.get("resources") or {}).get("limits") or {}
    amount = int(limits[resource]) if limits.keys() == {resource} else 0
    for backend in (*order, ""):
        for pool in POOLS[resource].get(backend, ()):
            if _matches(pod["spec"], pool.labels):
                yield pool.gives(amount)


def _charged(pod: Object, rulebook: Rulebook) -> Fraction:
    return Fraction(held(as_served(pod), rulebook).tally.get(tally.DEVICES, 0))


def _as_stored(pod: Object, rulebook: Rulebook) -> Iterator[Object]:
    """The pod once translated, and as it is if something else takes its node affinity away again.

    A model that is named is believed: no other webhook is meant to take away the nodes that are selected by it.
    """
    decision = mutate(builders.creating(as_served(pod)), rulebook)
    if decision.allowed:
        stored = fields.applied(decision.patch, as_served(pod))
        yield stored
        if "gpu-model" not in pod["metadata"]["labels"]:
            yield {**stored, "spec": {key: value for key, value in stored["spec"].items() if key != "affinity"}}


@pytest.mark.large
@pytest.mark.parametrize("resource", POOLS)
def test_a_pod_counts_at_least_the_largest_device_in_reach(resource: str) -> None:
    owners = sorted(name for name in POOLS[resource] if name)
    met = 0

    @tried(300)
    @given(st.integers(0, 2**32))
    def holds(seed: int) -> None:
        nonlocal met
        dice = random.Random(seed)  # noqa: S311  not a secret
        order = dice.sample(owners, dice.randint(1, min(4, len(owners))))
        rulebook = _rulebook(tuple(order), resource)
        for stored in _as_stored(_pod(resource, order, dice), rulebook):
            largest = max(_in_reach(stored, resource, order), default=Fraction(0))
            met += largest > 0
            assert _charged(stored, rulebook) >= largest

    holds()
    assert met > 50, f"only {met} pods could run anywhere"
