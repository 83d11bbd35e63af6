"""What else is in a pod: other labels, variables, tolerations, node selection, volumes, fields nobody here knows."""

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests import tables

Object = dict[str, Any]

KEYS = ("app", "team", "gpuType", "gpu.example/kind", "a.b/c~d")
VALUES = ("x", "", "train")
ANNOTATIONS: Mapping[str, str] = tables.table(__file__, "annotations")
ENV: Sequence[Object] = tables.table(__file__, "env")
PLAIN_RESOURCES: Sequence[Object] = tables.table(__file__, "plain resources")
TOLERATIONS: Sequence[Object] = tables.table(__file__, "tolerations")
TERMS: Sequence[Object] = tables.table(__file__, "terms")


def pods() -> st.SearchStrategy[Object]:
    """A pod of one to three containers that asks for nothing."""
    return SEEDS.map(pod)


SEEDS = st.integers(0, 2**32)
"""One choice for all of the surroundings, as hypothesis pays for each; 0 is a pod with nothing around it."""


def pod(seed: int) -> Object:
    """The pod that a seed stands for."""
    dice = random.Random(seed)  # noqa: S311  not a secret
    metadata: Object = {"name": "train"}
    spec: Object = {"containers": [{"name": "c0", "image": "registry.example/train"}]}
    if seed:
        if labels := {key: dice.choice(VALUES) for key in dice.sample(KEYS, dice.choice((0, 0, 1, 2)))}:
            metadata["labels"] = labels
        if annotations := dict(dice.sample(sorted(ANNOTATIONS.items()), dice.choice((0, 0, 1, 2)))):
            metadata["annotations"] = annotations
        for kind, count in (("initContainers", dice.choice((0, 1))), ("containers", dice.choice((1, 2)))):
            if count:
                spec[kind] = [_container(f"{kind[0]}{number}", kind, dice) for number in range(count)]
        chosen = dice.randrange(8)
        if chosen & 1:
            spec["tolerations"] = _some(TOLERATIONS, dice.randrange(4), dice)
        if chosen == 2:
            terms = _some(TERMS, dice.randint(1, 3), dice)
            terms[0] = terms[0] or copy.deepcopy(TERMS[0])  # an empty term matches no node
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            }
        if chosen == 4:
            spec["affinity"] = {"podAffinity": {}}
        if chosen == 6:
            spec["runtimeClassName"] = "mine"
        if chosen & 4:
            spec["schedulerName"] = "default-scheduler"
        if dice.random() < 0.5:
            spec["fieldOfTheFuture"] = {"gpu": "1", "list": [None, {"deep": 1.5}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(name: str, kind: str, dice: random.Random) -> Object:
    """A container that asks for nothing."""
    container: Object = {"name": name, "image": "registry.example/train"}
    if env := _some(ENV, dice.choice((0, 0, 1, 2, 4)), dice):
        container["env"] = env
    limits = dict(dice.choice(PLAIN_RESOURCES))
    if limits or dice.random() < 0.5:
        container["resources"] = {"limits": limits}
    if kind == "initContainers" and dice.random() < 0.5:
        container["restartPolicy"] = "Always"
    return container


def _some(among: Sequence[Object], number: int, dice: random.Random) -> list[Object]:
    """Copies, as a pod is always decoded: no two of its parts are one object."""
    return [copy.deepcopy(dice.choice(among)) for _ in range(number)]
